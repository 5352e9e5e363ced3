"""A real member that was away, or lost its disk, while the others deleted old files, comes to level by itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for

pytestmark = [pytest.mark.slow]

CONF = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "10000",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(map(str, range(24))),
    "flushConsumeQueueThoroughInterval": "1000",
}


def produce(cluster: LocalCluster, count: int) -> None:
    lines = "".join(f"{number} {'x' * 1000}\n" for number in range(count))
    command = [sys.executable, "-m", "mq", "produce", "-n", cluster.namesrv, "--topic", "Kept"]
    subprocess.run(command, input=lines, text=True, check=True, timeout=120, capture_output=True)


@pytest.mark.parametrize("is_wiped", [False, True], ids=["away", "wiped"])
def test_a_member_behind_the_begin_of_the_log_comes_to_level_while_nothing_is_sent(
    cluster: LocalCluster, is_wiped: bool
) -> None:
    cluster.up(conf=CONF)
    produce(cluster, 1500)
    cluster.level()
    leader = cluster.leader()
    away = next(name for name in cluster.nodes() if name != leader)
    store = Path(cluster.nodes()[away]["store_dir"])
    end_before = cluster.nodes()[away]["ledger_end"]
    cluster.kill(away)
    if is_wiped:
        shutil.rmtree(store)
    produce(cluster, 4000)
    wait_for(lambda: cluster.nodes()[leader]["ledger_begin"] > end_before, 60, "the leader's old files gone")
    cluster.start(away)
    cluster.level()
    begins = {name: node["ledger_begin"] for name, node in cluster.nodes().items()}
    assert begins[away] > end_before
    chains = {node["chain_crc"] for node in cluster.nodes().values()}
    assert len(chains) == 1
    wait_for(lambda: not cluster.nodes()[away]["doubted"], 20, "the end of its doubt")
    produce(cluster, 50)
    cluster.level()
