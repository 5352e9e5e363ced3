"""Where RocketMQ's ConsumeQueues end: what only they know of a queue whose messages have all expired."""

from bisect import bisect_left
from collections.abc import Iterator

from disk.disk import Disk
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE


def consume_queue_ends(disk: Disk, directory: str) -> Iterator[tuple[bytes, int, int]]:
    """Topic, queue id and next offset of each queue that has had messages. Blocks. Raises DiskError."""
    for topic in disk.list_directory(directory):
        for queue_id in _numbers(disk.list_directory(f"{directory}/{topic}")):
            end = _queue_end(disk, f"{directory}/{topic}/{queue_id}")
            if end > 0:
                yield topic.encode(errors="surrogateescape"), int(queue_id), end


def _queue_end(disk: Disk, directory: str) -> int:
    names = _numbers(disk.list_directory(directory))
    for name in reversed(names):
        # The newest file may have no unit yet: it is made ahead.
        count = _unit_count(disk, f"{directory}/{name}")
        if count:
            return int(name) // CQ_UNIT_SIZE + count
    return int(names[0]) // CQ_UNIT_SIZE if names else 0


def _unit_count(disk: Disk, path: str) -> int:
    """Units fill a file from its start, fillers among them; behind them all is zero."""
    file = disk.open(path, read_only=True)
    try:

        def is_empty(number: int) -> bool:
            _, size, _ = CQ_UNIT.unpack(file.pread(CQ_UNIT_SIZE, number * CQ_UNIT_SIZE))
            return bool(size == 0)

        return bisect_left(range(file.size() // CQ_UNIT_SIZE), True, key=is_empty)
    finally:
        file.close()


def _numbers(names: list[str]) -> list[str]:
    return [name for name in names if name.isascii() and name.isdigit()]
