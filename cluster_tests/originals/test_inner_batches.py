"""Topics with queue.type=BatchCQ: official clients and ours on our cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient
from originals.java_mqadmin import JavaMqAdmin

from mqclient.consumer.consumer_config import ConsumeFromWhere, ConsumerConfig
from mqclient.sync import LitePullConsumer

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "Batches"
CONF = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "10000",
    "mapperFileSizeBatchConsumeQueue": str(46 * 20),
}
SIZE = 5

Messages = dict[tuple[int, int], tuple[str, str, str]]


def make_topic(namesrv: str, tmp_path: Path) -> str:
    """What mqadmin then shows of it."""
    with JavaMqAdmin(namesrv, tmp_path / f"mqadmin-{namesrv.rpartition(':')[2]}") as mqadmin:
        wait_for(lambda: "DefaultCluster" in mqadmin.run("clusterList"), 60, "a broker at the NameServer")
        wanted = ["-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2", "-a", "+queue.type=BatchCQ"]
        wait_for(lambda: "success" in mqadmin.run("updateTopic", *wanted), 60, "the topic")
        return mqadmin.run("topicStatus", "-t", TOPIC)


def send(client: JavaClient, namesrv: str, count: int, prefix: str) -> set[str]:
    """The keys of the messages that were acknowledged."""
    with client.batch(namesrv, TOPIC, count, SIZE, prefix) as sender:
        sender.wait_for("done", 240)
        batches = [event for event in sender.events if event["event"] == "ok"]
    for event in batches:
        assert "," not in event["msg_id"], "one id for the whole batch"
    return {f"{event['key']}-{number}" for event in batches for number in range(SIZE)}


def send_all(client: JavaClient, namesrv: str, count: int, prefix: str) -> set[str]:
    """As send(), once something can be sent."""
    first = wait_for(lambda: send(client, namesrv, 1, f"{prefix}first"), 240, "a leader that serves")
    keys: set[str] = first | send(client, namesrv, count, prefix)
    return keys


def read(client: JavaClient, namesrv: str, count: int) -> Messages:
    """(queue, offset) -> (key, tag, body), once there are so many."""
    with client.reader(namesrv) as reader:

        def served() -> Messages | None:
            events = reader.read(TOPIC)
            found = {(e["queue"], e["offset"]): (e["key"], e["tag"], e["body"]) for e in events}
            assert len(found) == len(events), "each offset once"
            return found if len(found) >= count else None

        messages: Messages = wait_for(served, 120, f"{count} messages")
    for queue in {queue for queue, _ in messages}:
        offsets = sorted(offset for of_queue, offset in messages if of_queue == queue)
        assert offsets == list(range(len(offsets)))
    return messages


def keys(messages: Messages) -> set[str]:
    return {key for key, *_ in messages.values()}


def validate(*stores: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mq", "validate", *map(str, stores), "--no-spark"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_batches_are_sent_stored_and_consumed_over_a_leader_change(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    client = JavaClient("5.5.0", tmp_path / "java")
    cluster.up(conf=CONF)
    make_topic(cluster.namesrv, tmp_path)
    sent = send_all(client, cluster.namesrv, 40, "a")
    with client.consume(cluster.namesrv, TOPIC, "theirs", "one", "TagA") as theirs:
        leader = cluster.leader()
        cluster.kill(leader)
        sent |= send_all(client, cluster.namesrv, 40, "b")
        cluster.start(leader)
        with_tag = {key for key in sent if int(key.rpartition("-")[2]) % 2 == 0}

        def received() -> set[str]:
            return {event["key"] for event in theirs.events if event["event"] == "received"}

        wait_for(lambda: with_tag <= received(), 60, "all with the tag, by Java's consumer")
        assert received() == with_tag
    messages = read(client, cluster.namesrv, len(sent))
    assert sent <= keys(messages)
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    found: set[str] = set()
    wanted = {key for key in keys(messages) if int(key.rpartition("-")[2]) % 2}
    with LitePullConsumer(cluster.namesrv, "ours", {TOPIC: "TagB"}, config=config) as ours:

        def polled() -> bool:
            found.update(message.keys or "" for message in ours.poll(1))
            return wanted <= found

        wait_for(polled, 60, "all with the tag, by our consumer")
    assert found == wanted
    cluster.level()
    stores = [Path(node["store_dir"]) for node in cluster.nodes().values()]
    cluster.down()
    validate(*stores)
