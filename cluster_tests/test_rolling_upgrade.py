"""Members of two releases work together: a group of an earlier commit is upgraded member by member, under load.

The earlier commit is the last one of wire version 1. The environment variable UPGRADE_FROM names another one:

    UPGRADE_FROM=HEAD~20 pytest cluster_tests/test_rolling_upgrade.py
"""

import json
import os
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from local_cluster import ROOT, LocalCluster, wait_for
from our_commands import mq, outcomes, running

from dledger.rpc.handshake import WIRE_VERSION_MAX

pytestmark = [pytest.mark.slow, pytest.mark.long]

# The last commit whose members speak wire version 1 alone.
VERSION_1 = "b3a71b21669980f2ca15b9326175d911b0984e33"
UPGRADE_FROM = os.environ.get("UPGRADE_FROM", VERSION_1)
TOPIC = "Upgrade"
COUNT = 6000  # within 30 s


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Unpacks the packages of the earlier commit, to be found before those of this checkout."""
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", UPGRADE_FROM]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this checkout has no history to take {UPGRADE_FROM} from: {archive.stderr.decode()}")
    tree = tmp_path / "earlier"
    with zipfile.ZipFile(BytesIO(archive.stdout)) as files:
        files.extractall(tree)
    return tree


def wire_versions(cluster: LocalCluster) -> dict[str, dict[str, int]]:
    """Of each member that says so: what it speaks with the peers that it has dialled."""
    return {name: node.get("wire_versions") or {} for name, node in cluster.nodes().items()}


def upgrade(cluster: LocalCluster, name: str, history: Path) -> None:
    before = wait_for(lambda: len(outcomes(history)), 30, "the first sends")
    cluster.stop(name)
    cluster.start(name)
    wait_for(lambda: cluster.nodes()[name].get("wire_versions"), 30, "links to the others")
    cluster.leader()
    wait_for(lambda: len(outcomes(history)) > before + 100, 30, "sends beside it")


def test_a_group_of_the_former_wire_version_is_upgraded_member_by_member_under_load(
    cluster: LocalCluster, earlier: Path, tmp_path: Path
) -> None:
    cluster.environment = {"PYTHONPATH": str(earlier)}
    cluster.up()
    leader = cluster.leader()
    assert (earlier / "dledger" / "core" / "__pycache__").is_dir(), (
        "the members run what the earlier commit has"
    )
    cluster.environment = {}
    lines, history = tmp_path / "lines", tmp_path / "history.jsonl"
    lines.write_text("".join(f"line {number}\n" for number in range(COUNT)))
    options = ["--file", str(lines), "--keys-from", "line", "--rate", "200", "--history", str(history)]
    sent = tmp_path / "sent"
    with running(sent, "produce", "-n", cluster.namesrv, "--topic", TOPIC, *options, "--json") as producer:
        for name in [*sorted({"n0", "n1", "n2"} - {leader}), leader]:
            upgrade(cluster, name, history)
            print(f"{name} upgraded, wire versions: {wire_versions(cluster)}")
        assert producer.poll() is None, "the last member was upgraded under load, too"
        assert producer.wait(120) == 0, "all are acknowledged in the end"
    assert {outcome["outcome"] for outcome in outcomes(history)} == {"ok"}
    members = sorted(cluster.nodes())
    assert wire_versions(cluster) == {
        name: {peer: WIRE_VERSION_MAX for peer in members if peer != name} for name in members
    }
    cluster.level()
    stores = [node["store_dir"] for node in cluster.nodes().values()]
    report = json.loads(mq("validate", *stores, "--history", str(history), "--json", "-", "--no-spark"))
    assert report["acknowledged"] == report["acknowledged_found"] == COUNT
