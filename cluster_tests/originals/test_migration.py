"""There and back again: a group of Java's brokers, ours on its stores, Java's on ours, and ours once more."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from originals.java_client import JavaClient, JavaProcess
from originals.java_servers import JavaBroker, JavaGroup, JavaNameServer, java_group

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "Moved"
GROUP = "movers"
# How long a group of Java's may be without a leader, and its clients without a route.
FAIL_OVER_S = 240

Messages = dict[tuple[int, int], tuple[str, str, int, int, str]]


def read_all(client: JavaClient, namesrv: str, count: int) -> Messages:
    """(queue, offset) -> (key, message id, physical offset, size, body), once there are so many."""
    with client.reader(namesrv) as reader:

        def served() -> Messages | None:
            found = {
                (e["queue"], e["offset"]): (e["key"], e["id"], e["phy_offset"], e["size"], e["body"])
                for e in reader.read(TOPIC)
            }
            return found if len(found) >= count else None

        return wait_for(served, FAIL_OVER_S, f"{count} messages")


def send(client: JavaClient, namesrv: str, count: int, prefix: str) -> int:
    """How many were acknowledged; a send is asked for again with another key when it fails."""
    with client.send(namesrv, TOPIC, "async", count, prefix, "TagA") as sender:
        sender.wait_for("done", 300)
        return sum(event["event"] == "ok" for event in sender.events)


def send_all(client: JavaClient, namesrv: str, count: int, prefix: str) -> int:
    """From the first acknowledgement on, which may have to wait for a leader. How many were acknowledged in all."""
    sent = [0]

    def began() -> bool:
        sent.append(send(client, namesrv, 10, f"{prefix}try{len(sent)}-"))
        return sent[-1] > 0

    wait_for(began, FAIL_OVER_S, "a leader that serves")
    return sum(sent) + send(client, namesrv, count, prefix)


def received(process: JavaProcess) -> list[str]:
    return [event["key"] for event in process.events if event["event"] == "received"]


def consume_to_the_end(client: JavaClient, namesrv: str, wanted: set[str], instance: str) -> None:
    """What the group has not read before is what it gets now; its offsets are committed at the end."""
    with client.consume(namesrv, TOPIC, GROUP, instance) as consumer:
        wait_for(lambda: wanted <= set(received(consumer)), FAIL_OVER_S, f"{len(wanted)} messages consumed")
        consumer.close_input()
        consumer.wait_for("done")
        assert sorted(received(consumer)) == sorted(wanted), "each once, and no older one"


def kill_leader(java: JavaGroup) -> None:
    term = java.term()
    leader = wait_for(java.leader, FAIL_OVER_S, "a leader of Java's")
    java.brokers[leader].stop()
    wait_for(
        lambda: java.term() > term and java.leader() not in (None, leader), FAIL_OVER_S, "another leader"
    )
    java.brokers[leader].start()


def stop_java(java: JavaGroup, stores: dict[str, Path]) -> None:
    """The leader last, so that it is the one with the newest tables; the others get them (docs/migration.md), and
    those that were no members of Java's all that replication would have brought.
    """
    leader = wait_for(java.leader, FAIL_OVER_S, "a leader of Java's")
    followers = [broker for member_id, broker in java.brokers.items() if member_id != leader]
    with ThreadPoolExecutor() as pool:  # each takes its 20 s
        list(pool.map(JavaBroker.stop_orderly, followers))
    java.brokers[leader].stop_orderly()
    for member_id, store in java.stores.items():
        if member_id != leader:
            shutil.rmtree(store / "config")
            shutil.copytree(java.stores[leader] / "config", store / "config")
    for member_id, store in stores.items():
        if member_id not in java.stores:
            replicate(java.stores[leader], leader, store, member_id)


def replicate(source: Path, source_id: str, target: Path, target_id: str) -> None:
    """As a follower of Java's would be left: the same bytes under its own id, and beside them what is ours."""
    source_log, target_log = source / f"dledger-{source_id}", target / f"dledger-{target_id}"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("dledger-*"), dirs_exist_ok=True)
    shutil.copytree(source_log, target_log, ignore=shutil.ignore_patterns("pydledger"), dirs_exist_ok=True)


def longest(stores: dict[str, Path]) -> list[str]:
    """Members by the ends of their logs at a clean stop, the longest first: what a shorter one lacks, Java could not
    get from it.
    """

    def end_index(member_id: str) -> int:
        lines = (stores[member_id] / f"dledger-{member_id}" / "checkpoint").read_text().splitlines()
        return int(dict(line.split("=", 1) for line in lines)["endIndex"])

    return sorted(stores, key=end_index, reverse=True)


def keys(messages: Messages) -> set[str]:
    return {key for key, *_ in messages.values()}


def fill_plain(client: JavaClient, work: Path, store: Path, conf: dict[str, str], count: int) -> int:
    """Java's broker before there was a group. How many messages it acknowledged."""
    with port_block() as base_port:
        name_server = JavaNameServer(work / "namesrv", base_port)
        plain = {**conf, "enableDLegerCommitLog": "false"}
        broker = JavaBroker(work / "broker", store, name_server.address, base_port, conf=plain)
        with name_server, broker:
            acknowledged = send_all(client, name_server.address, count, "plain-")
            broker.stop_orderly()
    return acknowledged


# Three brokers of Java's take the better part of a minute to elect, and as long to end. One writes and reads the same
# files; what its followers and other leaders make of theirs is tried with --long.
@pytest.mark.parametrize(
    ("java_members", "count", "kills", "was_plain"),
    [
        pytest.param(1, 300, 0, False, marks=pytest.mark.long),
        pytest.param(3, 300, 2, True, marks=pytest.mark.long),
        pytest.param(3, 35_000, 2, False, marks=pytest.mark.long),
    ],
)
def test_every_message_and_offset_stays_from_java_to_us_to_java_and_to_us(
    cluster: LocalCluster, tmp_path: Path, java_members: int, count: int, kills: int, was_plain: bool
) -> None:
    client = JavaClient("5.5.0", tmp_path / "java")
    conf = {
        "mappedFileSizeCommitLog": str(1 << (20 if count > 1_000 else 17)),  # several files
        "mappedFileSizeConsumeQueue": "10000",
    }
    stores = {f"n{number}": cluster.directory / f"n{number}" / "store" for number in range(3)}
    acknowledged = fill_plain(client, tmp_path / "plain", tmp_path / "store", conf, count) if was_plain else 0
    for store in stores.values():
        if was_plain:
            shutil.copytree(tmp_path / "store", store)
        else:
            store.mkdir(parents=True)
    members = {member_id: stores[member_id] for member_id in list(stores)[:java_members]}
    with java_group(tmp_path / "java-servers", members, conf) as java:
        for part in range(kills + 1):
            acknowledged += send_all(client, java.namesrv, count, f"java{part}-")
            if part < kills:
                kill_leader(java)
        assert java.term() >= kills  # one alone leads in the term in which it begins: 0
        first = read_all(client, java.namesrv, acknowledged)
        consume_to_the_end(client, java.namesrv, keys(first), "one")
        stop_java(java, stores)

    cluster.up(conf=conf)
    cluster.level()
    assert read_all(client, cluster.namesrv, len(first)) == first
    acknowledged = len(first)
    for part in range(2):
        acknowledged += send_all(client, cluster.namesrv, count, f"ours{part}-")
        leader = cluster.leader()
        cluster.kill(leader)
        cluster.leader()
        cluster.start(leader)
    second = read_all(client, cluster.namesrv, acknowledged)
    assert first.items() <= second.items()
    consume_to_the_end(client, cluster.namesrv, keys(second) - keys(first), "two")
    cluster.level()
    cluster.down()
    done = subprocess.run(
        [sys.executable, "-m", "mq", "validate", *map(str, stores.values()), "--no-spark"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

    members = {member_id: stores[member_id] for member_id in longest(stores)[:java_members]}
    with java_group(tmp_path / "java-servers-again", members, conf) as java:
        assert read_all(client, java.namesrv, len(second)) == second
        acknowledged = len(second) + send_all(client, java.namesrv, count, "again-")
        third = read_all(client, java.namesrv, acknowledged)
        assert second.items() <= third.items()
        consume_to_the_end(client, java.namesrv, keys(third) - keys(second), "three")
        stop_java(java, stores)

    cluster.up(conf=conf)
    cluster.level()
    assert read_all(client, cluster.namesrv, len(third)) == third
    acknowledged = len(third) + send_all(client, cluster.namesrv, 10, "last-")
    last = read_all(client, cluster.namesrv, acknowledged)
    consume_to_the_end(client, cluster.namesrv, keys(last) - keys(third), "four")
