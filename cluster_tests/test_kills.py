"""Members killed under load, dozens of times: nothing acknowledged is lost, and the replicas are one log.

How long it takes them is measured by benchmarks/outages.py, on a machine that does nothing else.
"""

from pathlib import Path

import pytest
from kill_rounds import Sender, assert_nothing_lost, kill_all, kill_leader, restart_all, validated
from local_cluster import LocalCluster

pytestmark = [pytest.mark.slow, pytest.mark.long]

CONF = {"mappedFileSizeCommitLog": str(16 << 20), "flushDiskType": "SYNC_FLUSH"}


def test_nothing_acknowledged_is_lost_when_all_are_killed_50_times(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.up(conf=CONF)
    with Sender(cluster.namesrv, tmp_path / "history.jsonl", batch_size=20) as sender:
        for number in range(50):
            sender.wait_acknowledged(400 + 150 * (number % 7))
            kill_all(cluster, sender)
            restart_all(cluster, sender)
    report = validated(cluster, sender.history)
    assert_nothing_lost(report, sender)
    assert len(report.replicas[0].term_runs) > 50, "each restart elects"


def test_nothing_acknowledged_is_lost_when_30_leaders_are_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.up(conf=CONF)
    with Sender(cluster.namesrv, tmp_path / "history.jsonl", interval_s=0.01) as sender:
        for _ in range(30):
            sender.wait_acknowledged(50)
            kill_leader(cluster, sender)
    report = validated(cluster, sender.history)
    assert_nothing_lost(report, sender)
    assert len(report.replicas[0].term_runs) > 30, "each kill elects"
