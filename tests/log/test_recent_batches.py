"""What the memory for the newest entries holds, and that it lets go of all others."""

import sys

from dledger.entry import Index, Pos
from dledger.log.recent_batches import RecentBatch, RecentBatches


def test_a_batch_that_is_no_longer_among_the_newest_leaves_memory_at_once() -> None:
    recent = RecentBatches(bytes_max=250_000)
    buffers = [bytes([number]) * 100_000 for number in range(5)]
    unheld = sys.getrefcount(buffers[0])
    for number in range(5):
        recent.append(RecentBatch(Index(number), Index(number), Pos(number * 100_000), buffers[number], [0]))
    assert [recent.find(number) is not None for number in range(5)] == [False, False, False, True, True]
    assert [sys.getrefcount(buffers[number]) - unheld for number in range(5)] == [0, 0, 0, 1, 1]
    recent.cut_from(3)
    assert len(recent) == 0
    assert recent.newest is None


def test_batches_that_lie_one_behind_the_other_are_read_as_one() -> None:
    recent = RecentBatches(bytes_max=1 << 20)
    for index, pos, buffer, offsets in (
        (0, 0, b"aabbb", [0, 2]),
        (2, 5, b"c", [0]),
        (3, 6, b"ddee", [0, 2]),
        (5, 100, b"f", [0]),  # in the next file
    ):
        last_index = Index(index + len(offsets) - 1)
        recent.append(RecentBatch(Index(index), last_index, Pos(pos), buffer, offsets))

    def joined(
        index: int, last_index: int, size_max: int = 1000
    ) -> tuple[int, int, int, bytes, list[int]] | None:
        batch = recent.joined_from(index, last_index, size_max)
        if batch is None:
            return None
        return batch.first_index, batch.last_index, batch.pos, batch.buffer, list(batch.offsets)

    assert joined(0, 5) == (0, 4, 0, b"aabbbcddee", [0, 2, 5, 6, 8])
    assert joined(1, 3) == (1, 3, 2, b"bbbcdd", [0, 3, 4])
    assert joined(0, 5, size_max=6) == (0, 2, 0, b"aabbbc", [0, 2, 5])
    assert joined(1, 1) == (1, 1, 2, b"bbb", [0])
    assert joined(5, 5) == (5, 5, 100, b"f", [0])
    assert joined(6, 6) is None
