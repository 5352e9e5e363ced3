"""Delayed messages are delivered once each, in the order of their level, and never before their time.

Times are the log's: hosts' clocks differ, so there is no other that all members know.
"""

from simulator.harness.oracle import CommittedMessage, Oracle
from simulator.invariants.invariant import MemberView


class DelayedOnce:
    name = "delayed_once"

    def __init__(self) -> None:
        # By queue of the schedule topic: of the message to deliver next.
        self._next_offsets: dict[int, int] = {}
        self._message_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        for message in oracle.messages[self._message_count :]:
            self._message_count += 1
            if message.is_delivery:
                fault = self._fault_of(message, oracle)
                if fault is not None:
                    return (
                        f"entry {message.index} of {member.member_id} delivers message {message.uid}, {fault}"
                    )
        return None

    def _fault_of(self, message: CommittedMessage, oracle: Oracle) -> str | None:
        waiting = oracle.waiting.get(message.uid)
        if waiting is None:
            return "which nobody delayed"
        expected = self._next_offsets.get(waiting.queue_id, 0)
        self._next_offsets[waiting.queue_id] = expected + 1
        if waiting.queue_offset != expected:
            return f"number {waiting.queue_offset} of its level, next was number {expected}"
        if message.store_timestamp < waiting.tags_code:
            return f"{waiting.tags_code - message.store_timestamp} ms before its time"
        return None
