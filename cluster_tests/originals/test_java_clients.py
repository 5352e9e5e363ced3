"""Official Java clients, also at RocketMQ's broker: what they were told is stored is there, where they were told."""

import re
import threading

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient, JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.slow]

# Where nothing is killed either, a machine that stands still for a second has its leader step down. What is under way
# then may be stored or not, and what comes while nobody leads fails at once.
ROUNDS = 4


def keys_of(process: JavaProcess, event: str) -> list[str]:
    return [e["key"] for e in process.events if e["event"] == event]


def sent(
    java: JavaClient, namesrv: str, topic: str, count: int, key: str, *tags: str
) -> tuple[set[str], set[str]]:
    """Keys that were acknowledged, `count` of them in a row, and keys of sends before them that nobody knows of."""
    acknowledged: set[str] = set()
    uncertain: set[str] = set()
    for number in range(ROUNDS):
        with java.send(namesrv, topic, "sync", count, f"{key}{number}-", *tags) as sender:
            sender.wait_for("done")
        acknowledged |= set(keys_of(sender, "ok"))
        uncertain |= set(keys_of(sender, "failed"))
        if not keys_of(sender, "failed"):
            return acknowledged, uncertain
    raise AssertionError(f"{ROUNDS} times in a row not all of {count} sends were acknowledged: {uncertain}")


@pytest.fixture
def namesrv(shared_namesrv: str) -> str:
    return shared_namesrv


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Of this test alone."""
    return re.sub(r"\W+", "_", request.node.name)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_a_java_producer_was_told_is_read_back_at_that_offset(
    java: JavaClient, namesrv: str, topic: str, mode: str
) -> None:
    with java.send(namesrv, topic, mode, 200, "k", "TagA", "TagB") as sender:
        sender.wait_for("done")
        told = {e["key"]: (e["queue"], e["offset"]) for e in sender.events if e["event"] == "ok"}
        uncertain = set(keys_of(sender, "failed"))
    assert len(told) + len(uncertain) == 200
    assert len(told) > 100, uncertain
    found = {e["key"]: (e["queue"], e["offset"]) for e in java.read(namesrv, topic)}
    assert {key: place for key, place in found.items() if key not in uncertain} == told


def test_one_way_sends_arrive_once_the_topic_is_known(java: JavaClient, namesrv: str, topic: str) -> None:
    sent(java, namesrv, topic, 1, "first")
    with java.send(namesrv, topic, "oneway", 50, "o") as sender:
        list(sender.rest(60))  # to its orderly end: before that, nothing says that they have left it
        left = set(keys_of(sender, "oneway"))
    with java.reader(namesrv) as reader:
        wait_for(lambda: left <= {e["key"] for e in reader.read(topic)}, 20, "all one-way messages")


def test_two_push_consumers_share_the_queues_and_one_takes_over_from_the_other(
    java: JavaClient, namesrv: str, topic: str
) -> None:
    group = f"{topic}_group"
    before, unknown_before = sent(java, namesrv, topic, 40, "a")
    with (
        java.consume(namesrv, topic, group, "one") as one,
        java.consume(namesrv, topic, group, "two") as two,
    ):
        wait_for(
            lambda: (
                shares(one)
                and shares(two)
                and not (shares(one) & shares(two))
                and len(shares(one) | shares(two)) == 4
            ),
            60,
            "two consumers with disjoint queues",
        )
        shared, unknown_shared = sent(java, namesrv, topic, 40, "b")

        def received() -> set[str]:
            return set(keys_of(one, "received")) | set(keys_of(two, "received"))

        wait_for(lambda: before | shared <= received(), 60, "all that was acknowledged")
        assert received() <= before | shared | unknown_before | unknown_shared
        assert shared & set(keys_of(one, "received"))
        assert shared & set(keys_of(two, "received"))
        one.close_input()
        one.wait_for("done")
        wait_for(lambda: len(shares(two)) == 4, 60, "the other takes all queues")
        two.close_input()
        two.wait_for("done")
    meanwhile, unknown_meanwhile = sent(java, namesrv, topic, 20, "c")
    with java.consume(namesrv, topic, group, "three") as three:
        wait_for(lambda: meanwhile <= set(keys_of(three, "received")), 60, "those sent meanwhile")
        assert set(keys_of(three, "received")) <= meanwhile | unknown_meanwhile


def shares(process: JavaProcess) -> set[int]:
    """The queues that the consumer last said it holds."""
    told = [e["queues"] for e in process.events if e["event"] == "queues"]
    return {int(part) for part in told[-1].strip("[]").split(",") if part.strip()} if told else set()


def test_a_tag_subscription_filters(java: JavaClient, namesrv: str, topic: str) -> None:
    tags = ("TagA", "TagB", "TagC")
    acknowledged, uncertain = sent(java, namesrv, topic, 60, "t", *tags)
    with java.consume(namesrv, topic, f"{topic}_group", "one", "TagA || TagC") as consumer:
        wanted = {key for key in acknowledged if int(key.rpartition("-")[2]) % 3 != 1}
        assert len(wanted) >= 40
        wait_for(lambda: wanted <= set(keys_of(consumer, "received")), 60, "two of three")
        assert set(keys_of(consumer, "received")) <= wanted | uncertain
        assert {e["tag"] for e in consumer.events if e["event"] == "received"} == {"TagA", "TagC"}


def test_nothing_acknowledged_is_missing_after_the_leader_is_killed(
    cluster: LocalCluster, newest_java: JavaClient
) -> None:
    kill_leaders(cluster, newest_java, kills=1, count=1000, interval_ms=10)


@pytest.mark.long
def test_nothing_acknowledged_is_missing_while_leaders_are_killed_every_20_s(
    cluster: LocalCluster, java: JavaClient
) -> None:
    kill_leaders(cluster, java, kills=6, count=12000, interval_ms=10, seconds_between=20)


def kill_leaders(
    cluster: LocalCluster,
    java: JavaClient,
    *,
    kills: int,
    count: int,
    interval_ms: int,
    seconds_between: float = 2,
) -> None:
    cluster.up()
    topic = "InteropKill"
    with (
        java.consume(cluster.namesrv, topic, "kill_group", "one") as consumer,
        java.send(cluster.namesrv, topic, "sync", count, "k", interval_ms=interval_ms) as sender,
    ):
        sender.wait_for("ok")
        pause = threading.Event()
        terms = []
        for _ in range(kills):
            acknowledged = len(keys_of(sender, "ok"))
            wait_for(
                lambda seen=acknowledged: len(keys_of(sender, "ok")) >= seen + 100,
                60,
                "100 more acknowledged",
            )
            leader = cluster.leader()
            terms.append(cluster.nodes()[leader]["term"])
            cluster.kill(leader)
            cluster.leader()
            pause.wait(seconds_between / 2)  # the pace of the kills is the test, not a wait for something
            cluster.start(leader)
            pause.wait(seconds_between / 2)
        for event in sender.rest(count * interval_ms / 1000 * 3 + 120):
            if event["event"] == "done":
                break
        acknowledged_keys = set(keys_of(sender, "ok"))
        assert cluster.nodes()[cluster.leader()]["term"] > terms[0], "no kill changed the term"
        wait_for(
            lambda: acknowledged_keys <= set(keys_of(consumer, "received")),
            60,
            "every acknowledged key received",
        )
    stored = {e["key"]: (e["queue"], e["offset"]) for e in java.read(cluster.namesrv, topic)}
    told = {e["key"]: (e["queue"], e["offset"]) for e in sender.events if e["event"] == "ok"}
    missing = sorted(set(told) - set(stored))
    assert not missing, f"{len(missing)} acknowledged keys are gone, first {missing[:5]}"
    assert len(told) > count // 2, f"only {len(told)} of {count} were acknowledged"
