"""TLS in each mode: official Java clients, Go's and our commands, at our servers and at RocketMQ's own."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_cluster import ROOT, LocalCluster, port_block, wait_for
from originals.java_client import JavaClient
from originals.java_servers import JavaBroker, JavaNameServer
from originals.kinds_client import kinds_program

from mq.tls_files import TlsDirectory

pytestmark = [pytest.mark.java, pytest.mark.slow]

TLS = "-Dtls.enable=true"
MODES = ("disabled", "permissive", "enforcing")


@dataclass(frozen=True)
class Servers:
    namesrv: str
    mode: str
    client_file: Path

    @property
    def checking(self) -> tuple[str, ...]:
        """Options of a Java client that checks the servers' certificates, and shows its own."""
        return TLS, f"-Dtls.config.file={self.client_file}"


@pytest.fixture(scope="module", params=MODES)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    mode: str = request.param
    with port_block() as base_port:
        cluster = LocalCluster(tmp_path_factory.mktemp(mode) / "cluster", base_port)
        directory = TlsDirectory(cluster.directory / "tls")
        try:
            if mode == "disabled":
                directory.make([])
                cluster.up(
                    conf={
                        "tls.config.file": str(directory.properties_file("localhost")),
                        "tls.server.mode": mode,
                    }
                )
            else:
                cluster.up("--tls", conf={"tls.server.mode": mode, "tls.enable": "true"})
            yield Servers(cluster.namesrv, mode, directory.properties_file("client"))
        finally:
            cluster.down()


@pytest.fixture(scope="module")
def java_servers(shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """RocketMQ's, enforcing, with the certificates that `mq tls init` makes."""
    work = tmp_path_factory.mktemp("java")
    directory = TlsDirectory(work / "tls")
    directory.make([])
    file = directory.properties_file("localhost")
    options = (TLS, "-Dtls.server.mode=enforcing", f"-Dtls.config.file={file}")
    namesrv = JavaNameServer(work / "servers", shared_cluster.base_port + 90)
    broker = JavaBroker(work / "servers", work / "store", namesrv.address, shared_cluster.base_port + 50)
    namesrv.options = broker.options = options
    client_file = directory.properties_file("client")
    with namesrv, broker:
        wait_for(lambda: mq(client_file, "clusterList", "-n", namesrv.address), 60, "the broker is there")
        yield Servers(namesrv.address, "enforcing", client_file)


def mq(tls_file: Path | None, *arguments: str) -> str | None:
    """What `mq admin` prints; None: it failed."""
    variables = {"PYDLEDGER_TLS_CONFIG_FILE": str(tls_file)} if tls_file is not None else {}
    done = subprocess.run(
        [sys.executable, "-m", "mq", "admin", *arguments, "--json"],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout if done.returncode == 0 else None


def acknowledged(java: JavaClient, namesrv: str, topic: str, *options: str) -> int:
    """How many of three sends: on a busy machine the first one may time out."""
    with dataclasses.replace(java, options=options).send(namesrv, topic, "sync", 3, "k") as sender:
        sender.wait_for("done")
        return sum(event["event"] == "ok" for event in sender.events)


def is_served_by_go(uses_tls: bool, namesrv: str, work: Path) -> bool:
    """Whether one of three sends of Go's client is acknowledged. It takes any certificate."""
    program = kinds_program("go", work)
    command = ("env", f"TLS={'true' if uses_tls else 'false'}", *program.command)
    keys = {"a", "b", "c"}
    with dataclasses.replace(program, command=command).start(namesrv, "go_producers", "one") as client:
        for key in keys:
            client.send(key, "Go")
        wait_for(lambda: keys <= client.keys("sent") | client.keys("failed"), 120, "ends of sends")
        return bool(client.keys("sent"))


@pytest.mark.long
@pytest.mark.parametrize("uses_tls", [False, True])
def test_the_go_client_is_served_as_the_mode_says(uses_tls: bool, servers: Servers, tmp_path: Path) -> None:
    refusing = "disabled" if uses_tls else "enforcing"
    assert is_served_by_go(uses_tls, servers.namesrv, tmp_path / "go") is (servers.mode != refusing)


def test_a_java_client_is_served_as_the_mode_says(newest_java: JavaClient, servers: Servers) -> None:
    takes_plaintext, takes_tls = servers.mode != "enforcing", servers.mode != "disabled"
    topic = f"T_{servers.mode}_{newest_java.version.replace('.', '_')}"
    assert bool(acknowledged(newest_java, servers.namesrv, topic)) is takes_plaintext
    assert bool(acknowledged(newest_java, servers.namesrv, topic, TLS)) is takes_tls
    assert bool(acknowledged(newest_java, servers.namesrv, topic, *servers.checking)) is takes_tls


def test_a_java_consumer_gets_its_messages_over_tls(newest_java: JavaClient, servers: Servers) -> None:
    if servers.mode == "disabled":
        pytest.skip("no TLS there")
    java = dataclasses.replace(newest_java, options=servers.checking)
    topic = f"C_{servers.mode}"
    with java.send(servers.namesrv, topic, "sync", 40, "k") as sender:
        sender.wait_for("done")
        sent = {event["key"] for event in sender.events if event["event"] == "ok"}
    assert len(sent) > 20
    with java.consume(servers.namesrv, topic, f"{topic}_group", "one") as consumer:
        wait_for(
            lambda: sent <= {event["key"] for event in consumer.events if event["event"] == "received"},
            60,
            "all that was acknowledged",
        )


def test_our_commands_are_served_as_the_mode_says(servers: Servers) -> None:
    arguments = ("clusterList", "-n", servers.namesrv)
    assert (mq(None, *arguments) is not None) is (servers.mode != "enforcing")
    assert (mq(servers.client_file, *arguments) is not None) is (servers.mode != "disabled")


def test_a_java_client_that_trusts_others_is_not_served(
    newest_java: JavaClient, servers: Servers, tmp_path: Path
) -> None:
    stranger = TlsDirectory(tmp_path)
    stranger.make([])
    options = (TLS, f"-Dtls.config.file={stranger.properties_file('client')}")
    assert acknowledged(newest_java, servers.namesrv, "S", *options) == 0


def test_our_commands_reach_rocketmqs_servers(java_servers: Servers) -> None:
    (broker,) = json.loads(mq(java_servers.client_file, "clusterList", "-n", java_servers.namesrv) or "[]")
    assert broker["broker"] == "broker-java"
    assert mq(None, "clusterList", "-n", java_servers.namesrv) is None


def test_rocketmqs_servers_take_the_same_clients(newest_java: JavaClient, java_servers: Servers) -> None:
    """What proves the tests above: the clients and files are right."""
    namesrv = java_servers.namesrv
    assert acknowledged(newest_java, namesrv, "J", *java_servers.checking)
    assert acknowledged(newest_java, namesrv, "J", TLS)
    assert not acknowledged(newest_java, namesrv, "J")


@pytest.mark.long
@pytest.mark.parametrize("uses_tls", [False, True])
def test_rocketmqs_servers_take_the_go_client_over_tls_alone(
    uses_tls: bool, java_servers: Servers, tmp_path: Path
) -> None:
    assert is_served_by_go(uses_tls, java_servers.namesrv, tmp_path / "go") is uses_tls
