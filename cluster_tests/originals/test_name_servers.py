"""Our brokers under RocketMQ's NameServer, and RocketMQ's broker under ours."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals import java_client
from originals.java_client import JavaClient
from originals.java_mqadmin import JavaMqAdmin
from originals.java_servers import JavaBroker, JavaNameServer

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.long]

TOPIC, OURS, JAVAS = "NameServers", "RaftNode00", "broker-java"


@pytest.fixture
def client(tmp_path: Path) -> JavaClient:
    return JavaClient(java_client.VERSIONS[0], tmp_path / "java")


@pytest.fixture
def java_name_server(client: JavaClient, cluster: LocalCluster, tmp_path: Path) -> Iterator[JavaNameServer]:
    """On a port of the cluster's own block."""
    name_server = JavaNameServer(tmp_path / "java-servers", cluster.base_port + 90)
    with name_server:
        yield name_server


def keys_read(client: JavaClient, namesrv: str) -> set[str]:
    return {event["key"] for event in client.read(namesrv, TOPIC)}


def wait_for_brokers(mqadmin: JavaMqAdmin, *names: str) -> None:
    def are_listed() -> bool:
        table = mqadmin.run("clusterList")
        return all(name in table for name in names)

    wait_for(are_listed, 60, f"{' and '.join(names)} at the NameServer")


def test_brokers_of_ours_are_led_to_by_a_java_name_server_while_ours_is_gone(
    cluster: LocalCluster, client: JavaClient, java_name_server: JavaNameServer, tmp_path: Path
) -> None:
    theirs = java_name_server.address
    cluster.up(conf={"namesrvAddr": f"{cluster.namesrv};{theirs}"})
    with JavaMqAdmin(theirs, tmp_path / "mqadmin") as mqadmin:
        wait_for_brokers(mqadmin, OURS)
    with client.send(theirs, TOPIC, "sync", 40, "a") as sender:
        sender.wait_for("done")
        acknowledged = {event["key"] for event in sender.events if event["event"] == "ok"}
    assert len(acknowledged) == 40
    wait_for(lambda: keys_read(client, cluster.namesrv) == acknowledged, 30, "all of them by our NameServer")
    leader = cluster.leader()
    with client.send(theirs, TOPIC, "sync", 400, "b", interval_ms=10) as sender:
        sender.wait_for("ok")
        cluster.kill("namesrv")
        cluster.kill(leader)
        sender.wait_for("done", 120)
        acknowledged |= {event["key"] for event in sender.events if event["event"] == "ok"}
    assert len(acknowledged) > 240, "it found the next leader"
    wait_for(lambda: acknowledged <= keys_read(client, theirs), 30, "all that was acknowledged")


def test_a_java_broker_and_a_group_of_ours_share_a_topic_under_our_name_server(
    cluster: LocalCluster, client: JavaClient, tmp_path: Path
) -> None:
    cluster.up()
    broker = JavaBroker(
        tmp_path / "java-servers", tmp_path / "store", cluster.namesrv, cluster.base_port + 50
    )
    with JavaMqAdmin(cluster.namesrv, tmp_path / "mqadmin") as mqadmin:
        with broker:
            wait_for_brokers(mqadmin, OURS, JAVAS)
            mqadmin.run("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
            with client.send(cluster.namesrv, TOPIC, "sync", 80, "a") as sender:
                sender.wait_for("done")
                acknowledged = {event["key"] for event in sender.events if event["event"] == "ok"}
            assert len(acknowledged) == 80
            status = mqadmin.run("topicStatus", "-t", TOPIC)
            stored = {
                name: sum(int(line.split()[3]) for line in status.splitlines() if line.startswith(name))
                for name in (OURS, JAVAS)
            }
            assert sum(stored.values()) == 80
            assert min(stored.values()) > 20, stored
            assert keys_read(client, cluster.namesrv) == acknowledged
            assert keys_consumed_by_us(cluster, 80) == acknowledged
        wait_for(lambda: JAVAS not in mqadmin.run("clusterList"), 30, "the Java broker gone from the tables")
    with client.send(cluster.namesrv, TOPIC, "sync", 40, "b") as sender:
        sender.wait_for("done")
        assert sum(event["event"] == "ok" for event in sender.events) == 40


def keys_consumed_by_us(cluster: LocalCluster, count: int) -> set[str]:
    arguments = ["--topic", TOPIC, "--group", "ours", "--from", "first", "--count", str(count), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "mq", "consume", "-n", cluster.namesrv, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["keys"] for line in lines if "keys" in line}
