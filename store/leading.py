"""Begins and ends the service of a store whose member leads, and writes what a leader owes the log: full states."""

from collections.abc import Callable

from dledger.core.output import AppendStatus, Role, RoleChange
from dledger.entry import Index, Term
from store.dledger_commit_log import DLedgerCommitLog
from store.errors import StoreDamagedError
from store.java.java_import import JavaImport
from store.put_gather import PutGather
from store.put_message import PutRefusal, PutStatus
from store.queues.consume_queue_store import ConsumeQueueStore
from store.replicated_log import ReplicatedLog
from store.reput import Reput
from store.services.leader_services import LeaderServices
from store.state.state_machine import StateMachine
from store.state.state_proposals import StateProposals
from store.store_config import StoreConfig

_SERVES_NO_MORE = PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "this member stopped serving as leader")


class Leading:
    """Invariant: the commit log takes messages only while this member leads with its own no-op applied here, and with
    it all that is before it; then the tables are as the last leader left them, and each queue's next offset is known.
    """

    def __init__(
        self,
        config: StoreConfig,
        replica: ReplicatedLog,
        commit_log: DLedgerCommitLog,
        gather: PutGather,
        reput: Reput,
        queues: ConsumeQueueStore,
        state: StateMachine,
        proposals: StateProposals,
        services: LeaderServices,
        java_import: JavaImport,
        serving_changed: Callable[[bool], None],
    ) -> None:
        self._config = config
        self._replica = replica
        self._commit_log = commit_log
        self._gather = gather
        self._reput = reput
        self._queues = queues
        self._state = state
        self._proposals = proposals
        self._services = services
        self._java_import = java_import
        self._serving_changed = serving_changed
        self._term = Term(-1)  # that began last with this member as its leader
        self._no_op_term = Term(-1)  # of the newest no-op applied
        self._before_no_op_term = Term(-1)  # of the entry before that
        self.is_importing = False  # this member leads, and what Java left is on its way into the log

    @property
    def is_serving(self) -> bool:
        return self._commit_log.serving_term is not None

    def role_changed(self, change: RoleChange, now_ms: int) -> None:
        if change.role is Role.LEADER and self._commit_log.serving_term == change.term:
            return
        self._stop_serving()
        if change.role is Role.LEADER and self._no_op_term == change.term:
            self._begin_term(change.term, now_ms)

    def no_op_applied(self, term: Term, index: Index, *, is_own: bool, now_ms: int) -> None:
        """Begins to serve if `is_own`: this member leads `term`. Raises StoreDamagedError, DiskError."""
        self._no_op_term = term
        before = self._replica.log.term_at(Index(index - 1))
        assert before is not None, "what was applied last is in the log, or was before its begin"
        self._before_no_op_term = before
        if is_own:
            self._begin_term(term, now_ms)

    def state_applied(self) -> None:
        """Begins to serve, if that state entry was the last one of what Java left."""
        if self.is_importing and self._state.is_whole:
            self._start_serving()

    def tick(self, now_ms: int) -> None:
        """Appends waiting changes, what is due of the leader's services, and the next part of a full state."""
        if self.is_serving:
            self._proposals.flush(now_ms)
            self._services.tick(now_ms)
        if self.is_serving or self.is_importing:
            self._write_full_state(now_ms)

    def _begin_term(self, term: Term, now_ms: int) -> None:
        """Begins to serve, or first to import what Java left. This member leads, and its no-op is applied."""
        self._term = term
        if self._state.needs_import:
            self._state.stop_writing()
            java_term = self._replica.log.term_at(self._state.java_index)
            assert java_term is not None, "retention stays behind the newest full-state record"
            self._java_import.begin(self._state, self._queues, java_term, term, self._reput.applied_index)
            self.is_importing = True
        elif self._state.is_whole:
            commits = self._java_import.commits_under_java(self._state.tables, self._before_no_op_term)
            self._start_serving()
            for change in commits:
                self._proposals.propose(change, None, now_ms)  # each counts at once (query_offset)
        else:
            raise StoreDamagedError(
                f"{self._config.ledger_directory}: nothing says which topics, groups and offsets there are: the log "
                "begins behind the last full state in it, as RocketMQ's retention may leave it, and this member has no "
                "checkpoint. A member that has one can lead. If none has, start RocketMQ on all stores, let it store a "
                "message, stop it and start these again: then config/ counts"
            )

    def _start_serving(self) -> None:
        self.is_importing = False
        self._commit_log.start_serving(self._term)
        self._services.serving_changed()
        self._state.stop_writing()
        self._serving_changed(True)

    def _stop_serving(self) -> None:
        was_serving = self.is_serving
        self.is_importing = False
        self._commit_log.stop_serving()
        self._gather.refuse_waiting(_SERVES_NO_MORE)
        self._proposals.stop()
        self._services.serving_changed()
        self._state.stop_writing()
        if was_serving:
            self._serving_changed(False)

    def _write_full_state(self, now_ms: int) -> None:
        """Begins a full-state record when one is due, and appends its next part when the last one is applied."""
        state = self._state
        state.begin_full_state(
            self._replica.log.ledger_end_pos,
            self._config.mapped_file_size_commit_log,
            self._config.state_record_size_max,
            self._term,
            self._reput.applied_index,
            self._queues.rows,
        )
        part = state.next_part()
        if part is not None:
            batch = self._commit_log.append_state([part], _not_awaited, now_ms)
            if not isinstance(batch, PutRefusal):
                state.part_appended(batch.last_index)


def _not_awaited(status: AppendStatus) -> None:
    """Success shows when the entry is applied, failure when the leadership ends."""
