"""What pass 1 tells of the ConsumeQueues, as values, and the findings that follow from it (consume_queue_check.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from store.dispatch_request import QueueKey
from store.layout.batch_unit import BATCH_UNIT_SIZE
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from verify.findings import Finding, Kind
from verify.queues.batch_queue_files import described
from verify.queues.queue_files import QueueFiles, queue_directory
from verify.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFault:
    """Units first_offset .. last_offset of a queue, wrong or missing. `expected` and `found` are of the first."""

    kind: Kind
    topic: bytes
    queue_id: int
    first_offset: int
    last_offset: int
    first_index: int  # of the entries that have the messages; -1 in a CommitLog
    last_index: int
    count: int
    expected: bytes
    found: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFault:
    """Sound entries pos .. next_pos whose records are not what they must be. `reason` is of the first."""

    kind: Kind
    pos: int
    next_pos: int
    first_index: int
    last_index: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class QueuePart:
    """What entries pos .. next_pos, one behind the other, explain of the ConsumeQueues, and what is wrong there."""

    replica: str
    pos: int
    next_pos: int
    explained: list[
        tuple[bytes, int, int, int]
    ]  # topic, queue id, first queue offset, the one behind the last
    faults: list[QueueFault]
    record_faults: list[RecordFault]
    unreadable: list[tuple[str, str]]  # path, what the system says


def queue_findings(
    replica: Replica, parts: Iterable[QueuePart], deleted: Set[bytes], min_offsets: Mapping[QueueKey, int]
) -> Iterator[Finding]:
    """The findings of pass 1 of one replica, from all its parts in any order: the same however the log was cut.

    `deleted`: topics whose queues nobody misses. `min_offsets`: units before these nobody reads.
    """
    faults: list[QueueFault] = []
    record_faults: list[RecordFault] = []
    unreadable: dict[str, str] = {}
    for part in parts:
        faults += [
            fault
            for fault in part.faults
            if fault.last_offset >= min_offsets.get((fault.topic, fault.queue_id), 0)
            and (fault.kind is not Kind.CONSUME_QUEUE_MISSING or fault.topic not in deleted)
        ]
        record_faults += part.record_faults
        unreadable.update(part.unreadable)
    faults.sort(
        key=lambda fault: (fault.kind, fault.topic, fault.queue_id, fault.first_offset, fault.first_index)
    )
    for fault in _joined(faults):
        yield _queue_finding(replica, fault)
    record_faults.sort(key=lambda fault: (fault.kind, fault.pos))
    yield from _record_findings(replica, record_faults)
    for path, reason in sorted(unreadable.items()):
        yield Finding(
            kind=Kind.UNREADABLE_FILE,
            replica=replica.name,
            file=replica.relative(path),
            sentence=f"it cannot be read: {reason}; its units were not compared with the log",
        )


def _joined(faults: Iterable[QueueFault]) -> Iterator[QueueFault]:
    current: QueueFault | None = None
    for fault in faults:
        joined = join_faults(current, fault) if current is not None else None
        if current is not None and joined is None:
            yield current
        current = joined or fault
    if current is not None:
        yield current


def join_faults(first: QueueFault, second: QueueFault) -> QueueFault | None:
    """One fault of two that follow each other, or None."""
    if (first.kind, first.topic, first.queue_id) != (second.kind, second.topic, second.queue_id):
        return None
    if not first.first_offset <= second.first_offset <= first.last_offset + 1:
        return None
    return replace(
        first,
        last_offset=max(first.last_offset, second.last_offset),
        first_index=min(first.first_index, second.first_index),
        last_index=max(first.last_index, second.last_index),
        count=first.count + second.count,
    )


def _queue_finding(replica: Replica, fault: QueueFault) -> Finding:
    if len(fault.expected) == BATCH_UNIT_SIZE:
        path = queue_directory(replica, fault.topic, fault.queue_id, is_batch=True)
    else:
        directory = queue_directory(replica, fault.topic, fault.queue_id)
        path = QueueFiles.path_in(directory, fault.first_offset * CQ_UNIT_SIZE)
    wanted = described(fault.expected)
    if fault.kind is Kind.CONSUME_QUEUE_MISSING:
        sentence = f"the log has the message ({wanted}), the queue has no unit for it"
    elif fault.kind is Kind.QUEUE_OFFSET_TWICE:
        sentence = f"no consumer finds the message ({wanted}): one before it has its offset ({described(fault.found)})"
    else:
        sentence = f"the unit says {described(fault.found)}; the log has {wanted}"
    if fault.count > 1:
        things = "messages" if fault.kind is Kind.QUEUE_OFFSET_TWICE else "units"
        sentence = f"{fault.count} {things}; of the first: {sentence}"
    return Finding(
        kind=fault.kind,
        replica=replica.name,
        file=replica.relative(path),
        first_index=fault.first_index if fault.first_index >= 0 else None,
        last_index=fault.last_index if fault.last_index >= 0 else None,
        topic=fault.topic.decode("utf-8", "replace"),
        queue_id=fault.queue_id,
        first_offset=fault.first_offset,
        last_offset=fault.last_offset,
        count=fault.count,
        sentence=sentence,
    )


def _record_findings(replica: Replica, faults: Iterable[RecordFault]) -> Iterator[Finding]:
    current: RecordFault | None = None
    for fault in faults:
        if current is not None and (current.kind, current.next_pos) == (fault.kind, fault.pos):
            current = replace(
                current,
                next_pos=fault.next_pos,
                last_index=fault.last_index,
                count=current.count + fault.count,
            )
            continue
        if current is not None:
            yield _record_finding(replica, current)
        current = fault
    if current is not None:
        yield _record_finding(replica, current)


def _record_finding(replica: Replica, fault: RecordFault) -> Finding:
    paths = [file.path for file in replica.data_files if file.base <= fault.pos]
    return Finding(
        kind=fault.kind,
        replica=replica.name,
        file=replica.relative(paths[-1]),
        first_index=fault.first_index if fault.first_index >= 0 else None,
        last_index=fault.last_index if fault.last_index >= 0 else None,
        count=fault.count,
        sentence=f"the entry is sound, its message is not: {fault.reason}",
    )
