"""When a member ticks next: often while anything moves; while its group rests, when something is due.

A wake-up of an idle process costs more than what is done in it. At rest only heartbeats and elections have their time.
All else that waits for time does so for hundreds of milliseconds and more, and is looked at when a heartbeat wakes the
process anyway: the leader's as it sends one, a follower's as it hears one.
"""

from collections.abc import Callable

from dledger.core.messages import HeartBeatRequest, HeartBeatResponse, Message
from dledger.replica import Replica
from dledger.rpc.requests import RepairMessage

# An election that a majority takes part in is over by then. One that asks in vain may ask a tick later.
LEADERLESS_TICKS = 100
_HEART_BEATS = HeartBeatRequest, HeartBeatResponse


class TickPace:
    """Of one member. The caller says after each tick that it is over, and what happens between two of them."""

    def __init__(self, replica: Replica, tick_in: Callable[[int], None]) -> None:
        """`tick_in`: lets the next tick come in so many ms, in the place of the one that was to come."""
        self.rests = False  # the next tick comes when something is due
        self._replica = replica
        self._tick_in = tick_in
        self._ticked_ms = 0
        self._progress: tuple[object, ...] = ()
        self._still_ticks = 0  # in a row, in which nothing has changed

    def ticked(self, now_ms: int, due_ms: int | None = None) -> None:
        """`due_ms`: when the embedder has something to do, if it knows."""
        self._ticked_ms = now_ms
        self.rests = self._has_come_to_rest()
        interval_ms = self._replica.config.tick_interval_ms
        self._tick_in(max(interval_ms, self._due_ms(now_ms, due_ms) - now_ms) if self.rests else interval_ms)

    def _due_ms(self, now_ms: int, embedder_due_ms: int | None) -> int:
        due_ms = self._replica.member.due_ms
        if embedder_due_ms is not None:
            due_ms = min(due_ms, embedder_due_ms)
        scrub_due_ms = self._replica.scrubber.due_ms
        if scrub_due_ms is not None and scrub_due_ms > now_ms:
            due_ms = min(due_ms, scrub_due_ms)
        return due_ms

    def sent(self, message: Message | RepairMessage) -> None:
        """Whatever moves in a group has members send more than heartbeats, or start jobs."""
        if self.rests and not isinstance(message, _HEART_BEATS):
            self.wake()

    def wake(self) -> None:
        """Something has begun or ended that ticks go on with."""
        if self.rests:
            self.rests = False
            self._tick_in(self._replica.config.tick_interval_ms)

    def is_occasion(self, now_ms: int) -> bool:
        """Whether to tick now that a message has been heard, in place of a wake-up for it alone."""
        beat_ms = self._replica.config.member_config.heart_beat_interval_ms
        return self.rests and now_ms - self._ticked_ms >= beat_ms // 2

    def _has_come_to_rest(self) -> bool:
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
