"""The cluster command on real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mq import cluster_status
from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import ClusterLayout
from mq.processes import (
    ProcessId,
    deferred_interrupts,
    is_alive,
    listening_ports,
    port_holder,
    process_id_of,
    send_signal,
    take_exit_code,
    wait_gone,
)

PROGRAM = [sys.executable, "-c", "from mq.__main__ import main; main()", "cluster"]


def free_base_port() -> int:
    taken = listening_ports()
    return next(
        base
        for base in range(28_000, 32_000, 100)
        if taken.isdisjoint(ClusterLayout(dir="", base_port=base).ports())
    )


def mq_cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    if (tmp_path / "cluster.json").exists():
        Cluster.load(tmp_path).down()


def status(directory: Path) -> dict[str, Any]:
    done = mq_cluster("status", "--dir", str(directory), "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def leader_of(directory: Path) -> dict[str, Any]:
    """The one that serves. Starved of its cores a group may elect once more, between two looks at it too."""
    for _ in range(100):
        serving = [node for node in status(directory)["nodes"] if node["serving"]]
        if len(serving) == 1:
            return serving[0]
    raise AssertionError(f"nobody serves alone: {status(directory)}")


@pytest.mark.slow
def test_a_cluster_comes_up_serving_loses_its_leader_and_goes_down_without_a_trace(directory: Path) -> None:
    base_port = free_base_port()
    up = ("up", "--dir", str(directory), "--base-port", str(base_port))
    done = mq_cluster(*up)
    assert done.returncode == 0, done.stderr

    first = status(directory)
    assert first["namesrv"] == f"127.0.0.1:{base_port}"
    assert [node["id"] for node in first["nodes"]] == ["n0", "n1", "n2"]
    leader = leader_of(directory)
    assert leader["role"] == "LEADER"
    expected = {
        "id", "group", "pid", "role", "serving", "term", "leader", "ledger_begin", "ledger_end", "committed", "applied",
        "synced", "reput", "watermarks", "chain_crc", "listen", "raft", "http", "store_dir",
    }  # fmt: skip
    for node in first["nodes"]:
        assert expected <= set(node)

    assert mq_cluster(*up).returncode == 0
    assert [node["pid"] for node in status(directory)["nodes"]] == [node["pid"] for node in first["nodes"]]

    other = mq_cluster("up", "--dir", str(directory / "other"), "--base-port", str(base_port))
    assert other.returncode == 1
    assert f"port {base_port} (for namesrv) is taken by pid {first['namesrv_pid']}:" in other.stderr

    assert mq_cluster("kill", leader["id"], "--dir", str(directory)).returncode == 0
    assert mq_cluster(*up).returncode == 0  # starts it again, waits until somebody leads
    again = status(directory)
    assert leader_of(directory)["term"] > leader["term"]

    assert mq_cluster("pause", "n0", "--dir", str(directory)).returncode == 0
    assert status(directory)["nodes"][0]["role"] == "PAUSED"
    assert mq_cluster("resume", "n0", "--dir", str(directory)).returncode == 0
    assert mq_cluster("stop", "n0", "--dir", str(directory)).returncode == 0
    assert status(directory)["nodes"][0]["role"] == "DOWN"
    assert mq_cluster("stop", "namesrv", "--dir", str(directory)).returncode == 0
    assert f"NameServer 127.0.0.1:{base_port} (DOWN)" in mq_cluster("status", "--dir", str(directory)).stdout
    refused = mq_cluster("pause", "n0", "--dir", str(directory))
    assert refused.returncode == 1
    assert "n0 is not running" in refused.stderr
    assert "Traceback" not in refused.stderr

    pids = [again["namesrv_pid"], *(node["pid"] for node in again["nodes"])]
    down = mq_cluster("down", "--dir", str(directory))
    assert (down.returncode, down.stderr) == (0, "")
    assert [process_id_of(pid) for pid in pids] == [None] * 4
    assert listening_ports().isdisjoint(ClusterLayout(dir="", base_port=base_port).ports())


@pytest.mark.slow
def test_a_conf_line_that_is_wrong_shows_the_log_of_the_broker_that_ended(directory: Path) -> None:
    base_port = free_base_port()
    done = mq_cluster(
        "up",
        "--dir",
        str(directory),
        "--base-port",
        str(base_port),
        "--conf",
        "storeType=defaultRocksDB",
    )
    assert done.returncode == 1
    assert "n0 ended while starting with status 2" in done.stderr
    assert "RocksDB stores are not supported" in done.stderr
    assert "Traceback" not in done.stderr
    # The line stays, and whoever runs `up` again is told so.
    again = mq_cluster("up", "--dir", str(directory), "--base-port", str(base_port))
    assert (
        "kept from the last up (--conf key= takes one out): --conf storeType=defaultRocksDB" in again.stderr
    )
    assert again.stderr.count("RocksDB stores are not supported") == 1, "of this start, not of the one before"
    assert again.returncode == 1
    # The NameServer had come up: nothing is left of it.
    assert listening_ports().isdisjoint(ClusterLayout(dir="", base_port=base_port).ports())


def test_a_directory_without_a_cluster_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no cluster in"):
        Cluster.load(tmp_path)


def test_a_state_file_that_is_no_state_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(ClusterError, match="not readable"):
        Cluster.load(tmp_path)


def test_a_cluster_of_other_members_does_not_take_over_a_directory_with_data(tmp_path: Path) -> None:
    three = Cluster(ClusterLayout(dir=str(tmp_path)))
    three._save()
    with pytest.raises(ClusterError, match="holds the data of a cluster of 1 x 3 brokers"):
        Cluster.up(ClusterLayout(dir=str(tmp_path), nodes_per_group=5))


def test_a_member_that_lives_and_says_nothing_is_shown_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_status, "HTTP_TIMEOUT_S", 0.01)
    me = process_id_of(os.getpid())
    assert me is not None
    with socket.create_server(("127.0.0.1", 0)) as mute:  # the kernel takes the connection, nobody reads
        layout = ClusterLayout(dir=str(tmp_path), nodes_per_group=1)
        cluster = Cluster(layout, {"n0": me})
        node = replace(layout.nodes[0], http_port=mute.getsockname()[1])
        told = cluster_status.node_status(cluster, node)
    assert (told["role"], told["pid"], told["serving"]) == ("UNREACHABLE", os.getpid(), False)


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert port in listening_ports()
        assert port_holder(port) == os.getpid()
    assert port not in listening_ports()


def test_a_process_is_known_by_its_start_as_well_as_by_its_id() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process = process_id_of(child.pid)
        assert process is not None
        assert is_alive(process)
        stranger = ProcessId(process.pid, process.start_ticks + 1)
        assert not is_alive(stranger)
        assert not send_signal(stranger, signal.SIGKILL)
        assert send_signal(process, signal.SIGKILL)
        child.returncode = -9  # wait_gone takes the exit status
        assert wait_gone([process], 5) == []
    finally:
        assert child.stdin is not None
        child.stdin.close()


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    """Killed in a sync, it has its ports and locks until the disk answers, though its first thread is a zombie."""
    end_first_thread = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", end_first_thread], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        stat = Path(f"/proc/{child.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert child.poll() is None, "it has ended as a whole"
        process = process_id_of(child.pid)
        assert process is not None
        assert is_alive(process)
        assert wait_gone([process], 0) == [process]
    finally:
        child.stdin.close()
    child.returncode = 0  # wait_gone takes the exit status
    assert wait_gone([process], 60) == []


def test_how_a_child_ended_is_told_once() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    try:
        assert take_exit_code(child.pid) is None
        child.kill()
        while (exit_code := take_exit_code(child.pid)) is None:
            pass
        child.returncode = exit_code
        assert exit_code == -signal.SIGKILL
        assert take_exit_code(child.pid) is None
    finally:
        child.stdin.close()


def test_an_interrupt_inside_a_deferred_block_comes_after_it() -> None:
    order = []
    # A shell's background job begins with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012, the end of the block raises
            with deferred_interrupts():
                signal.raise_signal(signal.SIGINT)
                order.append("still inside")
            order.append("behind")
    finally:
        signal.signal(signal.SIGINT, before)
    assert order == ["still inside"]
