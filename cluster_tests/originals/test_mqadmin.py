"""Java's own mqadmin against our cluster, with Java's clients at work."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient, JavaProcess
from originals.java_mqadmin import JavaMqAdmin

from message.decoder import MessageExt
from message.names import TRANS_HALF_TOPIC as HALF_TOPIC
from mqclient import ConsumeFromWhere, ConsumerConfig, Message, SendResult, TransactionState
from mqclient.sync import Producer, PushConsumer, TransactionProducer

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC, GROUP, GROUP_NAME = "Admin", "admin_group", "RaftNode00"
FAILED = "command failed"


@pytest.fixture
def java(newest_java: JavaClient) -> JavaClient:
    return newest_java


@pytest.fixture
def mqadmin(cluster: LocalCluster, tmp_path: Path) -> Iterator[JavaMqAdmin]:
    """Of a cluster that is up."""
    cluster.up()
    with JavaMqAdmin(cluster.namesrv, tmp_path / "mqadmin") as made:
        yield made


def received(consumer: JavaProcess) -> Counter[str]:
    return Counter(e["key"] for e in consumer.events if e["event"] == "received")


def send(cluster: LocalCluster, java: JavaClient, count: int, prefix: str) -> set[str]:
    with java.send(cluster.namesrv, TOPIC, "sync", count, prefix) as sender:
        sender.wait_for("done")
        return {e["key"] for e in sender.events if e["event"] == "ok"}


def succeed(mqadmin: JavaMqAdmin, *arguments: str) -> None:
    """Repeats it where it fails: on a busy machine a sync may take longer than mqadmin waits. None of them minds."""
    wait_for(lambda: "success" in mqadmin.run(*arguments), 60, f"{arguments[0]} to succeed")


def succeeded(printed: str) -> str | None:
    return None if FAILED in printed else printed


def reset_to_the_start(mqadmin: JavaMqAdmin) -> None:
    arguments = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    wait_for(lambda: FAILED not in mqadmin.run(*arguments), 60, "the reset to succeed")


def wait_until_commits_are_level(mqadmin: JavaMqAdmin, consumer: JavaProcess) -> None:
    """Before the first commit there is nothing in the table, so that its total is 0 as well."""

    def are_level() -> bool:
        consumer.write_line("commit")  # which it does by itself 10 s after its start
        table = mqadmin.run("consumerProgress", "-g", GROUP)
        return f"\n{TOPIC} " in table and "Consume Diff Total: 0" in table

    wait_for(are_level, 30, "no lag")


def leader_address(cluster: LocalCluster) -> str:
    return str(cluster.nodes()[cluster.leader()]["listen"])


def test_operators_see_topics_groups_and_clients(
    cluster: LocalCluster, java: JavaClient, mqadmin: JavaMqAdmin
) -> None:
    leader = leader_address(cluster)
    succeed(mqadmin, "updateTopic", "-b", leader, "-t", TOPIC, "-r", "4", "-w", "4")
    keys = send(cluster, java, 40, "a")
    with java.consume(cluster.namesrv, TOPIC, GROUP, "one") as consumer:
        wait_for(lambda: keys <= received(consumer).keys(), 30, "all messages")
        wait_until_commits_are_level(mqadmin, consumer)
        connection = mqadmin.run("consumerConnection", "-g", GROUP)
        assert "@one" in connection
        assert "CONSUME_FROM_FIRST_OFFSET" in connection
        assert "Rebalance OK" in mqadmin.run("consumerStatus", "-g", GROUP)
        assert "@one" in mqadmin.run("producer", "-b", leader)
        assert GROUP in mqadmin.run("topicList", "-c")
        assert GROUP in mqadmin.run("statsAll", "-t", TOPIC)
        assert "Diff Total: 0" in mqadmin.run("brokerConsumeStats", "-b", leader)
    status = mqadmin.run("topicStatus", "-t", TOPIC)
    assert sum(int(line.split()[3]) for line in status.splitlines() if line.startswith(GROUP_NAME)) == 40
    assert "TRUE" in mqadmin.run("clusterList").upper()
    [row] = [
        row for row in mqadmin.run("queryMsgByKey", "-t", TOPIC, "-k", "a7").splitlines() if "@a7@" in row
    ]
    unique_key = row.split()[0]
    assert "[a7]" in mqadmin.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_key)
    assert "commitLogDiskRatio" in mqadmin.run("brokerStatus", "-b", leader)
    assert "physicOffset" in mqadmin.run(
        "queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "1", "-b", leader
    )
    succeed(mqadmin, "updateBrokerConfig", "-b", leader, "-k", "slaveReadEnable", "-v", "true")
    assert "slaveReadEnable                                   =  true" in mqadmin.run(
        "getBrokerConfig", "-b", leader
    )
    refused = mqadmin.run("updateBrokerConfig", "-b", leader, "-k", "listenPort", "-v", "1")
    assert "set it in the conf file and restart" in refused
    succeed(mqadmin, "cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC)
    succeed(mqadmin, "updateBrokerConfig", "-b", leader, "-k", "flushDelayOffsetInterval", "-v", "5000")
    # It deletes the group's retry topic at each member, and tells of a failure behind «success».
    wait_for(
        lambda: (
            "CODE:" not in mqadmin.run("deleteSubGroup", "-c", "DefaultCluster", "-g", GROUP, "-r", "true")
        ),
        60,
        "the group to be deleted",
    )
    succeed(mqadmin, "deleteTopic", "-c", "DefaultCluster", "-t", TOPIC)
    assert TOPIC not in mqadmin.run("topicList").split()
    succeed(mqadmin, "cleanExpiredCQ", "-b", leader)
    succeed(mqadmin, "cleanUnusedTopic", "-c", "DefaultCluster")
    queue_files = cluster.directory / cluster.leader() / "store" / "consumequeue" / TOPIC
    wait_for(lambda: not list(queue_files.glob("*/*")), 60, "the deleted topic's files to go")


def test_operators_look_at_halves_which_no_consumer_is_given(
    cluster: LocalCluster, java: JavaClient, mqadmin: JavaMqAdmin
) -> None:
    with TransactionProducer(
        cluster.namesrv, "p", check=lambda message: TransactionState.UNKNOWN
    ) as producer:
        sent = producer.send_in_transaction(
            Message(TOPIC, b"undecided", keys="k7"), lambda message, transaction_id: TransactionState.UNKNOWN
        )
    half_id = sent.send_result.offset_msg_id
    wait_for(lambda: "k7" in mqadmin.run("queryMsgByKey", "-t", HALF_TOPIC, "-k", "k7"), 30, "the route")
    for arguments in (
        ("queryMsgById", "-t", HALF_TOPIC, "-i", half_id),
        ("queryMsgByOffset", "-t", HALF_TOPIC, "-b", GROUP_NAME, "-i", "0", "-o", "0"),
        ("printMsg", "-t", HALF_TOPIC),
        ("printMsgByQueue", "-t", HALF_TOPIC, "-a", GROUP_NAME, "-i", "0", "-p", "true"),
        ("consumeMessage", "-t", HALF_TOPIC),
    ):
        assert "REAL_TOPIC" in (printed := mqadmin.run(*arguments)), (arguments, printed)
    status = mqadmin.run("topicStatus", "-t", HALF_TOPIC)
    assert [line.split()[3] for line in status.splitlines() if line.startswith(GROUP_NAME)] == ["1"]
    with java.consume(cluster.namesrv, HALF_TOPIC, GROUP, "one") as consumer:
        wait_for(lambda: "@one" in mqadmin.run("consumerConnection", "-g", GROUP), 30, "the consumer")
        assert not received(consumer)


# The next test resets as well, and then kills the leader.
@pytest.mark.long
def test_a_reset_rewinds_a_consumer_at_work(
    cluster: LocalCluster, java: JavaClient, mqadmin: JavaMqAdmin
) -> None:
    keys = send(cluster, java, 40, "a")
    with java.consume(cluster.namesrv, TOPIC, GROUP, "one") as consumer:
        wait_for(lambda: keys <= received(consumer).keys(), 30, "all messages")
        reset_to_the_start(mqadmin)
        wait_for(lambda: all(received(consumer)[key] >= 2 for key in keys), 60, "all of them again")
        wait_until_commits_are_level(mqadmin, consumer)


def test_a_reset_is_not_undone_by_a_leader_that_dies_after_it(
    cluster: LocalCluster, java: JavaClient, mqadmin: JavaMqAdmin
) -> None:
    keys = send(cluster, java, 40, "a")
    with java.consume(cluster.namesrv, TOPIC, GROUP, "one") as consumer:
        wait_for(lambda: keys <= received(consumer).keys(), 30, "all messages")
        wait_until_commits_are_level(mqadmin, consumer)
        leader = cluster.leader()
        reset_to_the_start(mqadmin)
        cluster.kill(leader)
        wait_for(lambda: all(received(consumer)[key] >= 2 for key in keys), 90, "all of them again")


def test_our_consumers_answer_what_tools_ask_of_clients(cluster: LocalCluster, mqadmin: JavaMqAdmin) -> None:
    times: Counter[str] = Counter()
    ids: dict[str, str] = {}

    def listener(message: MessageExt) -> None:
        ids[str(message.keys)] = message.msg_id
        times[str(message.keys)] += 1

    leader = leader_address(cluster)
    succeed(mqadmin, "updateBrokerConfig", "-b", leader, "-k", "useServerSideResetOffset", "-v", "false")
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, persist_interval_s=0.2)
    keys = [f"a{number}" for number in range(40)]
    with (
        Producer(cluster.namesrv, "p") as producer,
        PushConsumer(cluster.namesrv, GROUP, {TOPIC: "*"}, listener, config=config) as consumer,
    ):
        outcomes = producer.send_batch([Message(TOPIC, b"x", keys=key) for key in keys], timeout_s=20)
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)
        wait_for(lambda: times == Counter(keys), 30, "all messages")
        client_id = consumer.client_id
        # It finds a group's brokers by its topic of retries, of which the NameServer hears a little later.
        status = str(
            wait_for(lambda: succeeded(mqadmin.run("consumerStatus", "-g", GROUP)), 30, "the status")
        )
        assert client_id in status
        assert "Rebalance OK" in status
        assert "can't consume for a while" not in status
        one = mqadmin.run("consumerStatus", "-g", GROUP, "-i", client_id, "-s")
        assert "CONSUME_PASSIVELY" in one
        assert "#Consumer jstack#" in one
        # The table has a row per committed offset, and the consumer commits a moment after it has consumed.
        wait_for(
            lambda: client_id.split("@")[0] in mqadmin.run("consumerProgress", "-g", GROUP, "-s", "true"),
            30,
            "the client beside its queues in the progress",
        )
        reset_to_the_start(mqadmin)
        wait_for(lambda: times == Counter(keys * 2), 30, "all of them again, and none of them a third time")
        arguments = ("queryMsgById", "-t", TOPIC, "-i", ids["a7"], "-g", GROUP, "-d", client_id)
        assert "CR_SUCCESS" in mqadmin.run(*arguments)
        assert times["a7"] == 3
        wait_for(
            lambda: "Consume Diff Total: 0" in mqadmin.run("consumerProgress", "-g", GROUP), 30, "no lag"
        )
