"""A group with TLS on all ports: it survives its leader, and takes new certificates and secrets without a restart."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import ROOT, LocalCluster, port_block, wait_for

from mq.cluster_layout import ClusterLayout
from mq.tls_files import TlsDirectory

pytestmark = pytest.mark.slow

NODES = ("n0", "n1", "n2")
OLD, NEW = "the-old-secret", "the-new-secret"


class Group:
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.tls = TlsDirectory(cluster.directory / "tls")
        self.secret_file = cluster.directory.parent / "cluster-secret"
        self.layout = ClusterLayout(dir=str(cluster.directory), base_port=cluster.base_port)

    def mq(self, *arguments: str) -> str:
        variables = {"PYDLEDGER_TLS_CONFIG_FILE": str(self.tls.properties_file("client"))}
        done = subprocess.run(
            [sys.executable, "-m", "mq", *arguments],
            cwd=ROOT,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def produce(self, topic: str, count: int) -> None:
        lines = self.cluster.directory.parent / "lines"
        lines.write_text("".join(f"{topic} {number}\n" for number in range(count)))
        self.mq("produce", "-n", self.cluster.namesrv, "--topic", topic, "--file", str(lines))

    def consume(self, topic: str, count: int) -> int:
        """How many came, once there were so many."""
        arguments = (
            "-n",
            self.cluster.namesrv,
            "--topic",
            topic,
            "--group",
            f"{topic}_group",
            "--from",
            "first",
        )
        told = self.mq("consume", *arguments, "--count", str(count), "--json")
        return len(told.splitlines()) - 1  # the last line is the summary

    def ports(self, node: str) -> list[int]:
        made = self.layout.node(node)
        return [made.listen_port, made.raft_port, made.http_port]

    def certificate_at(self, port: int) -> str:
        """What the port shows now."""
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=20)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with port_block() as base_port:
        folder = tmp_path_factory.mktemp("tls")
        made = Group(LocalCluster(folder / "cluster", base_port))
        made.secret_file.write_text(f"{OLD}\n")
        try:
            made.cluster.up("--tls", conf={"pyDLedgerClusterSecretFile": str(made.secret_file)})
            yield made
        finally:
            made.cluster.down()


def test_what_is_sent_before_and_after_the_end_of_a_leader_is_received(group: Group) -> None:
    group.produce("A", 50)
    leader = group.cluster.leader()
    group.cluster.kill(leader)
    group.cluster.leader()
    group.produce("B", 50)
    group.cluster.start(leader)
    group.cluster.wait_back(leader)
    assert group.consume("A", 50) == group.consume("B", 50) == 50


def test_no_port_takes_plaintext(group: Group) -> None:
    ports = [group.cluster.base_port, *(port for node in NODES for port in group.ports(node))]
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            plain.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert plain.recv(100) == b""


def test_new_certificates_are_shown_without_a_restart(group: Group) -> None:
    pids = {node: group.cluster.pid(node) for node in NODES}
    ports = [group.cluster.base_port, *(port for node in NODES for port in group.ports(node)[::2])]
    before = {port: group.certificate_at(port) for port in ports}
    group.tls.make([], renews=True)
    after = {port: group.certificate_at(port) for port in ports}
    assert all(before[port] != after[port] for port in ports)
    group.produce("C", 20)
    assert group.consume("C", 20) == 20
    assert {node: group.cluster.pid(node) for node in NODES} == pids


def test_the_cluster_secret_is_replaced_without_a_restart_of_the_group(group: Group) -> None:
    """All members share one file here, so each change is at all of them at once. After each
    a member comes back, and has to prove itself.
    """
    for number, lines in enumerate(([OLD, NEW], [NEW, OLD], [NEW])):
        replacement = group.secret_file.with_suffix(".tmp")
        replacement.write_text("".join(f"{line}\n" for line in lines))
        replacement.replace(group.secret_file)
        follower = next(node for node in NODES if node != group.cluster.leader())
        group.cluster.kill(follower)
        group.cluster.start(follower)
        wait_for(
            lambda name=follower: len(group.cluster.nodes()[name].get("links") or ()) == 2,
            60,
            "the member has met the others",
        )
        accepted = {node["cluster_secrets"] for node in group.cluster.nodes().values()}
        assert accepted == {len(lines)}
        group.produce(f"S{number}", 20)
    logs = "".join(path.read_text() for path in Path(group.cluster.directory).glob("*/*.log"))
    assert OLD not in logs
    assert NEW not in logs
    assert "cluster secrets differ" not in logs
