"""What a disk held durably, and its member knew to be committed, is in the log of every later life on that disk.

Unless it was damaged, and the group's history does not lead to what lies behind it: then the member lets go of it, and
is doubted. Or unless it has gone together with the last entry that the member remembers, or with the end of the file
in which that lies, which zeros can make whole: then it is doubted as well.
"""

from dledger.entry import Index
from dledger.log.faulty_ranges import FaultyRange
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class DurableIsKept:
    name = "durable_is_kept"

    def __init__(self) -> None:
        self._held: dict[bytes, Index] = {}  # by disk uuid
        self._faulty: dict[bytes, tuple[FaultyRange, ...]] = {}  # likewise, at the last look

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        held = self._held.get(member.disk_uuid, Index(-1))
        faulty = self._faulty.get(member.disk_uuid, ())
        self._faulty[member.disk_uuid] = member.faulty_ranges
        end_index = member.ledger_end_index
        if end_index < held:
            let_go = any(one.first_index == end_index + 1 for one in faulty)
            ends_in_damage = any(one.last_index == end_index for one in member.faulty_ranges)
            marked = member.tail_lost_behind
            tail_is_lost = marked is not None and end_index >= marked
            if member.doubted and (let_go or ends_in_damage or tail_is_lost):
                self._held[member.disk_uuid] = end_index
                return None
            return f"{member.member_id} held entry {held} durably, and its log ends with {end_index}"
        if not member.is_cutting:
            self._held[member.disk_uuid] = max(held, min(member.durable_index, member.committed_index))
        return None
