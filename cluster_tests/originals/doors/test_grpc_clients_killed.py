"""RocketMQ's gRPC clients while leaders are killed, and while their proxy is."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from killers import Killer, LeaderKiller
from local_cluster import LocalCluster, wait_for
from originals.doors.door import Door, door
from originals.doors.grpc_client import LANGUAGES, GrpcClient, GrpcProgram, grpc_program
from originals.doors.grpc_history import history_of
from workload.noting import Notes
from workload.read_back import run_read_back

from faults.history import AnyRecord, Dead, FilteredGroup, HistoryWriter, Run, read_records
from faults.judge import judge

pytestmark = [pytest.mark.slow, pytest.mark.long]

KILLS = 3
SECONDS_BETWEEN = 20
INTERVAL_S = 0.1
ACKED_SHARE = 0.6
MESSAGE_GROUPS = 3
# Of each three messages one has what these groups filter by.
FILTERED = tuple(
    FilteredGroup(group=group, topic="normal", modulus=3, remainders=(1,)) for group in ("by_tag", "by_sql")
)
RUN = Run(at_ns=0, seed=0, minutes=KILLS * SECONDS_BETWEEN / 60, target="", members=(), filtered=FILTERED)


class Mixture:
    """Messages of all types for consumers of both kinds, by one client. Keys are PRODUCER/SEQUENCE."""

    def __init__(self, client: GrpcClient, door: Door, transactions: str, program: GrpcProgram) -> None:
        self._client = client
        self._may_fail = program.tries_again_in_order and program.holds_back  # in message groups
        self._dice = random.Random(transactions)
        self._transactions = transactions
        self._sequences: dict[str, Iterator[int]] = {}
        self._last_of_group: dict[str, str] = {}
        self._asked = 0  # answers of the simple consumer
        self._given = 0  # messages of theirs that were looked at
        self._kinds: list[Callable[[], None]] = [
            self._normal,
            self._simple,
            self._fifo,
            self._delay,
            self._transact,
            self._doomed,
        ]
        if program.recalls_and_hides:
            self._kinds.append(self._recall)
        self._to_recall: str | None = None
        self.topics = {
            "normal": "NORMAL",
            "tasks": "NORMAL",
            "fifo": "FIFO",
            "delay": "DELAY",
            "doomed": "NORMAL",
        }
        for topic, message_type in self.topics.items():
            door.make_topic(topic, message_type)
        for topic in (*self.topics, transactions):
            retries = 1 if topic == "doomed" else 16
            door.make_group(f"of_{topic}", orderly=topic == "fifo", retries=retries)
            if topic != "tasks":
                client.push(topic, f"of_{topic}")
        client.simple("tasks", "of_tasks")
        for filtered in FILTERED:
            door.make_group(filtered.group)
        client.push("normal", "by_tag", tags="tag1")
        client.push("normal", "by_sql", sql="a = 1")
        client.wait_told("consuming", len(self.topics) + 1 + len(FILTERED))

    def send(self, number: int) -> None:
        self._kinds[number % len(self._kinds)]()

    def _next(self, producer: str) -> str:
        return f"{producer}/{next(self._sequences.setdefault(producer, itertools.count()))}"

    def _normal(self) -> None:
        key = self._next("n")
        a = int(key.partition("/")[2]) % 3
        self._client.send(key, "normal", tag=f"tag{a}", a=a, fails=self._dice.randrange(2))

    def _simple(self) -> None:
        self._client.send(self._next("s"), "tasks")

    def _fifo(self) -> None:
        """Of a message group the next one is sent when the one before it has ended."""
        group = f"g{self._dice.randrange(MESSAGE_GROUPS)}"
        last = self._last_of_group.get(group)
        if last is None or last in self.ended():
            self._last_of_group[group] = self._next(group)
            fails = int(self._may_fail and self._dice.random() < 0.1)
            self._client.send(self._last_of_group[group], "fifo", group=group, fails=fails)

    def _delay(self) -> None:
        self._send_later("d", 2)

    def _send_later(self, producer: str, seconds_min: int) -> str:
        """The key."""
        key = self._next(producer)
        now_ms = int(time.time() * 1000)
        at_ms = now_ms // 1000 * 1000 + self._dice.randrange(seconds_min, 15) * 1000
        self._client.send(key, "delay", at_ms=at_ms, now_ms=now_ms)
        return key

    def _recall(self) -> None:
        """One is sent that the next turn recalls."""
        if self._to_recall is not None and self._client.told("sent", key=self._to_recall):
            self._client.recall(self._to_recall, "delay")
        self._to_recall = self._send_later("r", 5)

    def _doomed(self) -> None:
        self._client.send(self._next("x"), "doomed", fails=99)

    def _transact(self) -> None:
        decision = self._dice.choice(["commit", "rollback"])
        now = self._dice.choice([decision, "unknown"])
        self._client.transact(self._next("t"), self._transactions, now, decision)

    def keys(self) -> list[str]:
        """Of all that it was to send."""
        return [words[1] for _, words in self._client.commands if words[0] in ("send", "transact")]

    def doomed(self) -> list[str]:
        """Those that were sent."""
        return [key for key in self._client.keys("sent") if key.startswith("x/")]

    def ended(self) -> set[str]:
        """Of those that it was to send."""
        return {*self._client.keys("sent"), *self._client.keys("failed")}

    def recalls_have_ended(self) -> bool:
        recalls = [words for _, words in self._client.commands if words[0] == "recall"]
        ends = len(self._client.told("recalled")) + len(self._client.told("failed", of="recall"))
        return ends == len(recalls)

    def receive(self, acked_share: float) -> bool:
        """One step of the simple consumer: what it was given is acknowledged, a part of it, and more is asked for.

        Returns whether the last answer had nothing.
        """
        ended = len(self._client.told("polled")) + len(self._client.told("failed", of="receive"))
        if ended < self._asked:
            return False
        given = self._client.told("received", group="of_tasks")[self._given :]
        self._given += len(given)
        for event in given:
            if self._dice.random() < acked_share:
                self._client.ack(event["key"], "of_tasks")
        self._client.receive("of_tasks", 8, 10_000)
        self._asked += 1
        return not given

    def wanted(self) -> dict[str, set[str]]:
        """By group, the keys that are to succeed: sent, and of transactions committed."""
        recalls = {words[1] for _, words in self._client.commands if words[0] == "recall"}
        sent = set(self._client.keys("sent")) - recalls - set(self.doomed())
        wanted: dict[str, set[str]] = {f"of_{topic}": set() for topic in (*self.topics, self._transactions)}
        for filtered in FILTERED:
            wanted[filtered.group] = {
                key for key in sent if key[:2] == "n/" and filtered.takes(int(key.partition("/")[2]))
            }
        for _, words in self._client.commands:
            if words[0] == "send" and words[1] in sent:
                wanted[f"of_{words[2]}"].add(words[1])
            if words[0] == "transact" and words[1] in sent and words[4] == "decision=commit":
                wanted[f"of_{words[2]}"].add(words[1])
        return wanted

    def missing(self) -> dict[str, set[str]]:
        """By group, those of `wanted` that have not succeeded, or not been acknowledged."""
        succeeded: dict[str, set[str]] = {}
        for event in self._client.told("received", fails=False):
            succeeded.setdefault(event["group"], set()).add(event["key"])
        succeeded["of_tasks"] = {event["key"] for event in self._client.told("acked")}
        missing = {group: keys - succeeded.get(group, set()) for group, keys in self.wanted().items()}
        return {group: keys for group, keys in missing.items() if keys}


class ProxyKiller(Killer):
    def __init__(self, door: Door, kills: int, seconds: float) -> None:
        super().__init__(kills, seconds)
        self._door = door

    def _kill(self) -> None:
        self._door.restart()


@pytest.fixture(params=LANGUAGES)
def program(request: pytest.FixtureRequest, tmp_path: Path, of: str) -> GrpcProgram:
    if of == "proxy" and request.param == "rust":
        pytest.skip("Rust's opens no second telemetry stream: the next proxy asks it about no transaction")
    return grpc_program(request.param, tmp_path / "client")


def run_under(killer: Killer, program: GrpcProgram, a_door: Door, work: Path, sent_share_min: float) -> None:
    transactions = "transactions"
    a_door.make_topic(transactions, "TRANSACTION")
    with program.start(a_door.endpoint, transactions) as client:
        mixture = Mixture(client, a_door, transactions, program)
        pace = threading.Event()
        with killer:
            for number in itertools.count():
                mixture.send(number)
                mixture.receive(ACKED_SHARE)
                pace.wait(INTERVAL_S)  # how often something is sent, not a wait for something
                if killer.is_over and number * INTERVAL_S > KILLS * SECONDS_BETWEEN:
                    break

        def is_whole() -> bool:
            mixture.receive(1.0)
            is_sent = mixture.ended() >= set(mixture.keys()) and mixture.recalls_have_ended()
            return is_sent and not mixture.missing()

        try:
            wait_for(is_whole, program.patience_s, "the end of all")
        except AssertionError:
            print(f"missing: {mixture.missing()}")
        dead = a_door.dead("of_doomed", mixture.doomed(), program.patience_s)
        events = ("sent", "failed", "received", "acked", "checked", "recalled")
        counts = {event: len(client.told(event)) for event in events}
        print(counts, f"{len(dead)} dead", f"of {len(mixture.keys())}", client.told("failed")[:3])
        history = [RUN, *history_of(client, {"of_tasks"}, attempts=program.attempts), *dead_letters(dead)]
    read = work / "read_back.jsonl"
    with HistoryWriter(read) as writer:
        run_read_back(a_door.namesrv, [*mixture.topics, transactions], Notes(writer))
    history += read_records(read)
    judgement = judge(lambda: history)
    # For how long nothing was acknowledged is not judged: it depends on when a client comes back.
    found = [
        f"{one.checker}: {one.sentence}" for one in judgement.violations if one.checker != "availability"
    ]
    assert not found, "\n".join(found)
    # What became of an acknowledgement that failed is not known, and the message may come no more.
    assert set(mixture.missing()) <= {"of_tasks"}
    assert counts["sent"] > len(mixture.keys()) * sent_share_min
    assert counts["recalled"] or not program.recalls_and_hides
    assert dead


def dead_letters(keys: Collection[str]) -> Iterator[AnyRecord]:
    at_ns = time.monotonic_ns()
    for key in keys:
        producer, _, sequence = key.partition("/")
        yield Dead(at_ns=at_ns, group="of_doomed", producer=producer, sequence=int(sequence))


@pytest.mark.parametrize(
    ("whose", "of"),
    [
        ("ours", "leaders"),
        ("ours", "proxy"),
        pytest.param("before_java", "proxy", marks=pytest.mark.java),
        pytest.param("java", "proxy", marks=pytest.mark.java),
    ],
)
def test_every_message_comes_to_its_end_while_something_is_killed_every_20_s(
    program: GrpcProgram, cluster: LocalCluster, tmp_path: Path, whose: str, of: str
) -> None:
    with door(whose, cluster, tmp_path) as a_door:
        killers = {
            "leaders": lambda: LeaderKiller(cluster, KILLS, SECONDS_BETWEEN),
            "proxy": lambda: ProxyKiller(a_door, KILLS, SECONDS_BETWEEN),
        }
        # How soon RocketMQ's proxy serves again is not ours to judge.
        run_under(killers[of](), program, a_door, tmp_path, 0.1 if whose == "java" else 0.5)
        if whose == "ours":
            cluster.start_missing()
            cluster.level()
