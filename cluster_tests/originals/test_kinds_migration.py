"""Timers that wait and transactions that are open go from RocketMQ's broker to ours and back again."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from originals.java_servers import JavaBroker, java_group
from originals.kinds_client import Kinds, KindsProgram, kinds_program, wait_sent
from originals.test_migration import longest, stop_java
from test_plain_processes import Plain
from workload.topic import make_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

CONF = {
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "4000",
    "transactionOpBatchInterval": "100",  # for so long RocketMQ's broker keeps to itself what has ended
    "transactionCheckMax": "100000",  # it counts those for which nobody is there, too
    "recallMessageEnable": "true",
    "waitTimeMillsInSendQueue": "60000",  # a busy broker is to refuse nothing
    "mappedFileSizeCommitLog": str(1 << 22),
    "mappedFileSizeConsumeQueue": "100000",
    "mappedFileSizeTimerLog": "52000",
}
PLAIN = {"brokerName": "broker-java", "enableDLegerCommitLog": "false"}
TIMERS, TRANSACTIONS = "KeptTimers", "KeptTransactions"
PRODUCERS = "kept_producers"
WAIT_S = 240
# A client that sends more at once has a thread for each.
AT_ONCE = 100
RECALLED = 5
# When timers are due: in the stage that sends them, in the next one, in the one after that. A slow machine delivers
# them later.
DUE_S = (5, 40, 90)
# No timer is due in these times around a change of brokers. RocketMQ's stop takes up to twenty seconds and does not
# write down what it delivered in its last one; its start may store twice, or lose, what came due while no broker ran.
BEFORE_CHANGE_MS, CHANGE_MS = 3_000, 30_000


class Stores(Protocol):
    """Brokers that run on the same files, one after the other. Each gives the NameServer's address."""

    def java(self) -> AbstractContextManager[str]: ...
    def ours(self) -> AbstractContextManager[str]: ...


@dataclass
class Sent:
    """What is to become of all that was sent."""

    due_ms: dict[str, int] = field(default_factory=dict)  # of timers
    recalled: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)

    def send(self, client: Kinds, prefix: str, timers: int, transactions: int) -> None:
        """Half of the transactions are left open: the client has to end before it is asked."""
        now_ms = int(time.time() * 1000)
        due = {
            f"{prefix}{number}": now_ms + DUE_S[number % len(DUE_S)] * 1000 + number
            for number in range(timers)
        }
        for keys in _parts(list(due)):
            for key in keys:
                client.send(key, TIMERS, TIMER_DELIVER_MS=due[key])
            wait_sent(client, set(keys), WAIT_S)
        self.due_ms |= due
        recalled = [key for number, key in enumerate(due) if number % len(DUE_S) == 1][:RECALLED]
        for key in recalled:
            client.recall(key)
        wait_for(lambda: set(recalled) <= client.keys("recalled"), WAIT_S, "recalls")
        self.recalled |= set(recalled)
        ends = [
            ("commit", "commit"),
            ("rollback", "rollback"),
            ("unknown", "commit"),
            ("unknown", "rollback"),
        ]
        halves = {f"{prefix}half{number}": ends[number % len(ends)] for number in range(transactions)}
        for keys in _parts(sorted(halves, key=lambda key: halves[key][0] == "unknown")):
            for key in keys:
                client.transact(key, TRANSACTIONS, *halves[key])
            wait_sent(client, set(keys), WAIT_S)
        self.committed |= {key for key, (_, decision) in halves.items() if decision == "commit"}

    @property
    def delivered(self) -> set[str]:
        return self.due_ms.keys() - self.recalled


def _parts(keys: list[str]) -> list[list[str]]:
    return [keys[begin : begin + AT_ONCE] for begin in range(0, len(keys), AT_ONCE)]


class PlainStores:
    def __init__(self, directory: Path, base_port: int) -> None:
        self._plain = Plain(directory / "plain", base_port, CONF | PLAIN)
        self._plain.name_server.start()
        work, namesrv = directory / "java-servers", self._plain.namesrv
        self._java = JavaBroker(work, self._plain.store, namesrv, base_port, conf=CONF | PLAIN)

    @contextlib.contextmanager
    def java(self) -> Iterator[str]:
        with self._java:
            yield self._plain.namesrv
            self._java.stop_orderly()

    @contextlib.contextmanager
    def ours(self) -> Iterator[str]:
        self._plain.broker.start()
        yield self._plain.namesrv
        assert self._plain.broker.end() == 0

    def close(self) -> None:
        self._plain.close()


class GroupStores:
    """Three members of ours; one of Java's, whose store the others get."""

    def __init__(self, cluster: LocalCluster, work: Path) -> None:
        self._cluster = cluster
        self._work = work
        self._stores = {f"n{number}": cluster.directory / f"n{number}" / "store" for number in range(3)}
        for store in self._stores.values():
            store.mkdir(parents=True)
        self._has_run = False

    @contextlib.contextmanager
    def java(self) -> Iterator[str]:
        member_id = longest(self._stores)[0] if self._has_run else "n0"
        with java_group(self._work, {member_id: self._stores[member_id]}, CONF) as java:
            yield java.namesrv
            stop_java(java, self._stores)

    @contextlib.contextmanager
    def ours(self) -> Iterator[str]:
        self._has_run = True
        self._cluster.up(conf=CONF)
        yield self._cluster.namesrv
        self._cluster.level()
        self._cluster.down()


@pytest.fixture
def stores(request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path: Path) -> Iterator[Stores]:
    if request.param == "group":
        yield GroupStores(cluster, tmp_path / "java-servers")
        return
    with port_block() as base_port, contextlib.closing(PlainStores(tmp_path, base_port)) as plain:
        yield plain


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("stores", "timers", "transactions"),
    [
        pytest.param("plain", 60, 40, marks=LONG),
        pytest.param("group", 60, 40, marks=LONG),
        pytest.param("plain", 3_000, 500, marks=LONG),
        pytest.param("group", 3_000, 500, marks=LONG),
    ],
    indirect=["stores"],
)
def test_each_timer_comes_once_and_each_transaction_ends_as_its_producer_said_from_java_to_us_to_java(
    stores: Stores, timers: int, transactions: int, tmp_path: Path
) -> None:
    program = kinds_program("java-5.5.0", tmp_path / "client")
    sent = Sent()
    with stores.java() as namesrv:
        for topic in (TIMERS, TRANSACTIONS):
            make_topic(namesrv, WAIT_S, topic)
        with program.start(namesrv, PRODUCERS, "first") as client:
            sent.send(client, "java", timers, 2 * transactions)
        wait_for(lambda: is_between_timers(sent), WAIT_S, "a pause between timers")
        wait_delivered(program, namesrv, due_by_now(sent))
    with stores.ours() as namesrv:
        make_topic(namesrv, WAIT_S, TIMERS)
        with program.start(namesrv, PRODUCERS, "second") as client:
            client.send("second", TRANSACTIONS)
            client.consume(TRANSACTIONS, "ended")
            wait_for(lambda: sent.committed <= client.keys("received"), WAIT_S, "what RocketMQ left is ended")
        with program.start(namesrv, PRODUCERS, "third") as client:
            sent.send(client, "ours", timers, 2 * transactions)
        wait_for(lambda: is_between_timers(sent), WAIT_S, "a pause between timers")
        wait_delivered(program, namesrv, due_by_now(sent))
    with stores.java() as namesrv:
        make_topic(namesrv, WAIT_S, TIMERS)
        with program.start(namesrv, PRODUCERS, "fourth") as client:
            sent.send(client, "again", timers, 2 * transactions)
            client.consume(TIMERS, "all_timers")
            client.consume(TRANSACTIONS, "all_transactions")
            wait_received(client, "all_timers", sent.delivered)
            wait_received(client, "all_transactions", sent.committed)
            # What comes behind all others: whatever came a second time would have come by then.
            client.send("last", TIMERS, TIMER_DELAY_MS=5_000)
            client.transact("last half", TRANSACTIONS, "unknown", "commit")
            wait_received(client, "all_timers", {"last"})
            wait_received(client, "all_transactions", {"last half"})
            assert_once(client, "all_timers", sent.delivered | {"last"})
            assert_once(client, "all_transactions", sent.committed | {"second", "last half"})
            early = [
                seen
                for seen in client.told("received", group="all_timers")
                if seen["stored_ms"] < sent.due_ms.get(seen["key"], 0)
            ]
            assert early == []


def due_by_now(sent: Sent) -> set[str]:
    now_ms = time.time() * 1000
    return {key for key in sent.delivered if sent.due_ms[key] <= now_ms}


def is_between_timers(sent: Sent) -> bool:
    """No timer was due a moment ago, and none is due while the brokers change."""
    now_ms = time.time() * 1000
    return not any(-BEFORE_CHANGE_MS < due_ms - now_ms < CHANGE_MS for due_ms in sent.due_ms.values())


def wait_delivered(program: KindsProgram, namesrv: str, keys: set[str]) -> None:
    """A group of its own reads all that there is: it commits nothing that another one would miss."""
    with program.start(namesrv, PRODUCERS + "_none", "watcher") as watcher:
        group = f"watch{int(time.time() * 1000)}"
        watcher.consume(TIMERS, group)
        wait_received(watcher, group, keys)


def wait_received(client: Kinds, group: str, keys: set[str]) -> None:
    wait_for(
        lambda: keys <= client.keys("received", group=group), WAIT_S, f"{len(keys)} messages for {group}"
    )


def assert_once(client: Kinds, group: str, keys: set[str]) -> None:
    places = client.places(group)
    assert {key: found for key, found in places.items() if len(found) > 1} == {}
    assert sorted(places.keys() - keys) == []
    assert sorted(keys - places.keys()) == []
