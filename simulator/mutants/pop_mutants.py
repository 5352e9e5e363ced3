"""Known bugs of pops, put back for the length of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from broker.answers import Answers, AnyRequest
from broker.processors.pop.ack_message_processor import AckMessageProcessor
from broker.processors.pop.pop_message_processor import PopMessageProcessor, _Pop
from broker.processors.pop.popped_messages import PopLook
from dledger.entry import Index
from simulator.mutants.patched import patched
from store.services.pop_revive_service import HeldPop, PopReviveService
from store.state.state_machine import StateMachine
from store.state.table import StateChange
from store.state.tables.pop_queue import NO_TIME
from store.state.tables.pop_table import Popped, PopTable


@contextmanager
def revival_counted_by_its_record() -> Iterator[None]:
    """The record that announces copies counts for all of them, although they can be cut: messages are lost."""
    old = PopTable.settle

    def settle(self: PopTable, applied_index: Index) -> None:
        old(self, Index(1 << 62))

    with patched(PopTable, "settle", settle):
        yield


@contextmanager
def cut_revival_not_counted() -> Iterator[None]:
    """Of copies that a change of leader has cut, none counts: an expired message comes again twice."""
    old = PopTable.settle

    def settle(self: PopTable, applied_index: Index) -> None:
        change = self.under_way
        if change is None or applied_index + 1 >= change.first_index + len(change.revived):
            old(self, applied_index)

    with patched(PopTable, "settle", settle):
        yield


@contextmanager
def acks_of_a_pop_taken_together() -> Iterator[None]:
    """As a consumer offset would have it: an ack counts for all messages of its pop."""
    old = PopTable._end

    def end(self: PopTable, popped: Popped, timestamp: int) -> None:
        old(self, popped._replace(bits=(1 << popped.bits.bit_length()) - 1), timestamp)

    with patched(PopTable, "_end", end):
        yield


@contextmanager
def tables_settled_behind_each_step() -> Iterator[None]:
    """A record meets tables that have not counted what was announced before it, on members that apply much at once."""

    def apply_changes(self: StateMachine, changes: list[StateChange], index: Index, timestamp: int) -> None:
        self.tables.apply(changes, timestamp)

    with patched(StateMachine, "_apply_changes", apply_changes):
        yield


@contextmanager
def ack_answered_before_its_record() -> Iterator[None]:
    """A change of leader can cut the record: the message comes again."""
    old = AckMessageProcessor._propose

    def propose(self: AckMessageProcessor, now_ms: int) -> None:
        requests, self._gathered.requests = self._gathered.requests, []
        for request in requests:
            request.answer()
        old(self, now_ms)

    with patched(AckMessageProcessor, "_propose", propose):
        yield


@contextmanager
def ack_of_what_is_unknown_here_answered() -> Iterator[None]:
    """By a leader that was cut off, of what was popped under the next one: the message comes again."""

    def when_sure(
        self: AckMessageProcessor, request: AnyRequest, look: Callable[[], None], now_ms: int
    ) -> None:
        look()

    with patched(AckMessageProcessor, "_when_sure", when_sure):
        yield


@contextmanager
def acks_on_their_way_hold_up_nothing() -> Iterator[None]:
    """What expires meanwhile comes again, although its ack came in time and is told."""
    old = PopReviveService.hold

    def hold(self: PopReviveService, popped: Popped) -> HeldPop:
        return old(self, popped._replace(pop_time=NO_TIME))  # another one, which is not in flight

    with patched(PopReviveService, "hold", hold):
        yield


class _Nowhere(Answers):
    def add(self, *_: Any, **__: Any) -> None:
        pass


@contextmanager
def pop_answered_before_its_record() -> Iterator[None]:
    """A change of leader can cut the record: the next leader gives the message out for the first time, too."""
    old = PopMessageProcessor._propose

    def propose(self: PopMessageProcessor, pop: _Pop, look: PopLook, now_ms: int) -> None:
        found = [queue for queue in look.queues if queue.popped.popped]
        if found and not pop.header.order:
            self._answer(pop, found, look.rest, now_ms)
            pop.request = replace(pop.request, answers=_Nowhere(pop.request.channel))
        old(self, pop, look, now_ms)

    with patched(PopMessageProcessor, "_propose", propose):
        yield


POP_MUTANTS: Final = (
    revival_counted_by_its_record,
    cut_revival_not_counted,
    acks_of_a_pop_taken_together,
    tables_settled_behind_each_step,
    ack_answered_before_its_record,
    ack_of_what_is_unknown_here_answered,
    acks_on_their_way_hold_up_nothing,
    pop_answered_before_its_record,
)
