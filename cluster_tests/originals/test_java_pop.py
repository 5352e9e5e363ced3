"""Pops by RocketMQ's own push consumer, which follows the mode that an operator sets for its group."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from local_cluster import wait_for
from originals.java_client import VERSIONS, JavaClient, JavaProcess

from mqclient import Admin

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def java(tmp_path: Path) -> JavaClient:
    """4.9 has no pops."""
    return JavaClient(VERSIONS[0], tmp_path / "java")


def set_mode(namesrv: str, group: str, topic: str, mode: str) -> None:
    async def ask() -> None:
        async with Admin(namesrv) as admin:
            for leader in await admin.brokers.leaders(""):
                await admin.groups.set_request_mode(leader, group, topic, mode)

    asyncio.run(ask())


def send(java: JavaClient, namesrv: str, topic: str, count: int, prefix: str) -> None:
    with java.send(namesrv, topic, "sync", count, prefix) as sender:
        sender.wait_for("done")


def received(consumer: JavaProcess, prefix: str) -> Counter[tuple[str, int, bool]]:
    """Key, times and whether it was popped, of each message."""
    return Counter(
        (event["key"], event["times"], event["popped"])
        for event in consumer.events
        if event["event"] == "received" and event["key"].startswith(prefix)
    )


def wanted(prefix: str, count: int, *, popped: bool) -> Counter[tuple[str, int, bool]]:
    first = Counter((f"{prefix}{number}", 0, popped) for number in range(count))
    return first + Counter((f"{prefix}{number}", 1, popped) for number in range(0, count, 10))


def test_an_operator_turns_a_java_consumer_to_pops_and_back(java: JavaClient, namesrv: str) -> None:
    """What fails comes again after 10 s. Nothing is lost or comes twice in either mode, or when it is changed."""
    send(java, namesrv, "Popped", 1, "first")
    with java.start("pop", namesrv, "Popped", "popping") as consumer:
        consumer.wait_for("started")
        wait_for(lambda: received(consumer, "first").total() >= 1, 60, "the first message")
        set_mode(namesrv, "popping", "Popped", "POP")
        wait_for(lambda: is_popping(java, namesrv, consumer), 60, "pops")
        send(java, namesrv, "Popped", 100, "popped")
        wait_for(lambda: received(consumer, "popped").total() >= 110, 60, "each popped message")
        assert received(consumer, "popped") == wanted("popped", 100, popped=True)
        set_mode(namesrv, "popping", "Popped", "PULL")
        wait_for(lambda: not is_popping(java, namesrv, consumer), 60, "pulls")
        send(java, namesrv, "Popped", 100, "pulled")
        wait_for(lambda: received(consumer, "pulled").total() >= 110, 60, "each pulled message")
        assert received(consumer, "pulled") == wanted("pulled", 100, popped=False)
        consumer.close_input()
        consumer.wait_for("done")
    assert received(consumer, "popped") == wanted("popped", 100, popped=True)


def is_popping(java: JavaClient, namesrv: str, consumer: JavaProcess) -> bool:
    """By a message that is sent to see it."""
    before = len(consumer.events)
    send(java, namesrv, "Popped", 1, f"probe{before}-")
    wait_for(lambda: len(consumer.events) > before, 60, "a probe")
    popped: bool = consumer.events[-1]["popped"]
    return popped
