"""For how long nothing was acknowledged though somebody sent, and whether a fault excuses that.

A fault that is shown to have happened excuses an outage for its `outage_ms` after its begin and after its end, in
which the group finds a leader and members come to level; one that says None does so for as long as it lasts, too. One
that is felt by clients of the leader alone does so while its target leads. A standstill of the machine excuses as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import Violation
from faults.history import (
    FaultBegun,
    FaultEnded,
    FaultVerified,
    Healed,
    LeaderSeen,
    Phase,
    Record,
    Send,
    SendBegun,
    Standstill,
)
from faults.reigns import reigns_of

GAP_MS_MIN: Final = 1_000
OUTAGE_AFTER_MS: Final = 10_000  # a group that had no majority serves again within this
LED_MARGIN_MS: Final = (
    3_000  # of a reign's begin and end, which are seen a little late, and by clients later still
)
_NS_PER_MS: Final = 1_000_000
_FOR_EVER_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Gap:
    """From the first try after an acknowledgement to the next acknowledgement, or the last try. `faults`: those that
    were on meanwhile, in the order of their begins. `aftermath`: those that were over, and excuse a part of it still.
    `unexcused_ms`: the longest part of it that nothing excuses. `standstill_ms`: for how long the machine stood still
    meanwhile.
    """

    begin_ns: int
    end_ns: int
    failed: int
    unknown: int
    faults: tuple[FaultBegun, ...]
    aftermath: tuple[FaultBegun, ...]
    unexcused_ms: float
    standstill_ms: float

    @property
    def duration_ms(self) -> float:
        return (self.end_ns - self.begin_ns) / _NS_PER_MS

    def told_faults(self) -> str:
        """For a person; "" where there are none."""
        on, over = (
            ", ".join(f"{fault.nemesis} {fault.target}".strip() for fault in faults)
            for faults in (self.faults, self.aftermath)
        )
        return "; ".join([*([on] if on else ()), *([f"just over: {over}"] if over else ())])


@dataclass(slots=True)
class _Silence:
    """Since the last acknowledgement."""

    begin_ns: int | None = None  # the first try
    last_ns: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass(slots=True)
class Availability:
    """`gaps` and `excused_share` are there after finish(). The latter is of the time from the first try to the last."""

    name: str = "availability"
    gap_ms_min: int = GAP_MS_MIN
    gaps: list[Gap] = field(default_factory=list)
    excused_share: float = 0.0
    _first_ns: int | None = None  # of all tries
    _last_ns: int = 0
    _under_way: int = 0
    _silence: _Silence = field(default_factory=_Silence)
    _found: list[_Silence] = field(default_factory=list)
    _faults: dict[int, FaultBegun] = field(default_factory=dict)
    _shown: set[int] = field(default_factory=set)
    _ends_ns: dict[int, int] = field(default_factory=dict)
    _leaders: dict[tuple[str, int], LeaderSeen] = field(default_factory=dict)  # the first of each term
    _healed_ns: int | None = None  # no fault lasts longer
    _standstills: list[tuple[int, int]] = field(default_factory=list)

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            SendBegun: self._begun,
            Send: self._ended,
            FaultBegun: self._fault,
            FaultVerified: self._verified,
            FaultEnded: self._fault_ended,
            LeaderSeen: self._led,
            Phase: self._goes_on,
            Healed: self._healed,
            Standstill: self._stood_still,
        }

    def _begun(self, begun: SendBegun) -> Iterator[Violation]:
        self._under_way += 1
        self._try(begun.at_ns)
        return iter(())

    def _ended(self, send: Send) -> Iterator[Violation]:
        self._under_way -= 1
        self._try(send.at_ns)
        if send.outcome == "ok":
            self._close()
        else:
            self._silence.failed += send.outcome == "fail"
            self._silence.unknown += send.outcome == "unknown"
        return iter(())

    def _try(self, at_ns: int) -> None:
        if self._silence.begin_ns is None:
            self._silence.begin_ns = at_ns
        self._silence.last_ns = at_ns
        self._first_ns = at_ns if self._first_ns is None else self._first_ns
        self._last_ns = at_ns

    def _close(self) -> None:
        silence = self._silence
        if (
            silence.begin_ns is not None
            and silence.last_ns - silence.begin_ns >= self.gap_ms_min * _NS_PER_MS
        ):
            self._found.append(silence)
        self._silence = _Silence()

    def _fault(self, fault: FaultBegun) -> Iterator[Violation]:
        self._faults[fault.fault] = fault
        return iter(())

    def _verified(self, verified: FaultVerified) -> Iterator[Violation]:
        self._shown.add(verified.fault)
        return iter(())

    def _fault_ended(self, ended: FaultEnded) -> Iterator[Violation]:
        self._ends_ns[ended.fault] = ended.at_ns
        return iter(())

    def _led(self, seen: LeaderSeen) -> Iterator[Violation]:
        self._leaders.setdefault((seen.broker, seen.term), seen)
        return iter(())

    def _goes_on(self, phase: Phase) -> Iterator[Violation]:
        if phase.name == "calm":
            self._healed_ns = phase.at_ns
        elif phase.name == "drain" and self._under_way > 0:
            # A sender that waits for an answer tries still.
            self._try(phase.at_ns)
        return iter(())

    def _healed(self, healed: Healed) -> Iterator[Violation]:
        self._healed_ns = healed.at_ns if self._healed_ns is None else self._healed_ns
        return iter(())

    def _stood_still(self, standstill: Standstill) -> Iterator[Violation]:
        self._standstills.append((standstill.begun_ns, standstill.at_ns))
        return iter(())

    def finish(self) -> Iterator[Violation]:
        self._close()
        standstills = sorted(self._standstills)
        led = self._led_by()
        of_faults = [
            (*span, number)
            for number in self._shown & self._faults.keys()
            for span in self._excused(number, led)
        ]
        excused = sorted([*((begin_ns, end_ns) for begin_ns, end_ns, _ in of_faults), *standstills])
        if self._first_ns is not None and self._last_ns > self._first_ns:
            covered = _covered(self._first_ns, self._last_ns, excused)
            self.excused_share = covered / (self._last_ns - self._first_ns)
        for silence in self._found:
            assert silence.begin_ns is not None, "a silence that was found has a begin"
            on = tuple(self._on(silence.begin_ns, silence.last_ns))
            excusing = {
                number
                for begin_ns, end_ns, number in of_faults
                if begin_ns < silence.last_ns and end_ns > silence.begin_ns
            }
            gap = Gap(
                silence.begin_ns,
                silence.last_ns,
                silence.failed,
                silence.unknown,
                on,
                tuple(
                    fault for number, fault in self._faults.items() if number in excusing and fault not in on
                ),
                _longest_outside(silence.begin_ns, silence.last_ns, excused) / _NS_PER_MS,
                _covered(silence.begin_ns, silence.last_ns, standstills) / _NS_PER_MS,
            )
            self.gaps.append(gap)
            if gap.unexcused_ms >= self.gap_ms_min:
                yield Violation(
                    self.name,
                    f"for {gap.duration_ms / 1000:.1f} s nothing was acknowledged ({gap.failed} failed, {gap.unknown} "
                    f"unknown), {gap.unexcused_ms / 1000:.1f} s of them without an excuse; "
                    + ("faults on: " if on else "no fault was on; " if gap.aftermath else "no fault was on")
                    + gap.told_faults()
                    + (
                        f"; the machine stood still for {gap.standstill_ms / 1000:.1f} s"
                        * (gap.standstill_ms > 0)
                    ),
                    at_ns=gap.begin_ns,
                    records=gap.faults,
                )

    def _on(self, begin_ns: int, end_ns: int) -> Iterator[FaultBegun]:
        for number, fault in self._faults.items():
            if fault.at_ns <= end_ns and self._ends_ns.get(number, end_ns) >= begin_ns:
                yield fault

    def _led_by(self) -> dict[str, list[tuple[int, int]]]:
        """When a member led, or nearly."""
        margin_ns = LED_MARGIN_MS * _NS_PER_MS
        led: dict[str, list[tuple[int, int]]] = {}
        for of_group in reigns_of(self._leaders, _FOR_EVER_NS).values():
            for reign in of_group:
                span = reign.begin_ns - margin_ns, reign.end_ns + margin_ns
                led.setdefault(reign.leader, []).append(span)
        return led

    def _excused(self, number: int, led: dict[str, list[tuple[int, int]]]) -> Iterator[tuple[int, int]]:
        fault = self._faults[number]
        spans = self._may_be_out(number, fault)
        if not fault.while_leading:
            yield from spans
            return
        for (begin_ns, end_ns), (led_ns, deposed_ns) in itertools.product(spans, led.get(fault.target, ())):
            if begin_ns < deposed_ns and led_ns < end_ns:
                yield max(begin_ns, led_ns), min(end_ns, deposed_ns)

    def _may_be_out(self, number: int, fault: FaultBegun) -> Iterator[tuple[int, int]]:
        end_ns = self._ends_ns.get(number, self._healed_ns)
        outage_ns = (fault.outage_ms or 0) * _NS_PER_MS
        if fault.outage_ms is None:
            # Its end is followed by an election or a catching up as well.
            after_ns = OUTAGE_AFTER_MS * _NS_PER_MS
            yield fault.at_ns, _FOR_EVER_NS if end_ns is None else end_ns + after_ns
            return
        yield fault.at_ns, fault.at_ns + outage_ns
        if end_ns is not None:
            yield end_ns, end_ns + outage_ns


def _covered(begin_ns: int, end_ns: int, spans: list[tuple[int, int]]) -> int:
    """How much of [begin, end] the spans cover; they are sorted."""
    covered, at = 0, begin_ns
    for first, last in spans:
        first, last = max(first, at), min(last, end_ns)
        covered += max(0, last - first)
        at = max(at, last)
    return covered


def _longest_outside(begin_ns: int, end_ns: int, spans: list[tuple[int, int]]) -> int:
    """Of [begin, end] the longest part that no span covers; `spans` are sorted."""
    longest, at = 0, begin_ns
    for first, last in spans:
        if first >= end_ns:
            break
        longest = max(longest, first - at)
        at = max(at, last)
    return max(longest, end_ns - at, 0)
