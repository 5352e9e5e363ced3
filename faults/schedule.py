"""Which faults come when: a function of the seed, so that a run can be had once more.

The run is cut into storms, each with a quiet end, in which the group comes to level; the quiet ends are a quarter of
the time. Every nemesis gets its firings spread over all storms; then what is left of the storms is filled by weight.
No clock: whoever runs it waits for the times, and finds out who leads.
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from faults.nemesis import LEADER, WHOLE_GROUP, Firing, NemesisSpec, TargetKind

FIRINGS_PER_HOUR_MIN: Final = 20
QUIET_SHARE: Final = 0.25
STORM_MS: Final = 60_000  # with its quiet end; a run that is no multiple has longer ones
TRIES: Final = 40  # draws of a place at random; then places are tried one after the other
GRID_MS: Final = 250
UNCOVERED_MS_MIN: Final = 1_000  # shorter pauses within a storm stay as they are


class ScheduleError(Exception):
    """These nemeses do not fit into that time. The text says which one, and what would help."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`firings` in the order of their begins. `storms`: (begin, end) of the times in which faults are on."""

    seed: int
    run_ms: int
    members: tuple[str, ...]
    storms: tuple[tuple[int, int], ...]
    firings: tuple[Firing, ...]

    def describe(self) -> str:
        """What a person needs who reads the log of a run, seed first."""
        counts = Counter(firing.spec.name for firing in self.firings)
        told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        head = (
            f"seed {self.seed}, {self.run_ms / 60_000:g} min, {len(self.firings)} faults, "
            f"{100 * quiet_share(self):.0f} % quiet: {told}"
        )
        return "\n".join([head, *(firing.describe() for firing in self.firings)])


def firings_wanted(run_ms: int) -> int:
    """How often each nemesis is to be shown to have happened."""
    return max(1, FIRINGS_PER_HOUR_MIN * run_ms // 3_600_000)


def make_schedule(
    specs: Sequence[NemesisSpec], members: Sequence[str], *, seed: int, minutes: float
) -> Schedule:
    """The same for the same arguments. Raises ScheduleError, ValueError."""
    names = {spec.name for spec in specs}
    if not specs or len(names) != len(specs) or minutes <= 0 or not members:
        raise ValueError("a schedule needs members, a length, and nemeses of different names")
    run_ms = round(minutes * 60_000)
    return _Scheduler(specs, tuple(members), seed, run_ms).make()


class _Scheduler:
    def __init__(
        self, specs: Sequence[NemesisSpec], members: tuple[str, ...], seed: int, run_ms: int
    ) -> None:
        self._specs = specs
        self._members = members
        self._seed = seed
        self._run_ms = run_ms
        self._dice = random.Random(seed)
        self._storms = tuple(self._draw_storms())
        self._placed: list[Firing] = []
        self._excluded = _excluded(specs)

    def make(self) -> Schedule:
        wanted = firings_wanted(self._run_ms)
        # What is hardest to place comes first: long, and not beside others.
        for spec in sorted(self._specs, key=_room_wanted, reverse=True):
            self._spread(spec, wanted)
        self._fill()
        firings = tuple(sorted(self._placed, key=lambda one: (one.begin_ms, one.spec.name, one.target)))
        return Schedule(self._seed, self._run_ms, self._members, self._storms, firings)

    def _draw_storms(self) -> Iterator[tuple[int, int]]:
        count = max(1, self._run_ms // STORM_MS)
        for number in range(count):
            begin, end = self._run_ms * number // count, self._run_ms * (number + 1) // count
            yield begin, end - round((end - begin) * QUIET_SHARE)

    def _spread(self, spec: NemesisSpec, wanted: int) -> None:
        """One in each of `wanted` equal parts of the storms' time; where one does not fit, at the nearest place."""
        stormy_ms = sum(end - begin for begin, end in self._storms)
        for number in range(wanted):
            low, high = stormy_ms * number // wanted, stormy_ms * (number + 1) // wanted
            drawn = (self._in_storms(self._dice.randrange(low, max(high, low + 1))) for _ in range(TRIES))
            middle = (low + high) // 2
            outward = (
                self._in_storms(middle + sign * step)
                for step in range(0, stormy_ms, GRID_MS)
                for sign in (1, -1)
                if 0 <= middle + sign * step < stormy_ms
            )
            if not self._place(spec, drawn, spec.duration_ms) and not self._place(
                spec, outward, (spec.duration_ms[0], spec.duration_ms[0])
            ):
                raise ScheduleError(
                    f"{spec.name}: {number} of {wanted} firings fit into {self._run_ms / 60_000:g} min beside the "
                    "others; shorter faults, shorter recoveries or fewer nemeses that impair members would leave room"
                )

    def _fill(self) -> None:
        """Until there is no pause in a storm that something fits into."""
        weights = [spec.weight for spec in self._specs]
        for begin, end in self._storms:
            at = begin
            while at < end:
                on_until = max(
                    (one.end_ms for one in self._placed if one.begin_ms <= at < one.end_ms), default=at
                )
                if on_until > at:
                    at = on_until
                    continue
                next_ms = min((one.begin_ms for one in self._placed if one.begin_ms > at), default=end)
                if min(next_ms, end) - at < UNCOVERED_MS_MIN:
                    at = min(next_ms, end)
                    continue
                drawn = self._dice.choices(range(len(self._specs)), weights, k=3 * len(self._specs))
                order = dict.fromkeys([*drawn, *range(len(self._specs))])
                if not any(
                    self._place(spec, [at], spec.duration_ms)
                    or self._place(spec, [at], (spec.duration_ms[0], spec.duration_ms[0]))
                    for spec in (self._specs[number] for number in order)
                ):
                    at += GRID_MS

    def _in_storms(self, stormy_ms: int) -> int:
        """A time of the run from one that counts the storms alone."""
        for begin, end in self._storms:
            if stormy_ms < end - begin:
                return begin + stormy_ms
            stormy_ms -= end - begin
        raise AssertionError("a time behind the last storm")

    def _place(self, spec: NemesisSpec, begins: Iterable[int], duration_ms: tuple[int, int]) -> bool:
        for begin in begins:
            storm_end = self._storms[bisect_left(self._storms, (begin + 1,)) - 1][1]
            lasts = self._dice.randint(*duration_ms)
            if begin + lasts > storm_end:
                continue
            kind = self._dice.choice(spec.targets)
            targets = _targets(kind, self._members)
            self._dice.shuffle(targets)
            for target in targets:
                firing = Firing(spec, kind, target, begin, begin + lasts)
                if self._fits(firing):
                    self._placed.append(firing)
                    return True
        return False

    def _fits(self, new: Firing) -> bool:
        beside = [one for one in self._placed if one.begin_ms < new.clear_ms and new.begin_ms < one.clear_ms]
        excluded = self._excluded[new.spec.name]
        if any(one.spec.name in excluded for one in beside):
            return False
        if not new.spec.impairs:
            return True
        # What is impaired changes where something begins; between begins it only becomes less.
        begins = {new.begin_ms, *(one.begin_ms for one in beside if one.begin_ms > new.begin_ms)}
        for at in begins:
            on = [one for one in (new, *beside) if one.begin_ms <= at < one.clear_ms]
            if any(one.spec.spares_majority for one in on) and not majority_is_whole(on, self._members):
                return False
        return True


def _targets(kind: TargetKind, members: Sequence[str]) -> list[str]:
    match kind:
        case TargetKind.MEMBER:
            return list(members)
        case TargetKind.LEADER:
            return [LEADER]
        case TargetKind.LINK:
            return [f"{a}->{b}" for a, b in itertools.permutations(members, 2)]
        case TargetKind.GROUP:
            return [WHOLE_GROUP]
        case TargetKind.OUTSIDE:
            return [""]


def _excluded(specs: Iterable[NemesisSpec]) -> dict[str, set[str]]:
    """Beside whom each is never on: excluding is mutual."""
    specs = tuple(specs)
    return {
        spec.name: {
            spec.name,
            *spec.excludes,
            *(other.name for other in specs if spec.name in other.excludes),
        }
        for spec in specs
    }


def pairs_possible(specs: Iterable[NemesisSpec], members: Sequence[str]) -> int:
    """How many pairs of them a schedule may have on at once."""
    specs = tuple(specs)
    excluded = _excluded(specs)

    def may_meet(one: NemesisSpec, other: NemesisSpec) -> bool:
        if other.name in excluded[one.name]:
            return False
        if not (one.impairs and other.impairs) or not (one.spares_majority or other.spares_majority):
            return True
        return any(
            majority_is_whole(pair, members)
            for pair in itertools.product(_anywhere(one, members), _anywhere(other, members))
        )

    return sum(itertools.starmap(may_meet, itertools.combinations(specs, 2)))


def _anywhere(spec: NemesisSpec, members: Sequence[str]) -> list[Firing]:
    return [Firing(spec, kind, target, 0, 1) for kind in spec.targets for target in _targets(kind, members)]


def majority_is_whole(firings: Iterable[Firing], members: Sequence[str]) -> bool:
    """Whether, of whoever these impair, a majority can be left out of it: whole, and with links both ways.

    A leader that is hit may be any member, so each such firing counts as one more.
    """
    hit, leaders, links = set[str](), 0, list[tuple[str, str]]()
    for firing in firings:
        if not firing.spec.impairs:
            continue
        match firing.kind:
            case TargetKind.MEMBER:
                hit.add(firing.target)
            case TargetKind.LEADER:
                leaders += 1
            case TargetKind.LINK:
                sender, _, receiver = firing.target.partition("->")
                links.append((sender, receiver))
            case TargetKind.GROUP:
                return False
            case TargetKind.OUTSIDE:
                pass
    spare = (len(members) - 1) // 2 - leaders - len(hit)
    if spare < 0:
        return False
    cut = [link for link in links if hit.isdisjoint(link)]
    others = [member for member in members if member not in hit]
    return any(
        all(sender in left_out or receiver in left_out for sender, receiver in cut)
        for left_out in itertools.combinations(others, min(spare, len(others)))
    )


def quiet_share(schedule: Schedule) -> float:
    """Of the run the part in which no fault is on."""
    quiet, at = 0, 0
    for firing in schedule.firings:
        quiet += max(0, firing.begin_ms - at)
        at = max(at, firing.end_ms)
    return (quiet + max(0, schedule.run_ms - at)) / schedule.run_ms


def overlapping_pairs(schedule: Schedule) -> Counter[tuple[str, str]]:
    """How often which two nemeses are on at once."""
    pairs: Counter[tuple[str, str]] = Counter()
    for number, one in enumerate(schedule.firings):
        for other in itertools.islice(schedule.firings, number + 1, None):
            if other.begin_ms >= one.end_ms:
                break
            first, second = sorted((one.spec.name, other.spec.name))
            pairs[first, second] += 1
    return pairs


def _room_wanted(spec: NemesisSpec) -> tuple[bool, int, str]:
    return spec.impairs, spec.duration_ms[1] + spec.recovery_ms, spec.name
