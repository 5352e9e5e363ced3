"""The load program of the benchmarks says what it really did: against a group of three, and the log counts along."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from local_cluster import ROOT, LocalCluster

sys.path.append(str(ROOT / "benchmarks"))

from systems import MissingError, go_built

pytestmark = pytest.mark.slow
SHORT = ("-seconds=0.5", "-warmup=0.1", "-size=100")


@pytest.fixture(scope="module")
def load() -> Path:
    try:
        return go_built("load", ".")
    except MissingError as error:
        pytest.skip(str(error))


def run(load: Path, command: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(load), command, *options], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_load_program_sends_follows_and_reads(load: Path, cluster: LocalCluster) -> None:
    cluster.up()
    at = f"-at={cluster.namesrv}"
    pids = f"-pids={' '.join(str(cluster.pid(name)) for name in ('n0', 'n1', 'n2'))}"

    sent = run(load, "send", at, pids, *SHORT, "-topic=Sent", "-senders=8", "-conns=4", "-lone")
    assert sent["failed"] == 0
    assert sent["messages"] > 0
    assert 0 < sent["p50_ms"] <= sent["p99_ms"]
    assert 0 < sent["lone_p50_ms"] <= sent["lone_p99_ms"]
    assert sent["server_us"] > 0

    # Before and after the measured part it sends, too.
    read = run(load, "read", at, pids, "-topic=Sent")
    assert read["messages"] >= sent["messages"]
    assert run(load, "read", at, pids, "-topic=Sent")["messages"] == read["messages"]

    # The program fails where a group misses a message.
    tail = run(load, "tail", at, pids, *SHORT, "-topic=Tail", "-senders=2", "-rate=100", "-groups=3")
    assert tail["failed"] == 0
    assert 0 < tail["p50_ms"] <= tail["p99_ms"]

    assert run(load, "idle", pids, "-seconds=0.2")["memory_mib"] > 0


def test_load_program_sends_and_receives_through_a_proxy(load: Path, cluster: LocalCluster) -> None:
    cluster.up("--proxy")
    at = ("-system=grpc", f"-at={cluster.namesrv},{cluster.status()['proxy']}")
    pids = f"-pids={' '.join(str(cluster.pid(name)) for name in ('n0', 'n1', 'n2'))}"
    proxy = f"-proxy-pids={cluster.pid('proxy')}"

    sent = run(load, "send", *at, pids, proxy, *SHORT, "-topic=Sent", "-senders=8", "-conns=4")
    assert sent["failed"] == 0
    assert sent["messages"] > 0
    assert sent["server_us"] > 0
    assert sent["proxy_us"] > 0

    for acks in (1, 32):
        options = ("-topic=Sent", "-count=500", "-senders=4", f"-acks={acks}", "-size=100")
        received = run(load, "receive", *at, pids, proxy, *options)
        assert received["messages"] == 500, "a group begins with what is sent after it, and gets each once"

    # The program fails where the consumer misses a message.
    tail = run(load, "tail", *at, pids, proxy, *SHORT, "-topic=Tail", "-senders=2", "-rate=100")
    assert 0 < tail["p50_ms"] <= tail["p99_ms"]

    idle = run(load, "idle", *at, pids, proxy, "-topic=Tail", "-clients=20", "-seconds=0.2")
    assert idle["anonymous_mib"] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("sned",), "sned"),
        (("read", "-at=127.0.0.1:1", "-topic=T"), "connection refused"),
        (("send", "-at=192.0.2.1:9876"), "only addresses of this machine"),
        (("send", "-system=kafka"), "kafka"),
        (("send", "-system=grpc", "-at=127.0.0.1:1"), "NAMESERVER,PROXY"),
        (("receive", "-at=127.0.0.1:1"), "only -system grpc"),
    ],
)
def test_load_program_says_in_a_line_what_is_wrong(load: Path, arguments: tuple[str, ...], told: str) -> None:
    done = subprocess.run([str(load), *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
