"""Faults and findings that belong together, as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from verify.findings import Finding, Kind
from verify.log.entry_faults import Fault

# Of these several may lie side by side with nothing between them that says an index.
_JOINED: Final = (Kind.DAMAGED_HEADER, Kind.MISSING_FILE)
# Their indexes are not those that are missing here.
_APART: Final = (Kind.BAD_BLANK, Kind.WRONG_FILE_BASE, Kind.STALE_BYTES)


def with_indexes(faults: Iterable[Fault], first: int, last: int) -> Iterator[Fault]:
    """Faults between two sound entries, with the indexes that follow from these: `first` .. `last` are missing.

    -1: not known. Two neighbours of which neither says where it meets the other are one.
    """
    if 0 <= last < first:
        first = last = -1  # no entry is missing
    merged: list[Fault] = []
    expected = first
    for fault in faults:
        if fault.kind in _APART:
            merged.append(fault)
            expected = expected if fault.kind is Kind.BAD_BLANK else -1
            continue
        if fault.first_index < 0 and expected >= 0 and (last < 0 or expected <= last):
            fault = replace(fault, first_index=expected)
        previous = merged[-1] if merged else None
        if (
            previous is not None
            and previous.kind is fault.kind
            and fault.kind in _JOINED
            and previous.last_index < 0
            and fault.first_index < 0
        ):
            merged[-1] = previous = replace(previous, end_pos=fault.end_pos, last_index=fault.last_index)
        else:
            merged.append(fault)
        expected = merged[-1].last_index + 1 if merged[-1].last_index >= 0 else -1
    following = last
    filled: list[Fault] = []
    for fault in reversed(merged):
        if fault.kind not in _APART:
            if fault.last_index < 0 and following >= max(fault.first_index, 0):
                fault = replace(fault, last_index=following)
            following = fault.first_index - 1 if fault.first_index >= 0 else -1
        filled.append(fault)
    yield from reversed(filled)


def grouped(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings of one kind that follow each other are one, with the sentence of the first."""
    kept: Finding | None = None
    for finding in findings:
        if (
            kept is not None
            and finding.kind is kept.kind
            and finding.first_index is not None
            and kept.last_index is not None
            and finding.last_index is not None
            and finding.file == kept.file
            and finding.first_index == kept.last_index + 1
        ):
            kept = replace(kept, last_index=finding.last_index, count=kept.count + finding.count)
            continue
        if kept is not None:
            yield kept
        kept = finding
    if kept is not None:
        yield kept
