"""Fixtures of the tests on real processes; each ends what it started, by pid, whatever the test did."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from fault_runs.our_group import OurGroup
from local_cluster import LocalCluster, port_block
from originals import java_client
from originals.serving import SERVERS, Serving, serving
from proved_load import PATIENCE_S
from proxies.links import SERVER_PORT, Links
from proxies.toxiproxy_server import running_server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First what takes minutes, or one process would be left with it when the other has done all the rest."""
    items.sort(key=lambda item: item.path.name not in ("test_migration.py", "test_plain_processes.py"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    reason = java_client.why_not()
    if reason and item.get_closest_marker("java"):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the members did goes with the failure: where nobody can look at their directories, it is all there is."""
    report = yield
    if report.when == "call" and report.failed:
        for made in getattr(item, "funcargs", {}).values():
            if isinstance(made, LocalCluster):
                report.sections.append(("ends of the members' logs", made.log_ends()))
    return report


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Not started yet: the test calls up() with its conf."""
    with port_block() as base_port:
        made = LocalCluster(tmp_path / "cluster", base_port)
        yield made
        made.down()


@pytest.fixture
def our_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OurGroup]:
    """For nemeses. Not started yet."""
    monkeypatch.setattr("mq.cluster.LISTEN_TIMEOUT_S", float(PATIENCE_S))
    with port_block() as base_port:
        made = OurGroup(tmp_path / "cluster", base_port)
        yield made
        made.down()


@pytest.fixture
def links(cluster: LocalCluster, tmp_path: Path) -> Iterator[Links]:
    """Of a cluster of three, through proxies: the test calls up() with their options."""
    log, port = tmp_path / "toxiproxy.log", cluster.base_port + SERVER_PORT
    with running_server(log, port) as server, Links.of_cluster(server, cluster) as made:
        yield made


@pytest.fixture(params=java_client.VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path: Path) -> java_client.JavaClient:
    """The official client of each release in turn."""
    return java_client.JavaClient(request.param, tmp_path / "java")


@pytest.fixture(
    params=[
        java_client.VERSIONS[0],
        *(pytest.param(version, marks=pytest.mark.long) for version in java_client.VERSIONS[1:]),
    ]
)
def newest_java(request: pytest.FixtureRequest, tmp_path: Path) -> java_client.JavaClient:
    """As `java`, for what takes minutes: the newest release at every landing, the others with --long."""
    return java_client.JavaClient(request.param, tmp_path / "java")


@pytest.fixture(params=SERVERS)
def namesrv(request: pytest.FixtureRequest, cluster: LocalCluster, tmp_path: Path) -> Iterator[str]:
    """The NameServer of a cluster of ours that serves; with --long also of RocketMQ's broker, which proves the test."""
    with serving(request.param, cluster, tmp_path) as servers:
        yield servers.namesrv


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Not started yet."""
    with port_block() as base_port:
        made = LocalCluster(tmp_path_factory.mktemp("shared") / "cluster", base_port)
        yield made
        made.down()


@pytest.fixture(scope="module", params=SERVERS)
def shared_servers(
    request: pytest.FixtureRequest, shared_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """One for all tests of a file, which have topics and groups of their own, and leave them serving.

    The file's CONF, if it has one, is added to the brokers' conf.
    """
    conf = getattr(request.module, "CONF", None)
    with serving(request.param, shared_cluster, tmp_path_factory.mktemp("shared_servers"), conf) as servers:
        yield servers


@pytest.fixture(scope="module")
def shared_namesrv(shared_servers: Serving) -> str:
    """As `namesrv`, but one for all tests of a file."""
    return shared_servers.namesrv
