"""For how long nothing was acknowledged though somebody sent, and whether a fault excuses that.

A fault excuses an outage for its `outage_ms` after its begin and after its end, in which the group finds a leader and
members come to level; one that says None does so for as long as it lasts, too. So does a standstill of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checkers.checker import Violation
from faults.history import FaultBegun, FaultEnded, Record, Send, SendBegun, Standstill

GAP_MS_MIN: Final = 1_000
OUTAGE_AFTER_MS: Final = 10_000  # a group that had no majority serves again within this
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Gap:
    """From the first try after an acknowledgement to the next acknowledgement, or the last try. `faults`: those that
    were on meanwhile, in the order of their begins. `unexcused_ms`: the longest part of it that nothing excuses.
    `standstill_ms`: for how long the machine stood still meanwhile.
    """

    begin_ns: int
    end_ns: int
    failed: int
    unknown: int
    faults: tuple[FaultBegun, ...]
    unexcused_ms: float
    standstill_ms: float

    @property
    def duration_ms(self) -> float:
        return (self.end_ns - self.begin_ns) / _NS_PER_MS


@dataclass(slots=True)
class _Silence:
    """Since the last acknowledgement."""

    begin_ns: int | None = None  # the first try
    last_ns: int = 0
    failed: int = 0
    unknown: int = 0


@dataclass(slots=True)
class Availability:
    """`gaps` is complete after finish()."""

    name: str = "availability"
    gap_ms_min: int = GAP_MS_MIN
    gaps: list[Gap] = field(default_factory=list)
    _silence: _Silence = field(default_factory=_Silence)
    _found: list[_Silence] = field(default_factory=list)
    _faults: dict[int, FaultBegun] = field(default_factory=dict)
    _ends_ns: dict[int, int] = field(default_factory=dict)
    _standstills: list[tuple[int, int]] = field(default_factory=list)

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            SendBegun: self._begun,
            Send: self._ended,
            FaultBegun: self._fault,
            FaultEnded: self._healed,
            Standstill: self._stood_still,
        }

    def _begun(self, begun: SendBegun) -> Iterator[Violation]:
        self._try(begun.at_ns)
        return iter(())

    def _ended(self, send: Send) -> Iterator[Violation]:
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

    def _healed(self, ended: FaultEnded) -> Iterator[Violation]:
        self._ends_ns[ended.fault] = ended.at_ns
        return iter(())

    def _stood_still(self, standstill: Standstill) -> Iterator[Violation]:
        self._standstills.append((standstill.begun_ns, standstill.at_ns))
        return iter(())

    def finish(self) -> Iterator[Violation]:
        self._close()
        standstills = sorted(self._standstills)
        of_faults = (span for number, fault in self._faults.items() for span in self._excused(fault, number))
        excused = sorted([*of_faults, *standstills])
        for silence in self._found:
            assert silence.begin_ns is not None, "a silence that was found has a begin"
            gap = Gap(
                silence.begin_ns,
                silence.last_ns,
                silence.failed,
                silence.unknown,
                tuple(self._on(silence.begin_ns, silence.last_ns)),
                _longest_outside(silence.begin_ns, silence.last_ns, excused) / _NS_PER_MS,
                _covered(silence.begin_ns, silence.last_ns, standstills) / _NS_PER_MS,
            )
            self.gaps.append(gap)
            if gap.unexcused_ms >= self.gap_ms_min:
                on = ", ".join(f"{fault.nemesis} {fault.target}".strip() for fault in gap.faults)
                yield Violation(
                    self.name,
                    f"for {gap.duration_ms / 1000:.1f} s nothing was acknowledged ({gap.failed} failed, {gap.unknown} "
                    f"unknown), {gap.unexcused_ms / 1000:.1f} s of them without an excuse; "
                    + (f"faults on: {on}" if on else "no fault was on")
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

    def _excused(self, fault: FaultBegun, number: int) -> Iterator[tuple[int, int]]:
        end_ns = self._ends_ns.get(number)
        outage_ns = (fault.outage_ms or 0) * _NS_PER_MS
        if fault.outage_ms is None:
            # Its end is followed by an election or a catching up as well.
            after_ns = OUTAGE_AFTER_MS * _NS_PER_MS
            yield fault.at_ns, (1 << 62) if end_ns is None else end_ns + after_ns
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
