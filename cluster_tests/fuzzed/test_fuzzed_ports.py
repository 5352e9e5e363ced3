"""Spoiled bytes at all ports of a cluster, open and with TLS and access control: no process ends, logs a defect or
grows, and an honest client is served all the while.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from fuzzed.spoiled_bytes import http_requests, remoting_frames, spoiled, tls_hello
from local_cluster import LocalCluster, wait_for
from our_commands import outcomes, running

from mq.cluster_layout import ClusterLayout
from mq.tls_files import AUTHORITY, CLIENT, TlsDirectory

pytestmark = pytest.mark.slow
ROOT_USER = ("root", "root-secret")
ACCESS = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
LINGER_S = 0.02  # for what the server says, and for it to look at what it was sent
GROWTH_MAX_MIB = 48


class Target:
    """One port, and what is sent to it. `tls`: half of the connections speak it first."""

    def __init__(self, port: int, sound: list[bytes], tls: ssl.SSLContext | None, seed: int) -> None:
        self._port = port
        self._random = Random(seed)
        self._bytes = spoiled(sound, self._random)
        self._hellos = spoiled([tls_hello()], self._random)
        self._tls = tls

    def attack(self, count: int) -> None:
        for _ in range(count):
            # The server may end the connection at any time, and the handshake may be refused.
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 5) as plain:
                self._spoil(plain)

    def _spoil(self, plain: socket.socket) -> None:
        plain.settimeout(2)
        if self._tls is None or self._random.random() < 0.25:
            connection = plain
        elif self._random.random() < 0.3:
            connection = plain
            connection.sendall(next(self._hellos))
        else:
            connection = self._tls.wrap_socket(plain, server_hostname="localhost")
        with connection:
            for data in islice(self._bytes, self._random.choice((1, 1, 1, 4, 32))):
                connection.sendall(data)
            connection.settimeout(LINGER_S)
            connection.recv(65536)


class Attacked:
    """A cluster with a proxy, up, and all its ports."""

    def __init__(self, cluster: LocalCluster, *, with_tls: bool) -> None:
        self.cluster = cluster
        self._layout = ClusterLayout(dir=str(cluster.directory), base_port=cluster.base_port)
        tls = None
        if with_tls:
            cluster.up("--tls", conf=ACCESS)
            files = TlsDirectory(cluster.directory / "tls")
            tls = ssl.create_default_context(cafile=files.files(AUTHORITY).cert_path)
            tls.load_cert_chain(files.files(CLIENT).cert_path, files.files(CLIENT).key_path)
        else:
            cluster.up("--proxy")
        cluster.leader()
        remoting, http = remoting_frames(), http_requests()
        ports = {self._layout.base_port: remoting}
        for node in self._layout.nodes:
            ports |= {node.listen_port: remoting, node.raft_port: remoting, node.http_port: http}
        if not with_tls:
            ports[self._layout.proxy_port] = http
        self.targets = [
            Target(port, sound, tls, seed) for seed, (port, sound) in enumerate(sorted(ports.items()))
        ]

    def memory_mib(self) -> dict[int, float]:
        """By pid, so that a process that was started anew is seen."""
        status = self.cluster.status()
        pids = [int(status["namesrv_pid"]), *(int(node["pid"]) for node in status["nodes"])]
        return {pid: _rss_mib(pid) for pid in pids}

    def defects(self) -> Iterator[str]:
        for log in sorted(self.cluster.directory.glob("*/*.log")):
            text = log.read_text(errors="replace")
            if "Traceback" in text:
                yield f"{log.name}: {text[text.index('Traceback') :][:4000]}"


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@pytest.mark.parametrize(
    "with_tls",
    [pytest.param(False, id="open"), pytest.param(True, id="tls-and-access-control", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("minutes", [0, pytest.param(15, marks=pytest.mark.long)], ids=["short", "long"])
def test_spoiled_bytes_cost_nobody_but_their_sender(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_tls: bool, minutes: int
) -> None:
    if with_tls:
        user = json.dumps(dict(zip(("username", "password"), ROOT_USER, strict=True)))
        monkeypatch.setenv("PYDLEDGER_INIT_AUTHENTICATION_USER", user)
        monkeypatch.setenv("PYDLEDGER_ACCESS_KEY", ROOT_USER[0])
        monkeypatch.setenv("PYDLEDGER_SECRET_KEY", ROOT_USER[1])
    attacked = Attacked(cluster, with_tls=with_tls)
    if with_tls:
        file = TlsDirectory(cluster.directory / "tls").properties_file(CLIENT)
        monkeypatch.setenv("PYDLEDGER_TLS_CONFIG_FILE", str(file))
    lines, history = tmp_path / "lines", tmp_path / "history"
    lines.write_text("".join(f"{number}\n" for number in range(200_000)))
    honest = ("produce", "-n", cluster.namesrv, "--topic", "Honest", "--file", str(lines), "--rate", "100")
    with running(tmp_path / "out", *honest, "--history", str(history)):
        wait_for(lambda: outcomes(history), 60, "the first honest sends")
        attack(attacked, 100)  # caches fill, and code is imported at its first use
        before, seen = attacked.memory_mib(), len(outcomes(history))
        end = time.monotonic() + 60 * minutes
        attack(attacked, 200)
        while time.monotonic() < end:
            attack(attacked, 200)
        after = attacked.memory_mib()
        wait_for(lambda: len(outcomes(history)) > seen, 60, "honest sends after the attack")
        sent = outcomes(history)[seen:]
    assert not list(attacked.defects())
    assert after.keys() == before.keys(), "a process has ended"
    grown = {pid: round(after[pid] - before[pid], 1) for pid in before}
    print(f"grown by MiB: {grown}, honest sends {len(sent)}")
    assert max(grown.values()) < GROWTH_MAX_MIB, grown
    assert not [outcome for outcome in sent if outcome["outcome"] != "ok"]


def attack(attacked: Attacked, count: int) -> None:
    """So many connections to each port, ports side by side."""
    with ThreadPoolExecutor(len(attacked.targets)) as threads:
        for done in [threads.submit(target.attack, count) for target in attacked.targets]:
            done.result()
    assert threading.active_count() < 100
