"""Faults of a schedule, begun and ended at their times, each in a thread of its own.

Each is noted before it begins and after it has ended, and in between, once there is something to show that it
happened. What goes wrong with one is told and keeps none from the others. One that finds nothing to act on, as another
has it, is no trouble: it stays unverified, and is made up for behind the schedule.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from nemeses.nemesis import Group, Nemesis, NemesisError
from workload.noting import Notes

from faults.history import FaultBegun, FaultEnded, FaultVerified
from faults.nemesis import LEADER, Firing
from faults.schedule import Schedule, firings_wanted

LOOK_S = 0.1
AGAIN_S = 1.0
END_WITHIN_S = 30.0  # longer than any fault that others wait for
LEADER_WITHIN_S = 5.0
MAKE_UP_TRIES = 3  # for each time that is missing
MAKE_UP_SHARE_MAX = 0.5  # of the schedule's time
EVIDENCE_WITHIN_S = 5.0  # of what is over: a process may have to come up for it


class Firings:
    """One run of a schedule. `tell` is called with lines for a person, from several threads."""

    def __init__(
        self,
        schedule: Schedule,
        nemeses: Mapping[str, Nemesis],
        group: Group,
        notes: Notes,
        tell: Callable[[str], None],
        trouble: Callable[[str], None],
    ) -> None:
        """`nemeses`: by name, all that the schedule speaks of. `trouble`: as `tell`, with what spoils the run."""
        self._schedule = schedule
        self._nemeses = nemeses
        self._group = group
        self._notes = notes
        self._tell = tell
        self._trouble = trouble
        self._ending = threading.Event()
        self._left = threading.Event()
        self._begun_s = 0.0
        self._clear_s: dict[
            int, float
        ] = {}  # by firing: when the group has got over it, of those that have ended
        self._shown: list[str] = []  # the nemesis of each firing that was shown to have happened

    def run(self) -> None:
        """Returns when the time of the schedule is over and all faults have ended, or soon after stop()."""
        self._begun_s = time.monotonic()
        try:
            self._fire_all()
        finally:
            self._ending.set()
            self._left.set()

    def _fire_all(self) -> None:
        begun: list[tuple[int, Firing, threading.Thread]] = []
        for number, firing in enumerate(self._schedule.firings):
            self._ending.wait(max(0.0, self._until(firing.begin_ms)))
            self._wait_for({at: thread for at, other, thread in begun if other.clear_ms <= firing.begin_ms})
            if self._ending.is_set():
                break
            begun.append((number, firing, threading.Thread(target=self._try, args=(number, firing))))
            begun[-1][2].start()
        self._ending.wait(max(0.0, self._until(self._schedule.run_ms)))
        for _, _, thread in begun:
            thread.join()
        self._make_up()

    def _make_up(self) -> None:
        """What was not shown to happen as often as is wanted is fired again, one after the other behind the schedule: a
        fault that met a member which was down, say, did nothing.
        """
        run_ms = self._schedule.run_ms
        wanted, numbers = firings_wanted(run_ms), itertools.count(len(self._schedule.firings))
        of_nemesis: dict[str, list[Firing]] = {}
        for firing in self._schedule.firings:
            of_nemesis.setdefault(firing.spec.name, []).append(firing)
        clear_ms = self._run_ms() + max(
            (specs[0].spec.recovery_ms for specs in of_nemesis.values()), default=0
        )
        for name, firings in of_nemesis.items():
            tries = MAKE_UP_TRIES * max(0, wanted - self._shown.count(name))
            for firing in itertools.islice(itertools.cycle(firings), tries):
                # As in the schedule, the group has got over the fault before.
                self._ending.wait(max(0.0, self._until(clear_ms)))
                begin_ms = self._run_ms()
                if begin_ms >= run_ms * (1 + MAKE_UP_SHARE_MAX):
                    return
                if self._ending.is_set() or self._shown.count(name) >= wanted:
                    break
                lasts_ms = firing.end_ms - firing.begin_ms
                self._try(next(numbers), replace(firing, begin_ms=begin_ms, end_ms=begin_ms + lasts_ms))
                clear_ms = self._run_ms() + firing.spec.recovery_ms

    def stop(self) -> None:
        """Ends the faults that are on, and begins no more."""
        self._ending.set()

    def _wait_for(self, overdue: Mapping[int, threading.Thread]) -> None:
        """The time of the schedule stands still until these have ended and the group has got over them: where a process
        takes half a minute to come up, what was drawn to be apart would be on at once.
        """
        waits_since = time.monotonic()
        for thread in overdue.values():
            thread.join()
        clear_s = max((self._clear_s.get(number, 0.0) for number in overdue), default=0.0)
        self._ending.wait(max(0.0, clear_s - time.monotonic()))
        self._begun_s += time.monotonic() - waits_since

    def _run_ms(self) -> int:
        """Since the run began."""
        return -round(self._until(0) * 1000)

    def _until(self, run_ms: float) -> float:
        """Seconds."""
        return self._begun_s + run_ms / 1000 - time.monotonic()

    def _try(self, number: int, firing: Firing) -> None:
        try:
            self._fire(number, firing)
        except Exception as error:  # noqa: BLE001, told: a thread has nobody else to tell
            self._trouble(f"{firing.describe()}: {type(error).__name__}: {error}")

    def _fire(self, number: int, firing: Firing) -> None:
        nemesis = self._nemeses[firing.spec.name]
        target = self._target(firing)
        self._notes.note(
            FaultBegun,
            fault=number,
            nemesis=firing.spec.name,
            target=target,
            outage_ms=firing.spec.outage_ms,
            while_leading=firing.spec.while_leading,
        )
        evidence, troubles = None, []
        try:
            nemesis.begin(target)
            evidence = self._look(number, nemesis, self._until(firing.end_ms))
        except NemesisError as error:
            troubles.append(str(error))
        except Exception as error:  # noqa: BLE001, told, and no reason to leave it on
            troubles.append(f"{type(error).__name__}: {error}")
            self._trouble(f"{firing.describe()}: {troubles[-1]}")
        if (trouble := self._end(nemesis)) is not None:
            troubles.append(f"at its end {trouble}")
            self._trouble(f"{firing.describe()}: {troubles[-1]}")
        self._notes.note(FaultEnded, fault=number)
        self._clear_s[number] = time.monotonic() + firing.spec.recovery_ms / 1000
        try:
            evidence = self._look_at_what_is_over(number, nemesis, evidence)
        except Exception as error:  # noqa: BLE001, told: there is no evidence then
            troubles.append(f"looking for what shows it {type(error).__name__}: {error}")
        if evidence is not None:
            self._shown.append(firing.spec.name)
        told = [evidence or "NOTHING SHOWS THAT IT HAPPENED", *troubles]
        of_whom = "" if target == firing.target else f" ({target})"
        self._tell(f"{firing.describe()}{of_whom}: {'; '.join(told)}")

    def _end(self, nemesis: Nemesis) -> str | None:
        """Tried again for a while: a member that is to start may need what another fault still keeps from it, as room
        on its disk. What went wrong at last; None if nothing did.
        """
        until = time.monotonic() + END_WITHIN_S
        while True:
            try:
                nemesis.end()
                return None
            except Exception as error:  # noqa: BLE001, told, and healing tries again
                if time.monotonic() >= until or self._left.is_set():
                    return f"{type(error).__name__}: {error}"
            self._left.wait(AGAIN_S)

    def _target(self, firing: Firing) -> str:
        """Of LEADER the member that leads now. While none does, any that runs is as good."""
        if firing.target != LEADER:
            return firing.target
        until = time.monotonic() + LEADER_WITHIN_S
        while (leader := self._group.leader()) is None and time.monotonic() < until:
            if self._ending.wait(LOOK_S):
                break
        alive = [member for member in self._group.members if self._group.pid(member) is not None]
        return leader or (alive or self._group.members)[0]

    def _look(self, number: int, nemesis: Nemesis, seconds: float) -> str | None:
        """While it is on, and once at least: the evidence, if any."""
        until, evidence = time.monotonic() + seconds, None
        while True:
            evidence = evidence or self._verified(number, nemesis.evidence())
            left_s = until - time.monotonic()
            if left_s <= 0 or self._ending.wait(min(LOOK_S, left_s) if evidence is None else left_s):
                return evidence

    def _look_at_what_is_over(self, number: int, nemesis: Nemesis, before: str | None) -> str | None:
        until = time.monotonic() + EVIDENCE_WITHIN_S
        while True:
            evidence = nemesis.evidence()
            if evidence is not None and evidence != before:
                return self._verified(number, evidence)
            if before is not None or time.monotonic() >= until:
                return before
            self._left.wait(LOOK_S)

    def _verified(self, number: int, evidence: str | None) -> str | None:
        if evidence is not None:
            self._notes.note(FaultVerified, fault=number, evidence=evidence)
        return evidence
