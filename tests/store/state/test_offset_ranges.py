"""Ranges of offsets, held against a set of them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from store.state.offset_ranges import OffsetRanges

OFFSETS = st.lists(st.integers(0, 30), max_size=40)


def offsets_of(ranges: OffsetRanges) -> list[int]:
    return [offset for begin, end in ranges.ranges() for offset in range(begin, end)]


@given(OFFSETS)
def test_what_was_added_is_in_it_and_ranges_do_not_touch(offsets: list[int]) -> None:
    ranges = OffsetRanges.of(offsets)
    assert offsets_of(ranges) == sorted(set(offsets))
    assert len(ranges) == len(set(offsets))
    assert [offset in ranges for offset in range(32)] == [offset in set(offsets) for offset in range(32)]
    bounds = list(ranges.ranges())
    assert all(end < begin for (_, end), (begin, _) in pairwise(bounds))
    assert offsets_of(OffsetRanges(bounds)) == offsets_of(ranges)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=12))
def test_ranges_that_are_added_become_one_where_they_meet(added: list[tuple[int, int]]) -> None:
    ranges, wanted = OffsetRanges(), set[int]()
    for begin, count in added:
        ranges.add(begin, begin + count)
        wanted.update(range(begin, begin + count))
    assert list(ranges.ranges()) == list(OffsetRanges.of(sorted(wanted)).ranges())
    assert len(ranges) == len(wanted)


@given(OFFSETS, st.integers(0, 31))
def test_what_is_taken_ends_with_the_range_that_begins_there(offsets: list[int], below: int) -> None:
    ranges = OffsetRanges.of(offsets)
    end = ranges.take_below(below)
    assert end == next(offset for offset in range(below, 99) if offset not in set(offsets))
    assert offsets_of(ranges) == sorted(offset for offset in set(offsets) if offset > end)
    assert len(ranges) == len(offsets_of(ranges))
