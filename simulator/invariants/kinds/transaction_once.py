"""A transaction ends as its producer said, and once: consumers get its message only if the producer said commit, after
that, and not again; what a producer was told has ended is not given up.
"""

from simulator.harness.oracle import CommittedMessage, Oracle
from simulator.invariants.invariant import MemberView


class TransactionOnce:
    name = "transaction_once"

    def __init__(self) -> None:
        self._ended: dict[int, CommittedMessage] = {}  # by uid: what its message became
        self._message_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        for message in oracle.messages[self._message_count :]:
            self._message_count += 1
            if message.is_commit or message.is_given_up:
                fault = self._fault_of(message, oracle)
                if fault is not None:
                    verb = "commits" if message.is_commit else "gives up"
                    return (
                        f"entry {message.index} of {member.member_id} {verb} message {message.uid}, {fault}"
                    )
                self._ended[message.uid] = message
        return None

    def _fault_of(self, message: CommittedMessage, oracle: Oracle) -> str | None:
        if message.uid not in oracle.halves:
            return "which nobody prepared"
        before = self._ended.get(message.uid)
        if before is not None:
            return f"whose transaction has ended in entry {before.index}"
        if message.is_commit and message.uid not in oracle.said_commit:
            return "of which its producer has not said so"
        if message.is_given_up and message.uid in oracle.told_ended:
            return "whose producer was told that the transaction has ended"
        return None
