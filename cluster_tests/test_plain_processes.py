"""A plain broker: what it acknowledged outlives its process, and RocketMQ and it go on with each other's store."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from local_cluster import ROOT, port_block, wait_for
from originals.java_client import JavaClient, JavaReader
from originals.java_servers import JavaBroker
from our_commands import mq, outcomes, try_mq

pytestmark = pytest.mark.slow

TOPIC = "PlainTopic"
CONF = {
    "brokerName": "broker-java",
    "enableDLegerCommitLog": "false",
    "mappedFileSizeCommitLog": str(1 << 17),
    "mappedFileSizeConsumeQueue": "10000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


class Server:
    """A process of ours."""

    def __init__(self, work: Path, *arguments: str) -> None:
        self._log = work / f"{arguments[0]}.log"
        self._command = [sys.executable, "-m", "mq.server_entry", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        os.kill(self._process.pid, number)
        status = self._process.wait(60)
        self._process = None
        return status

    def kill_if_up(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)


class Plain:
    """A NameServer and a plain broker of ours on `store`."""

    def __init__(self, work: Path, base_port: int, conf: Mapping[str, str] = CONF) -> None:
        work.mkdir(exist_ok=True)
        self.base_port = base_port
        self.namesrv = f"127.0.0.1:{base_port}"
        self.store = work / "store"
        conf_file = work / "broker.conf"
        settings = {
            **conf,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(base_port + 10),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store),
        }
        conf_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.name_server = Server(work, "namesrv", "--host", "127.0.0.1", "--port", str(base_port))
        self.broker = Server(work, "broker", "-c", str(conf_file))

    def close(self) -> None:
        self.broker.kill_if_up()
        self.name_server.kill_if_up()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Plain]:
    with port_block() as base_port:
        made = Plain(tmp_path / "plain", base_port)
        made.name_server.start()
        yield made
        made.close()


def has_outcomes(history: Path, count: int) -> bool:
    return len(outcomes(history)) >= count


def test_nothing_acknowledged_is_lost_when_it_is_killed(plain: Plain, tmp_path: Path) -> None:
    lines, history = tmp_path / "lines", tmp_path / "history"
    lines.write_text("".join(f"line {number}\n" for number in range(1, 6001)))
    plain.broker.start()
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "mq", "produce", "-n", plain.namesrv, "--topic", TOPIC),
            *("--file", str(lines), "--rate", "3000", "--history", str(history)),
        ],
        cwd=ROOT,
    ) as producer:
        for count in (500, 2500):
            wait_for(partial(has_outcomes, history, count), 60, f"{count} sends")
            plain.broker.end(signal.SIGKILL)
            plain.broker.start()
        assert producer.wait(120) == 0
    acknowledged = [entry for entry in outcomes(history) if entry["outcome"] == "ok"]
    assert len(acknowledged) == 6000
    reading = mq(
        "consume", "-n", plain.namesrv, "--topic", TOPIC, "--group", "g", "--from", "first", "--idle-s", "3"
    )
    assert {f"line {entry['line']}" for entry in acknowledged} <= set(reading.splitlines())
    assert plain.broker.end() == 0
    mq("validate", "--no-spark", str(plain.store), "--history", str(history))


def read_all(reader: JavaReader) -> dict[tuple[int, int], tuple[str, int, int, str]]:
    """(queue, offset) -> (key, physical offset, size, body) of every message of the topic."""
    return {
        (e["queue"], e["offset"]): (e["key"], e["phy_offset"], e["size"], e["body"])
        for e in reader.read(TOPIC)
    }


def consumed(client: JavaClient, namesrv: str, wanted: set[str]) -> set[str]:
    """The keys that a group gets until it has those, and commits."""
    with client.consume(namesrv, TOPIC, "PlainGroup", "one") as consumer:
        keys: set[str] = set()
        while not wanted <= keys:
            keys.add(consumer.wait_for("received")["key"])
        consumer.close_input()
        consumer.wait_for("done")
        return {event["key"] for event in consumer.events if event["event"] == "received"}


@pytest.mark.java
def test_rocketmq_and_it_go_on_with_each_others_store(plain: Plain, tmp_path: Path) -> None:
    """Java, ours (killed once), Java, ours: messages, ids and a group's offsets stay."""
    client = JavaClient("5.5.0", tmp_path / "java")
    java_broker = JavaBroker(
        tmp_path / "java-servers", plain.store, plain.namesrv, plain.base_port, conf=CONF
    )

    def is_registered() -> bool:
        return "broker-java" in try_mq("admin", "clusterList", "-n", plain.namesrv).stdout

    def send(prefix: str) -> set[str]:
        """Keys of what was acknowledged; a busy Java broker refuses some."""
        wait_for(is_registered, 60, "the broker at the NameServer")
        with client.send(plain.namesrv, TOPIC, "async", 500, prefix, "TagA", "TagB") as sender:
            sender.wait_for("done", 120)
            keys = {event["key"] for event in sender.events if event["event"] == "ok"}
        assert keys
        return keys

    def all_of_them(keys: set[str]) -> dict[tuple[int, int], tuple[str, int, int, str]]:
        with client.reader(plain.namesrv) as reader:

            def served() -> dict[tuple[int, int], tuple[str, int, int, str]] | None:
                found = read_all(reader)
                return found if keys <= {message[0] for message in found.values()} else None

            return wait_for(served, 60, f"{len(keys)} messages served")  # type: ignore[no-any-return]

    with java_broker:
        keys = send("java-")
        assert consumed(client, plain.namesrv, keys) >= keys
        seen = all_of_them(keys)
        java_broker.stop_orderly()

    plain.broker.start()
    assert all_of_them(keys) == seen
    sent = send("ours-")
    assert consumed(client, plain.namesrv, sent) == sent, "the group goes on where it was"
    # Offsets are committed one-way; what is changed after them and answered is behind them in the log.
    mq("admin", "updateTopic", "-n", plain.namesrv, "-c", "DefaultCluster", "-t", "Behind")
    plain.broker.end(signal.SIGKILL)
    plain.broker.start()
    keys |= sent
    seen = all_of_them(keys)
    assert plain.broker.end() == 0

    with java_broker:
        assert all_of_them(keys) == seen
        sent = send("again-")
        got = consumed(client, plain.namesrv, sent)
        assert sorted(got & keys) == [], "the group goes on where it was"
        keys |= sent
        seen = all_of_them(keys)
        java_broker.stop_orderly()

    plain.broker.start()
    assert all_of_them(keys) == seen
    sent = send("last-")
    assert consumed(client, plain.namesrv, sent) == sent
    assert plain.broker.end() == 0
    mq("validate", "--no-spark", str(plain.store))
