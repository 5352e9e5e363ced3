"""A timer message is delivered once and never before its time, and one whose recall the log has before that is not.

Times are the log's: hosts' clocks differ, so there is no other that all members know.
"""

from simulator.harness.oracle import CommittedMessage, Oracle
from simulator.invariants.invariant import MemberView


class TimerOnce:
    name = "timer_once"

    def __init__(self) -> None:
        self._delivered: dict[int, CommittedMessage] = {}  # by uid
        self._message_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        for message in oracle.messages[self._message_count :]:
            self._message_count += 1
            if message.is_fired:
                fault = self._fault_of(message, oracle)
                if fault is not None:
                    return (
                        f"entry {message.index} of {member.member_id} delivers message {message.uid}, {fault}"
                    )
                self._delivered[message.uid] = message
        return None

    def _fault_of(self, message: CommittedMessage, oracle: Oracle) -> str | None:
        waiting = oracle.timers.get(message.uid)
        if waiting is None:
            return "for which nobody asked a time"
        before = self._delivered.get(message.uid)
        if before is not None:
            return f"which entry {before.index} has delivered before"
        if message.store_timestamp < waiting.deliver_ms:
            return f"{waiting.deliver_ms - message.store_timestamp} ms before its time"
        recall_index = oracle.recalls.get(message.uid)
        if recall_index is not None and waiting.index < recall_index < message.index:
            return f"which entry {recall_index} has recalled"
        return None
