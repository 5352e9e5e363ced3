"""Transactions, timers, filters and topic by clients of three languages, also at RocketMQ's broker."""

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import wait_for
from originals.kinds_client import (
    BROKER_CONF,
    WAIT_S,
    Kinds,
    KindsProgram,
    assert_once,
    kinds_program,
    wait_received,
    wait_sent,
)
from originals.serving import Serving
from workload.topic import make_topic

pytestmark = pytest.mark.slow

CONF = BROKER_CONF  # read by shared_namesrv
# Node's takes a minute to be installed, for what Go's shows as well.
NEWEST = ("java-5.5.0", "go", pytest.param("node", marks=pytest.mark.long))
PROGRAMS = [*NEWEST, pytest.param("java-4.9.8", marks=pytest.mark.long)]


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> KindsProgram:
    return kinds_program(request.param, tmp_path / "client")


@pytest.fixture
def namesrv(shared_namesrv: str) -> str:
    return shared_namesrv


@pytest.fixture
def topic(request: pytest.FixtureRequest, namesrv: str) -> str:
    """Of this test alone. Made: the Node client sends to none that it has to make."""
    name = re.sub(r"\W+", "_", request.node.name)
    make_topic(namesrv, WAIT_S, name)
    return name


@pytest.fixture
def client(program: KindsProgram, namesrv: str, topic: str) -> Iterator[Kinds]:
    """Runs, and its producer is known to the broker."""
    with program.start(namesrv, f"{topic}_producers", "one") as process:
        process.send("first", topic)
        wait_sent(process, {"first"})
        yield process


@pytest.mark.parametrize(
    "program", ["java-5.5.0", "go", pytest.param("java-4.9.8", marks=pytest.mark.long)], indirect=True
)
def test_each_transaction_ends_as_its_producer_said_once(client: Kinds, topic: str) -> None:
    client.consume(topic, topic)
    cases = [("commit", "commit"), ("rollback", "rollback"), ("unknown", "commit"), ("unknown", "rollback")]
    keys = {case: {f"{'-'.join(case)}{number}" for number in range(5)} for case in cases}
    for (now, decision), of_case in keys.items():
        for key in of_case:
            client.transact(key, topic, now, decision)
    unknown = keys["unknown", "commit"] | keys["unknown", "rollback"]
    wait_for(lambda: unknown <= client.keys("checked"), WAIT_S, "checks of all that is unknown")
    # What ends after a later round of checks: nothing that has ended is asked about or delivered again.
    client.transact("last", topic, "unknown", "commit")
    committed = {"first", "last"} | keys["commit", "commit"] | keys["unknown", "commit"]
    wait_received(client, topic, committed)
    assert_once(client, topic, committed)
    assert client.keys("failed") == set()
    for check in client.told("checked"):
        assert check["body"] == f"body of {check['key']}"
        assert check["topic"] == topic
        assert check["transaction"]


@pytest.mark.parametrize(
    "program",
    ["go", *(pytest.param(name, marks=pytest.mark.long) for name in ("java-5.5.0", "java-4.9.8"))],
    indirect=True,
)
def test_another_producer_of_the_group_is_asked_when_one_is_gone(
    program: KindsProgram, namesrv: str, topic: str
) -> None:
    group = f"{topic}_producers"
    keys = {f"{decision}{number}" for decision in ("commit", "rollback") for number in range(5)}
    with program.start(namesrv, group, "gone") as gone:
        for key in keys:
            gone.transact(key, topic, "unknown", key[:-1])
        wait_sent(gone, keys)
    with program.start(namesrv, group, "other") as other:
        other.send("first", topic)
        wait_sent(other, {"first"})
        other.consume(topic, topic)
        asked = keys - gone.keys("checked")
        assert asked
        wait_for(lambda: asked <= other.keys("checked"), WAIT_S, "checks of what the other one left")
        committed = {"first"} | {key for key in keys if key.startswith("commit")}
        wait_received(other, topic, committed)
        assert_once(other, topic, committed)


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_each_timer_comes_once_and_not_early(client: Kinds, topic: str) -> None:
    client.consume(topic, topic)
    wanted_ms = {}
    for number in range(5):
        wanted_ms |= {f"ms{number}": 1500, f"sec{number}": 2000, f"level{number}": 1000}
        client.send(f"ms{number}", topic, TIMER_DELAY_MS=1500)
        client.send(f"sec{number}", topic, TIMER_DELAY_SEC=2)
        client.send(f"level{number}", topic, DELAY=1)
    at_ms = int(time.time() * 1000) + 2500
    for number in range(5):
        client.send(f"at{number}", topic, TIMER_DELIVER_MS=at_ms + number)
    client.send("past", topic, TIMER_DELIVER_MS=at_ms - 10_000)
    client.send("far", topic, TIMER_DELAY_SEC=400 * 86400)
    keys = {"first", "past", *wanted_ms, *(f"at{number}" for number in range(5))}
    wait_received(client, topic, keys)
    assert_once(client, topic, keys)
    assert client.keys("failed") == {"far"}
    for seen in client.told("received"):
        assert seen["stored_ms"] - seen["born_ms"] >= wanted_ms.get(seen["key"], 0), seen
        if seen["key"].startswith("at"):
            assert seen["stored_ms"] >= at_ms + int(seen["key"][2:]), seen


@pytest.mark.parametrize("program", ["java-5.5.0"], indirect=True)
def test_a_recalled_timer_does_not_come(client: Kinds, topic: str) -> None:
    """Others that are due when it was, and after it, come."""
    client.consume(topic, topic)
    at_ms = int(time.time() * 1000) + 3000
    for key, after_ms in {"recalled": 0, "same": 0, "later": 1500}.items():
        client.send(key, topic, TIMER_DELIVER_MS=at_ms + after_ms)
    wait_sent(client, {"recalled"})
    client.recall("recalled")
    wait_for(lambda: client.told("recalled", is_the_sent=1), WAIT_S, "the recall")
    wait_received(client, topic, {"first", "same", "later"})
    assert_once(client, topic, {"first", "same", "later"})


# By group: an expression, and which of the messages below it is to let through.
FILTERS = {
    "number": ("a BETWEEN 3 AND 7", lambda a, colour, tag: 3 <= a <= 7),
    "word": ("a > 5 AND colour = 'red'", lambda a, colour, tag: a > 5 and colour == "red"),
    "absent": ("colour IS NULL OR a IN ('1', '2')", lambda a, colour, tag: not colour or a in (1, 2)),
    "tag": ("TAGS = 'TagA' AND NOT (a = 4)", lambda a, colour, tag: tag == "TagA" and a != 4),
}


def send_for_filters(client: Kinds, topic: str, prefix: str) -> dict[str, set[str]]:
    """The keys that are to come, by the group of the filter."""
    matching: dict[str, set[str]] = {name: set() for name in FILTERS}
    keys = set()
    for a in range(12):
        colour, tag = ("red", "blue", "")[a % 3], ("TagA", "TagB")[a % 2]
        key = f"{prefix}{a}"
        properties = {"a": a, "TAGS": tag, **({"colour": colour} if colour else {})}
        client.send(key, topic, **properties)
        keys.add(key)
        for name, (_, lets_through) in FILTERS.items():
            if lets_through(a, colour, tag):
                matching[name].add(key)
    wait_sent(client, keys)
    return matching


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_an_sql_filter_gives_exactly_what_matches(client: Kinds, topic: str) -> None:
    """What was there before it, and what comes while it is connected."""
    matching = send_for_filters(client, topic, "before")
    for name, (expression, _) in FILTERS.items():
        client.consume(topic, f"{topic}_{name}", sql=expression)
    for name in FILTERS:
        wait_for(
            lambda name=name: matching[name] <= client.keys("received", group=f"{topic}_{name}"), WAIT_S, name
        )
    after = send_for_filters(client, topic, "after")
    for name in FILTERS:
        wanted = matching[name] | after[name] | ({"first"} if name == "absent" else set())
        wait_received(client, f"{topic}_{name}", wanted)
        assert_once(client, f"{topic}_{name}", wanted)


FROM_SIX_ON = "a > 5"


def send_numbers(client: Kinds, topic: str, prefix: str) -> set[str]:
    """Once a send is acknowledged. The keys that FROM_SIX_ON lets through."""
    for number in itertools.count():
        key = f"{prefix}-try{number}"
        client.send(key, topic, a=0)
        wait_for(
            lambda key=key: key in client.keys("sent") | client.keys("failed"), WAIT_S, "an end of a send"
        )
        if key in client.keys("sent"):
            break
    keys = [f"{prefix}{a}" for a in range(12)]
    for a, key in enumerate(keys):
        client.send(key, topic, a=a)
    wait_sent(client, set(keys))
    return set(keys[6:])


@pytest.mark.parametrize(
    "program",
    ["java-5.5.0", *(pytest.param(name, marks=pytest.mark.long) for name in ("java-4.9.8", "go", "node"))],
    indirect=True,
)
def test_an_sql_filter_holds_over_a_restart_of_all_brokers(
    program: KindsProgram, shared_servers: Serving, topic: str
) -> None:
    """For a consumer that is connected meanwhile, and for one that comes afterwards."""
    with program.start(shared_servers.namesrv, f"{topic}_producers", "one") as client:
        client.consume(topic, topic, sql=FROM_SIX_ON)
        wanted = send_numbers(client, topic, "before")
        wait_received(client, topic, wanted)
        shared_servers.restart()
        wanted |= send_numbers(client, topic, "connected")
        wait_received(client, topic, wanted)
        assert_once(client, topic, wanted)
    with program.start(shared_servers.namesrv, f"{topic}_producers", "two") as client:
        client.consume(topic, topic, sql=FROM_SIX_ON)
        afterwards = send_numbers(client, topic, "after")
        wait_received(client, topic, afterwards)
        # The other one's progress may not have been committed.
        assert client.keys("received") <= wanted | afterwards


@pytest.mark.parametrize(
    "program", ["java-5.5.0", "go", pytest.param("java-4.9.8", marks=pytest.mark.long)], indirect=True
)
def test_each_request_gets_its_reply_or_a_timeout(program: KindsProgram, namesrv: str, topic: str) -> None:
    with (
        program.start(namesrv, f"{topic}_requesters", "one") as client,
        program.start(namesrv, f"{topic}_repliers", "two") as replier,
    ):
        replier.reply(topic, topic)
        # Of a requester without a heartbeat yet RocketMQ's broker does not know; Go's comes after a second.
        wait_for(lambda: is_answered(client, topic), WAIT_S, "a reply")
        keys = {f"k{number}" for number in range(8)}
        client.request("mute", topic, 2_000, mute="yes")
        for key in keys:
            client.request(key, topic, 20_000)
        wait_for(
            lambda: keys <= client.keys("replied") and client.told("failed", key="mute"),
            WAIT_S,
            "replies and a timeout",
        )
        replied = {seen["key"]: seen["body"] for seen in client.told("replied")}
        assert replied == {key: f"reply to {key}" for key in replied}
        assert client.keys("failed") & (keys | {"mute"}) == {"mute"}
        assert "imeout" in client.told("failed", key="mute")[0]["error"]


def is_answered(client: Kinds, topic: str) -> bool:
    """One more request."""
    key = f"try{len(client.events)}"
    client.request(key, topic, 1_000)
    wait_for(lambda: key in client.keys("replied") | client.keys("failed"), WAIT_S, "an end of a request")
    return key in client.keys("replied")
