"""The body of a state entry, bytes <-> values: changes to the replicated tables, or a part of their full state.

msgpack, arrays only: [version, type, …]. A record that this version does not know raises StateRecordError: to leave it
out would let the tables part from those of the members that do know it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack

from dledger.entry import Index, Term
from store.errors import StateRecordError
from store.state.table_configs import SubscriptionGroupConfig, TopicConfig

_VERSION: Final = 1
_CHANGES: Final = 1
_FULL_STATE_PART: Final = 2
_IMPORTED_STATE_PART: Final = 3


class _Kind(IntEnum):
    PUT_TOPIC_CONFIG = 1
    DELETE_TOPIC = 2
    PUT_SUBSCRIPTION_GROUP = 3
    DELETE_SUBSCRIPTION_GROUP = 4
    COMMIT_OFFSET = 5
    DELIVERY = 6
    RESET_OFFSET = 16
    END_RESET = 17
    PUT_FORBIDDEN = 18


@dataclass(frozen=True, slots=True)
class PutTopicConfig:
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """With its consumer offsets. Made again, it begins empty, and its queues go on where they were: offsets never
    fall, so one that a consumer has kept from before points at no other message.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class PutSubscriptionGroup:
    config: SubscriptionGroupConfig


@dataclass(frozen=True, slots=True)
class DeleteSubscriptionGroup:
    group: str
    clean_offset: bool = False  # whether its consumer offsets go too


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """`offset` is the next one to consume. It may be smaller than the one before: a reset is a commit too."""

    group: str
    topic: str
    queue_id: int
    offset: int


# Level, offset in its queue of the first message, how many of them. None of them: the level goes on at that offset.
DeliveryRun = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The entries from `first_index` on, right behind this record, are delayed messages that are delivered: those of
    the first run, then those of the next.
    """

    first_index: Index
    runs: tuple[DeliveryRun, ...]

    @property
    def count(self) -> int:
        """Of messages."""
        return sum(count for _, _, count in self.runs)


@dataclass(frozen=True, slots=True)
class PutForbidden:
    """What a group may not do with a topic, whatever the permissions of both: bits as in permissions."""

    group: str
    topic: str
    bits: int


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """Moves a group's offset by hand. Commits of it are ignored until EndReset: they come from consumers that do not
    know yet.
    """

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class EndReset:
    """A consumer has been told `offset`, which was reset. A later reset, still on its way then, is not ended by it.

    None in records of the first shape: whatever was reset counts as told.
    """

    group: str
    topic: str
    queue_id: int
    offset: int | None = None


StateChange = (
    PutTopicConfig
    | DeleteTopic
    | PutSubscriptionGroup
    | DeleteSubscriptionGroup
    | CommitOffset
    | ResetOffset
    | EndReset
    | PutForbidden
    | Delivery
)


@dataclass(frozen=True, slots=True)
class FullStatePart:
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
    match change:
        case PutTopicConfig(config):
            values: list[Any] = [_Kind.PUT_TOPIC_CONFIG, config.pack()]
        case DeleteTopic(topic):
            values = [_Kind.DELETE_TOPIC, topic]
        case PutSubscriptionGroup(group_config):
            values = [_Kind.PUT_SUBSCRIPTION_GROUP, group_config.pack()]
        case DeleteSubscriptionGroup(group, clean_offset):
            values = [_Kind.DELETE_SUBSCRIPTION_GROUP, group, clean_offset]
        case CommitOffset(group, topic, queue_id, offset):
            values = [_Kind.COMMIT_OFFSET, group, topic, queue_id, offset]
        case PutForbidden(group, topic, bits):
            values = [_Kind.PUT_FORBIDDEN, group, topic, bits]
        case ResetOffset(group, topic, queue_id, offset):
            values = [_Kind.RESET_OFFSET, group, topic, queue_id, offset]
        case EndReset(group, topic, queue_id, told_offset):
            values = [_Kind.END_RESET, group, topic, queue_id, told_offset]
        case Delivery(first_index, runs):
            values = [_Kind.DELIVERY, first_index, runs]
    packed: bytes = msgpack.packb(values)
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


def _unpack_change(values: list[Any]) -> StateChange:
    match values:
        case [_Kind.PUT_TOPIC_CONFIG, config]:
            return PutTopicConfig(TopicConfig.unpack(config))
        case [_Kind.DELETE_TOPIC, topic]:
            return DeleteTopic(topic)
        case [_Kind.PUT_SUBSCRIPTION_GROUP, config]:
            return PutSubscriptionGroup(SubscriptionGroupConfig.unpack(config))
        case [_Kind.DELETE_SUBSCRIPTION_GROUP, group, clean_offset]:
            return DeleteSubscriptionGroup(group, clean_offset)
        case [_Kind.COMMIT_OFFSET, group, topic, queue_id, offset]:
            return CommitOffset(group, topic, queue_id, offset)
        case [_Kind.PUT_FORBIDDEN, group, topic, bits]:
            return PutForbidden(group, topic, bits)
        case [_Kind.RESET_OFFSET, group, topic, queue_id, offset]:
            return ResetOffset(group, topic, queue_id, offset)
        case [_Kind.END_RESET, group, topic, queue_id, *told_offset]:
            return EndReset(group, topic, queue_id, *told_offset)
        case [_Kind.DELIVERY, first_index, runs]:
            return Delivery(first_index, tuple((level, offset, count) for level, offset, count in runs))
    raise StateRecordError(f"a state change of unknown kind: {values!r:.80}")
