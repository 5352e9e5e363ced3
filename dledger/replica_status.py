"""What a replica tells of itself: to people and scripts, and in numbers to programs that watch."""

from typing import Any

import msgspec

from dledger.core.output import Role
from dledger.errors import FaultyEntryError
from dledger.figures import Figures
from dledger.replica import Replica


def replica_status(replica: Replica) -> dict[str, Any]:
    """Plain JSON values. `chain_crc` is that of the committed prefix, none while its last entry is damaged here."""
    member, log_store = replica.member, replica.log
    watermarks = member.peer_watermarks_by_term.get(member.curr_term, {})
    return {
        "id": replica.config.self_id,
        "group": replica.config.group,
        "role": member.role.value,
        "term": member.curr_term,
        "leader": member.leader_id,
        "ledger_begin": log_store.ledger_begin_index,
        "ledger_end": log_store.ledger_end_index,
        "committed": member.committed_index,
        "applied": replica.applied_index,
        "synced": log_store.durable_index,
        "watermarks": dict(watermarks) if member.role is Role.LEADER else {},
        "chain_crc": _committed_chain(replica),
        "faulty_ranges": [
            {"first_index": f.first_index, "last_index": f.last_index, "pos": f.pos, "size": f.size}
            for f in log_store.faulty
        ],
        "doubted": member.doubted,
        "can_vote": member.can_vote,
        "voters": sorted(member.membership.voters),
        "learners": sorted(member.membership.learners),
        "membership_index": member.membership_index,
        "election_obstacle": member.election_obstacle,
        "disk_obstacle": member.disk_obstacle,
        "waits_for": replica.formation.waits_for,
        "scrub": msgspec.to_builtins(replica.scrubber.status()),
        "failure": replica.failure,
    }


def _committed_chain(replica: Replica) -> int | None:
    try:
        return replica.log.chain_at(replica.member.committed_index)
    except FaultyEntryError:
        return None


def replica_figures(replica: Replica) -> Figures:
    """Indexes are -1 where there is nothing."""
    member, log_store = replica.member, replica.log
    ledger_end_index, committed_index = log_store.ledger_end_index, member.committed_index
    return {
        "term": member.curr_term,
        "role": {role.value: role is member.role for role in Role},
        "has_leader": member.leader_id is not None,
        "doubted": member.doubted,
        "can_vote": member.can_vote,
        "failed": replica.failure is not None,
        "voter": replica.config.self_id in member.membership.voters,
        "members": {
            "voter": len(member.membership.voters),
            "learner": len(member.membership.learners),
        },
        "ledger_begin_index": log_store.ledger_begin_index,
        "ledger_end_index": ledger_end_index,
        "committed_index": committed_index,
        "applied_index": replica.applied_index,
        "durable_index": log_store.durable_index,
        "commit_lag_entries": ledger_end_index - committed_index,
        "apply_lag_entries": max(0, committed_index - replica.applied_index),
        "ledger_bytes": log_store.ledger_end_pos - log_store.ledger_begin_pos,
        "uncommitted_bytes": member.uncommitted_size,
        "watermark_index": member.peer_watermarks_by_term.get(member.curr_term, {}),
        "elections_total": member.elections,
        "faulty_ranges": len(log_store.faulty),
        "faulty_bytes": log_store.faulty.size,
        "disk_fit": member.disk_obstacle is None,
        **replica.scrubber.figures(),
        **replica.journal.figures(),
    }
