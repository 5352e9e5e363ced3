"""A gRPC proxy as a process: by itself, beside a broker, and in a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop
from test_cluster_processes import directory, free_base_port, mq_cluster, status  # noqa: F401 (a fixture)

from mq import proxy_beside, server_entry
from mq.processes import is_alive, listening_ports, process_id_of, wait_gone
from tests.free_ports import free_ports

SERVER = [sys.executable, "-m", "mq.server_entry"]


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.slow
def test_a_cluster_has_a_proxy_where_it_is_asked_for(directory: Path) -> None:  # noqa: F811
    where = ("--dir", str(directory))
    base_port = str(free_base_port())
    done = mq_cluster("up", *where, "--base-port", base_port, "--nodes", "1")
    assert done.returncode == 0, done.stderr
    assert (status(directory)["proxy"], status(directory)["proxy_pid"]) == (None, None)

    done = mq_cluster("up", *where, "--base-port", base_port, "--nodes", "1", "--proxy")
    assert done.returncode == 0, done.stderr
    proxy = f"127.0.0.1:{int(base_port) + 1}"
    assert f"gRPC proxy {proxy}, 1 brokers" in done.stdout
    told = status(directory)
    assert told["proxy"] == proxy
    assert process_id_of(told["proxy_pid"]) is not None

    assert mq_cluster("kill", "proxy", *where).returncode == 0
    assert status(directory)["proxy_pid"] is None
    assert f"gRPC proxy {proxy} (DOWN)" in mq_cluster("status", *where).stdout
    done = mq_cluster("up", *where, "--base-port", base_port, "--nodes", "1")
    assert done.returncode == 0, done.stderr
    pid = status(directory)["proxy_pid"]
    assert mq_cluster("down", *where).returncode == 0
    assert process_id_of(pid) is None


@contextmanager
def broker_beside(proxy_port: int, listen_port: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs a broker that is told to have a proxy beside it."""
    (folder / "broker.conf").write_text(
        f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={listen_port}\n"
        f"storePathRootDir={folder / 'store'}\nmapedFileSizeCommitLog=1048576\n"
    )
    (folder / "rmq-proxy.json").write_text(
        json.dumps({"grpcServerPort": proxy_port, "pyDLedgerBindAddress": "127.0.0.1"})
    )
    options = [
        "-n",
        "127.0.0.1:1",
        "-c",
        "broker.conf",
        "--enable-proxy",
        "-pc",
        "rmq-proxy.json",
        "-pm",
        "local",
    ]
    broker = subprocess.Popen(
        [*SERVER, "broker", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield broker
    finally:
        broker.kill()
        broker.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_proxy_beside_a_broker_ends_with_it(tmp_path: Path, number: signal.Signals) -> None:
    proxy_port, listen_port = free_ports(2)
    with broker_beside(proxy_port, listen_port, tmp_path) as broker:
        until(lambda: {proxy_port, listen_port} <= listening_ports(), broker)
        (pid,) = children(broker.pid)
        proxy = process_id_of(pid)
        assert proxy is not None
        broker.send_signal(number)
        broker.wait(30)
        assert wait_gone([proxy], 30) == []
        assert broker.returncode == (0 if number == signal.SIGTERM else -number)


@pytest.mark.slow
def test_a_broker_whose_proxy_cannot_start_says_so_and_ends(tmp_path: Path) -> None:
    (listen_port,) = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        broker_beside(taken.getsockname()[1], listen_port, tmp_path) as broker,
    ):
        told, _ = broker.communicate(timeout=30)
    assert broker.returncode == 1
    assert re.search("mqproxy: Address already in use .*: configure another port", told)
    (line,) = [line for line in told.splitlines() if "ERROR mq.proxy_beside" in line]
    assert line.endswith(
        "the gRPC proxy has ended with status 1, so the broker ends, too: the proxy's lines say why"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "exit_status", "line"),
    [
        (signal.SIGKILL, 1, "the gRPC proxy has ended with status -9, so the broker ends, too"),
        (signal.SIGTERM, 0, "the gRPC proxy was asked to end, so the broker ends, too"),
    ],
)
def test_a_broker_ends_in_order_with_the_proxy_beside_it(
    tmp_path: Path, number: signal.Signals, exit_status: int, line: str
) -> None:
    proxy_port, listen_port = free_ports(2)
    with broker_beside(proxy_port, listen_port, tmp_path) as broker:
        until(lambda: {proxy_port, listen_port} <= listening_ports(), broker)
        (pid,) = children(broker.pid)
        os.kill(pid, number)
        told, _ = broker.communicate(timeout=30)
    assert broker.returncode == exit_status
    assert line in told
    assert "broker stopped" in told


@pytest.mark.slow
def test_a_proxy_that_hangs_does_not_keep_its_broker_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_beside, "STOP_SECONDS", 0.01)
    found = []
    of_other_tests = set(children(os.getpid()))

    async def broker() -> None:
        (pid,) = set(children(os.getpid())) - of_other_tests
        found.append(process_id_of(pid))
        os.kill(pid, signal.SIGSTOP)

    uvloop.run(proxy_beside.beside_proxy(broker(), ["-n", "127.0.0.1:1", "--port", "0"]))
    (proxy,) = found
    assert proxy is not None
    assert not is_alive(proxy)


@pytest.mark.slow
def test_a_proxy_says_where_it_listens_and_ends_on_sigterm() -> None:
    (port,) = free_ports(1)
    arguments = ["proxy", "-n", "127.0.0.1:1", "--host", "127.0.0.1", "--port", str(port)]
    proxy = subprocess.Popen([*SERVER, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: port in listening_ports(), proxy)
        proxy.send_signal(signal.SIGTERM)
        _, told = proxy.communicate(timeout=30)
    finally:
        proxy.kill()
    assert proxy.returncode == 0
    (line,) = [line for line in told.splitlines() if "proxy started" in line]
    assert f"listen=127.0.0.1:{port} tls=and plaintext namesrv=127.0.0.1:1" in line


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no NameServer is named: give -n HOST:PORT"),
        (
            ["-n", "a:1", "-pm", "local"],
            "proxyMode='local' must be CLUSTER: a broker is another process (mqbroker)",
        ),
        (["-n", "a:1", "--advertise", "x"], "'x' has no port"),
        (["-n", "a:1", "-pc", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["-n", "a:1", "-c", "x"], "unknown option -c"),
    ],
)
def test_a_start_that_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        server_entry.proxy(arguments)
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert reason in told
    assert len(told.splitlines()) == 1


def test_key_and_certificate_that_cannot_be_used_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    conf = tmp_path / "rmq-proxy.json"
    conf.write_text(json.dumps({"namesrvAddr": "a:1", "tlsKeyPath": f"{tmp_path}/k", "tlsCertPath": "c"}))
    with pytest.raises(SystemExit):
        server_entry.proxy(["-pc", str(conf)])
    assert f"mqproxy: {tmp_path}/k cannot be read" in capsys.readouterr().err
