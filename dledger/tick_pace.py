"""When a member ticks next: often while anything moves, seldom while its group rests."""

from dledger.replica import Replica

# A wake-up of an idle process costs more than what is done in it. No timer of a group at rest is due on the tick: they
# are for periods and silences of 150 ms and more.
QUIET_TICKS = 5


class TickPace:
    """Of one member; asked once before each of its ticks."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._progress: tuple[object, ...] = ()

    def delay_ms(self) -> int:
        """Until the tick after this one."""
        tick_interval_ms = self._replica.config.tick_interval_ms
        return QUIET_TICKS * tick_interval_ms if self._rests() else tick_interval_ms

    def _rests(self) -> bool:
        """Nothing has changed since the last tick, and nothing waits: a leader is known, its log is committed."""
        member, end_index = self._replica.member, self._replica.log.ledger_end_index
        progress = member.curr_term, member.role, member.leader_id, end_index, member.committed_index
        stood_still = progress == self._progress
        self._progress = progress
        is_settled = (
            member.leader_id is not None
            and member.committed_index == end_index
            and member.transfer_target is None
        )
        return stood_still and is_settled and self._replica.idle
