"""Access control as Java's clients and its own mqadmin meet it: users and policies, right and wrong keys."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient
from originals.java_mqadmin import JavaMqAdmin
from secured_cluster import CONF, ROOT

pytestmark = [pytest.mark.java, pytest.mark.slow]
CONF_OF_TOPICS = {**CONF, "autoCreateTopicEnable": "false", "traceTopicEnable": "true"}
APP = ("app", "app-secret")
CLUSTER = ("-c", "DefaultCluster")


@pytest.fixture
def mqadmin(cluster: LocalCluster, tmp_path: Path, as_root: None) -> Iterator[JavaMqAdmin]:
    """Of root, at a cluster that is up."""
    cluster.up(conf=CONF_OF_TOPICS)
    cluster.leader()
    with JavaMqAdmin(cluster.namesrv, tmp_path / "mqadmin", credentials=ROOT) as made:
        yield made


def succeed(mqadmin: JavaMqAdmin, *arguments: str) -> None:
    """Repeats it where it fails: a member may not know yet that all members know of users."""
    wait_for(lambda: "success" in mqadmin.run(*arguments), 60, f"{arguments[0]} to succeed")


def words_of(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.strip() and not line.startswith("#")]


def test_mqadmin_makes_shows_and_deletes_users_and_policies(
    cluster: LocalCluster, mqadmin: JavaMqAdmin, tmp_path: Path
) -> None:
    succeed(mqadmin, "createUser", *CLUSTER, "-u", "app", "-p", "app-secret", "-t", "Normal")
    assert "existed" in mqadmin.run("createUser", *CLUSTER, "-u", "app", "-p", "other", "-t", "Normal")
    succeed(mqadmin, "updateUser", *CLUSTER, "-u", "app", "-s", "disable")
    shown = mqadmin.run("getUser", *CLUSTER, "-u", "app")
    assert "app-secret" not in shown
    assert {"app", "Normal", "disable"} <= {word for words in words_of(shown) for word in words}, shown
    listed = mqadmin.run("listUser", *CLUSTER)
    assert {words[0] for words in words_of(listed)} >= {"app", "root"}, listed

    rule = (
        "-s",
        "User:app",
        "-r",
        "Topic:orders,Group:g",
        "-a",
        "Pub,Sub",
        "-d",
        "Allow",
        "-i",
        "10.0.0.0/8",
    )
    succeed(mqadmin, "createAcl", *CLUSTER, *rule)
    succeed(mqadmin, "updateAcl", *CLUSTER, *rule[:-1], "127.0.0.1")
    for shown in (
        mqadmin.run("getAcl", *CLUSTER, "-s", "User:app"),
        mqadmin.run("listAcl", *CLUSTER, "-s", "app"),
    ):
        for word in ("User:app", "Topic:orders", "Group:g", "127.0.0.1", "Allow"):
            assert word in shown
        assert "10.0.0.0/8" not in shown
    succeed(mqadmin, "deleteAcl", *CLUSTER, "-s", "User:app", "-r", "Topic:orders")
    shown = mqadmin.run("getAcl", *CLUSTER, "-s", "User:app")
    assert "Group:g" in shown
    assert "Topic:orders" not in shown
    succeed(mqadmin, "deleteUser", *CLUSTER, "-u", "app")
    assert "app" not in {words[0] for words in words_of(mqadmin.run("listUser", *CLUSTER))}

    for credentials, why in (
        (None, "username cannot be null."),
        (("root", "wrong"), "check signature failed."),
        (("nobody", "s"), "User:nobody is not found."),
    ):
        with JavaMqAdmin(cluster.namesrv, tmp_path / why[:5], credentials=credentials) as other:
            # On a busy machine it may give up before its NameServer has answered.
            wait_for(lambda run=other.run, why=why: why in run("listUser", *CLUSTER), 180, why)


def test_java_clients_do_what_policies_allow_and_nothing_else(
    cluster: LocalCluster, mqadmin: JavaMqAdmin, tmp_path: Path
) -> None:
    client = JavaClient("5.5.0", tmp_path / "java", APP)
    for topic in ("orders", "forbidden"):
        succeed(mqadmin, "updateTopic", *CLUSTER, "-t", topic, "-r", "2", "-w", "2")
    succeed(mqadmin, "createUser", *CLUSTER, "-u", "app", "-p", "app-secret", "-t", "Normal")
    allowed = "Topic:orders,Group:g,Topic:%DLQ%g,Group:interop_reader"
    succeed(mqadmin, "createAcl", *CLUSTER, "-s", "User:app", "-r", allowed, "-a", "Pub,Sub", "-d", "Allow")

    def sent(topic: str, credentials: tuple[str, str] | None) -> list[str]:
        """How each of two sends ends."""
        with replace(client, credentials=credentials).send(cluster.namesrv, topic, "sync", 2, "k") as sender:
            sender.wait_for("done")
            return [
                str(event.get("error", "ok")) for event in sender.events if event["event"] in ("ok", "failed")
            ]

    # On a busy machine a client may give up before its NameServer has answered.
    wait_for(lambda: sent("orders", APP) == ["ok"] * 2, 180, "sends that policies allow")
    for topic, credentials, why in (
        ("forbidden", APP, "has no permission to access Topic:forbidden"),
        ("orders", ("app", "wrong"), "check signature failed."),
        ("orders", None, "username cannot be null."),
    ):
        refused = partial(sent, topic, credentials)
        wait_for(lambda refused=refused, why=why: all(why in how for how in refused()), 180, why)

    # Retries go through %RETRY%g, and at the end to %DLQ%g.
    with client.fail(cluster.namesrv, "orders", "g", delay_level=1, times_max=1) as consumer:
        wait_for(lambda: sum(e["event"] == "received" for e in consumer.events) >= 4, 90, "every try")
        with client.reader(cluster.namesrv) as reader:
            wait_for(lambda: len(reader.read("%DLQ%g")) == 2, 30, "dead letters")
    # Traces are written, though no policy says so.
    with client.traced(cluster.namesrv, "orders", "g", 3, "t") as traced:
        wait_for(lambda: sum(e["event"] == "received" for e in traced.events) >= 3, 60, "messages")
        wait_for(lambda: trace_count(mqadmin) > 0, 60, "a trace")
        traced.close_input()
        traced.wait_for("done")
    # A change counts for clients that are connected.
    with client.send(cluster.namesrv, "orders", "sync", 400, "c", interval_ms=50) as sender:
        sender.wait_for("ok")
        succeed(mqadmin, "updateUser", *CLUSTER, "-u", "app", "-s", "disable")
        refused = sender.wait_for("failed")
        assert "User:app is disabled." in str(refused["error"])


def trace_count(mqadmin: JavaMqAdmin) -> int:
    rows = words_of(mqadmin.run("topicStatus", "-t", "RMQ_SYS_TRACE_TOPIC"))
    return sum(int(row[3]) for row in rows if len(row) >= 4 and row[3].isdigit())
