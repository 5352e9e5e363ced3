"""The store of one broker over its replica of the log, and the way of a message through it.

A send goes through `gather` into the log. The replica, whose embedder this is, says what is committed; reput_step()
dispatches that, and `reads` sees it. Everything runs in the replica's thread and is driven from outside: by events of
the replica, reput_step(), tick(). Blocking work on derived files leaves as jobs through the runtime.
"""

import logging
from collections.abc import Callable, Sequence

from disk.disk import Disk
from disk.mapped_file import DescriptorCache
from dledger.core.messages import PeerId
from dledger.core.output import Role, RoleChange
from dledger.core.refusal import Refusal
from dledger.entry import Index, Term
from dledger.figures import Figures
from dledger.log.jobs import DiskJob
from message.decoder import decode_message
from store.derived.derived_files import DerivedFiles
from store.derived.store_checkpoints import StoreCheckpoints
from store.dispatch_request import DispatchRequest
from store.dledger_commit_log import DLedgerCommitLog
from store.errors import StateRecordError, StoreDamagedError
from store.index.index_file_flush import Pause
from store.index.index_file_list import no_pause
from store.index.index_service import IndexService
from store.java.abort_file import mark_running
from store.java.java_import import JavaImport, is_sound_record
from store.java.old_commit_log import OldCommitLog
from store.java.plain_import import ImportedState
from store.leading import Leading
from store.message_reader import MessageReader
from store.put_gather import PutGather
from store.queues.consume_queue_store import ConsumeQueueStore
from store.read_index_waits import ReadIndexWaits
from store.replicated_log import ReplicatedLog
from store.reput import Reput
from store.retention import HourOf, Retention, utc_hour
from store.services.leader_service import LeaderStore
from store.services.leader_services import LeaderServices
from store.state.state_machine import StateMachine
from store.state.state_proposals import OnProposed, StateProposals
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.tables.topic_config_table import DeleteTopic
from store.store_config import StoreConfig
from store.store_reads import StoreReads
from store.store_runtime import StoreRuntime
from store.system_message import SystemMessage

log = logging.getLogger(__name__)

OnArriving = Callable[[Sequence[DispatchRequest]], None]
OnRoleChanged = Callable[[RoleChange], None]
OnServing = Callable[[bool], None]
_NOTHING_IMPORTED = ImportedState()

# A follower dispatches what many commits have brought at once: hardly anybody waits for it there.
FOLLOWER_REPUT_MS = 5
# A tick does as much for derived files as costs little at this pace. Under load there is always more of it to do.
WORK_INTERVAL_MS = 50


class MessageStore:
    """Invariant: all that is derived here from the log (queues, tables, IndexFiles) follows from committed entries, in
    their order. When it takes messages is up to Leading, when derived files go to disk up to DerivedFiles.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        runtime: StoreRuntime,
        hour_of: HourOf = utc_hour,
        pause: Pause = no_pause,
    ) -> None:
        """Then start() with the replica, which needs this as its embedder before. `hour_of`: by the clock of the place,
        for deleteWhen. `pause`: sleeps for a tenth of a millisecond or so, in the thread of a job that computes.
        """
        self.config = config
        self.role = Role.FOLLOWER
        self.term = Term(-1)
        self.leader_id: str | None = None
        self.stopped_cleanly = True  # the run before this one; known after start()
        self._disk = disk
        self._runtime = runtime
        self._hour_of = hour_of
        self._pause = pause
        self._now_ms = 0
        self._arrival_listeners: list[OnArriving] = []
        self._role_listeners: list[OnRoleChanged] = []
        self._serving_listeners: list[OnServing] = []
        self._descriptors = DescriptorCache(disk)
        self.queues = ConsumeQueueStore(self._descriptors, config)
        self._follower_reput_due = False
        # Made by start().
        self.replica: ReplicatedLog
        self.gather: PutGather  # for whatever is sent
        self.reads: StoreReads  # for whatever is read
        self.read_index_waits: ReadIndexWaits
        self.tables: StateTables  # as applied
        self.index: IndexService
        self.retention: Retention
        self._imported: ImportedState
        self._commit_log: DLedgerCommitLog
        self._old_commit_log: OldCommitLog
        self._state: StateMachine
        self._proposals: StateProposals
        self._reput: Reput
        self._derived: DerivedFiles
        self.services: LeaderServices
        self._leading: Leading

    # -- start and end -----------------------------------------------------------------------------------------

    def start(self, replica: ReplicatedLog, now_ms: int, imported: ImportedState = _NOTHING_IMPORTED) -> None:
        """Recovers what is derived from the log; blocks. What comes behind the last checkpoint is dispatched again by
        and by, as soon as the group says what is committed. `imported`: what RocketMQ has left in a plain store.
        Raises DiskError, StoreDamagedError.
        """
        self._now_ms = now_ms
        config = self.config
        self.replica = replica
        self._commit_log = DLedgerCommitLog(config, replica, self.queues)
        self.gather = PutGather(self._commit_log, self._runtime, replica.wait_ack_ms_max)
        self._old_commit_log = OldCommitLog(config, self._descriptors, replica.log.ledger_begin_pos)
        before_begin_index = Index(replica.log.ledger_begin_index - 1)
        self._imported = imported
        # Once what was imported has gone, a full-state record in the log holds what was left of it.
        reaches_back = before_begin_index <= imported.last_index
        self._state = StateMachine(
            is_whole=reaches_back,
            before_begin_index=before_begin_index,
            imported_tables=imported.tables if reaches_back else None,
            imported_index=imported.last_index,
            topic_deleted=self._topic_deleted,
        )
        self.tables = self._state.tables
        self._proposals = StateProposals(
            self._commit_log, config.state_record_size_max, self._members_without
        )
        self._reput = Reput(config, replica.log, self._commit_log, self.queues, self)
        reader = MessageReader(config, replica.log, self._old_commit_log, self.queues, self._reput)
        self.index = IndexService(
            config,
            self._descriptors,
            replica.log,
            self._old_commit_log,
            self._reput,
            self._runtime.submit,
            self._pause,
        )
        self._derived = DerivedFiles(
            config,
            self._disk,
            self._runtime,
            replica,
            self._old_commit_log,
            self.queues,
            self._state,
            self._reput,
            reader,
            self.index,
            StoreCheckpoints(
                config,
                self._disk,
                replica.log,
                self._old_commit_log,
                self._commit_log,
                self.queues,
                self._state,
                self._reput,
            ),
            lambda queue: self.services.units_mended(queue),
            lambda: self.services.first_waiting_pos(),
            self._hour_of,
        )
        self.retention = self._derived.retention
        self.reads = StoreReads(
            self.queues,
            reader,
            self.index,
            self._reput,
            self._state,
            self._proposals,
            self._derived.unit_rebuild,
        )
        self.read_index_waits = ReadIndexWaits(replica, self._applied_if_whole)
        self.services = LeaderServices(
            LeaderStore(
                config,
                self._disk,
                self._runtime,
                self.queues,
                reader,
                self._commit_log,
                self._state,
                self._derived.unit_rebuild.want,
                lambda: self._proposals.deletes_topics,
                self._members_without,
                self.retention.log,
            )
        )
        java_import = JavaImport(self._disk, config)
        self._leading = Leading(
            config,
            replica,
            self._commit_log,
            self.gather,
            self._reput,
            self.queues,
            self._state,
            self._proposals,
            self.services,
            java_import,
            self._serving_changed,
        )
        self.stopped_cleanly = mark_running(self._disk, config)
        java_import.look()
        self._derived.recover(stopped_cleanly=self.stopped_cleanly)
        self._reput.committed_index = self._reput.applied_index
        replica.applied_index = self._reput.applied_index

    def stop(self) -> None:
        """After the replica has stopped and while its log is still open: dispatches what is committed, for the last
        time. Raises StoreDamagedError, DiskError.
        """
        self._derived.clear()
        while self._reput.is_behind and self._reput.step():
            pass
        self.read_index_waits.stop()
        self._derived.stop(self._now_ms)

    def close(self, *, clean: bool) -> None:
        """With no job of the store under way. Clean (after stop()): all is flushed, and exported for Java, unless
        there is no space; blocks. Raises DiskError.
        """
        self._derived.close(self._now_ms, clean=clean)
        self._old_commit_log.close()

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._derived.is_busy

    @property
    def serving(self) -> bool:
        return self._commit_log.serving_term is not None

    @property
    def features(self) -> Sequence[str]:
        """What members of an earlier release may not know: tables, by name."""
        return tuple(StateTables().named)

    def figures(self) -> Figures:
        """For programs that watch."""
        disk = self.retention.log
        return {
            "serving": self.serving,
            "queues": len(self.queues),
            "consume_queue_mended_total": self._derived.unit_rebuild.rebuilt,
            "disk_free_bytes": disk.disk_free,
            "disk_size_bytes": disk.disk_size,
            "disk_full": disk.disk_full is not None,
            **self.services.timer_message_service.figures(),
            **self.services.transaction_service.figures(),
            **self.services.pop_revive_service.figures(),
        }

    # -- the way of a message: what `gather` has put into the log is committed, dispatched, and then seen -------

    def committed(self, committed_index: Index) -> None:
        if committed_index <= self._reput.committed_index:
            return
        self._reput.committed_index = committed_index
        if self.role is Role.LEADER:
            self._runtime.reput_wanted()
        elif not self._follower_reput_due:
            self._follower_reput_due = True
            self._runtime.call_later(FOLLOWER_REPUT_MS, self._reput_at_follower)

    def _reput_at_follower(self) -> None:
        self._follower_reput_due = False
        self._runtime.reput_wanted()

    def reput_step(self, now_ms: int) -> int:
        """Dispatches some committed entries. Returns how many; asks to be called again if there are more.

        Raises StoreDamagedError: then this member must stop. DiskError.
        """
        self._now_ms = now_ms
        if self._derived.is_clearing:
            return 0
        topics = self.tables.topic_config_table
        topics_version = topics.data_version
        count = self._reput.step()
        if topics.data_version is not topics_version:
            self.gather.append_waiting()  # it was checked with the topics as they were
        if count:
            applied_index = self._reput.applied_index
            self.replica.applied_index = applied_index
            self._state.settle(applied_index)
            self.services.applied(applied_index, now_ms)
            self.read_index_waits.advance()
            if self._reput.is_behind:
                self._runtime.reput_wanted()
        if self.services.is_behind:
            self._catch_up(now_ms)
        return count

    def arrived(self, requests: list[DispatchRequest]) -> None:
        for listener in self._arrival_listeners:
            listener(requests)

    # -- driven from outside -----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Every 10 ms or so: appends waiting changes and delayed messages whose time has come, starts jobs that are
        due. Raises StoreDamagedError when a damaged queue cannot be mended, or retention has found a damaged log: then
        this member must stop. Its peers have sound ones, and the next start has sound queues.
        """
        self._now_ms = now_ms
        if self._reput.waits_for is not None:
            self._runtime.reput_wanted()
        self.read_index_waits.tick(now_ms)
        self.gather.tick(now_ms)
        if not self._derived.is_clearing:
            self._catch_up(now_ms)
        self._leading.tick(now_ms)
        self._derived.tick(now_ms)
        disk_full = self.retention.log.disk_full
        self._commit_log.disk_full = disk_full
        self.replica.set_low_space(disk_full)

    def _catch_up(self, now_ms: int) -> None:
        self.services.catch_up(now_ms)
        if self.services.is_behind:
            self._runtime.reput_wanted()

    def due_ms(self, now_ms: int) -> int | None:
        """When the next tick is to come, at the latest; None: whatever there is to do waits for any that comes."""
        due_ms = self.services.due_ms if self.serving else None
        if not self._derived.has_work:
            return due_ms
        work_ms = now_ms + WORK_INTERVAL_MS
        return work_ms if due_ms is None else min(due_ms, work_ms)

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        self._derived.job_done(job, error, now_ms)

    def add_arrival_listener(self, listener: OnArriving) -> None:
        """Called once per reput step with what became visible in it, by queue."""
        self._arrival_listeners.append(listener)

    def add_role_listener(self, listener: OnRoleChanged) -> None:
        self._role_listeners.append(listener)

    def add_serving_listener(self, listener: OnServing) -> None:
        """Called when `serving` has become True or False."""
        self._serving_listeners.append(listener)

    def _serving_changed(self, is_serving: bool) -> None:
        for listener in self._serving_listeners:
            listener(is_serving)

    # -- changing ----------------------------------------------------------------------------------------------

    def transfer_leadership(self, target: PeerId | None, now_ms: int) -> Refusal | None:
        """Begins to hand leadership over to `target`, or to the member that lacks least. Changes that wait go before,
        into the log of this leader.
        """
        if self.serving:
            self._proposals.flush(now_ms)
        return self.replica.transfer_leadership(target, "an operator asked for it", now_ms)

    def propose(self, change: StateChange, on_done: OnProposed | None, now_ms: int) -> None:
        """Changes the tables through the log. `on_done` comes once, when this member has applied it or it has failed;
        without it (one-way) nobody waits. May call `on_done` before it returns, if it refuses.
        """
        if isinstance(change, DeleteTopic):
            self.gather.append_waiting()  # behind the deletion it would be the messages of a new topic
        self._proposals.propose(change, on_done, now_ms)

    # -- Embedder of the replica -------------------------------------------------------------------------------

    def is_sound_body(self, body: memoryview) -> bool:
        return is_sound_record(body)

    def no_op(self, term: Term) -> SystemMessage:
        return self._commit_log.no_op(term)

    def membership_entry(self, payload: bytes) -> SystemMessage:
        return self._commit_log.membership_entry(payload)

    def membership_payload(self, body: bytes) -> bytes:
        return decode_message(body).body

    def role_changed(self, change: RoleChange) -> None:
        self.role, self.term, self.leader_id = change.role, change.term, change.leader_id
        self._leading.role_changed(change, self._now_ms)
        for listener in self._role_listeners:
            listener(change)

    def log_cut(self, from_index: Index) -> None:
        self._commit_log.log_cut(from_index)
        flusher = self._derived.flusher
        flusher.export_from_index = min(flusher.export_from_index, from_index)

    def log_began_anew(self, before_begin_index: Index) -> None:
        """What was derived is void. A full-state record in the log makes it whole again."""
        log.warning("log began anew before_begin_index=%d", before_begin_index)
        self._commit_log.log_cut(Index(0))
        self._old_commit_log.close()  # it does not reach up to here any more
        self._state.begin_anew(before_begin_index)
        self._state.deleted_topics.clear()
        self._derived.begin_anew()
        self._reput.start_from(before_begin_index, self.replica.log.ledger_begin_pos)
        self._reput.committed_index = before_begin_index
        self.replica.applied_index = before_begin_index
        self._derived.clear()

    # -- AppliedEntries of reput -------------------------------------------------------------------------------

    def no_op_applied(self, term: Term, index: Index) -> None:
        self._state.term_began(index)
        if index == self._imported.last_index + 1:
            # All queues that have a message are there now; the others go on where they ended.
            self.queues.set_empty_queues(self._imported.queues)
        log.info("no-op applied term=%d index=%d", term, index)
        is_own = self.role is Role.LEADER and self.term == term
        self._leading.no_op_applied(term, index, is_own=is_own, now_ms=self._now_ms)

    def java_term_began(self, index: Index) -> None:
        log.info("entries of Java begin index=%d", index)
        self._state.java_term_began(index)

    def state_applied(self, body: bytes, term: Term, index: Index, pos: int, store_timestamp: int) -> None:
        try:
            queues = self._state.apply(body, index, pos, store_timestamp)
        except StateRecordError as error:
            raise StoreDamagedError(f"state entry {index}: {error}") from error
        if queues:
            self.queues.set_empty_queues(queues)
        self._proposals.applied(index, self._now_ms)
        self._state.part_applied(index)
        self._leading.state_applied()

    def _members_without(self, table_name: str) -> Sequence[PeerId]:
        """Of a table that was used before, none: all knew it then, whether this member has seen them since or not."""
        is_used = self.tables.named[table_name].is_used
        return () if is_used else self.replica.members_without(table_name)

    def _topic_deleted(self, topic: str) -> None:
        self.retention.queues.emptied(self.queues.let_go(topic.encode()))

    def _applied_if_whole(self) -> Index | None:
        """None: the log began anew, and what it says of the time before has not come yet."""
        return self._reput.applied_index if self._state.is_whole and not self._derived.is_clearing else None
