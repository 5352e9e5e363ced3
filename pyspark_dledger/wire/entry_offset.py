"""How far a query over logs is: by group the last entry that it has, with the proof that it was this one. Pure.

A chain value names all entries up to its own. So an offset whose entry has another chain today belongs to another log.
As for messages, the first end of a query says where it began (message_offset.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark_dledger.wire.proof import OffsetError, Proof, proofs_from_json, proofs_to_json

_VERSION: Final = 1
_VIEW: Final = "entries"


class LogRange(NamedTuple):
    """Entries of a group's log, from `start` to below `end`."""

    broker: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class EntryOffset:
    """By broker name. `reached`: the last entry that is read; None before anything is known. `begin`: the entry before
    the batch that ends here, for groups that its start does not name."""

    reached: Mapping[str, Proof] | None = None
    begin: Mapping[str, Proof] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"v": _VERSION, "view": _VIEW}
        if self.reached is not None:
            value["reached"] = proofs_to_json(self.reached)
        if self.begin:
            value["begin"] = proofs_to_json(self.begin)
        return value


def offset_from_json(value: Any) -> EntryOffset:
    """Raises OffsetError."""
    if not isinstance(value, dict) or value.get("v") != _VERSION or value.get("view") != _VIEW:
        raise OffsetError(
            f"{value!r} is no offset of entries in version {_VERSION}: which query is this checkpoint of?"
        )
    reached = value.get("reached")
    return EntryOffset(
        None if reached is None else proofs_from_json(reached), proofs_from_json(value.get("begin", {}))
    )


def proved_ranges(start: EntryOffset, end: EntryOffset) -> list[tuple[LogRange, Proof, Proof]]:
    """What a batch reads, each with the entry before it and its last one. Raises OffsetError."""
    found = []
    for broker, last in sorted((end.reached or {}).items()):
        before = (start.reached or {}).get(broker, end.begin.get(broker))
        if before is None:
            raise OffsetError(
                f"log of {broker}: the checkpoint says that a batch ends at {last}, and not where it begins"
            )
        if before.index > last.index or before.group_uuid != last.group_uuid:
            raise OffsetError(f"log of {broker}: a batch cannot go from {before} to {last}")
        if before.index < last.index:
            found.append((LogRange(broker, before.index + 1, last.index + 1), before, last))
    return found
