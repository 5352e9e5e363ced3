"""Known bugs of transactions, put back for the length of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

from dledger.entry import Index
from simulator.mutants.patched import patched
from store.state.ended_offsets_table import EndedOffsetsTable
from store.state.tables.transaction_table import TransactionTable


@contextmanager
def ended_transactions_forgotten() -> Iterator[None]:
    """As in RocketMQ an end is checked against the half alone: the next one of a transaction ends it once more."""
    with patched(EndedOffsetsTable, "is_ended", lambda self, offset: offset < self.first_waiting - 8):
        yield


@contextmanager
def end_counted_by_its_record() -> Iterator[None]:
    """The record that announces ends counts for all of them, although their messages can be cut."""
    old = EndedOffsetsTable.settle

    def settle(self: EndedOffsetsTable, applied_index: Index) -> None:
        old(self, Index(1 << 62) if isinstance(self, TransactionTable) else applied_index)

    with patched(EndedOffsetsTable, "settle", settle):
        yield


@contextmanager
def cut_end_not_counted() -> Iterator[None]:
    """Of ends that a change of leader has cut, none counts: what was committed is committed again."""
    old = EndedOffsetsTable.settle

    def settle(self: EndedOffsetsTable, applied_index: Index) -> None:
        change = self.under_way
        if change is None or applied_index + 1 >= change.first_index + len(change.delivered):
            old(self, applied_index)

    with patched(EndedOffsetsTable, "settle", settle):
        yield
