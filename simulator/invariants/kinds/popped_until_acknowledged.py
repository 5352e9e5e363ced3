"""A message that is popped ends once for each group: it is acknowledged, or dead after its last attempt.

Until then it comes again, each time with its count raised; FIFO consumers get the next ones of its queue only then. It
is not given out to a pop that was asked for after its ack was told. What two answers say that were on their way at the
same time may come in any order.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from message.names import dlq_topic
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import ViolationError

_NAME = "popped_until_acknowledged"


@dataclass(slots=True)
class _Fate:
    """Of a message for a group, as its consumers know it. Times are the simulator's."""

    given_us: int = -1  # when it was given out last, and how often it had been before
    count: int = -1
    acked_us: int | None = None  # when it was told that an ack has ended it
    is_maybe_acked: bool = False


class PoppedUntilAcknowledged:
    """Each method but those that only note something raises ViolationError."""

    def __init__(self, oracle: Oracle) -> None:
        # The highest that any member's log has begun with: what lies before it need not be given to anybody.
        self.begin_index = 0
        self._oracle = oracle
        self._fates: defaultdict[tuple[str, int], _Fate] = defaultdict(_Fate)
        # By group, topic and queue id: the first message that has not ended, as far as one has looked.
        self._ended: defaultdict[tuple[str, str, int], int] = defaultdict(int)

    def given(self, group: str, uid: int, count: int, asked_us: int, now_us: int) -> None:
        """By the answer to a pop that was asked for then; `count`: how often it says that it was given out before."""
        fate = self._fates[group, uid]
        if fate.acked_us is not None and fate.acked_us < asked_us:
            self._fail(group, uid, f"is given out, and was acknowledged {asked_us - fate.acked_us} us before")
        if fate.count >= count and fate.given_us < asked_us:
            self._fail(group, uid, f"is given out with count {count}, and had {fate.count} before")
        fate.given_us, fate.count = now_us, max(count, fate.count)

    def given_in_order(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """By an answer to a FIFO consumer, as the first of its queue."""
        key = (group, topic, queue_id)
        messages = self._oracle.queues[topic.encode(), queue_id]
        while (first := self._ended[key]) < offset:
            message = messages[first]
            if message.index >= self.begin_index and not self._has_ended(group, message.uid):
                self._fail(
                    group, message.uid, f"has not ended, and offset {offset} of its queue is given out"
                )
            self._ended[key] += 1

    def ack_asked(self, group: str, uid: int) -> None:
        self._fates[group, uid].is_maybe_acked = True

    def ack_told(self, group: str, uid: int, now_us: int) -> None:
        """The message was in flight when the ack came, and its time was not over."""
        self._fates[group, uid].acked_us = now_us

    def check_ended(self, group: str, topics: Iterable[str]) -> None:
        """Once nothing waits for the group any more, and nothing is in flight."""
        dead = self._dead(group)
        for uid, count in dead.items():
            if count > 1:
                self._fail(group, uid, f"is dead {count} times")
            if self._fates[group, uid].acked_us is not None:
                self._fail(group, uid, "is dead, and was acknowledged")
        names = {topic.encode() for topic in topics}
        for (topic, _), messages in self._oracle.queues.items():
            for message in messages if topic in names else ():
                if message.index >= self.begin_index and not self._has_ended(group, message.uid):
                    self._fail(
                        group,
                        message.uid,
                        f"of entry {message.index} was lost: it is not acknowledged, nor dead",
                    )

    def _has_ended(self, group: str, uid: int) -> bool:
        return self._fates[group, uid].is_maybe_acked or uid in self._dead(group)

    def _dead(self, group: str) -> dict[int, int]:
        return self._oracle.dead[dlq_topic(group)]

    def _fail(self, group: str, uid: int, text: str) -> None:
        raise ViolationError(_NAME, f"message {uid} {text}; group {group}")
