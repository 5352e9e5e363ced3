"""How far delay levels are delivered: counted from the applied entries themselves, wherever one stops and goes on."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.entry import Index
from store.state.state_machine import StateMachine
from store.state.state_record import pack_change, pack_changes
from store.state.state_tables import StateTables
from store.state.table_configs import DataVersion
from store.state.tables.delay_offset_table import DelayOffsetTable, Delivery

# Entries 11, 12 are of level 1, 13 is of level 2; the record is entry 10. Offset 8 of level 2 was skipped.
DELIVERY = Delivery(Index(11), ((1, 5, 2), (2, 9, 0), (2, 9, 1)))


def repacked(table: DelayOffsetTable) -> DelayOffsetTable:
    other = DelayOffsetTable()
    other.unpack(msgpack.unpackb(msgpack.packb(table.pack())))
    return other


@pytest.mark.parametrize(
    ("applied_index", "offsets"),
    [(10, {}), (11, {1: 6}), (12, {1: 7, 2: 9}), (13, {1: 7, 2: 10}), (99, {1: 7, 2: 10})],
)
def test_each_applied_message_moves_its_level_by_one(applied_index: int, offsets: dict[int, int]) -> None:
    table = DelayOffsetTable()
    table.begin(DELIVERY, 1000)
    table.settle(Index(applied_index))
    assert table.offsets == offsets
    assert table.data_version == DataVersion(1 + min(applied_index - 10, 3), 1000)


@pytest.mark.parametrize(("no_op_index", "offsets"), [(11, {}), (12, {1: 6}), (13, {1: 7, 2: 9})])
def test_the_no_op_of_another_term_ends_the_count(no_op_index: int, offsets: dict[int, int]) -> None:
    table = DelayOffsetTable()
    table.begin(DELIVERY, 1000)
    table.term_began(Index(no_op_index))
    table.settle(Index(99))
    assert table.offsets == offsets


def test_levels_that_only_skip_move_with_the_record() -> None:
    table = DelayOffsetTable()
    table.begin(Delivery(Index(11), ((3, 4, 0),)), 1000)
    assert table.offsets == {3: 4}
    assert table.pack()[2] == []


@pytest.mark.slow
@given(
    steps=st.lists(st.integers(9, 30), max_size=6).map(sorted),
    second_index=st.integers(15, 20),
    cut=st.booleans(),
)
def test_where_it_was_settled_and_saved_in_between_makes_no_difference(
    steps: list[int], second_index: int, cut: bool
) -> None:
    """Two deliveries, the second one cut after its first message by a no-op, or not."""
    second = Delivery(Index(second_index), ((1, 7, 3),))
    events: list[tuple[int, str]] = [(10, "first"), (second_index - 1, "second")]
    if cut:
        events.append((second_index + 1, "no-op"))

    def play(table: DelayOffsetTable, settled: list[int]) -> DelayOffsetTable:
        for index, what in sorted(
            events + [(step, "settle") for step in settled], key=lambda event: event[0]
        ):
            match what:
                case "first":
                    table.begin(DELIVERY, 1000)
                case "second":
                    table.begin(second, 2000)
                case "no-op":
                    table.term_began(Index(index))
                case _:
                    table.settle(Index(index))
                    table = repacked(table)
        table.settle(Index(40))
        return table

    assert play(DelayOffsetTable(), steps).pack() == play(DelayOffsetTable(), []).pack()
    assert play(DelayOffsetTable(), []).offsets == {1: 8 if cut else 10, 2: 10}


def test_tables_saved_before_there_were_delayed_messages_still_read() -> None:
    before = StateTables().pack()[:-1]
    tables = StateTables()
    tables.apply([DELIVERY], 1000)
    tables.unpack(before)
    assert tables.delay_offset_table.offsets == {}


def test_a_member_without_the_log_s_beginning_counts_what_came_behind_the_full_state() -> None:
    """The full state is of entry 11, the first message of a delivery; a no-op at 13 cut its last."""
    whole = StateMachine(is_whole=True)
    record = pack_changes([pack_change(DELIVERY)])
    whole.apply(record, Index(10), 0, 1000)
    whole.settle(Index(11))
    frozen = whole.tables.pack()
    late = StateMachine(is_whole=False)
    late.apply(record, Index(10), 0, 1000)
    late.term_began(Index(13))
    whole.term_began(Index(13))
    parts = StateMachine(is_whole=True)
    parts.tables.unpack(frozen)
    parts.begin_full_state(1 << 20, 1, 1 << 20, 2, Index(11), list)  # type: ignore[arg-type]
    part = parts.next_part()
    assert part is not None
    late.apply(part, Index(20), 0, 2000)
    late.settle(Index(20))
    assert late.tables.pack() == whole.tables.pack()
    assert late.tables.delay_offset_table.offsets == {1: 7, 2: 9}
