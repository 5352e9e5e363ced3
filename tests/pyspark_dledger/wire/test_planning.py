"""What a batch takes of what waits, and how ranges become tasks."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_dledger.wire.planning import TaskSizes, divided, limited
from pyspark_dledger.wire.queue_range import Queue, QueueRange


def ranges_of(*bounds: tuple[int, int]) -> list[QueueRange]:
    return [QueueRange(Queue("T", "g0", number), *pair) for number, pair in enumerate(bounds)]


def count(ranges: list[QueueRange]) -> int:
    return sum(item.end - item.start for item in ranges)


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=8).map(
    lambda pairs: ranges_of(*((start, start + size) for start, size in pairs))
)


def test_each_queue_gives_its_share_of_a_batch() -> None:
    assert limited(ranges_of((0, 900), (0, 90), (0, 10)), 100) == ranges_of((0, 88), (0, 10), (0, 2))


def test_queue_with_little_is_not_left_behind() -> None:
    assert limited(ranges_of((0, 1_000_000), (7, 8)), 10)[1] == ranges_of((0, 0), (7, 8))[1]


def test_all_queues_have_their_turn_under_a_limit_below_their_number() -> None:
    reached = [0, 0, 0, 0]
    for _ in range(8):
        for item in limited(ranges_of(*((start, 2) for start in reached)), 1):
            reached[item.queue.queue_id] = item.end
    assert reached == [2, 2, 2, 2]


@given(RANGES, st.integers(1, 500))
def test_limit_holds_and_is_used(ranges: list[QueueRange], count_max: int) -> None:
    taken = limited(ranges, count_max)
    assert count(taken) == min(count(ranges), count_max)
    starts = {item.queue: item for item in ranges}
    assert all(item.start == starts[item.queue].start < item.end <= starts[item.queue].end for item in taken)


@given(RANGES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 60))
def test_tasks_together_are_the_ranges(ranges: list[QueueRange], least: int | None, most: int | None) -> None:
    parts = divided(ranges, TaskSizes(least, most))
    assert [(part.queue, offset) for part in parts for offset in range(part.start, part.end)] == [
        (item.queue, offset) for item in ranges for offset in range(item.start, item.end)
    ]
    assert all(part.start < part.end for part in parts)
    assert most is None or all(part.end - part.start <= most for part in parts)
    assert least is None or len(parts) >= min(least, count(ranges))


def test_one_range_is_one_task_by_default() -> None:
    assert divided(ranges_of((0, 1_000_000)), TaskSizes()) == ranges_of((0, 1_000_000))
