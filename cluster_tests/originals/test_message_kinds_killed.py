"""Transactions, timers, filters and requests by clients of three languages, while our brokers are killed."""

import itertools
import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killers import LeaderKiller
from local_cluster import LocalCluster, wait_for
from originals.kinds_client import (
    BROKER_CONF,
    WAIT_S,
    Kinds,
    KindsProgram,
    kinds_program,
)
from workload.topic import make_topic

pytestmark = pytest.mark.slow

ALL = ("java-5.5.0", "java-4.9.8", "go", "node")
KILLS = 3
SECONDS_BETWEEN = 20
INTERVAL_S = 0.1
# Go's client looks for routes and sends heartbeats every 30 s, and cannot be told otherwise: most that it sends fails.
PATIENCE_S = 150
REQUEST_TIMEOUT_MS = 90_000
FILTER = "a > 5"


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> KindsProgram:
    return kinds_program(request.param, tmp_path / "client")


@pytest.fixture(scope="module")
def brokers(shared_cluster: LocalCluster) -> LocalCluster:
    """They serve. Each test leaves them so."""
    shared_cluster.up(conf=BROKER_CONF)
    return shared_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest, brokers: LocalCluster) -> str:
    name = re.sub(r"\W+", "_", request.node.name)
    brokers.leader()
    make_topic(brokers.namesrv, WAIT_S, name)
    return name


class Mixture:
    """Messages of all kinds, and what has to become of them."""

    def __init__(
        self, client: Kinds, replier: Kinds, topic: str, *, has_transactions_and_requests: bool
    ) -> None:
        self._client = client
        self._replier = replier
        self._topic = topic
        self._dice = random.Random(topic)
        self._decisions: dict[str, str] = {}
        self._delays_ms: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._requests: set[str] = set()
        self._kinds: list[Callable[[str], None]] = [self._timer, self._filtered]
        client.consume(f"{topic}_timers", f"{topic}_timers")
        client.consume(f"{topic}_filtered", f"{topic}_filtered", sql=FILTER)
        if has_transactions_and_requests:
            self._kinds += [self._transaction, self._request]
            client.consume(f"{topic}_transactions", f"{topic}_transactions")
            replier.reply(f"{topic}_requests", f"{topic}_requests")

    def send(self, number: int) -> None:
        """Whatever is next."""
        self._kinds[number % len(self._kinds)](f"k{number}")

    def _transaction(self, key: str) -> None:
        self._decisions[key] = self._dice.choice(["commit", "rollback"])
        now = self._dice.choice([self._decisions[key], "unknown"])
        self._client.transact(key, f"{self._topic}_transactions", now, self._decisions[key])

    def _timer(self, key: str) -> None:
        self._delays_ms[key] = self._dice.randrange(500, 20_000)
        self._client.send(key, f"{self._topic}_timers", TIMER_DELAY_MS=self._delays_ms[key])

    def _filtered(self, key: str) -> None:
        self._numbers[key] = self._dice.randrange(12)
        self._client.send(key, f"{self._topic}_filtered", a=self._numbers[key])

    def _request(self, key: str) -> None:
        self._requests.add(key)
        self._client.request(key, f"{self._topic}_requests", REQUEST_TIMEOUT_MS)

    def check(self) -> None:
        """Waits for what has to come. What failed may have been stored or not."""
        client = self._client
        ended = {*self._decisions, *self._delays_ms, *self._numbers, *self._requests}
        wait_for(
            lambda: ended <= client.keys("sent") | client.keys("failed") | client.keys("replied"),
            PATIENCE_S,
            "an end of all that was sent",
        )
        committed = {key for key, decision in self._decisions.items() if decision == "commit"}
        matching = {key for key, a in self._numbers.items() if a > 5}
        self._check_received("transactions", committed)
        self._check_received("timers", set(self._delays_ms))
        self._check_received("filtered", matching)
        for seen in client.told("received", group=f"{self._topic}_timers"):
            assert seen["stored_ms"] - seen["born_ms"] >= self._delays_ms[seen["key"]], seen
        assert all(seen["body"] == f"reply to {seen['key']}" for seen in client.told("replied"))
        replied = [seen["key"] for seen in client.told("replied")]
        assert len(replied) == len(set(replied))
        unanswered = {
            seen["key"] for seen in client.told("failed", of="request") if "OK, but wait" in seen["error"]
        }
        lost = {key for key in unanswered if f"reply to {key}" in self._replier.keys("sent")}
        assert not lost, "replies that the broker has acknowledged, and not given to their requesters"
        counts = {
            event: len(client.told(event)) for event in ("sent", "failed", "checked", "replied", "received")
        }
        print(counts, f"of {len(ended)}")
        assert len(ended & (client.keys("sent") | set(replied))) > len(ended) / 10

    def _check_received(self, kind: str, wanted: set[str]) -> None:
        group = f"{self._topic}_{kind}"
        acknowledged = wanted & self._client.keys("sent")
        wait_for(
            lambda: acknowledged <= self._client.keys("received", group=group),
            PATIENCE_S,
            f"all acknowledged {kind}",
        )
        places = self._client.places(group)
        assert places.keys() <= wanted, kind
        assert [key for key, found in places.items() if len(found) > 1] == [], kind


@pytest.fixture
def two(program: KindsProgram, brokers: LocalCluster, topic: str) -> Iterator[tuple[Kinds, Kinds]]:
    """A client, and one that replies."""
    for kind in ("transactions", "timers", "filtered", "requests"):
        make_topic(brokers.namesrv, WAIT_S, f"{topic}_{kind}")
    with (
        program.start(brokers.namesrv, f"{topic}_producers", "one") as client,
        program.start(brokers.namesrv, f"{topic}_repliers", "two") as replier,
    ):
        yield client, replier


@pytest.mark.long
@pytest.mark.parametrize("program", ALL, indirect=True)
def test_every_kind_comes_to_its_end_once_while_leaders_are_killed_every_20_s(
    program: KindsProgram, brokers: LocalCluster, topic: str, two: tuple[Kinds, Kinds]
) -> None:
    mixture = Mixture(*two, topic, has_transactions_and_requests=program.name != "node")
    killer = LeaderKiller(brokers, KILLS, SECONDS_BETWEEN)
    pace = threading.Event()
    with killer:
        for number in itertools.count():
            mixture.send(number)
            pace.wait(INTERVAL_S)  # how often something is sent, not a wait for something
            if killer.is_over and number * INTERVAL_S > KILLS * SECONDS_BETWEEN:
                break
    mixture.check()
    brokers.start_missing()
    brokers.level()
