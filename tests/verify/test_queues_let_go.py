"""Queues whose files an operator had go (cleanUnusedTopic), while the log still has their messages."""

import shutil
from pathlib import Path

from derived_store import derived_findings
from store_group import StoreGroup, StoreMember, message

from verify.findings import Kind
from verify.replica import open_replica


def test_units_that_a_member_has_let_go_are_not_missed_and_others_are(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=2_000)
    group.start()
    leader: StoreMember = group.lead()
    for _ in range(3):
        leader.put(message("Gone"), message("Kept"))
    group.run_for(5_000)
    leader.store.retention.queues.let_go(lambda queue: queue.topic == b"Gone")
    files = group.root() / "consumequeue"
    group.run_until(lambda: not list(files.glob("Gone/0/*")))
    leader.put(message("Gone"))
    group.run_for(5_000)
    group.members["n0"].stop()

    assert derived_findings([open_replica(group.root())]) == []
    shutil.rmtree(files / "Gone")
    shutil.rmtree(files / "Kept")
    found = derived_findings([open_replica(group.root())])
    assert [(finding.kind, finding.topic, finding.last_offset) for finding in found] == [
        (Kind.CONSUME_QUEUE_MISSING, "Gone", 3),
        (Kind.CONSUME_QUEUE_MISSING, "Kept", 2),
    ]
