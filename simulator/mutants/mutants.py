"""Known bugs, put back into the code under test for the length of a run: what does not find them finds nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from dledger.core.disk_fitness import DiskFitness
from dledger.core.durable_index import DurableIndex
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.entry_handler import EntryHandler
from dledger.core.leader_elector import Campaign, LeaderElector
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member import Member
from dledger.core.membership import CurrentMembers
from dledger.core.membership_changes import MembershipChanges
from dledger.core.messages import PeerId, PushRequest, PushResponse, VoteResponse
from dledger.core.output import AppendStatus, HardState, Role
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.read_index import ReadIndex
from dledger.core.refusal import Refusal, RefusalReason
from dledger.disk_work import DiskWork, Settled
from dledger.entry import Index, VerifiedRange
from dledger.log.jobs import DiskJob
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from simulator.mutants.access_mutants import ACCESS_MUTANTS
from simulator.mutants.damage_mutants import (
    begin_known_to_the_mark_alone,
    damaged_member_leads,
    fault_taken_for_the_end,
    lost_tail_not_doubted,
    repair_bytes_not_checked,
    scrub_skips_bodies,
    stale_entries_believed,
)
from simulator.mutants.patched import patched
from simulator.mutants.pop_mutants import POP_MUTANTS
from simulator.mutants.timer_mutants import (
    cut_timers_not_counted,
    recall_counts_when_applied,
    timer_fired_at_its_slot,
    timers_counted_by_their_record,
)
from simulator.mutants.transaction_mutants import (
    cut_end_not_counted,
    end_counted_by_its_record,
    ended_transactions_forgotten,
)
from simulator.world import sim_member
from store import put_gather
from store.dledger_commit_log import DLedgerCommitLog
from store.index import index_file_recovery
from store.message_store import MessageStore
from store.put_gather import PutGather, _Part
from store.put_message import PutBatch, PutRefusal, PutStatus
from store.state.state_machine import StateMachine
from store.state.tables.delay_offset_table import DelayOffsetTable


@contextmanager
def vote_forgotten() -> Iterator[None]:
    """The term survives a crash and the vote given in it does not."""

    def hard_state(self: QuorumState) -> HardState:
        return replace(self._state.hard_state, curr_vote_for=None)

    with patched(QuorumState, "hard_state", property(hard_state)):
        yield


@contextmanager
def ack_before_sync() -> Iterator[None]:
    """What was handed to the page cache counts as durable under SYNC_FLUSH."""
    old = Replica.__init__

    def init(self: Replica, *arguments: Any, **keywords: Any) -> None:
        old(self, *arguments, **keywords)
        self._durable_at_append = True

    with patched(Replica, "__init__", init):
        yield


@contextmanager
def old_term_commit_by_counting() -> Iterator[None]:
    """A majority is enough to commit an entry of an earlier term (Raft, figure 8)."""

    def may_commit(self: QuorumAckChecker, index: Index) -> bool:
        return True

    with patched(QuorumAckChecker, "_may_commit", may_commit):
        yield


@contextmanager
def pre_vote_counted_as_vote() -> Iterator[None]:
    """An answer counts for a round if the term is right, whichever of the two rounds it was given in."""

    def is_stale(response: VoteResponse, campaign: Campaign) -> bool:
        return response.request_term != campaign.term

    with patched(LeaderElector, "_is_stale", staticmethod(is_stale)):
        yield


@contextmanager
def truncation_below_commit() -> Iterator[None]:
    """A push that overlaps the log cuts it there, although the entries are the same: a late one takes newer entries."""
    old = EntryHandler._append

    def append(self: EntryHandler, request: PushRequest, payload: VerifiedRange, now_ms: int) -> None:
        if payload.first_index <= self._log.ledger_end_index:
            self._cut(payload.first_index, request)
        else:
            old(self, request, payload, now_ms)

    def may_cut(self: EntryHandler, from_index: Index) -> bool:
        return True

    with patched(EntryHandler, "_append", append), patched(EntryHandler, "_may_cut", may_cut):
        yield


@contextmanager
def stale_answer_accepted() -> Iterator[None]:
    """Acknowledgements count although they were given in an earlier term, to an earlier leader."""

    def on_push_response(self: Member, response: PushResponse, now_ms: int) -> None:
        if self._state.role is not Role.LEADER:
            return
        dispatcher = self._dispatchers[response.member_id]
        if dispatcher.on_response(response, now_ms):
            self._checker.update_watermark(response.member_id, dispatcher.match_index)
        dispatcher.pump(now_ms)

    def is_stale(self: EntryDispatcher, response: PushResponse) -> bool:
        return False

    with (
        patched(Member, "_on_push_response", on_push_response),
        patched(EntryDispatcher, "_is_stale", is_stale),
    ):
        yield


@contextmanager
def queue_offset_table_not_rebuilt() -> Iterator[None]:
    """A leader goes on with the queue offsets of its last leadership."""

    def rebuild(self: DLedgerCommitLog) -> None:
        return

    with patched(DLedgerCommitLog, "forget_topic_queue_table", rebuild):
        yield


@contextmanager
def reput_past_commit() -> Iterator[None]:
    """Dispatching looks at the end of the log instead of the commit."""

    def committed(self: MessageStore, committed_index: Index) -> None:
        self._reput.committed_index = self.replica.log.ledger_end_index
        self._runtime.reput_wanted()

    with patched(MessageStore, "committed", committed):
        yield


@contextmanager
def cut_delivery_not_counted() -> Iterator[None]:
    """Of a delivery that a change of leader has cut, nothing counts: what was delivered is delivered again."""
    old = DelayOffsetTable.settle

    def settle(self: DelayOffsetTable, applied_index: Index) -> None:
        delivery = self.under_way
        if delivery is not None and applied_index + 1 >= delivery.first_index + delivery.count:
            old(self, applied_index)

    with patched(DelayOffsetTable, "settle", settle):
        yield


@contextmanager
def delivery_counted_by_its_record() -> Iterator[None]:
    """The record that announces a delivery counts for all of it, although its messages can be cut."""
    old = DelayOffsetTable.settle

    def settle(self: DelayOffsetTable, applied_index: Index) -> None:
        old(self, Index(1 << 62))

    with patched(DelayOffsetTable, "settle", settle):
        yield


@contextmanager
def any_full_state_taken() -> Iterator[None]:
    """A member takes the first full-state record that it meets, even one of a time before its log begins."""
    old = StateMachine.apply

    def apply(self: StateMachine, *arguments: Any) -> Any:
        self._before_begin_index = Index(-1)
        return old(self, *arguments)

    with patched(StateMachine, "apply", apply):
        yield


@contextmanager
def index_file_not_rolled_back() -> Iterator[None]:
    """After a crash the slots of an IndexFile go on pointing at entries behind the mark, which others overwrite."""

    def roll_back(*arguments: Any) -> None:
        return

    with patched(index_file_recovery, "roll_back", roll_back):
        yield


@contextmanager
def wall_clock_followed() -> Iterator[None]:
    """A process looks at the wall clock each time it asks how late it is."""

    def steady_clock(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Callable[[], int]:
        return lambda: wall_ns() // 1_000_000

    with patched(sim_member, "steady_clock", steady_clock):
        yield


@contextmanager
def learner_counted() -> Iterator[None]:
    """What a learner acknowledges counts as if it were a voter."""

    old = CurrentMembers._count

    def count(self: CurrentMembers) -> None:
        old(self)
        self.counted = frozenset(self.value.members)

    with patched(CurrentMembers, "_count", count):
        yield


@contextmanager
def lost_disk_counted() -> Iterator[None]:
    """Who has a voter's name is that voter, whatever disk it has."""
    old_count, old_disk_of = CurrentMembers._count, CurrentMembers.disk_of

    def count(self: CurrentMembers) -> None:
        old_count(self)
        self.counted = frozenset(self.value.voters)

    def disk_of(self: CurrentMembers, peer: PeerId) -> bytes | None:
        seat = self.value.voters.get(peer)
        return seat.disk if seat is not None else old_disk_of(self, peer)

    with patched(CurrentMembers, "_count", count), patched(CurrentMembers, "disk_of", disk_of):
        yield


@contextmanager
def two_changes_at_once() -> Iterator[None]:
    """The next change of the members does not wait until the last one is committed."""
    old = MembershipChanges.refusal

    def refusal(self: MembershipChanges) -> Refusal | None:
        refused = old(self)
        return None if refused and refused.reason is RefusalReason.CHANGE_IN_PROGRESS else refused

    with patched(MembershipChanges, "refusal", refusal):
        yield


@contextmanager
def membership_counts_at_commit() -> Iterator[None]:
    """A leader goes on with the members of before until its change is committed."""
    old = MembershipChanges.follow

    def follow(self: MembershipChanges, now_ms: int) -> None:
        if (
            self._log.ledger_end_index < 0
            or self._members._log.membership_index <= self._state.committed_index
        ):
            old(self, now_ms)

    with patched(MembershipChanges, "follow", follow):
        yield


@contextmanager
def membership_not_taken_back() -> Iterator[None]:
    """A member whose log was cut goes on with the members of the entry that is gone."""
    old = CurrentMembers.refresh

    def refresh(self: CurrentMembers) -> bool:
        return self._log.membership_index > self.index and old(self)

    with patched(CurrentMembers, "refresh", refresh):
        yield


@contextmanager
def transfer_to_lagging() -> Iterator[None]:
    """The target is told to campaign whatever it lacks, and whatever waits for a majority."""

    def holds_all(self: LeadershipTransfer, target: PeerId) -> bool:
        return True

    with patched(LeadershipTransfer, "_holds_all", holds_all):
        yield


@contextmanager
def acks_after_failed_sync() -> Iterator[None]:
    """A sync that has failed counts like any other: the kernel calls the pages clean."""
    old = DiskWork.settle

    def settle(self: DiskWork, job: DiskJob, error: Exception | None, now_ms: int) -> Settled | None:
        return old(self, job, None if job is self._sync else error, now_ms)

    with patched(DiskWork, "settle", settle):
        yield


@contextmanager
def appends_taken_during_transfer() -> Iterator[None]:
    """A leader that hands over goes on taking appends: what comes last ends without an outcome."""
    old = Member.check_append

    def check(self: Member, size: int, count: int) -> Refusal | None:
        target, self._transfer.target = self._transfer.target, None
        refusal = old(self, size, count)
        self._transfer.target = target
        return refusal

    with patched(Member, "check_append", check):
        yield


@contextmanager
def full_leader_keeps_leading() -> Iterator[None]:
    """A leader that cannot write refuses, and nobody else gets a chance."""

    def successor(*arguments: Any) -> None:
        return None

    with patched(DiskFitness, "successor", successor):
        yield


@contextmanager
def hung_disk_keeps_heart_beating() -> Iterator[None]:
    """Heartbeats do not ask whether the disk finishes anything."""

    def waiting_ms(self: DurableIndex, now_ms: int) -> int:
        return 0

    with patched(DurableIndex, "waiting_ms", waiting_ms):
        yield


@contextmanager
def read_index_without_a_round() -> Iterator[None]:
    """A leader takes its commit for that of the group, and asks nobody whether another leads."""

    def begin_round(self: ReadIndex, now_ms: int) -> None:
        while self._led:
            read = self._led.popleft()
            self._answer(read.asker, read.read_index)

    with patched(ReadIndex, "_begin_round", begin_round):
        yield


@contextmanager
def read_index_before_own_term() -> Iterator[None]:
    """A new leader answers with the commit that it knows of, before an entry of its term is committed."""
    old = ReadIndex._leading_refusal

    def leading_refusal(self: ReadIndex) -> Refusal | None:
        refused = old(self)
        return None if refused and refused.reason is RefusalReason.LEADER_NOT_READY else refused

    with patched(ReadIndex, "_leading_refusal", leading_refusal):
        yield


@contextmanager
def unknown_told_as_refused() -> Iterator[None]:
    """Who waits for an append of a leader that is deposed is told that nothing was stored."""
    old = put_gather._tell

    def tell(parts: Sequence[_Part], outcome: PutBatch | PutRefusal) -> None:
        is_unknown = isinstance(outcome, PutRefusal) and outcome.status is PutStatus.UNKNOWN
        old(parts, PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "not stored") if is_unknown else outcome)

    with patched(put_gather, "_tell", tell):
        yield


@contextmanager
def round_answered_at_append() -> Iterator[None]:
    """Who sends is told that a message is stored when it is in the leader's log."""
    old = PutGather._append

    def append(self: PutGather, parts: list[_Part]) -> None:
        count = len(self.rounds)
        old(self, parts)
        for round_ in self.rounds[count:]:
            round_.ended(AppendStatus.SUCCESS)

    with patched(PutGather, "_append", append):
        yield


@contextmanager
def order_of_a_connection_broken() -> Iterator[None]:
    """What came last goes first into a round."""
    old = PutGather._take_parts

    def take_parts(self: PutGather) -> list[_Part]:
        return old(self)[::-1]

    with patched(PutGather, "_take_parts", take_parts):
        yield


@contextmanager
def sends_of_a_connection_dropped() -> Iterator[None]:
    """As if it had closed before the turn in which they were read has ended."""
    old = PutGather.add

    def add(
        self: PutGather,
        source: int,
        *arguments: Any,
    ) -> None:
        if source != 3:
            old(self, source, *arguments)

    with patched(PutGather, "add", add):
        yield


MUTANTS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        mutant.__name__: mutant
        for mutant in (
            vote_forgotten,
            ack_before_sync,
            old_term_commit_by_counting,
            pre_vote_counted_as_vote,
            truncation_below_commit,
            stale_answer_accepted,
            queue_offset_table_not_rebuilt,
            reput_past_commit,
            cut_delivery_not_counted,
            delivery_counted_by_its_record,
            timer_fired_at_its_slot,
            cut_timers_not_counted,
            timers_counted_by_their_record,
            recall_counts_when_applied,
            any_full_state_taken,
            index_file_not_rolled_back,
            transfer_to_lagging,
            appends_taken_during_transfer,
            wall_clock_followed,
            acks_after_failed_sync,
            full_leader_keeps_leading,
            hung_disk_keeps_heart_beating,
            learner_counted,
            lost_disk_counted,
            two_changes_at_once,
            membership_counts_at_commit,
            membership_not_taken_back,
            fault_taken_for_the_end,
            repair_bytes_not_checked,
            damaged_member_leads,
            lost_tail_not_doubted,
            begin_known_to_the_mark_alone,
            scrub_skips_bodies,
            stale_entries_believed,
            read_index_without_a_round,
            read_index_before_own_term,
            unknown_told_as_refused,
            round_answered_at_append,
            order_of_a_connection_broken,
            sends_of_a_connection_dropped,
            ended_transactions_forgotten,
            end_counted_by_its_record,
            cut_end_not_counted,
            *POP_MUTANTS,
            *ACCESS_MUTANTS,
        )
    }
)
