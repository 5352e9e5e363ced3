"""What a leader takes and what it refuses: a refusal names cause, value and limit, and is definite."""

from dledger.core.entry_handler import EntryHandler
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.refusal import Refusal, RefusalReason


class AppendGuard:
    """Changes nothing: it reads what the parts of a member know."""

    def __init__(
        self,
        config: MemberConfig,
        state: MemberState,
        checker: QuorumAckChecker,
        handler: EntryHandler,
        transfer: LeadershipTransfer,
    ) -> None:
        self._config = config
        self._state = state
        self._checker = checker
        self._handler = handler
        self._transfer = transfer

    def check(self, size: int, count: int) -> Refusal | None:
        """Whether `count` entries of `size` bytes together, headers included, may be appended now."""
        if (refusal := self._transfer.leader_refusal()) is not None:
            return refusal
        state, config, checker = self._state, self._config, self._checker
        if self._handler.has_no_space:
            return Refusal(
                RefusalReason.DISK_FULL, f"no space for {size} bytes on the disk of {state.self_id}"
            )
        # One that is larger than all that may wait is taken when nothing does, or it would be refused for ever.
        if checker.uncommitted_size and checker.uncommitted_size + size > config.pending_size_max:
            return Refusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_size} bytes wait for a majority, {size} more in {count} entries are above the "
                f"limit of {config.pending_size_max}",
            )
        if checker.uncommitted_count >= config.pending_count_max:
            return Refusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_count} appends wait for a majority, limit {config.pending_count_max}",
            )
        return None
