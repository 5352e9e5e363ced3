"""Our client and the official Java one in one group, on real processes."""

import threading

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient, JavaProcess

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, SendResult
from mqclient.sync import LitePullConsumer, Producer

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "SharedTopic"
QUEUES = {0, 1, 2, 3}


@pytest.fixture
def java(newest_java: JavaClient) -> JavaClient:
    return newest_java


def java_queues(process: JavaProcess) -> set[int]:
    """The queues that the consumer last said it holds."""
    told = [event["queues"] for event in process.events if event["event"] == "queues"]
    return {int(part) for part in told[-1].strip("[]").split(",") if part.strip()} if told else set()


def test_a_java_consumer_and_one_of_ours_that_polls_share_a_group_through_a_leader_kill(
    cluster: LocalCluster, java: JavaClient
) -> None:
    cluster.up()
    polled: set[str | None] = set()
    is_ending = threading.Event()

    def send(prefix: str) -> set[str]:
        keys = [f"{prefix}{number}" for number in range(40)]
        messages = [Message(TOPIC, key.encode(), keys=key, sharding_key=key) for key in keys]
        outcomes = producer.send_batch(messages, timeout_s=20)
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)
        return set(keys)

    def poll() -> None:
        while not is_ending.is_set():
            polled.update(message.keys for message in ours.poll(0.1))
        ours.commit()

    def read_by_java() -> set[str]:
        return {event["key"] for event in theirs.events if event["event"] == "received"}

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    with Producer(cluster.namesrv, "p") as producer:
        sent = send("a")
        with java.consume(cluster.namesrv, TOPIC, "shared", "theirs") as theirs:
            with LitePullConsumer(cluster.namesrv, "shared", {TOPIC: "*"}, config=config) as ours:
                polling = threading.Thread(target=poll)
                polling.start()
                try:
                    wait_for(
                        lambda: (
                            len(java_queues(theirs)) == 2
                            and {queue.queue_id for queue in ours.assignment} == QUEUES - java_queues(theirs)
                        ),
                        60,
                        "two queues each",
                    )
                    sent |= send("b")
                    wait_for(lambda: sent <= polled | read_by_java(), 60, "all before the kill")
                    assert {key for key in polled if key and key[0] == "b"}
                    assert {key for key in read_by_java() if key[0] == "b"}
                    cluster.kill(cluster.leader())
                    sent |= send("c")
                    wait_for(lambda: sent <= polled | read_by_java(), 60, "all after the kill")
                    assert {key for key in polled if key and key[0] == "c"}
                finally:
                    is_ending.set()
                    polling.join()
            wait_for(lambda: java_queues(theirs) == QUEUES, 60, "the other takes all queues")
            last = send("d")
            wait_for(lambda: last <= read_by_java(), 60, "all to the one that is left")
            theirs.close_input()
            theirs.wait_for("done")
