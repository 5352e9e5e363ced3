"""Readers see committed messages only, each where the log has it, and all of those that reput has come to."""

from dledger.entry import Index
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView


class VisibleIsCommitted:
    name = "visible_is_committed"

    def __init__(self) -> None:
        self._applied: dict[tuple[str, int], Index] = {}

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        applied_index = member.applied_index
        key = (member.member_id, member.life)
        before = self._applied.get(key)
        self._applied[key] = applied_index
        if applied_index > oracle.end_index:
            return f"{member.member_id} shows entries up to {applied_index}, the group's commit is {oracle.end_index}"
        if before is None or applied_index == before:
            # Restored from a checkpoint: shown by an earlier life, although this one has not heard of the commit yet.
            return None
        if applied_index > member.committed_index:
            return f"{member.member_id} shows entries up to {applied_index}, committed is {member.committed_index}"
        for message in oracle.messages_between(before + 1, applied_index):
            if message.index < member.ledger_begin_index:
                continue  # deleted, or never here
            unit = member.unit(message.topic, message.queue_id, message.queue_offset)
            if unit != (message.phy_offset, message.size, message.tags_code):
                return f"{member.member_id} has unit {unit} for {message}"
        return None
