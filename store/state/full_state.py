"""Full-state records: the state of all tables as of one applied index, written into the log in parts.

Whoever has lost the tables, or starts where the log's beginning is gone, takes the newest complete record and replays
from its index. This module follows the parts through the log and says when the leader should write a new record.
"""

from typing import Any

import msgspec

from dledger.entry import Index, Term
from store.state.state_record import FullStatePart


class FullState(msgspec.Struct, frozen=True):
    """A complete record."""

    applied_index: Index
    data: bytes


class FullStateLog:
    """Invariant: a function of the applied entries, so every member can go on where a leader stopped."""

    def __init__(self) -> None:
        self.started_pos = -1  # of the entry that began the newest record; -1: none yet
        self.size = 0  # of the newest record, bytes
        self.complete_index = Index(-1)  # applied index that the newest complete record speaks of
        self._current: FullStatePart | None = None  # the part last seen of the record in progress
        self._parts: list[bytes] = []

    @property
    def in_progress(self) -> bool:
        return self._current is not None

    def is_due(self, end_pos: int, data_file_size: int) -> bool:
        """Whether a leader whose log ends at `end_pos` should begin a record now."""
        if self.in_progress or end_pos // data_file_size <= max(self.started_pos, 0) // data_file_size:
            return False
        # So that full states stay below a fifth of the log, however large the state is.
        return end_pos - max(self.started_pos, 0) >= 4 * self.size

    def add(self, part: FullStatePart, pos: int) -> FullState | None:
        """Takes the part that was applied from the entry at `pos`. Returns the record if that completes it."""
        if part.number == 0:
            self.started_pos = pos
            self.size = 0
            self._parts = []
        elif self._current is None or not _follows(part, self._current):
            return None
        self._current = part
        self._parts.append(part.data)
        self.size += len(part.data)
        if part.number + 1 < part.count:
            return None
        record = FullState(part.applied_index, b"".join(self._parts))
        self.complete_index = part.applied_index
        self.void()
        return record

    def void(self) -> None:
        """The term has changed: the record in progress will not be completed."""
        self._current = None
        self._parts = []

    def pack(self) -> list[Any]:
        """For a checkpoint."""
        current = self._current
        head = (
            [current.term, current.applied_index, current.number, current.count]
            if current is not None
            else []
        )
        return [self.started_pos, self.size, self.complete_index, head, self._parts]

    def unpack(self, values: list[Any]) -> None:
        self.started_pos, self.size, self.complete_index, head, parts = values
        self._parts = list(parts)
        self._current = None
        if head:
            term, applied_index, number, count = head
            self._current = FullStatePart(term, applied_index, number, count, b"")


def split_full_state(
    data: bytes, term: Term, applied_index: Index, part_size_max: int, *, is_imported: bool = False
) -> list[FullStatePart]:
    """The parts of a record, to be appended in this order."""
    starts = range(0, len(data), part_size_max)
    return [
        FullStatePart(
            term, applied_index, number, len(starts), data[start : start + part_size_max], is_imported
        )
        for number, start in enumerate(starts)
    ]


def _follows(part: FullStatePart, previous: FullStatePart) -> bool:
    return (part.term, part.applied_index, part.count, part.number) == (
        previous.term,
        previous.applied_index,
        previous.count,
        previous.number + 1,
    )
