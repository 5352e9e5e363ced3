"""Delay levels, retries and dead letters with the official Java clients: none early, none lost, none twice."""

from itertools import pairwise

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient, JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.slow]

DEAD_LETTERS = "%DLQ%failing"


def received(process: JavaProcess) -> list[dict[str, int | str]]:
    return [event for event in process.events if event["event"] == "received"]


@pytest.fixture
def java(newest_java: JavaClient) -> JavaClient:
    return newest_java


@pytest.mark.parametrize("delay_level", [1, 0], ids=["the consumer's level", "the broker's level"])
def test_a_message_that_a_consumer_cannot_do_with_comes_again_and_ends_as_a_dead_letter(
    java: JavaClient, namesrv: str, delay_level: int
) -> None:
    """Level 0 leaves the delay to the broker: 10 s before the first new try, so one try must do there."""
    times_max, delay_ms = (2, 1_000) if delay_level else (1, 10_000)
    with java.send(namesrv, "Fails", "sync", 5, "k") as sender:
        sender.wait_for("done")
    with java.fail(namesrv, "Fails", "failing", delay_level=delay_level, times_max=times_max) as consumer:
        wait_for(lambda: len(received(consumer)) >= 5 * (times_max + 1), 90, "every try")
        with java.reader(namesrv) as reader:
            wait_for(lambda: len(reader.read(DEAD_LETTERS)) >= 5, 30, "dead letters")
    tries: dict[str, list[tuple[int, int]]] = {}
    for event in received(consumer):
        tries.setdefault(str(event["key"]), []).append((int(event["times"]), int(event["stored_ms"])))
    assert sorted(tries) == [f"k{number}" for number in range(5)]
    for seen in tries.values():
        assert [times for times, _ in seen] == list(range(times_max + 1))
        gaps = [later - earlier for (_, earlier), (_, later) in pairwise(seen)]
        assert min(gaps) >= delay_ms
    dead = java.read(namesrv, DEAD_LETTERS)
    assert sorted(str(event["key"]) for event in dead) == sorted(tries)
    assert {event["times"] for event in dead} == {times_max + 1}


# After how many sends the leader is killed: the last time when deliveries are under way, whose first is due after 5 s.
@pytest.mark.parametrize(
    "kills", [(), (350,), pytest.param((100, 450), marks=pytest.mark.long)], ids=lambda kills: str(len(kills))
)
def test_delayed_messages_arrive_once_and_not_early_whatever_becomes_of_the_leader(
    cluster: LocalCluster, java: JavaClient, kills: tuple[int, ...]
) -> None:
    cluster.up()
    count, level, delay_ms = (kills[-1] + 250, 2, 5_000) if kills else (50, 1, 1_000)
    with java.delay(cluster.namesrv, "Later", level, count, "k", interval_ms=20 if kills else 0) as sender:
        for wanted in kills:
            wait_for(lambda wanted=wanted: told(sender, "ok", wanted), 90, f"{wanted} sends acknowledged")
            leader = cluster.leader()
            cluster.kill(leader)
            cluster.leader()
            cluster.start(leader)
        wait_for(lambda: told(sender, "done", 1), 120, "all sends")
    acknowledged = {event["key"] for event in sender.events if event["event"] == "ok"}
    uncertain = {event["key"] for event in sender.events if event["event"] == "failed"}
    assert len(acknowledged) > count * 0.8
    with java.reader(cluster.namesrv) as reader:
        wait_for(
            lambda: acknowledged <= {event["key"] for event in reader.read("Later")},
            60,
            "every acknowledged message delivered",
        )
        arrived = reader.read("Later")
        # The client itself repeats a send whose answer it lost; its copies lie in the schedule topic as often.
        waited = reader.read("SCHEDULE_TOPIC_XXXX")
    assert sorted(event["key"] for event in arrived) == sorted(event["key"] for event in waited)
    assert {event["key"] for event in arrived} <= acknowledged | uncertain
    assert min(int(event["stored_ms"]) - int(event["born_ms"]) for event in arrived) >= delay_ms


def told(process: JavaProcess, event: str, count: int) -> bool:
    return len([seen for seen in process.events if seen["event"] == event]) >= count
