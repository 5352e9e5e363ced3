"""Messages of one queue have offsets 0, 1, 2, … in the order of the log, and ConsumeQueues have a unit for each."""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class QueueOffsetsDense:
    name = "queue_offsets_dense"

    def __init__(self) -> None:
        self._next_offsets: dict[tuple[bytes, int], int] = {}
        self._message_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        for message in oracle.messages[self._message_count :]:
            self._message_count += 1
            key = (message.topic, message.queue_id)
            expected = self._next_offsets.get(key, 0)
            self._next_offsets[key] = expected + 1
            if message.queue_offset != expected:
                return (
                    f"entry {message.index} of {member.member_id} has offset {message.queue_offset} in queue "
                    f"{key}, expected {expected}"
                )
        return None
