"""Conf files with the keys and kinds of values that people have: what each of them does here.

`confs/` has them as they are; `hosts.txt` there says where their names lead.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_hosts import NO_HOSTS, WITH_HOSTS, can_have_hosts_of_its_own

from broker.config.config_file import load_broker_config
from remoting.configuration import ConfigError
from tests.free_ports import free_ports

ROOT = Path(__file__).parents[3]
CONFS = Path(__file__).parent / "confs"
HOSTS = {
    name: line.split()[0]
    for line in ("127.0.0.1 localhost", *(CONFS / "hosts.txt").read_text().splitlines())
    for name in line.split()[1:]
}


@dataclass(frozen=True)
class Refused:
    reason: str


@dataclass(frozen=True)
class Started:
    """`warnings` without the file's name, which each of them begins with."""

    warnings: tuple[str, ...] = ()


_WITHOUT_EFFECT = ": RocketMQ's keys without effect here: "
_MEMBER_OF_A_MASTER_AND_SLAVES = Started(
    (
        ":29: storePathRootDir is set again, line 20 does not count",
        ":27: unknown key flushDiskTyp; did you mean flushDiskType?",
        (
            f"{_WITHOUT_EFFECT}destroyMapedFileIntervalForcibly, redeleteHangedFileInterval, "
            "sendMessageThreadPoolNums, pullMessageThreadPoolNums, storePathConsumeQueue, "
            "storePathIndex, storeCheckpoint, abortFile"
        ),
    )
)
_MEMBER_ON_KUBERNETES = Started((f"{_WITHOUT_EFFECT}sendMessageThreadPoolNums",))
_OPEN = (
    "aclEnable=true asks for what is not there yet: this broker would be open to all who "
    "reach it. Set pyDLedgerAllowOpen=true to start it all the same"
)
TABLE: dict[str, Started | Refused] = {
    "compose-service-name.conf": Started(),
    "dev-laptop-brokerip-variants.conf": Started(
        (
            ":5: unknown key brokerIp; did you mean brokerIP1?",
            ":6: unknown key brokerIp2; did you mean brokerIP2?",
            ":8: unknown key defaultTopicQueueNum; did you mean defaultTopicQueueNums?",
            (
                f"{_WITHOUT_EFFECT}destroyMapedFileIntervalForcibly, redeleteHangedFileInterval, "
                "checkTransactionMessageEnable, sendMessageThreadPoolNums, pullMessageThreadPoolNums"
            ),
        )
    ),
    "dledger-from-master-slave-n0.conf": _MEMBER_OF_A_MASTER_AND_SLAVES,
    "dledger-from-master-slave-n1.conf": _MEMBER_OF_A_MASTER_AND_SLAVES,
    "dledger-from-master-slave-n2.conf": _MEMBER_OF_A_MASTER_AND_SLAVES,
    "dledger-keys-misspelt.conf": Refused(
        ": dLegerGroup is missing, and enableDLegerCommitLog=true needs it; line 8 has dLedgerGroup: write dLegerGroup"
    ),
    "helm-5x-single.conf": Started(
        (
            ":4: unknown key enableNameServerAddressResolve",
            ":8: unknown key enableIncrementalTopicCreation",
            ":9: unknown key generateConfigForScaleOutEnable",
            ":14: unknown key transactionCheckMaxTimeInMs",
            (
                f"{_WITHOUT_EFFECT}enableNotifyAfterPopOrderLockRelease, autoMessageVersionOnTopicLen, "
                "waitTimeMillsInSendQueue"
            ),
            (
                ": no NameServer is named, so no client finds this broker: give -n ADDR, namesrvAddr, or "
                "NAMESRV_ADDR in the environment"
            ),
        )
    ),
    "ipv6-acl.conf": Refused(f":9: {_OPEN}"),
    "k8s-dledger-at-sign-n0.conf": _MEMBER_ON_KUBERNETES,
    "k8s-dledger-at-sign-n1.conf": _MEMBER_ON_KUBERNETES,
    "k8s-dledger-at-sign-n2.conf": _MEMBER_ON_KUBERNETES,
    "namesrv-list-with-commas.conf": Refused(
        ":5: namesrvAddr='127.0.0.1:19876,127.0.0.1:19877' must be host:port, several joined by ; "
        "('127.0.0.1:19876,127.0.0.1:19877' holds a comma)"
    ),
    "nomad-three-on-one-host.conf": Started((f"{_WITHOUT_EFFECT}sendMessageThreadPoolNums",)),
    "trace-acl-single.conf": Refused(f":10: {_OPEN}"),
    "tuned-single-node.conf": Started(
        (
            (
                f"{_WITHOUT_EFFECT}storePathConsumeQueue, storePathIndex, storeCheckpoint, abortFile, "
                "maxTransferCountOnMessageInDisk, maxTransferBytesOnMessageInDisk, sendMessageThreadPoolNums, "
                "pullMessageThreadPoolNums, sendThreadPoolQueueCapacity, pullThreadPoolQueueCapacity, "
                "clientManagerThreadPoolQueueCapacity, consumerManagerThreadPoolQueueCapacity, "
                "waitTimeMillsInSendQueue, osPageCacheBusyTimeOutMills, useReentrantLockWhenPutMessage"
            ),
            (
                ":24: maxTransferCountOnMessageInMemory='20000' is not a whole number from 1 to 4096 messages: 4096 is "
                "taken"
            ),
        )
    ),
}
GROUPS = [
    [f"dledger-from-master-slave-n{k}.conf" for k in range(3)],
    [f"k8s-dledger-at-sign-n{k}.conf" for k in range(3)],
]


def look_up(host: str) -> list[str]:
    is_ip = ":" in host or re.fullmatch(r"[0-9.]+", host)
    return [host] if is_ip else [HOSTS[host]] if host in HOSTS else []


def test_each_file_is_in_the_table() -> None:
    assert {path.name for path in CONFS.glob("*.conf")} == TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_a_file_starts_with_these_warnings_or_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONFS)
    expected = TABLE[name]
    if isinstance(expected, Refused):
        with pytest.raises(ConfigError) as caught:
            load_broker_config(name, environment={}, look_up=look_up)
        assert str(caught.value) == f"{name}{expected.reason}"
    else:
        _, warnings = load_broker_config(name, environment={}, look_up=look_up)
        told = [warning for warning in warnings if "is guessed, as this machine" not in warning]
        assert told == [f"{name}{warning}" for warning in expected.warnings]


def test_members_on_several_machines_need_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONFS)
    with pytest.raises(
        ConfigError, match="put the same pyDLedgerClusterSecret, or pyDLedgerClusterSecretFile, into"
    ):
        load_broker_config("k8s-dledger-at-sign-n0.conf", environment={}, look_up=lambda host: ["10.0.0.7"])


# As real processes


class Files:
    """The confs with places of this run: free ports for theirs, and a directory for `/data/rocketmq`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: dict[str, int] = {}

    def conf(self, name: str) -> Path:
        text = (CONFS / name).read_text().replace("/data/rocketmq", str(self.directory))
        text = re.sub(r"(?<=:)\d{5}\b", lambda found: str(self._port(found[0])), text)
        text = re.sub(r"(?m)^(listenPort *= *)(\d+)", lambda found: f"{found[1]}{self._port(found[2])}", text)
        if "listenPort" not in text:
            text += f"listenPort={self._port(name)}\n"
        path = self.directory / name
        path.write_text(text)
        return path

    def _port(self, written: str) -> int:
        if written not in self._ports:
            (self._ports[written],) = free_ports(1)
        return self._ports[written]

    @property
    def hosts(self) -> Path:
        path = self.directory / "hosts"
        path.write_text("127.0.0.1 localhost\n" + (CONFS / "hosts.txt").read_text())
        return path


class Running:
    """A broker's process, and what it says."""

    def __init__(self, files: Files, name: str, wanted: str, has_said: threading.Event) -> None:
        """`has_said` is set when it says `wanted`, and at its end."""
        command = [sys.executable, "-m", "mq.server_entry", "broker", "-c", str(files.conf(name))]
        self.process = subprocess.Popen(
            [*WITH_HOSTS, str(files.hosts), *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        self.told: list[str] = []
        self._has_said = has_said
        self._wanted = wanted
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)
            if self._wanted in line:
                self._has_said.set()
        self._has_said.set()

    def end(self) -> None:
        self.process.terminate()
        self._thread.join(60)
        self.process.wait(60)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def running(files: Files, name: str, wanted: str, has_said: threading.Event) -> Iterator[Running]:
    broker = Running(files, name, wanted, has_said)
    try:
        yield broker
    finally:
        broker.end()


needs_hosts = pytest.mark.skipif(not can_have_hosts_of_its_own(), reason=NO_HOSTS)
IN_GROUPS = {name for group in GROUPS for name in group}


@pytest.mark.slow
@needs_hosts
@pytest.mark.parametrize(
    "name", [name for name, does in TABLE.items() if isinstance(does, Started) and name not in IN_GROUPS]
)
def test_a_broker_starts_with_it(name: str, tmp_path: Path) -> None:
    has_said = threading.Event()
    with running(Files(tmp_path), name, "broker started", has_said) as broker:
        assert has_said.wait(60)
    told = "".join(broker.told)
    assert "broker started" in told
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, does in TABLE.items() if isinstance(does, Refused)])
def test_a_refusal_is_one_line(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mq.server_entry", "broker", "-c", str(Files(tmp_path).conf(name))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"mqbroker: {tmp_path}/{name}:")


@pytest.mark.slow
@needs_hosts
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0].removesuffix("-n0.conf"))
def test_a_group_of_three_elects_a_leader(names: list[str], tmp_path: Path) -> None:
    files, elected = Files(tmp_path), threading.Event()
    with ExitStack() as stack:
        members = [stack.enter_context(running(files, name, "serving=True", elected)) for name in names]
        assert elected.wait(60)
    told = "".join(line for member in members for line in member.told)
    assert "serving=True" in told
    assert "Traceback" not in told
