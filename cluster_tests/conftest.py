"""Fixtures of the tests on real processes; each ends what it started, by pid, whatever the test did."""

from collections.abc import Generator, Iterator
from pathlib import Path

import java_client
import pytest
from local_cluster import LocalCluster, port_block


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the members did goes with the failure: where nobody can look at their directories, it is all there is."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.when == "call" and report.failed and isinstance(cluster, LocalCluster):
        report.sections.append(("ends of the members' logs", cluster.log_ends()))
    return report


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Not started yet: the test calls up() with its conf."""
    with port_block() as base_port:
        made = LocalCluster(tmp_path / "cluster", base_port)
        yield made
        made.down()


@pytest.fixture(params=java_client.VERSIONS)
def java(request: pytest.FixtureRequest, tmp_path: Path) -> java_client.JavaClient:
    """The official client of each release in turn; skipped with the reason where it cannot run."""
    reason = java_client.why_not()
    if reason:
        pytest.skip(reason)
    return java_client.JavaClient(request.param, tmp_path / "java")


@pytest.fixture(
    params=[
        java_client.VERSIONS[0],
        *(pytest.param(version, marks=pytest.mark.long) for version in java_client.VERSIONS[1:]),
    ]
)
def newest_java(request: pytest.FixtureRequest, tmp_path: Path) -> java_client.JavaClient:
    """As `java`, for what takes minutes: the newest release at every landing, the others with --long."""
    reason = java_client.why_not()
    if reason:
        pytest.skip(reason)
    return java_client.JavaClient(request.param, tmp_path / "java")
