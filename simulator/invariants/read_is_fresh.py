"""A read that was told to be fresh holds all that was acknowledged before it was asked for, whoever answered it."""

from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class ReadIsFresh:
    name = "read_is_fresh"

    def __init__(self) -> None:
        self._count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        reads = oracle.read_index_reads
        while self._count < len(reads):
            read = reads[self._count]
            self._count += 1
            if read.applied_index < read.acknowledged_index:
                return (
                    f"{read.member_id} answers with entries up to {read.applied_index}; when it was asked, entry "
                    f"{read.acknowledged_index} was acknowledged"
                )
            if read.max_offset < read.acknowledged_end:
                return (
                    f"{read.member_id} says that {read.key} ends at {read.max_offset}; when it was asked, "
                    f"{read.acknowledged_end} messages of it were acknowledged"
                )
        return None
