"""The store of one broker over its replica of the log: what the broker's processors put to, get from and propose to.

It is the replica's embedder. Everything here runs in the replica's thread and is driven from outside: events of the
replica, `reput_step`, `tick`. Blocking work on derived files leaves as jobs through the runtime.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from disk.disk import Disk, NoSpaceError
from disk.mapped_file import DescriptorCache
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus, Role, RoleChange
from dledger.core.refusal import Refusal
from dledger.entry import GENESIS_CHAIN, Index, Term
from dledger.errors import FaultyEntryError
from dledger.figures import Figures
from dledger.log.java_files import checkpoint_job
from dledger.log.jobs import DiskJob
from message.decoder import decode_message
from store.derived.checkpoint_file import Checkpoint, load_checkpoint
from store.derived.derived_files import DerivedFiles
from store.derived.state_files_scrub import StateFilesScrub
from store.derived.store_flusher import StoreFlusher
from store.dispatch_request import DispatchRequest
from store.dledger_commit_log import DLedgerCommitLog
from store.errors import MessageDamagedError, StateRecordError, StoreDamagedError, UnitDamagedError
from store.index.index_file_flush import Pause
from store.index.index_file_list import no_pause
from store.index.index_service import IndexService
from store.java.abort_file import mark_running, mark_stopped
from store.java.java_import import JavaImport, is_sound_record
from store.java.old_commit_log import OldCommitLog
from store.java.plain_import import ImportedState
from store.message_reader import MessageReader
from store.put_gather import PutGather
from store.put_message import PutRefusal, PutStatus
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.read_index_waits import ReadIndexWaits
from store.replicated_log import ReplicatedLog
from store.reput import Reput
from store.retention import HourOf, Retention, utc_hour
from store.services.leader_service import LeaderService, LeaderStore
from store.services.leader_services import make_leader_services
from store.state.state_machine import StateMachine
from store.state.state_proposals import OnProposed, StateProposals
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
_SERVES_NO_MORE = PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "this member stopped serving as leader")

# A follower dispatches what many commits have brought at once: hardly anybody waits for it there.
FOLLOWER_REPUT_MS = 5


class MessageStore(StoreReads):
    """Invariant: it serves only while its member leads with its own no-op committed and dispatched here, with all that
    is before it; then the tables are as the last leader left them, and each queue's next offset is known.
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
        self._queues = ConsumeQueueStore(self._descriptors, config)
        self._no_op_term = Term(-1)  # of the newest no-op applied
        self._before_no_op_term = Term(-1)  # of the entry before that
        self._last_checkpoint: Checkpoint | None = None  # taken by stop()
        self._java_import = JavaImport(disk, config)
        self._follower_reput_due = False
        self._is_importing = False  # this member leads, and what Java left is on its way into the log
        self._is_clearing = False  # the log began anew; ConsumeQueue files of before are to go first
        # Made by start(), as what StoreReads names is.
        self._imported: ImportedState
        self._replica: ReplicatedLog
        self._old_commit_log: OldCommitLog
        self._services: list[LeaderService]
        self._flusher: StoreFlusher
        self._retention: Retention
        self.gather: PutGather  # for whatever is sent

    # -- start and end -----------------------------------------------------------------------------------------

    def start(self, replica: ReplicatedLog, now_ms: int, imported: ImportedState = _NOTHING_IMPORTED) -> None:
        """Recovers what is derived from the log; blocks. What comes behind the last checkpoint is dispatched again by
        and by, as soon as the group says what is committed. `imported`: what RocketMQ has left in a plain store.
        Raises DiskError, StoreDamagedError.
        """
        self._now_ms = now_ms
        config = self.config
        self._replica = replica
        self._commit_log = DLedgerCommitLog(config, replica, self._queues)
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
        self._proposals = StateProposals(
            self._commit_log, config.state_record_size_max, replica.members_without
        )
        self._reput = Reput(config, replica.log, self._commit_log, self._queues, self)
        self._reader = MessageReader(config, replica.log, self._old_commit_log, self._queues, self._reput)
        self._index = IndexService(
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
            replica,
            self._old_commit_log,
            self._queues,
            self._reader,
            self._reput,
            self._index,
            self._runtime.submit,
            self._units_mended,
        )
        self._read_index_waits = ReadIndexWaits(replica, self._applied_if_whole)
        self._services = make_leader_services(
            LeaderStore(
                self._queues,
                self._reader,
                self._commit_log,
                self._state,
                self._derived.mender.want,
                lambda: self._proposals.deletes_topics,
            )
        )
        self.stopped_cleanly = mark_running(self._disk, config)
        self._java_import.look()
        self._recover()
        self._index.open(stopped_cleanly=self.stopped_cleanly)
        self._flusher = StoreFlusher(
            config,
            self._disk,
            self._queues,
            self._state,
            self._capture,
            lambda: self._index.flushed_timestamp,
            self._runtime.submit,
            self._reput.applied_index,
        )
        replica.scrubber.add(StateFilesScrub(self._disk, self._flusher))
        # With the next term: before, what Java's broker has left in config/ may still be wanted.
        self._flusher.export_from_index = Index(replica.log.ledger_end_index + 1)
        self._retention = Retention(
            config,
            self._disk,
            replica,
            self._old_commit_log,
            self._queues,
            self._flusher,
            self._first_waiting_pos,
            self._hour_of,
        )
        # What a stop has left of the files of deleted topics goes.
        self._retention.queues.emptied(self._queues.empty_queues(self._state.deleted_topics))
        self._reput.committed_index = self._reput.applied_index
        replica.applied_index = self._reput.applied_index

    def stop(self) -> None:
        """After the replica has stopped and while its log is still open: dispatches what is committed, for the last
        time. Raises StoreDamagedError, DiskError.
        """
        self._clear_queues()
        while self._reput.is_behind and self._reput.step():
            pass
        self._read_index_waits.stop()
        self._index.catch_up(self._now_ms)
        self._last_checkpoint = self._capture()

    def close(self, *, clean: bool) -> None:
        """With no job of the store under way. Clean (after stop()): all is flushed, and exported for Java, unless
        there is no space; blocks. Raises DiskError.
        """
        if clean:
            try:
                self._flush_all()
            except NoSpaceError as error:
                log.warning(
                    "derived files are left as by a crash, the next start makes them good error=%s", error
                )
        self._index.close()
        self._queues.close()
        self._old_commit_log.close()

    def _flush_all(self) -> None:
        applied_index = self._reput.applied_index
        self._index.flush(self._now_ms)  # the checkpoint tells of it
        self._flusher.flush_all(applied_index, self._last_checkpoint)
        # Java dispatches what lies behind this index; were it too far, those messages never got units.
        end_index = self._replica.log.ledger_end_index
        checkpoint_job(self._disk, self.config.ledger_directory, end_index, applied_index).run()
        mark_stopped(self._disk, self.config)

    @property
    def is_busy(self) -> bool:
        """Whether a job is under way."""
        return self._flusher.is_busy or self._index.is_busy or self._derived.mender.is_busy

    @property
    def disk_full(self) -> str | None:
        """Why sends are refused for want of space."""
        return self._retention.log.disk_full

    def figures(self) -> Figures:
        """For programs that watch."""
        disk = self._retention.log
        return {
            "serving": self.serving,
            "queues": len(self._queues),
            "consume_queue_mended_total": self._derived.units_mended,
            "disk_free_bytes": disk.disk_free,
            "disk_size_bytes": disk.disk_size,
            "disk_full": disk.disk_full is not None,
        }

    # -- driven from outside -----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Every 10 ms or so: appends waiting changes and delayed messages whose time has come, starts jobs that are
        due. Raises StoreDamagedError when a damaged queue cannot be mended, or retention has found a damaged log: then
        this member must stop. Its peers have sound ones, and the next start has sound queues.
        """
        self._now_ms = now_ms
        if self._reput.waits_for is not None:
            self._runtime.reput_wanted()
        self._read_index_waits.tick(now_ms)
        self.gather.tick(now_ms)
        self._state.settle(self._reput.applied_index)
        if self.serving:
            self._proposals.flush(now_ms)
            for service in self._services:
                with suppress(MessageDamagedError, UnitDamagedError):
                    service.tick(now_ms)  # what is due waits until it is repaired
        if self.serving or self._is_importing:
            self._write_full_state(now_ms)
        self._flusher.tick(self._reput.applied_index, now_ms)
        if not self._is_clearing:
            self._derived.mender.tick()
            self._index.tick(now_ms)
            self._retention.tick(self.full_state_index, now_ms)
            self._commit_log.disk_full = self._retention.log.disk_full
            self._replica.set_low_space(self._retention.log.disk_full)

    def due_ms(self, now_ms: int) -> int | None:
        """When the next tick is to come, at the latest; None: whatever there is to do waits for any that comes."""
        if self._index.has_work or self._derived.mender.has_work or self._retention.queues.has_work:
            return now_ms
        due = [service.due_ms for service in self._services] if self.serving else []
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def reput_step(self, now_ms: int) -> int:
        """Dispatches some committed entries. Returns how many; asks to be called again if there are more.

        Raises StoreDamagedError: then this member must stop. DiskError.
        """
        self._now_ms = now_ms
        if self._is_clearing:
            return 0
        topics = self._state.tables.topic_config_table
        topics_version = topics.data_version
        count = self._reput.step()
        if topics.data_version is not topics_version:
            self.gather.append_waiting()  # it was checked with the topics as they were
        if count:
            applied_index = self._reput.applied_index
            self._replica.applied_index = applied_index
            for service in self._services:
                if service.awaited_index is not None and service.awaited_index <= applied_index:
                    self._state.settle(applied_index)
                    with suppress(MessageDamagedError, UnitDamagedError):
                        service.applied(applied_index, now_ms)
            self._read_index_waits.advance()
            if self._reput.is_behind:
                self._runtime.reput_wanted()
        return count

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        if not self._index.job_done(job, error) and not self._derived.mender.job_done(job, error):
            self._flusher.job_done(job, error)
        self._clear_queues()
        self._flusher.tick(self._reput.applied_index, now_ms)

    def add_arrival_listener(self, listener: OnArriving) -> None:
        """Called once per reput step with what became visible in it, by queue."""
        self._arrival_listeners.append(listener)

    def add_role_listener(self, listener: OnRoleChanged) -> None:
        self._role_listeners.append(listener)

    def add_serving_listener(self, listener: OnServing) -> None:
        """Called when `serving` has become True or False."""
        self._serving_listeners.append(listener)

    # -- changing ----------------------------------------------------------------------------------------------

    @property
    def retention(self) -> Retention:
        """For what is asked of it by hand."""
        return self._retention

    @property
    def replica(self) -> ReplicatedLog:
        """For what is asked of it by hand: members, scrub, repairs."""
        return self._replica

    def transfer_leadership(self, target: PeerId | None, now_ms: int) -> Refusal | None:
        """Begins to hand leadership over to `target`, or to the member that lacks least. Changes that wait go before,
        into the log of this leader.
        """
        if self.serving:
            self._proposals.flush(now_ms)
        return self._replica.transfer_leadership(target, "an operator asked for it", now_ms)

    @property
    def awaited_index(self) -> Index | None:
        """Of the last entry that a leader service has on its way: delayed messages that go to their topics."""
        awaited = [service.awaited_index for service in self._services]
        return max((index for index in awaited if index is not None), default=None)

    @property
    def committed_index(self) -> Index:
        return self._reput.committed_index

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

    def role_changed(self, change: RoleChange) -> None:
        self.role, self.term, self.leader_id = change.role, change.term, change.leader_id
        if change.role is not Role.LEADER or self._commit_log.serving_term != change.term:
            self._stop_serving()
            if change.role is Role.LEADER and self._no_op_term == change.term:
                self._begin_term()
        for listener in self._role_listeners:
            listener(change)

    def log_cut(self, from_index: Index) -> None:
        self._commit_log.log_cut(from_index)
        self._flusher.export_from_index = min(self._flusher.export_from_index, from_index)

    def log_began_anew(self, before_begin_index: Index) -> None:
        """What was derived is void. A full-state record in the log makes it whole again."""
        log.warning("log began anew before_begin_index=%d", before_begin_index)
        self._commit_log.log_cut(Index(0))
        self._old_commit_log.close()  # it does not reach up to here any more
        self._state.begin_anew(before_begin_index)
        self._state.deleted_topics.clear()
        self._queues.forget_all()
        self._derived.begin_anew()
        self._flusher.begin_anew()
        self._retention.begin_anew()
        self._reput.start_from(before_begin_index, self._replica.log.ledger_begin_pos)
        self._reput.committed_index = before_begin_index
        self._replica.applied_index = before_begin_index
        self._is_clearing = True
        self._clear_queues()

    # -- AppliedEntries of reput -------------------------------------------------------------------------------

    def arrived(self, requests: list[DispatchRequest]) -> None:
        for listener in self._arrival_listeners:
            listener(requests)

    def no_op_applied(self, term: Term, index: Index) -> None:
        self._no_op_term = term
        before = self._replica.log.term_at(Index(index - 1))
        assert before is not None, "what was applied last is in the log, or was before its begin"
        self._before_no_op_term = before
        self._state.term_began(index)
        if index == self._imported.last_index + 1:
            # All queues that have a message are there now; the others go on where they ended.
            self._queues.set_empty_queues(self._imported.queues)
        log.info("no-op applied term=%d index=%d", term, index)
        if self.role is Role.LEADER and self.term == term:
            self._begin_term()

    def java_term_began(self, index: Index) -> None:
        log.info("entries of Java begin index=%d", index)
        self._state.java_term_began(index)

    def state_applied(self, body: bytes, term: Term, index: Index, pos: int, store_timestamp: int) -> None:
        try:
            queues = self._state.apply(body, index, pos, store_timestamp)
        except StateRecordError as error:
            raise StoreDamagedError(f"state entry {index}: {error}") from error
        if queues:
            self._queues.set_empty_queues(queues)
        self._proposals.applied(index, self._now_ms)
        self._state.part_applied(index)
        if self._is_importing and self._state.is_whole:
            self._start_serving()

    def _topic_deleted(self, topic: str) -> None:
        self._retention.queues.emptied(self._queues.let_go(topic.encode()))

    def _units_mended(self, queue: UnitQueue) -> None:
        for service in self._services:
            service.units_mended(queue)

    def _first_waiting_pos(self) -> int | None:
        """Of all that some leader service still needs. Raises UnitDamagedError, DiskError."""
        positions = [service.first_waiting_pos() for service in self._services]
        return min((pos for pos in positions if pos is not None), default=None)

    def _applied_if_whole(self) -> Index | None:
        """None: the log began anew, and what it says of the time before has not come yet."""
        return self._reput.applied_index if self._state.is_whole and not self._is_clearing else None

    # -- inside ------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        ledger = self._replica.log

        def is_of_log(index: Index, chain_crc: int) -> bool:
            try:
                return ledger.chain_at(index) == chain_crc
            except FaultyEntryError:
                return False

        directory = f"{self.config.ledger_directory}/pydledger"
        checkpoint = load_checkpoint(self._disk, directory, is_of_log)
        if (
            checkpoint is not None
            and checkpoint.deleted_topics is None
            and self._state.is_in_log(checkpoint.full_state_log)
        ):
            log.warning("checkpoint of an earlier version: ConsumeQueues are built anew from the log, once")
            checkpoint = None
        if checkpoint is not None:
            fault = self._queues.restore(checkpoint.queues)
            if fault is None:
                self._state.restore(
                    checkpoint.tables, checkpoint.full_state_log, checkpoint.deleted_topics or []
                )
                self._commit_log.last_store_timestamp = checkpoint.store_timestamp
                self._reput.start_from(checkpoint.applied_index, checkpoint.confirm_offset)
                log.info("store restored applied_index=%d queues=%d", self.applied_index, len(self._queues))
                return
            log.warning("ConsumeQueues are damaged, all are built anew from the log fault=%s", fault)
        self._queues.delete_all()
        self._old_commit_log.dispatch_to(self._queues, self.config.delay_levels)
        self._reput.start_from(Index(ledger.ledger_begin_index - 1), ledger.ledger_begin_pos)

    def _clear_queues(self) -> None:
        """Once no job writes to them."""
        if self._is_clearing and not self.is_busy:
            self._queues.delete_all()
            self._index.begin_anew()
            self._is_clearing = False
            if self._reput.is_behind:
                self._runtime.reput_wanted()

    def _capture(self) -> Checkpoint | None:
        if not self._state.is_whole:
            return None
        index = self._reput.applied_index
        self._state.settle(index)
        try:
            chain_crc = self._replica.log.chain_at(index) if index >= 0 else GENESIS_CHAIN
        except FaultyEntryError:
            return None
        assert chain_crc is not None, "applied entries are in the log"
        self._state.deleted_topics.forget_before(self._replica.log.durable_begin_pos)
        return Checkpoint(
            index,
            chain_crc,
            self._reput.confirm_offset,
            self._commit_log.last_store_timestamp,
            self._state.tables.pack(),
            self._state.full_state_log.pack(),
            self._queues.rows(),
            self._state.deleted_topics.pack(),
        )

    def _begin_term(self) -> None:
        """This member leads, and its no-op is applied."""
        if self._state.needs_import:
            self._state.stop_writing()
            java_term = self._replica.log.term_at(self._state.java_index)
            assert java_term is not None, "retention stays behind the newest full-state record"
            self._java_import.begin(self._state, self._queues, java_term, self.term, self.applied_index)
            self._is_importing = True
        elif self._state.is_whole:
            commits = self._java_import.commits_under_java(self._state.tables, self._before_no_op_term)
            self._start_serving()
            for change in commits:
                self.propose(change, None, self._now_ms)  # known to those who ask from now on
        else:
            raise StoreDamagedError(
                f"{self.config.ledger_directory}: nothing says which topics, groups and offsets there are: the log "
                "begins behind the last full state in it, as RocketMQ's retention may leave it, and this member has no "
                "checkpoint. A member that has one can lead. If none has, start RocketMQ on all stores, let it store a "
                "message, stop it and start these again: then config/ counts"
            )

    def _start_serving(self) -> None:
        self._is_importing = False
        self._commit_log.start_serving(self.term)
        for service in self._services:
            service.serving_changed()
        self._state.stop_writing()
        for listener in self._serving_listeners:
            listener(True)

    def _stop_serving(self) -> None:
        was_serving = self.serving
        self._is_importing = False
        self._commit_log.stop_serving()
        self.gather.refuse_waiting(_SERVES_NO_MORE)
        self._proposals.stop()
        for service in self._services:
            service.serving_changed()
        self._state.stop_writing()
        if was_serving:
            for listener in self._serving_listeners:
                listener(False)

    def _write_full_state(self, now_ms: int) -> None:
        """Begins a full-state record when one is due, and appends its next part when the last one is applied."""
        state = self._state
        state.begin_full_state(
            self._replica.log.ledger_end_pos,
            self.config.mapped_file_size_commit_log,
            self.config.state_record_size_max,
            self.term,
            self.applied_index,
            self._queues.rows,
        )
        part = state.next_part()
        if part is not None:
            batch = self._commit_log.append_state([part], _not_awaited, now_ms)
            if not isinstance(batch, PutRefusal):
                state.part_appended(batch.last_index)


def _not_awaited(status: AppendStatus) -> None:
    """Success shows when the entry is applied, failure when the leadership ends."""
