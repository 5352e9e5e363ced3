"""A group at work, validated at any moment: members that run, members that crashed. Nothing is wrong, so no finding may
say that something is."""

from pathlib import Path
from random import Random

import pytest
from derived_store import GROUP, StoreGroup, delayed_message, message

from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import PutTopicConfig
from verify import replica as replica_module
from verify.runner import LocalRunner
from verify.validation import validate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_moment_of_a_group_s_life_has_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With checkpoints, exports and full states in between, and leaders that crash with appends under way."""
    random = Random(seed)
    group = StoreGroup(tmp_path, 3, thorough_interval_ms=300, checkpoint_entries_max=40)
    group.start()
    locked: set[str] = set()
    monkeypatch.setattr(replica_module, "_is_locked", lambda path: path.parent.name in locked)
    kills = moments = applied = 0
    for step in range(150):
        leader = group.serving()
        if leader is not None:
            batch = [
                message(random.choice(["A", "B"]), random.randrange(2), bytes(random.randrange(1500)))
                for _ in range(random.randrange(1, 6))
            ]
            leader.put(*batch, delayed_message(random.randrange(1, 3), b"later"))
            offset = random.randrange(leader.store.reads.max_offset("A", 0) + 1)
            leader.store.propose(CommitOffset(GROUP, "A", 0, offset), None, group.now_ms)
            topic = TopicConfig(f"T{step % 7}", attributes={"note": "x" * random.randrange(3000)})
            leader.store.propose(PutTopicConfig(topic), None, group.now_ms)
            if step % 25 == 24:
                kills += 1
                leader.crash()
        elif len(group.members) < 3 and random.random() < 0.3:
            group.start(*(peer for peer in group.peers if peer not in group.members))
        group.run_for(random.randrange(1, 80))
        if random.random() < 0.2:
            locked = set(group.members)
            report = validate([group.root(peer) for peer in group.peers], runner=LocalRunner())
            assert report.is_clean, report.findings.shown
            moments += 1
            applied = max(applied, *(summary.committed_index for summary in report.replicas))
    assert kills >= 3
    assert moments >= 10
    assert applied > 100, "files said that something was committed"
