"""Which administrative requests this group has taken: who asked, from where, for what. Nothing of it is exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion

ROWS_MAX: Final = 2048  # all of them are in each full state


class NoteRequest(StateChange, frozen=True):
    """Applied before the request is carried out, so there is no change without its note."""

    kind: ClassVar[int] = 35
    username: str  # "": nobody was asked who they are
    source_ip: str
    code: int
    what: str  # the fields of the request, without secrets


class AuditRow(msgspec.Struct, frozen=True):
    at_ms: int  # store time of the record
    note: NoteRequest


class AuditTable(Table):
    """Where it is full, the oldest note of the user that has the most goes: a flood drives out its own notes."""

    name = "audit"
    changes = (NoteRequest,)

    def __init__(self) -> None:
        super().__init__()
        self.audited: list[AuditRow] = []  # the oldest first

    def rows(self) -> dict[int, AuditRow]:
        """By number: the newest has the count of all that were ever noted, and those in front of it count down."""
        return dict(enumerate(self.audited, self.data_version.counter - len(self.audited) + 1))

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            assert isinstance(change, NoteRequest), "it takes no others"
            self.audited.append(AuditRow(timestamp, change))
            if len(self.audited) > ROWS_MAX:
                self._forget_one()
            self.data_version = self.data_version.next(timestamp)

    def _forget_one(self) -> None:
        """Of users that have equally many, the one that has the oldest note loses it."""
        counts = Counter(row.note.username for row in self.audited)
        most = max(counts.values())
        places = (place for place, row in enumerate(self.audited) if counts[row.note.username] == most)
        del self.audited[next(places)]

    def pack(self) -> list[Any]:
        return [self.data_version.pack(), [[row.at_ms, *row.note.pack()] for row in self.audited]]

    def unpack(self, values: list[Any]) -> None:
        version, rows = values
        self.data_version = DataVersion(*version)
        self.audited = [AuditRow(at_ms, NoteRequest(*note)) for at_ms, *note in rows]
