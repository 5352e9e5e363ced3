"""Which transactions have ended: counted from the applied entries themselves, wherever one stops and goes on."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.entry import Index
from store.state.state_tables import StateTables
from store.state.tables.transaction_table import EndTransactions, TransactionTable

# The record is entry 10; 11 and 12 are what halves 4 and 6 become, and halves 5 and 0 become nothing.
END = EndTransactions(Index(11), (4, 6), ((5, 6), (0, 1)), 0)


def repacked(table: TransactionTable) -> TransactionTable:
    other = TransactionTable()
    other.unpack(msgpack.unpackb(msgpack.packb(table.pack())))
    return other


def ended(table: TransactionTable) -> set[int]:
    return {offset for offset in range(12) if table.is_ended(offset)}


@pytest.mark.parametrize(
    ("applied_index", "wanted"), [(10, {0, 5}), (11, {0, 4, 5}), (12, {0, 4, 5, 6}), (99, {0, 4, 5, 6})]
)
def test_a_half_has_ended_when_what_it_becomes_is_applied(applied_index: int, wanted: set[int]) -> None:
    table = TransactionTable()
    table.apply([END], 1000)
    table.settle(Index(applied_index))
    assert ended(table) == wanted
    assert (table.first_waiting, table.ended_count) == (1, len(wanted) - 1)


@pytest.mark.parametrize(("no_op_index", "wanted"), [(11, {0, 5}), (12, {0, 4, 5}), (13, {0, 4, 5, 6})])
def test_the_no_op_of_another_term_ends_the_count(no_op_index: int, wanted: set[int]) -> None:
    table = TransactionTable()
    table.apply([END], 1000)
    table.term_began(Index(no_op_index))
    table.settle(Index(99))
    assert ended(table) == wanted


def test_what_is_gone_is_not_undecided() -> None:
    table = TransactionTable()
    table.apply([EndTransactions(Index(11), (), ((7, 8),), 7)], 1000)
    assert (table.first_waiting, table.ended_count) == (8, 0)
    table.apply([EndTransactions(Index(12), (), ((3, 4),), 2)], 1000)
    assert (table.first_waiting, table.ended_count) == (8, 0)


def test_a_member_of_an_earlier_release_is_told_nothing_before_a_transaction_ends() -> None:
    tables = StateTables()
    tables.transaction_table.settle(Index(5))
    tables.transaction_table.term_began(Index(6))
    assert tables.pack() == StateTables().pack()
    tables.apply([EndTransactions(Index(11), (), ((3, 4),), 0)], 1000)
    assert tables.pack() != StateTables().pack()


@given(
    steps=st.lists(st.integers(9, 30), max_size=6).map(sorted),
    second_index=st.integers(15, 20),
    cut=st.booleans(),
)
def test_where_it_was_settled_and_saved_in_between_makes_no_difference(
    steps: list[int], second_index: int, cut: bool
) -> None:
    """Two ends and maybe a no-op in the middle of the second one, settled and packed at any steps."""
    second = EndTransactions(Index(second_index + 1), (1, 9, 2), (), 0)
    no_op_index = second_index + 3 if cut else 31

    def run(steps: list[int]) -> TransactionTable:
        table = TransactionTable()
        for index in range(10, 31):
            if index == 10:
                table.apply([END], 1000)
            elif index == second_index:
                table.apply([second], 1000)
            elif index == no_op_index:
                table.term_began(Index(index))
            if index in steps:
                table.settle(Index(index))
                table = repacked(table)
        table.settle(Index(30))
        return table

    table = run(steps)
    assert table.pack() == run([]).pack()
    assert ended(table) == {0, 4, 5, 6} | ({1, 9} if cut else {1, 2, 9})


def test_a_record_that_names_single_offsets_is_read_too() -> None:
    assert EndTransactions.unpack([11, [4, 6], [5, 0], 0]) == END
