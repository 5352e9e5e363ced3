"""Known bugs of timer messages."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dledger.entry import Index
from simulator.mutants.patched import patched
from store.dledger_commit_log import DLedgerCommitLog
from store.services import timer_index
from store.services.timer_message import out_ms
from store.state.ended_offsets_table import EndedOffsetsTable
from store.state.tables.timer_table import TimerTable


@contextmanager
def timer_fired_at_its_slot() -> Iterator[None]:
    """A timer message is due at the rounded time that its record says, which comes before the asked one."""

    def due_ms(said: Mapping[bytes, bytes], store_timestamp: int) -> int:
        return out_ms(said) or 0

    with patched(timer_index, "due_ms", due_ms):
        yield


@contextmanager
def cut_timers_not_counted() -> Iterator[None]:
    """What a leader that fell has delivered of a batch is forgotten with the rest of it."""
    old_settle, old_term_began = EndedOffsetsTable.settle, EndedOffsetsTable.term_began

    def settle(self: EndedOffsetsTable, applied_index: Index) -> None:
        change = self.under_way
        if (
            not isinstance(self, TimerTable)
            or change is None
            or applied_index + 1 - change.first_index >= len(change.delivered)
        ):
            old_settle(self, applied_index)

    def term_began(self: EndedOffsetsTable, no_op_index: Index) -> None:
        if isinstance(self, TimerTable):
            self.under_way = None
        else:
            old_term_began(self, no_op_index)

    with patched(EndedOffsetsTable, "term_began", term_began), patched(EndedOffsetsTable, "settle", settle):
        yield


@contextmanager
def timers_counted_by_their_record() -> Iterator[None]:
    """The record that announces a delivery counts for all of it, although its messages can be cut."""
    old = EndedOffsetsTable.settle

    def settle(self: EndedOffsetsTable, applied_index: Index) -> None:
        old(self, Index(1 << 62) if isinstance(self, TimerTable) else applied_index)

    with patched(EndedOffsetsTable, "settle", settle):
        yield


@contextmanager
def recall_counts_when_applied() -> Iterator[None]:
    """A recall that is in the leader's log, and not applied yet, holds up nothing."""

    with patched(DLedgerCommitLog, "recalls_under_way", set[bytes]()):
        yield
