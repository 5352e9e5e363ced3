"""Allocation of queues: every strategy against what Java's classes answered, and what holds for any input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqclient.consumer.allocate import (
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    AllocateStrategy,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_machine_room_nearby,
)
from mqclient.message_queue import MessageQueue

VECTORS = Path(__file__).resolve().parent.parent / "golden" / "vectors"

NEARBY = "MACHINE_ROOM_NEARBY-"
BY_NAME = {strategy.name: strategy for strategy in (AVG, AVG_BY_CIRCLE, CONSISTENT_HASH)}


def vectors() -> list[dict[str, Any]]:
    # "allocate_rooms" was recorded like "allocate", with names of brokers and clients that tell their machine room.
    lines = [
        json.loads(line)
        for name in ("allocate", "allocate_rooms")
        for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()
    ]
    return [line for line in lines if "mqAll" in line]


def broker_room(queue: MessageQueue) -> str:
    room, at, _ = queue.broker_name.partition("@")
    return room if at else ""


def consumer_room(client_id: str) -> str:
    return client_id.partition("-")[0]


def nearby(inner: AllocateStrategy) -> AllocateStrategy:
    return by_machine_room_nearby(inner, broker_room=broker_room, consumer_room=consumer_room)


def queues_of(texts: list[str]) -> list[MessageQueue]:
    parts = (text.rpartition(":") for text in texts)
    return [MessageQueue("T", name, int(queue_id)) for name, _, queue_id in parts]


def strategy_of(case: dict[str, Any]) -> AllocateStrategy:
    name: str = case["strategy"]
    if "virtualNodeCnt" in case:
        return by_consistent_hash(case["virtualNodeCnt"])
    if name == "MACHINE_ROOM":
        return by_machine_room(case["rooms"])
    if name == "CONFIG":
        return by_config(queues_of(case["messageQueueList"]))
    return nearby(BY_NAME[name.removeprefix(NEARBY)]) if name.startswith(NEARBY) else BY_NAME[name]


@pytest.mark.parametrize("case", vectors(), ids=lambda case: f"{case['strategy']}-{len(case['mqAll'])}")
def test_queues_are_shared_out_as_javas_members_do_it(case: dict[str, Any]) -> None:
    strategy = strategy_of(case)
    assert strategy.name == case["strategy"]
    queues, client_ids = queues_of(case["mqAll"]), case["cidAll"]
    for client_id, allocated in case["result"].items():
        if isinstance(allocated, str):
            assert allocated.startswith("IllegalArgumentException: Machine room is null for")
            with pytest.raises(ValueError, match="no machine room for"):
                strategy.allocate(client_id, queues, client_ids)
        else:
            assert strategy.allocate(client_id, queues, client_ids) == queues_of(allocated)


def test_there_are_vectors_of_every_strategy() -> None:
    names = {case["strategy"].split("-")[0] for case in vectors()}
    assert names == {*BY_NAME, "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY"}


def test_queues_sort_as_javas_do() -> None:
    lines = (VECTORS / "allocate.jsonl").read_text().splitlines()
    (java,) = [line["result"] for line in map(json.loads, lines) if "compareTo" in line["strategy"]]
    parts = [text.split(":") for text in java]
    queues = [MessageQueue(topic, broker_name, int(queue_id)) for topic, broker_name, queue_id in parts]
    assert sorted(queues) == queues


SHARING = [
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    by_consistent_hash(1),
    by_machine_room({"r1", "r2", "r3"}),
    *(nearby(inner) for inner in BY_NAME.values()),
]
QUEUES = st.builds(
    lambda brokers: sorted(
        MessageQueue("T", name, queue_id) for name, count in brokers.items() for queue_id in range(count)
    ),
    st.dictionaries(st.sampled_from(["r1@a", "r1@b", "r2@c", "r3@d", "r3@e"]), st.integers(1, 9), min_size=1),
)
CLIENT_IDS = st.builds(
    sorted,
    st.lists(
        st.builds("{}-{}".format, st.sampled_from(["r1", "r2", "r4"]), st.text(max_size=5)),
        min_size=1,
        max_size=12,
        unique=True,
    ),
)


def by_name(strategy: AllocateStrategy) -> str:
    return strategy.name


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SHARING, ids=by_name)
@given(QUEUES, CLIENT_IDS)
def test_each_queue_goes_to_exactly_one_member_in_the_order_of_the_list(
    strategy: AllocateStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    before = list(queues), list(client_ids)
    shares = [strategy.allocate(client_id, queues, client_ids) for client_id in client_ids]
    assert sorted(queue for share in shares for queue in share) == queues
    if not strategy.name.startswith("MACHINE_ROOM_NEARBY"):  # own room first, whatever its name
        assert shares == [sorted(share) for share in shares]
    assert shares == [strategy.allocate(client_id, queues, client_ids) for client_id in client_ids]
    assert (queues, client_ids) == before


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [AVG, AVG_BY_CIRCLE, by_machine_room({"r1", "r2", "r3"})], ids=by_name)
@given(QUEUES, CLIENT_IDS)
def test_even_shares_differ_by_one_queue_at_most(
    strategy: AllocateStrategy, queues: list[MessageQueue], client_ids: list[str]
) -> None:
    counts = [len(strategy.allocate(client_id, queues, client_ids)) for client_id in client_ids]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1


@pytest.mark.slow
@given(QUEUES, CLIENT_IDS.filter(lambda client_ids: len(client_ids) > 1))
def test_a_member_that_leaves_the_ring_moves_only_its_own_queues(
    queues: list[MessageQueue], client_ids: list[str]
) -> None:
    for client_id in client_ids[1:]:
        before = CONSISTENT_HASH.allocate(client_id, queues, client_ids)
        assert set(before) <= set(CONSISTENT_HASH.allocate(client_id, queues, client_ids[1:]))


@pytest.mark.slow
@given(QUEUES, CLIENT_IDS)
def test_nobody_reads_from_another_room_where_a_member_is(
    queues: list[MessageQueue], client_ids: list[str]
) -> None:
    manned = {consumer_room(client_id) for client_id in client_ids}
    for client_id in client_ids:
        rooms = {broker_room(queue) for queue in nearby(AVG).allocate(client_id, queues, client_ids)}
        assert rooms & manned <= {consumer_room(client_id)}


@pytest.mark.parametrize("strategy", SHARING, ids=by_name)
def test_what_java_refuses_is_refused(strategy: AllocateStrategy) -> None:
    queues = [MessageQueue("T", "r1@b", 0)]
    with pytest.raises(ValueError, match="client id is empty"):
        strategy.allocate("", queues, ["r1-c"])
    with pytest.raises(ValueError, match="no queues"):
        strategy.allocate("r1-c", [], ["r1-c"])
    with pytest.raises(ValueError, match="no members"):
        strategy.allocate("r1-c", queues, [])


@pytest.mark.parametrize("strategy", SHARING, ids=by_name)
def test_a_member_that_the_broker_does_not_know_yet_gets_nothing(strategy: AllocateStrategy) -> None:
    assert strategy.allocate("r1-me", [MessageQueue("T", "r1@b", 0)], ["r1-other"]) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_consistent_hash(0),
        lambda: by_consistent_hash(-1),
        lambda: by_machine_room("room1"),
        lambda: by_machine_room([]),
    ],
)
def test_parameters_with_which_nothing_would_be_read_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|write a set"):
        make()
