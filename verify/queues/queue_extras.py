"""ConsumeQueue units that no message of the log explains.

Looked for once the whole log is known, queue by queue: what a file holds outside the offsets that the log explains must
be zeros, a filler, or point at what the log cannot tell of any more: messages that have expired, or that damage took.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import pairwise

from store.layout.consume_queue_unit import CQ_UNIT_SIZE, is_filler, parse_unit
from store.layout.directories import BATCH_CONSUME_QUEUES, CONSUME_QUEUES
from verify.findings import Finding, Kind
from verify.queues.batch_queue_files import BatchQueueFiles, described, messages_of
from verify.queues.queue_files import QueueFiles, topic_directory
from verify.replica import EVERYTHING, Replica

_CHUNK_SIZE = CQ_UNIT_SIZE * 65536
_QUEUES_PER_UNIT = 64
# Java's light queues hold units of messages of other topics.
_LIGHT_QUEUE_PREFIX = "%LMQ%"

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class QueueOnDisk:
    topic: str
    queue_id: int
    is_batch: bool
    directory: str
    explained: Ranges  # queue offsets first .. end, sorted, apart from each other


@dataclass(frozen=True, slots=True)
class QueueExtras:
    """A unit of work: some queues of a replica."""

    replica: Replica
    queues: tuple[QueueOnDisk, ...]
    begin_pos: int  # of the log; what a unit points at before it has expired
    damaged: (
        Ranges  # positions of the log that were entries and are not any more; sorted, apart from each other
    )


def plan_extras(
    replica: Replica,
    explained: dict[tuple[bytes, int], Ranges],
    begin_pos: int,
    damaged: Ranges,
    unreadable: Set[str],
) -> list[QueueExtras]:
    """All queues that have a directory, whether the log knows them or not, but those whose directories pass 1 has found
    `unreadable`. Raises OSError."""
    known = {
        (topic_directory(topic), str(queue_id)): ranges for (topic, queue_id), ranges in explained.items()
    }
    queues = [
        QueueOnDisk(
            topic,
            int(queue_id),
            kind == BATCH_CONSUME_QUEUES,
            f"{root}/{topic}/{queue_id}",
            known.get((topic, queue_id), ()),
        )
        for kind in (CONSUME_QUEUES, BATCH_CONSUME_QUEUES)
        for root in (f"{replica.directory}/{kind}",)
        for topic in names_of_directories(root)
        if not topic.startswith(_LIGHT_QUEUE_PREFIX)
        for queue_id in names_of_directories(f"{root}/{topic}")
        if queue_id.isascii() and queue_id.isdigit() and f"{root}/{topic}/{queue_id}" not in unreadable
    ]
    return [
        QueueExtras(replica, tuple(queues[start : start + _QUEUES_PER_UNIT]), begin_pos, damaged)
        for start in range(0, len(queues), _QUEUES_PER_UNIT)
    ]


def find_extras(unit: QueueExtras) -> Iterator[Finding]:
    """Units one behind the other are one finding."""
    for queue in unit.queues:
        try:
            yield from _extras_of(unit, queue)
        except OSError as error:
            yield Finding(
                kind=Kind.UNREADABLE_FILE,
                replica=unit.replica.name,
                file=unit.replica.relative(str(error.filename or queue.directory)),
                sentence=f"it cannot be read: {error.strerror}; its units were not compared with the log",
            )


def _extras_of(unit: QueueExtras, queue: QueueOnDisk) -> Iterator[Finding]:
    unexplained = (
        _unexplained_batches(BatchQueueFiles(queue.directory), queue.explained)
        if queue.is_batch
        else _unexplained(QueueFiles(queue.directory), queue.explained)
    )
    first = last = -1
    first_unit = b""
    for offset, end, data in unexplained:
        if not _is_extra(unit, queue, offset, data):
            continue
        if offset == last + 1 and first >= 0:
            last = end - 1
            continue
        if first >= 0:
            yield _finding(unit.replica, queue, first, last, first_unit)
        first, last = offset, end - 1
        first_unit = data
    if first >= 0:
        yield _finding(unit.replica, queue, first, last, first_unit)


def _unexplained_batches(files: BatchQueueFiles, explained: Ranges) -> Iterator[tuple[int, int, bytes]]:
    """As _unexplained(): of units that begin outside `explained`."""
    for data in files.units():
        base, end = messages_of(data)
        number = bisect_right(explained, (base, EVERYTHING)) - 1
        if number < 0 or base >= explained[number][1]:
            yield base, end, data


def _unexplained(files: QueueFiles, explained: Ranges) -> Iterator[tuple[int, int, bytes]]:
    """First offset, the one behind the last and bytes of each unit outside `explained` that is not zeros."""
    edges = [0, *(edge for bounds in explained for edge in bounds), files.end // CQ_UNIT_SIZE]
    for first, end in list(pairwise(edges))[::2]:
        for start, stop in files.stored(first * CQ_UNIT_SIZE, end * CQ_UNIT_SIZE):
            # Whole units; one that a hole begins in is looked at once.
            start -= start % CQ_UNIT_SIZE
            stop = min(-(-stop // CQ_UNIT_SIZE) * CQ_UNIT_SIZE, end * CQ_UNIT_SIZE)
            for at in range(start, stop, _CHUNK_SIZE):
                chunk = files.read(at, min(_CHUNK_SIZE, stop - at))
                if chunk.count(0) == len(chunk):
                    continue
                for place in range(0, len(chunk), CQ_UNIT_SIZE):
                    data = chunk[place : place + CQ_UNIT_SIZE]
                    if any(data):
                        offset = (at + place) // CQ_UNIT_SIZE
                        yield offset, offset + 1, data


def _is_extra(unit: QueueExtras, queue: QueueOnDisk, offset: int, data: bytes) -> bool:
    values = parse_unit(data)
    end = queue.explained[-1][1] if queue.explained else -1
    if offset >= end and (unit.replica.is_live or not unit.replica.stopped_cleanly):
        return False  # of messages that came later, or that were lost with the tail
    if is_filler(values):
        return offset >= end and (end >= 0 or unit.begin_pos == 0)
    phy_offset = values[0]
    if offset < (queue.explained[0][0] if queue.explained else EVERYTHING) and phy_offset < unit.begin_pos:
        return False
    number = bisect_right(unit.damaged, (phy_offset, EVERYTHING)) - 1
    return number < 0 or phy_offset >= unit.damaged[number][1]


def _finding(replica: Replica, queue: QueueOnDisk, first: int, last: int, first_unit: bytes) -> Finding:
    path = queue.directory if queue.is_batch else QueueFiles.path_in(queue.directory, first * CQ_UNIT_SIZE)
    sentence = f"the unit says {described(first_unit)}; the log has no message for this offset"
    if last > first and not queue.is_batch:
        sentence = f"{last - first + 1} units; of the first: {sentence}"
    return Finding(
        kind=Kind.CONSUME_QUEUE_EXTRA,
        replica=replica.name,
        file=replica.relative(path),
        topic=queue.topic,
        queue_id=queue.queue_id,
        first_offset=first,
        last_offset=last,
        count=last - first + 1,
        sentence=sentence,
    )


def names_of_directories(directory: str) -> list[str]:
    """Of those in it; sorted."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
