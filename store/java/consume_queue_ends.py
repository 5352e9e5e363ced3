"""Where RocketMQ's ConsumeQueues end: what only they know of a queue whose messages have all expired."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from disk.disk import Disk
from store.layout.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from store.layout.directories import BATCH_CONSUME_QUEUES, CONSUME_QUEUES

_SIZE_FIELD: Final = slice(8, 12)  # in units of both kinds; 0 where nothing is written


def consume_queue_ends(disk: Disk, store_path: str) -> Iterator[tuple[bytes, int, int]]:
    """Topic, queue id and next offset of each queue that has had messages. Blocks. Raises DiskError."""
    for kind, queue_end in ((CONSUME_QUEUES, _queue_end), (BATCH_CONSUME_QUEUES, _batch_queue_end)):
        directory = f"{store_path}/{kind}"
        for topic in directories_in(disk, directory):
            for queue_id in _numbers(directories_in(disk, f"{directory}/{topic}")):
                end = queue_end(disk, f"{directory}/{topic}/{queue_id}")
                if end > 0:
                    yield topic.encode(errors="surrogateescape"), int(queue_id), end


def directories_in(disk: Disk, directory: str) -> list[str]:
    """Names of topics, or of a topic's queues: what else somebody has put there is left alone. Raises DiskError."""
    return [name for name in disk.list_directory(directory) if disk.is_directory(f"{directory}/{name}")]


def _queue_end(disk: Disk, directory: str) -> int:
    names = _numbers(disk.list_directory(directory))
    for name in reversed(names):
        # The newest file may have no unit yet: it is made ahead.
        count, _ = _last_unit(disk, f"{directory}/{name}", CQ_UNIT_SIZE)
        if count:
            return int(name) // CQ_UNIT_SIZE + count
    return int(names[0]) // CQ_UNIT_SIZE if names else 0


def _batch_queue_end(disk: Disk, directory: str) -> int:
    for name in reversed(_numbers(disk.list_directory(directory))):
        _, unit = _last_unit(disk, f"{directory}/{name}", BATCH_UNIT_SIZE)
        if unit:
            _, _, _, _, base, count, _, _ = BATCH_UNIT.unpack(unit)
            return int(base + count)
    return 0


def _last_unit(disk: Disk, path: str, unit_size: int) -> tuple[int, bytes]:
    """How many units a file has, and the last of them. They fill it from its start, fillers among them; behind them
    all is zero.
    """
    file = disk.open(path, read_only=True)
    try:

        def is_empty(number: int) -> bool:
            return not any(file.pread(unit_size, number * unit_size)[_SIZE_FIELD])

        count = bisect_left(range(file.size() // unit_size), True, key=is_empty)
        return count, file.pread(unit_size, (count - 1) * unit_size) if count else b""
    finally:
        file.close()


def _numbers(names: list[str]) -> list[str]:
    return [name for name in names if name.isascii() and name.isdigit()]
