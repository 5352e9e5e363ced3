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
