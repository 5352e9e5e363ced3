"""When a member ticks next: often while anything moves, seldom while its group rests."""

from dledger.replica import Replica

# A wake-up of an idle process costs more than what is done in it. No timer of a group at rest is due on the tick: they
# are for periods and silences of 150 ms and more. Only the scrub would fall behind its rate.
QUIET_TICKS = 5
# An election that a majority takes part in is over by then. One that asks in vain may ask a tick later.
LEADERLESS_TICKS = 100


class TickPace:
    """Of one member; asked once after each of its ticks."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._progress: tuple[object, ...] = ()
        self._still_ticks = 0  # in a row, in which nothing has changed

    def delay_ms(self, now_ms: int) -> int:
        """Until the tick after this one, which is at `now_ms`."""
        config, scrubber = self._replica.config, self._replica.scrubber
        if not self._rests():
            return config.tick_interval_ms
        # A longer gap than the heart beat's interval is a standstill to the elector, which then puts its campaign off.
        # A tick may come late, so not even near it.
        delay_ms = min(
            QUIET_TICKS * config.tick_interval_ms, config.member_config.heart_beat_interval_ms // 2
        )
        if scrubber.due_ms is not None and scrubber.due_ms > now_ms:
            delay_ms = min(delay_ms, scrubber.due_ms - now_ms)
        return max(config.tick_interval_ms, delay_ms)

    def _rests(self) -> bool:
        """Nothing has changed since the last tick, and nothing waits: a leader is known and its log is committed, or no
        leader has been found for a while.
        """
        member, end_index = self._replica.member, self._replica.log.ledger_end_index
        progress = member.curr_term, member.role, member.leader_id, end_index, member.committed_index
        self._still_ticks = self._still_ticks + 1 if progress == self._progress else 0
        self._progress = progress
        if member.leader_id is None:
            return self._still_ticks >= LEADERLESS_TICKS and self._replica.idle
        is_settled = member.committed_index == end_index and member.transfer_target is None
        return self._still_ticks > 0 and is_settled and self._replica.idle
