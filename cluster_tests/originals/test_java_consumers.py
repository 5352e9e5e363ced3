"""Java's consumers of every kind, and queries by key and id, on single, batched and delayed messages.

The same scenario runs against our cluster, with its leaders killed too, and against RocketMQ's own broker.
"""

import contextlib
from collections import Counter, defaultdict
from typing import Any

import pytest
from killers import LeaderKiller
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient, JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "Kinds"
KINDS = {"single": 0, "of a batch": 3, "delayed": 7}  # by the last digit of the send's number
# Groups by what each of their consumers gets: all of the messages, or its share.
READERS = {
    "broadcast-1": ("broadcast-1",),
    "broadcast-2": ("broadcast-2",),
    "orderly": ("orderly-1", "orderly-2"),
    "lite": ("lite-1",),
}


def events(process: JavaProcess, name: str) -> list[dict[str, Any]]:
    return [event for event in process.events if event["event"] == name]


def keys(found: list[dict[str, Any]]) -> set[str]:
    return {event["key"] for event in found}


def received(consumers: JavaProcess, *who: str) -> list[dict[str, Any]]:
    return [event for event in events(consumers, "received") if event["who"] in who]


def all_received(consumers: JavaProcess, wanted: set[str]) -> bool:
    """By every group, and by the one that lets each fail once at a second try."""
    second_tries = [event for event in received(consumers, "retry-1") if event["times"]]
    return wanted <= keys(second_tries) and all(
        wanted <= keys(received(consumers, *who)) for who in READERS.values()
    )


def assert_in_order(found: list[dict[str, Any]]) -> None:
    """A queue may be begun again further back, but nothing of it is left out or comes before what precedes it."""
    ends: Counter[int] = Counter()
    for event in found:
        queue, offset = event["queue"], event["offset"]
        assert offset <= ends[queue], (queue, offset, ends[queue])
        ends[queue] = max(ends[queue], offset + 1)


def sent(
    java: JavaClient, namesrv: str, sends: int, kill: LeaderKiller | None
) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """What was acknowledged of each message by its key, and the keys of those whose sends failed."""
    with java.mixed(namesrv, TOPIC, sends, "k", interval_ms=20 if kill else 5) as sender:
        with kill or contextlib.nullcontext():
            wait_for(lambda: events(sender, "done"), 60 + sends / 10, "all sends")
        return {event["key"]: event for event in events(sender, "ok")}, keys(events(sender, "failed"))


def check_every_kind(java: JavaClient, namesrv: str, sends: int, kill: LeaderKiller | None = None) -> None:
    with java.every(namesrv, TOPIC) as consumers:
        consumers.wait_for("started")  # or that would take the machine from the first send, whose time runs
        told, uncertain = sent(java, namesrv, sends, kill)
        by_kind = Counter(event["kind"] for event in told.values())
        assert all(by_kind[kind] for kind in KINDS.values()), by_kind
        assert len(told) > sends * (1.0 if kill else 1.3)
        if not kill:
            # A machine that stands still for a second has its leader step down: what is under way then is uncertain.
            assert len(uncertain) < sends / 10, uncertain
        wait_for(lambda: all_received(consumers, set(told)), 90, "every message with every consumer")
        got = Counter(event["who"] for event in events(consumers, "received"))
        print(f"client {java.version}: acknowledged {by_kind}, failed {len(uncertain)}, received {got}")
        for who in READERS.values():
            assert keys(received(consumers, *who)) <= told.keys() | uncertain
        assert_in_order(received(consumers, "lite-1"))
        assert_in_order(received(consumers, *READERS["orderly"]))
    with java.query(namesrv, TOPIC) as asker:
        for kind in KINDS.values():
            key, message = next((key, event) for key, event in told.items() if event["kind"] == kind)
            wait_for(
                lambda key=key, message=message: is_found(asker, key, message), 30, f"{key} by key and id"
            )


def is_found(asker: JavaProcess, key: str, message: dict[str, Any]) -> bool:
    """By its key, under which there may be a copy of it. By its id, what waits for its time is found where it waits."""
    asker.write_line(f"{key} {message['offset_msg_id']}")
    if asker.wait_for("answered")["problem"] is not None:
        return False
    found = defaultdict(set)
    for event in asker.events:
        found[event["event"]].add((event.get("who"), event.get("key"), event.get("body")))
    wanted = (key, key, f"body of {key}")
    return wanted in found["queried"] and wanted in found["viewed"]


def test_every_kind_of_consumer_gets_every_kind_of_message(newest_java: JavaClient, namesrv: str) -> None:
    check_every_kind(newest_java, namesrv, 200)


@pytest.mark.long
def test_every_kind_of_consumer_gets_every_kind_of_message_while_leaders_are_killed_every_20_s(
    cluster: LocalCluster, java: JavaClient
) -> None:
    cluster.up()
    check_every_kind(java, cluster.namesrv, 4_000, LeaderKiller(cluster, kills=6, seconds=20))
