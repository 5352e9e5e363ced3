"""Brokers of ours, or RocketMQ's own, for one and the same test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import Keys
from originals.java_mqadmin import JavaMqAdmin
from originals.java_servers import BROKER_NAME, JavaBroker, JavaNameServer

# With --long also RocketMQ's broker, which proves the test.
SERVERS = ("ours", pytest.param("rocketmq", marks=[pytest.mark.long, pytest.mark.java]))


@dataclass(frozen=True)
class Serving:
    """Brokers that serve. `restart` kills all of them and returns when they serve again."""

    namesrv: str
    restart: Callable[[], None]
    is_ours: bool


@contextmanager
def serving(
    whose: str,
    cluster: LocalCluster,
    work: Path,
    conf: dict[str, str] | None = None,
    credentials: Keys | None = None,
) -> Iterator[Serving]:
    """`credentials`: of a super user, where `conf` switches access control on."""
    if whose == "ours":

        def restart_ours() -> None:
            cluster.kill_all()
            cluster.start_missing()
            cluster.leader()

        cluster.up(conf=conf)
        yield Serving(cluster.namesrv, restart_ours, is_ours=True)
        return
    # On ports of the cluster, which is not started.
    name_server = JavaNameServer(work / "servers", cluster.base_port + 90)
    broker = JavaBroker(
        work / "servers", work / "store", name_server.address, cluster.base_port + 50, conf=conf
    )
    with (
        name_server,
        broker,
        JavaMqAdmin(name_server.address, work / "mqadmin", credentials=credentials) as mqadmin,
    ):

        def wait_registered() -> None:
            wait_for(lambda: BROKER_NAME in mqadmin.run("clusterList"), 60, "the broker at its NameServer")

        def restart_java() -> None:
            broker.stop()
            wait_for(lambda: BROKER_NAME not in mqadmin.run("clusterList"), 60, "the broker is missed")
            broker.start()
            wait_registered()

        wait_registered()
        yield Serving(name_server.address, restart_java, is_ours=False)
