"""What a client was told is stored, stays where it was told until retention takes it; what it was told is refused, is
nowhere.

An outcome that nobody heard of says nothing: the message may be there or not.
"""

from simulator.harness.oracle import CommittedMessage, Oracle
from simulator.invariants.invariant import MemberView


class AcknowledgedIsKept:
    name = "acknowledged_is_kept"

    def __init__(self) -> None:
        self._acknowledged_count = 0
        self._message_count = 0
        self._refused: set[int] = set()
        self._refused_count = 0
        self._leader: tuple[str, int] | None = None

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        refused = oracle.refused_uids[self._refused_count :]
        self._refused_count += len(refused)
        self._refused.update(refused)
        new = [message.uid for message in oracle.messages[self._message_count :]]
        self._message_count += len(new)
        # Either may come first: it is told after it is committed, or committed after it is told.
        for uid in (*refused, *new):
            if uid in self._refused and uid in oracle.index_of_uid:
                return f"message {uid} was refused, and is committed in entry {oracle.index_of_uid[uid]}"
        while self._acknowledged_count < len(oracle.acknowledged):
            fault = self._fault_of_acknowledged(oracle, self._acknowledged_count)
            self._acknowledged_count += 1
            if fault is not None:
                return fault
        return self._fault_of_new_leader(member, oracle)

    def _fault_of_acknowledged(self, oracle: Oracle, number: int) -> str | None:
        acknowledged = oracle.acknowledged[number]
        if acknowledged.last_index > oracle.end_index:
            return f"entry {acknowledged.last_index} is acknowledged, committed is {oracle.end_index}"
        for uid, (key, queue_offset, phy_offset) in zip(acknowledged.uids, acknowledged.places, strict=True):
            found = _message_at(oracle, key, queue_offset)
            if found is None or (found.uid, found.phy_offset) != (uid, phy_offset):
                return f"message {uid} is acknowledged at {key} {queue_offset}, pos {phy_offset}; there is {found}"
        return None

    def _fault_of_new_leader(self, member: MemberView, oracle: Oracle) -> str | None:
        """A leader that serves holds all of it."""
        key = (member.member_id, member.curr_term)
        if not member.leader_ready or key == self._leader or not oracle.acknowledged:
            return None
        self._leader = key
        if member.curr_term < max(oracle.committed_in_term):
            return None  # it does not know yet that it is deposed
        index = max(acknowledged.last_index for acknowledged in oracle.acknowledged)
        if index < member.ledger_begin_index - 1:
            return None  # kept for as long as it was to be
        if member.chain_at(index) != oracle.chains[index]:
            return (
                f"{member.member_id} serves in term {member.curr_term} without the acknowledged entry {index}"
            )
        return None


def _message_at(oracle: Oracle, key: tuple[bytes, int], queue_offset: int) -> CommittedMessage | None:
    queue = oracle.queues.get(key, [])
    return queue[queue_offset] if queue_offset < len(queue) else None
