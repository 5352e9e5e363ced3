"""The files of one BatchConsumeQueue: its units, found by queue offset."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from store.layout.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE
from store.layout.consume_queue_unit import CQ_UNIT
from verify.queues.queue_files import QueueFiles

_CHUNK_SIZE = BATCH_UNIT_SIZE * 65536


def messages_of(unit: bytes) -> tuple[int, int]:
    """The first queue offset of a batch, and the one behind its last."""
    _, _, _, _, base, count, _, _ = BATCH_UNIT.unpack(unit)
    return base, base + count


def described(unit: bytes) -> str:
    """A unit of either kind in words: both begin alike."""
    phy_offset, size, tags_code = CQ_UNIT.unpack_from(unit)
    words = f"physical offset {phy_offset}, {size} bytes, tags code {tags_code}"
    if len(unit) != BATCH_UNIT_SIZE:
        return words
    base, end = messages_of(unit)
    return f"{words}, a batch of {end - base} messages from offset {base} on"


def units_of_one(units: bytes, offset: int) -> bytes:
    """As units of a ConsumeQueue, the units of batches of one message from queue offset `offset` on; empty if they are
    anything else.
    """
    found = [units[at : at + BATCH_UNIT_SIZE] for at in range(0, len(units), BATCH_UNIT_SIZE)]
    if any(messages_of(unit) != (number, number + 1) for number, unit in enumerate(found, offset)):
        return b""
    return b"".join(unit[: CQ_UNIT.size] for unit in found)


class BatchQueueFiles:
    """As they were when this was made."""

    def __init__(self, directory: str) -> None:
        """Raises OSError, but not for a directory that is missing."""
        self._files = QueueFiles(directory)
        begin = self._files.files[0].base if self._files.files else 0
        self._numbers = range(begin // BATCH_UNIT_SIZE, self._files.end // BATCH_UNIT_SIZE)

    def read(self, offset: int, count: int) -> bytes:
        """`count` units from that of the batch on that begins at queue offset `offset`, or behind it if there is none;
        zeros behind the last. Raises OSError.
        """
        number = self._numbers.start + bisect_left(
            self._numbers, True, key=lambda number: self._is_at_or_behind(number, offset)
        )
        return self._files.read(number * BATCH_UNIT_SIZE, count * BATCH_UNIT_SIZE)

    def unit_of(self, offset: int) -> bytes:
        """Zeros where no batch begins at `offset`. Raises OSError."""
        unit = self.read(offset, 1)
        return unit if messages_of(unit)[0] == offset else bytes(BATCH_UNIT_SIZE)

    def units(self) -> Iterator[bytes]:
        """All that are written. Raises OSError."""
        for start, stop in self._files.stored(0, self._files.end):
            # Whole units; one that a hole begins in is zeros from there on.
            start -= start % BATCH_UNIT_SIZE
            for at in range(start, stop, _CHUNK_SIZE):
                count = -(-min(_CHUNK_SIZE, stop - at) // BATCH_UNIT_SIZE)
                chunk = self._files.read(at, count * BATCH_UNIT_SIZE)
                for place in range(0, len(chunk), BATCH_UNIT_SIZE):
                    unit = chunk[place : place + BATCH_UNIT_SIZE]
                    if any(unit):
                        yield unit

    def _is_at_or_behind(self, number: int, offset: int) -> bool:
        unit = self._files.read(number * BATCH_UNIT_SIZE, BATCH_UNIT_SIZE)
        return not any(unit) or messages_of(unit)[0] >= offset
