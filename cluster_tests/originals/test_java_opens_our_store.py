"""The way back: the real broker in DLedger mode opens a stopped store of ours and serves it at the same offsets."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from originals.java_client import JavaClient, JavaReader
from originals.java_servers import JavaBroker, JavaNameServer

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "WayBack"
FILE_SIZE = 1 << 18  # small data files, so that a thousand messages fill three


def read_all(reader: JavaReader) -> dict[tuple[int, int], tuple[str, int, int, str]]:
    """(queue, offset) -> (key, physical offset, size, body) of every message of the topic."""
    return {
        (e["queue"], e["offset"]): (e["key"], e["phy_offset"], e["size"], e["body"])
        for e in reader.read(TOPIC)
    }


@contextlib.contextmanager
def java_broker_on(store: Path, tmp_path: Path, self_id: str, conf: dict[str, str]) -> Iterator[str]:
    """The address of its NameServer."""
    with port_block() as base_port:
        name_server = JavaNameServer(tmp_path / "java-servers", base_port)
        with (
            name_server,
            JavaBroker(tmp_path / "java-servers", store, name_server.address, base_port, self_id, conf),
        ):
            yield name_server.address


CONF = {"mappedFileSizeCommitLog": str(FILE_SIZE), "mappedFileSizeConsumeQueue": "10000"}
# All but the newest files go at once.
RETENTION = {
    "fileReservedTime": "0",
    "deleteWhen": ";".join(map(str, range(24))),
    "flushConsumeQueueThoroughInterval": "1000",
}


@pytest.mark.parametrize(
    "retention",
    [
        pytest.param({}, id="from its first entry"),
        pytest.param(RETENTION, id="from where retention has left it", marks=pytest.mark.long),
    ],
)
def test_java_serves_every_message_of_a_stopped_store_of_ours_at_the_same_offsets(
    cluster: LocalCluster, tmp_path: Path, retention: dict[str, str]
) -> None:
    client = JavaClient("5.5.0", tmp_path / "java")
    cluster.up(conf=CONF | retention)
    for part in range(4):
        with client.send(cluster.namesrv, TOPIC, "async", 800, f"p{part}-", "TagA", "TagB") as sender:
            sender.wait_for("done", 120)
        leader = cluster.leader()
        if part < 3:
            cluster.kill(leader)
            cluster.leader()
            cluster.start(leader)
    cluster.level()
    node = cluster.nodes()[cluster.leader()]
    assert node["term"] >= 3
    store = Path(node["store_dir"])
    data = store / f"dledger-{node['id']}" / "data"
    if retention:
        wait_for(lambda: len(list(data.iterdir())) <= 3, 60, "old data files gone")
    with client.reader(cluster.namesrv) as reader:
        before = read_all(reader)
    for name in cluster.nodes():
        cluster.stop(name)
    files = sorted(data.iterdir())
    if retention:
        assert int(files[0].name) > 0
        before = {key: seen for key, seen in before.items() if seen[1] >= int(files[0].name)}
        assert len(before) >= 100
    else:
        assert len(files) >= 3
        assert len(before) >= 3_000
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", "--sparse=always", str(store), str(copy)], check=True)
    shutil.rmtree(copy / f"dledger-{node['id']}" / "pydledger", ignore_errors=True)
    with (
        java_broker_on(copy, tmp_path, node["id"], CONF) as namesrv,
        client.reader(namesrv) as reader,
    ):

        def served() -> dict[tuple[int, int], tuple[str, int, int, str]] | None:
            found = read_all(reader)
            return found if len(found) >= len(before) else None

        after = wait_for(served, 120, "every message served by the real broker")
        assert after == before


@pytest.mark.long
def test_java_goes_on_with_the_delayed_messages_where_we_stopped(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """What was delivered is not delivered again, and what waits is delivered when its time comes."""
    client = JavaClient("5.5.0", tmp_path / "java")
    conf = {"mappedFileSizeCommitLog": str(FILE_SIZE), "mappedFileSizeConsumeQueue": "10000"}
    cluster.up(conf=conf)
    with client.delay(cluster.namesrv, TOPIC, 1, 20, "soon") as sender:
        sender.wait_for("done")
    with client.reader(cluster.namesrv) as reader:
        wait_for(lambda: len(read_all(reader)) == 20, 30, "the first ones delivered")
    with client.delay(cluster.namesrv, TOPIC, 4, 5, "later") as sender:  # 30 s
        sender.wait_for("done")
    cluster.level()
    node = cluster.nodes()[cluster.leader()]
    for name in cluster.nodes():
        cluster.stop(name)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", "--sparse=always", node["store_dir"], str(copy)], check=True)
    shutil.rmtree(copy / f"dledger-{node['id']}" / "pydledger", ignore_errors=True)
    with (
        java_broker_on(copy, tmp_path, node["id"], conf) as namesrv,
        client.reader(namesrv) as reader,
    ):
        found = wait_for(
            lambda: [event for event in reader.read(TOPIC) if event["key"].startswith("later")],
            120,
            "the later ones delivered by the real broker",
        )
        wait_for(lambda: len(read_all(reader)) >= 25, 30, "all of them")
        keys = sorted(event["key"] for event in reader.read(TOPIC))
    assert keys == sorted(
        [*(f"soon{number}" for number in range(20)), *(f"later{number}" for number in range(5))]
    )
    assert min(event["stored_ms"] - event["born_ms"] for event in found) >= 30_000
