"""Whether a member may give its vote, and whether it may ask for those of others: by its hard state, its disk, its log
and its seat in the group.
"""

from dledger.core.disk_fitness import DiskFitness
from dledger.core.durable_index import DurableIndex
from dledger.core.entry_handler import EntryHandler
from dledger.core.leader_elector import LeaderElector
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.output import LogView
from dledger.core.term_bounds import TERM_MAX


class Candidacy:
    """Of one member. Invariant: it changes nothing, and answers of the state at hand."""

    __slots__ = (
        "_config",
        "_durable",
        "_elector",
        "_fitness",
        "_handler",
        "_log",
        "_members",
        "_state",
        "_tail_to_sync",
        "_transfer",
    )

    def __init__(
        self,
        config: MemberConfig,
        members: CurrentMembers,
        state: MemberState,
        log: LogView,
        durable: DurableIndex,
        elector: LeaderElector,
        handler: EntryHandler,
        fitness: DiskFitness,
        transfer: LeadershipTransfer,
    ) -> None:
        """`log` as it was opened."""
        self._config = config
        self._members = members
        self._state = state
        self._log = log
        self._durable = durable
        self._elector = elector
        self._handler = handler
        self._fitness = fitness
        self._transfer = transfer
        # Rule 5: what was read back at start may be in the page cache alone: no voting or leading on it until synced.
        self._tail_to_sync = log.ledger_end_index

    def may_vote(self) -> bool:
        return self._state.can_vote and self._durable.value >= min(
            self._tail_to_sync, self._log.ledger_end_index
        )

    def may_campaign(self, now_ms: int) -> bool:
        """Raises what the log raises where it cannot be read, but for damaged entries."""
        return (
            self.may_vote()
            and (self._members.is_voter or self._is_needed_to_leave(now_ms))
            and not self._handler.is_cutting
            and not self._handler.has_no_space
            and not self._transfer.is_leaving
            and self._state.curr_term < TERM_MAX
            and not self._fitness.is_stalled
            and self._can_give_its_entries(now_ms)
        )

    @property
    def obstacle(self) -> str | None:
        """What a running campaign still lacks, or why there is none, for status pages."""
        if self._state.curr_term >= TERM_MAX:
            return (
                f"term {self._state.curr_term} leaves no term to elect in: stop all members and lower it on each, "
                "see mq store set-term --help"
            )
        obstacle = self._elector.obstacle()
        if obstacle is not None:
            return obstacle
        if self._log.has_faults and self._state.leader_id is None and self._members.others:
            return self._others_first("entries are damaged here")
        if not self._members.is_voter and self._members.index > self._state.committed_index:
            return self._others_first(f"entry {self._members.index} takes its vote")
        return None

    def _others_first(self, why: str) -> str:
        return f"{why}, so others go first for {self._config.last_resort_patience_ms} ms"

    def _can_give_its_entries(self, now_ms: int) -> bool:
        """Entries that are damaged here a leader can give to nobody: others go first."""
        return not self._log.has_faults or not self._members.others or self._is_last_resort(now_ms)

    def _is_needed_to_leave(self, now_ms: int) -> bool:
        """The entry that takes this member out, and what it holds beside, may be on no other disk: as long as it may
        not be committed this member leads if no other can (Ongaro's thesis, 4.2.2).
        """
        if self._members.index <= self._state.committed_index or not self._is_last_resort(now_ms):
            return False
        return self._members.was_voter

    def _is_last_resort(self, now_ms: int) -> bool:
        return self._elector.leaderless_ms(now_ms) >= self._config.last_resort_patience_ms
