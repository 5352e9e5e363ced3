"""The body of a state entry, bytes <-> values: changes to the replicated tables, or a part of their full state.

msgpack, arrays only: [version, type, …]. A record that this version does not know raises StateRecordError: to leave it
out would let the tables part from those of the members that do know it.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgpack
import msgspec

from dledger.entry import Index, Term
from store.errors import StateRecordError
from store.state.state_tables import StateTables
from store.state.table import StateChange

_VERSION: Final = 1
_CHANGES: Final = 1
_FULL_STATE_PART: Final = 2
_IMPORTED_STATE_PART: Final = 3


_KINDS: Final = {change.kind: change for table in StateTables().all for change in table.changes}


class FullStatePart(msgspec.Struct, frozen=True):
    """One of the records that together hold the state as it was at `applied_index`, written by the leader of `term`."""

    term: Term
    applied_index: Index
    number: int  # 0 .. count - 1
    count: int
    data: bytes
    is_imported: bool = (
        False  # the state that Java's broker left in its files: no changes before it add up to it
    )


def pack_change(change: StateChange) -> bytes:
    """One change, for pack_changes()."""
    packed: bytes = msgpack.packb([change.kind, *change.pack()])
    return packed


def pack_changes(packed: Sequence[bytes]) -> bytes:
    """A record of changes that apply in this order."""
    head = msgpack.Packer()
    return b"".join(
        (
            head.pack_array_header(3),
            msgpack.packb(_VERSION),
            msgpack.packb(_CHANGES),
            head.pack_array_header(len(packed)),
            *packed,
        )
    )


def pack_full_state_part(part: FullStatePart) -> bytes:
    record_type = _IMPORTED_STATE_PART if part.is_imported else _FULL_STATE_PART
    values = [_VERSION, record_type, part.term, part.applied_index, part.number, part.count, part.data]
    packed: bytes = msgpack.packb(values)
    return packed


def unpack_record(body: bytes | memoryview) -> list[StateChange] | FullStatePart:
    """Raises StateRecordError."""
    try:
        version, record_type, *rest = msgpack.unpackb(body)
        if version != _VERSION:
            raise StateRecordError(f"a state record of version {version}; this program reads {_VERSION}")
        if record_type == _CHANGES:
            return [_unpack_change(values) for values in rest[0]]
        if record_type in (_FULL_STATE_PART, _IMPORTED_STATE_PART):
            term, applied_index, number, count, data = rest
            is_imported = record_type == _IMPORTED_STATE_PART
            return FullStatePart(term, applied_index, number, count, data, is_imported)
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise StateRecordError(f"a state record that cannot be read: {error!r}") from error
    raise StateRecordError(f"a state record of unknown type {record_type}")


def _unpack_change(packed: list[Any]) -> StateChange:
    kind, *values = packed
    change = _KINDS.get(kind)
    if change is None:
        raise StateRecordError(f"a state change of unknown kind: {packed!r:.80}")
    return change.unpack(values)
