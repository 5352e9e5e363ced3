"""What people read: the report of a failure, the summary of many runs, the floors under it."""

from simulator.harness.sim_cluster import Cluster
from simulator.world.sim_member import SimMember


def describe_failure(cluster: Cluster, name: str, text: str, trace_count: int) -> str:
    """The invariant, the group as it was, the last lines of the trace, and how to see it again."""
    now_ms = cluster.loop.now_us / 1_000
    members, calm = cluster.options.member_count, " --calm" if cluster.options.is_calm else ""
    lines = [
        f"FAILED {name}: {text}",
        f"  seed={cluster.seed} now_ms={now_ms:.3f} {cluster.options.describe()}",
        *(f"  {_describe_member(member)}" for member in cluster.members),
        *(f"  {line}" for line in cluster.trace.last(trace_count)),
        f"reproduce: scripts/simulate --seed {cluster.seed} --members {members}" + calm,
    ]
    return "\n".join(lines)


def _describe_member(member: SimMember) -> str:
    process = member.process
    if process is None:
        return f"{member.member_id} down after life {member.life}"
    raft, log = process.replica.member, process.replica.log
    notes = [
        note
        for note, holds in (
            ("serving", process.store.serving),
            ("doubted", raft.doubted),
            ("paused", member.is_paused),
            ("stopping", process.is_stopping),
            ("has_lost", member.has_lost),
            ("unformed", process.replica.formation.group is None),
        )
        if holds
    ]
    return (
        f"{member.member_id} {raft.role.name:<9} term={raft.curr_term} vote_for={raft.curr_vote_for} "
        f"leader={raft.leader_id} ledger={log.ledger_begin_index}..{log.ledger_end_term}/{log.ledger_end_index} "
        f"durable={log.durable_index} committed={raft.committed_index} applied={process.store.reads.applied_index} "
        f"life={member.life} {' '.join(notes)}"
    )
