"""What a leader takes and what it refuses: a refusal names cause, value and limit, and is definite."""

from dledger.core.entry_handler import EntryHandler
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.output import AppendRefusal, LogView, RefusalReason, Role
from dledger.core.quorum_ack_checker import QuorumAckChecker


class AppendGuard:
    """Changes nothing: it reads what the parts of a member know."""

    def __init__(
        self,
        config: MemberConfig,
        state: MemberState,
        log: LogView,
        checker: QuorumAckChecker,
        handler: EntryHandler,
        transfer: LeadershipTransfer,
    ) -> None:
        self._config = config
        self._state = state
        self._log = log
        self._checker = checker
        self._handler = handler
        self._transfer = transfer

    def check(self, size: int, count: int) -> AppendRefusal | None:
        """Whether `count` entries of `size` bytes together, headers included, may be appended now."""
        state, config, checker = self._state, self._config, self._checker
        if state.stopped:
            return AppendRefusal(RefusalReason.STOPPED, "this member has stopped")
        if state.role is not Role.LEADER:
            return AppendRefusal(
                RefusalReason.NOT_LEADER,
                f"{state.self_id} is {state.role.name} in term {state.curr_term}, the leader is {state.leader_id}",
            )
        if not checker.own_term_committed:
            return AppendRefusal(
                RefusalReason.LEADER_NOT_READY,
                f"{state.self_id} leads term {state.curr_term}, in which nothing is committed yet: "
                f"committed {state.committed_index}, end {self._log.ledger_end_index}",
            )
        if self._transfer.target is not None:
            return AppendRefusal(
                RefusalReason.LEADER_TRANSFERRING,
                f"{state.self_id} hands leadership over to {self._transfer.target}, for "
                f"{config.transfer_timeout_ms} ms at most",
            )
        if self._handler.has_no_space:
            return AppendRefusal(
                RefusalReason.DISK_FULL, f"no space for {size} bytes on the disk of {state.self_id}"
            )
        if checker.uncommitted_size + size > config.pending_size_max:
            return AppendRefusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_size} bytes wait for a majority, {size} more in {count} entries are above the "
                f"limit of {config.pending_size_max}",
            )
        if checker.uncommitted_count >= config.pending_count_max:
            return AppendRefusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_count} appends wait for a majority, limit {config.pending_count_max}",
            )
        return None
