"""RocketMQ's gRPC clients at our proxy, and at RocketMQ's own."""

import re
import time
from collections.abc import Iterator

import pytest
from local_cluster import LocalCluster, wait_for
from originals.doors.door import Door, door
from originals.doors.grpc_client import (
    LANGUAGES,
    QUICKLY_BUILT,
    WAIT_S,
    GrpcClient,
    GrpcProgram,
    grpc_program,
)

from faults.checkers.timer import EARLY_NS

pytestmark = pytest.mark.slow

DOORS = [
    "ours",
    pytest.param("before_java", marks=[pytest.mark.long, pytest.mark.java]),
    pytest.param("java", marks=[pytest.mark.long, pytest.mark.java]),
]


@pytest.fixture(scope="module", params=DOORS)
def a_door(
    request: pytest.FixtureRequest, shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    """One for all tests, which have topics and groups of their own."""
    with door(request.param, shared_cluster, tmp_path_factory.mktemp("door")) as made:
        yield made


def at_every_landing(*languages: str) -> pytest.MarkDecorator:
    """With these, and with the others as a long test."""
    params = [name if name in languages else pytest.param(name, marks=pytest.mark.long) for name in LANGUAGES]
    return pytest.mark.parametrize("program", params, indirect=True, scope="module")


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GrpcProgram:
    return grpc_program(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def client(program: GrpcProgram, a_door: Door) -> Iterator[GrpcClient]:
    """One for all tests; a command of theirs that fails is theirs."""
    topic = f"{program.language}_transactions"
    a_door.make_topic(topic, "TRANSACTION")
    with program.start(a_door.endpoint, topic) as process:
        yield process


@pytest.fixture
def name(request: pytest.FixtureRequest, client: GrpcClient) -> str:
    """Of topics and groups of this test alone."""
    client.events.clear()
    return re.sub(r"\W+", "_", request.node.name)[-60:]


@at_every_landing(*QUICKLY_BUILT)
def test_each_type_of_message_comes_once_to_a_push_consumer(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str
) -> None:
    """Those of a message group in their order, delayed ones not early, those of transactions as their producers say."""
    types = {"NORMAL": f"{name}_normal", "FIFO": f"{name}_fifo", "DELAY": f"{name}_delay"}
    for message_type, topic in types.items():
        a_door.make_topic(topic, message_type)
    normal, fifo, delay = types.values()
    transactions = f"{program.language}_transactions"
    for topic in (normal, fifo, delay, transactions):
        a_door.make_group(f"of_{topic}", orderly=topic == fifo)
        client.push(topic, f"of_{topic}")
    client.wait_told("consuming", 4)
    at_ms = int(time.time() + 4) * 1000
    due_ns = time.monotonic_ns() + at_ms * 1_000_000 - time.time_ns()
    for number in range(3):
        client.send(f"n{number}", normal, tag="a")
        client.send(f"d{number}", delay, at_ms=at_ms)
    for now, decision in [
        ("commit", "commit"), ("rollback", "rollback"), ("unknown", "commit"), ("unknown", "rollback")
    ]:  # fmt: skip
        client.transact(f"{now}-{decision}", transactions, now, decision)
    for number in range(4):
        for group in ("g", "h"):
            client.send(f"{group}{number}", fifo, group=group)
            client.wait_sent(f"{group}{number}")
    client.wait_told("received", 3, group=f"of_{normal}")
    client.wait_told("received", 8, group=f"of_{fifo}")
    client.wait_told("received", 3, group=f"of_{delay}")
    client.wait_told("checked", 2)
    client.wait_told("received", 2, group=f"of_{transactions}")
    assert sorted(client.keys("received", group=f"of_{normal}")) == ["n0", "n1", "n2"]
    assert sorted(client.keys("received", group=f"of_{delay}")) == ["d0", "d1", "d2"]
    assert sorted(client.keys("received", group=f"of_{transactions}")) == ["commit-commit", "unknown-commit"]
    for group in ("g", "h"):
        in_order = client.keys("received", group=f"of_{fifo}", message_group=group)
        assert in_order == [f"{group}{number}" for number in range(4)]
    assert sorted(client.keys("checked")) == ["unknown-commit", "unknown-rollback"]
    ids = {seen["key"]: seen["id"] for seen in client.told("sent")}
    for seen in client.told("received"):
        assert (seen["body"], seen["attempt"], seen["id"]) == (f"{seen['key']} body", 1, ids[seen["key"]])
        assert seen["tag"] == ("a" if seen["key"].startswith("n") else "")
        assert seen["key"][0] != "d" or seen["at_ns"] >= due_ns - EARLY_NS


@at_every_landing("python")
def test_a_simple_consumer_acknowledges_and_hides(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str
) -> None:
    """What is neither acknowledged nor hidden for longer comes again; what is acknowledged never does."""
    a_door.make_topic(name, "NORMAL")
    a_door.make_group(name)
    client.simple(name, name)
    client.wait_told("consuming")
    keys = ["acked", "hidden", "left"]
    for key in keys:
        client.send(key, name)
    client.wait_sent(*keys)
    receive_all(client, name, *keys, times=1)
    client.ack("acked", name)
    client.wait_told("acked")
    if program.recalls_and_hides:
        client.hide("hidden", name, 2000)
        client.wait_told("hidden")
    for key in ("hidden", "left"):
        receive_all(client, name, key, times=2)
        client.ack(key, name)  # before the others come, or its time may be over
    client.wait_told("acked", 3)
    for seen in client.told("received", group=name):
        again = seen["key"] in {earlier["key"] for earlier in client.events[: client.events.index(seen)]
                                if earlier["event"] == "received"}  # fmt: skip
        assert seen["attempt"] == (2 if again else 1)
    assert client.keys("received", group=name).count("acked") == 1


def receive_all(client: GrpcClient, group: str, *keys: str, times: int) -> None:
    """Until each of them has come so often."""
    while any(client.keys("received", group=group).count(key) < times for key in keys):
        polled = len(client.told("polled"))
        client.receive(group, 8, 10_000)
        client.wait_told("polled", polled + 1)


@at_every_landing(*QUICKLY_BUILT)
def test_a_failed_message_holds_back_its_message_group_alone(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str
) -> None:
    a_door.make_topic(name, "FIFO")
    a_door.make_group(name, orderly=True)
    for group in ("g", "h"):
        for number in range(4):
            client.send(f"{group}{number}", name, group=group, fails=int(group == "g" and number == 1))
            client.wait_sent(f"{group}{number}")
    client.push(name, name)
    client.wait_told("received", 9 if program.tries_again_in_order else 8, group=name)
    of_g = client.keys("received", group=name, message_group="g")
    assert list(dict.fromkeys(of_g)) == ["g0", "g1", "g2", "g3"]
    if program.tries_again_in_order and program.holds_back:
        assert of_g == ["g0", "g1", "g1", "g2", "g3"]
    assert client.keys("received", group=name, message_group="h") == ["h0", "h1", "h2", "h3"]


@at_every_landing("java")
@pytest.mark.parametrize("orderly", [False, True], ids=["normal", "fifo"])
def test_what_never_succeeds_is_dead_after_its_last_attempt(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str, orderly: bool
) -> None:
    a_door.make_topic(name, "FIFO" if orderly else "NORMAL")
    a_door.make_group(name, orderly=orderly, retries=1)
    group = {"group": "g"} if orderly else {}
    for key, fails in {"bad": 99, "good": 0}.items():
        client.send(key, name, **group, fails=fails)
        client.wait_sent(key)
    client.push(name, name)
    attempts = 2 if program.tries_again_in_order or not orderly else 1
    client.wait_told("received", attempts + 1, group=name)
    a_door.wait_dead(name, "bad")
    received = client.keys("received", group=name)
    if not orderly or not program.holds_back:
        received.sort()
    assert received == ["bad"] * attempts + ["good"]


@at_every_landing(*QUICKLY_BUILT)
def test_filters_give_exactly_what_matches(client: GrpcClient, a_door: Door, name: str) -> None:
    a_door.make_topic(name, "NORMAL")
    for group in ("tags", "sql"):
        a_door.make_group(f"{name}_{group}")
    client.push(name, f"{name}_tags", tags="TagA || TagC")
    client.push(name, f"{name}_sql", sql="a BETWEEN 3 AND 6 AND TAGS <> 'TagB'")
    client.wait_told("consuming", 2)
    tags = [f"Tag{'ABC'[a % 3]}" for a in range(9)]
    for a, tag in enumerate(tags):
        client.send(f"m{a}", name, tag=tag, a=a)
    by_tag = [f"m{a}" for a in range(9) if tags[a] != "TagB"]
    by_sql = [f"m{a}" for a in range(3, 7) if tags[a] != "TagB"]
    client.wait_told("received", len(by_tag), group=f"{name}_tags")
    client.wait_told("received", len(by_sql), group=f"{name}_sql")
    assert sorted(client.keys("received", group=f"{name}_tags")) == by_tag
    assert sorted(client.keys("received", group=f"{name}_sql")) == by_sql


@at_every_landing("node")
def test_a_recalled_message_does_not_come(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str
) -> None:
    """Those due at the same time and later do."""
    if not program.recalls_and_hides:
        pytest.skip(f"the gRPC client for {program.language} cannot recall")
    a_door.make_topic(name, "DELAY")
    a_door.make_group(name)
    client.push(name, name)
    client.wait_told("consuming")
    at_ms = int(time.time() + 4) * 1000
    for key, after_ms in {"recalled": 0, "same": 0, "later": 1000}.items():
        client.send(key, name, at_ms=at_ms + after_ms)
    client.wait_sent("recalled")
    client.recall("recalled", name)
    client.wait_told("recalled")
    client.wait_told("received", 2, group=name)
    assert client.keys("received", group=name) == ["same", "later"]


@at_every_landing("go")
def test_another_producer_is_asked_when_one_is_gone(
    client: GrpcClient, program: GrpcProgram, a_door: Door, name: str
) -> None:
    topic = f"{program.language}_transactions"
    keys = ["orphan-commit", "orphan-rollback"]
    with program.start(a_door.endpoint, topic) as gone:
        for key in keys:
            gone.transact(key, topic, "unknown", key.partition("-")[2])
        gone.wait_sent(*keys)
        asked = gone.keys("checked")
    assert sorted({*asked, *keys}) == keys
    wait_for(
        lambda: {*keys} <= {*asked, *client.keys("checked")}, WAIT_S, "checks of what the other one left"
    )
