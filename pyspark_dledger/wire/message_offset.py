"""How far a streaming query is: what its checkpoint holds, and the ranges between two such offsets. Pure.

Spark asks a query that has committed nothing for its start again, and gives a source no place to keep it. So the start
says nothing, and what it meant stands in the first end, which is stored before anything is read (ADR 18).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_dledger.wire.proof import OffsetError, Proof, proofs_from_json, proofs_to_json
from pyspark_dledger.wire.queue_range import (
    Queue,
    QueueJsonError,
    QueueRange,
    queues_from_json,
    queues_to_json,
)

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MessageOffset:
    """`next`: the first offset that is not read yet, by queue; None before anything is known.

    `begin`: where the batch that ends here begins in queues that its start does not name. `proof`: by broker, an entry
    that was committed when the ends were; empty for brokers that give none.
    """

    next: Mapping[Queue, int] | None = None
    begin: Mapping[Queue, int] = field(default_factory=dict)
    proof: Mapping[str, Proof] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"v": _VERSION}
        if self.next is not None:
            value["next"] = queues_to_json(self.next)
        if self.begin:
            value["begin"] = queues_to_json(self.begin)
        if self.proof:
            value["proof"] = proofs_to_json(self.proof)
        return value


def offset_from_json(value: Any) -> MessageOffset:
    """Raises OffsetError."""
    if not isinstance(value, dict) or value.get("v") != _VERSION or "view" in value:
        raise OffsetError(
            f"{value!r} is no offset of messages in version {_VERSION}: which query is this checkpoint of?"
        )
    try:
        following = value.get("next")
        return MessageOffset(
            None if following is None else queues_from_json(following),
            queues_from_json(value.get("begin", {})),
            proofs_from_json(value.get("proof", {})),
        )
    except QueueJsonError as error:
        raise OffsetError(f"offset of a checkpoint: {error}") from None


def ranges_between(start: MessageOffset, end: MessageOffset) -> list[QueueRange]:
    """What a batch reads: none for queues that stay where they are. Raises OffsetError."""
    ranges = []
    for queue, reached in sorted((end.next or {}).items()):
        begin = (start.next or {}).get(queue, end.begin.get(queue))
        if begin is None:
            raise OffsetError(
                f"{queue}: the checkpoint says that a batch ends at {reached}, and not where it begins"
            )
        if begin > reached:
            raise OffsetError(f"{queue}: a batch cannot go from offset {begin} back to {reached}")
        if begin < reached:
            ranges.append(QueueRange(queue, begin, reached))
    return ranges
