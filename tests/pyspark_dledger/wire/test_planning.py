"""What a batch takes of what waits, and how ranges become tasks."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_dledger.wire.planning import TaskSizes, TriggerLimits, divided, limited
from pyspark_dledger.wire.queue_range import Queue, QueueRange


def ranges_of(*bounds: tuple[int, int]) -> list[QueueRange]:
    return [QueueRange(Queue("T", "g0", number), *pair) for number, pair in enumerate(bounds)]


def no_sizes(part: QueueRange, size_max: int) -> tuple[int, int]:
    raise AssertionError("nobody asks for bytes")


def by_count(ranges: list[QueueRange], count_max: int) -> list[QueueRange]:
    return limited(ranges, TriggerLimits(count_max=count_max), no_sizes)


def size_of(offset: int) -> int:
    return 1 + offset % 7


def fitting(part: QueueRange, size_max: int) -> tuple[int, int]:
    count, size = 1, size_of(part.start)
    while part.start + count < part.end and size + size_of(part.start + count) <= size_max:
        size += size_of(part.start + count)
        count += 1
    return count, size


def by_size(ranges: list[QueueRange], size_max: int) -> list[QueueRange]:
    return limited(ranges, TriggerLimits(size_max=size_max), fitting)


def count(ranges: list[QueueRange]) -> int:
    return sum(item.end - item.start for item in ranges)


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=8).map(
    lambda pairs: ranges_of(*((start, start + size) for start, size in pairs))
)


def test_each_queue_gives_its_share_of_a_batch() -> None:
    assert by_count(ranges_of((0, 900), (0, 90), (0, 10)), 100) == ranges_of((0, 88), (0, 10), (0, 2))


def test_queue_with_little_is_not_left_behind() -> None:
    assert by_count(ranges_of((0, 1_000_000), (7, 8)), 10)[1] == ranges_of((0, 0), (7, 8))[1]


def test_all_queues_have_their_turn_under_a_limit_below_their_number() -> None:
    reached = [0, 0, 0, 0]
    for _ in range(8):
        for item in by_count(ranges_of(*((start, 2) for start in reached)), 1):
            reached[item.queue.queue_id] = item.end
    assert reached == [2, 2, 2, 2]


@given(RANGES, st.integers(1, 500))
def test_limit_holds_and_is_used(ranges: list[QueueRange], count_max: int) -> None:
    taken = by_count(ranges, count_max)
    assert count(taken) == min(count(ranges), count_max)
    starts = {item.queue: item for item in ranges}
    assert all(item.start == starts[item.queue].start < item.end <= starts[item.queue].end for item in taken)


def test_each_queue_gives_its_share_of_the_bytes() -> None:
    """One byte each: then it is as with messages, and what one leaves over the next one has."""
    ranges = ranges_of((0, 900), (0, 90), (0, 10))
    one_byte_each = limited(
        ranges, TriggerLimits(size_max=100), lambda part, size: (min(part.end - part.start, size),) * 2
    )
    assert one_byte_each == ranges_of((0, 90), (0, 9), (0, 1))


def test_message_that_is_larger_than_the_share_is_read_alone() -> None:
    taken = limited(
        ranges_of((0, 50), (0, 50)),
        TriggerLimits(size_max=100),
        lambda part, size_max: (1, 90) if part.queue.queue_id == 0 else (size_max, size_max),
    )
    assert taken == ranges_of((0, 1), (0, 10))


@given(RANGES, st.integers(1, 2000))
def test_bytes_have_their_limit_but_for_one_message_of_a_queue(
    ranges: list[QueueRange], size_max: int
) -> None:
    taken = by_size(ranges, size_max)
    assert [item.queue for item in taken] == [item.queue for item in ranges if item.start < item.end]
    assert all(item.start < item.end for item in taken)
    several = [item for item in taken if item.end - item.start > 1]
    assert sum(size_of(offset) for item in several for offset in range(item.start, item.end)) <= size_max


@given(RANGES, st.integers(1, 500), st.integers(1, 2000))
def test_both_limits_hold(ranges: list[QueueRange], count_max: int, size_max: int) -> None:
    taken = limited(ranges, TriggerLimits(count_max, size_max), fitting)
    assert count(taken) <= count_max
    assert taken == limited(by_count(ranges, count_max), TriggerLimits(size_max=size_max), fitting)


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
