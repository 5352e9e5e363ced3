"""gRPC proxies, each before brokers, for one and the same test."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from local_cluster import ROOT, LocalCluster, wait_for
from originals.java_servers import JavaBroker, JavaNameServer, JavaProxy

from message.names import DLQ_GROUP_TOPIC_PREFIX
from mqclient import Admin, ConsumeFromWhere, ConsumerConfig, LitePullConsumer, MQClientError
from remoting.bodies.bodies import SubscriptionGroupConfig
from remoting.bodies.topic_bodies import TopicConfig

WAIT_S = 60
QUEUES = 4
CONF = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "2000",
    "transactionCheckMax": "100000",  # some clients can be asked again only minutes after a proxy is lost
    "waitTimeMillsInSendQueue": "60000",  # a busy broker is to refuse nothing
}
# It keeps to itself for 3 s that a transaction has ended, and delivers a message once for each commit that it hears.
# So it is to ask later than that, and again only where an answer is lost.
CONF_OF_ROCKETMQ = {
    **CONF,
    "enableDLegerCommitLog": "false",
    "transactionCheckInterval": "10000",
    "transactionTimeOut": "6000",
}
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
T = TypeVar("T")


@dataclass(frozen=True)
class Door:
    """A proxy that serves. `restart` kills it, and returns when another one serves at the same endpoint."""

    endpoint: str
    namesrv: str
    restart: Callable[[], None]

    def make_topic(self, topic: str, message_type: str) -> None:
        """Returns when the NameServer tells of it."""
        config = TopicConfig(topic, QUEUES, QUEUES)

        async def put(admin: Admin) -> None:
            for leader in await admin.brokers.leaders():
                await admin.topics.put(leader, config, f"+message.type={message_type}")

        self._ask(put)
        wait_for(lambda: self._ask(lambda admin: admin.topics.route(topic)), WAIT_S, f"a route of {topic}")

    def make_group(self, group: str, *, orderly: bool = False, retries: int = 16) -> None:
        config = SubscriptionGroupConfig(
            group_name=group, consume_message_orderly=orderly, retry_max_times=retries
        )

        async def put(admin: Admin) -> None:
            for leader in await admin.brokers.leaders():
                await admin.groups.put(leader, config)

        self._ask(put)

    def wait_dead(self, group: str, *keys: str) -> None:
        """Until the group's dead letter topic has these messages, and has no others."""
        assert sorted(self.dead(group, keys)) == sorted(keys)

    def dead(self, group: str, keys: Collection[str], patience_s: float = WAIT_S) -> list[str]:
        """What the group's dead letter topic has, as soon as it has these messages, or else when patience ends."""
        dead: list[str] = []

        async def read() -> None:
            topic = DLQ_GROUP_TOPIC_PREFIX + group
            async with LitePullConsumer(
                self.namesrv, f"{group}_dead", {topic: "*"}, config=FIRST
            ) as consumer:
                while not set(keys) <= set(dead):
                    dead.extend(message.keys for message in await consumer.poll())

        with suppress(TimeoutError):
            asyncio.run(asyncio.wait_for(read(), patience_s))
        return dead

    def _ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        return asyncio.run(_ask(self.namesrv, question))


async def _ask(namesrv: str, question: Callable[[Admin], Awaitable[T]]) -> T:
    async with Admin(namesrv) as admin:
        return await question(admin)


@contextmanager
def door(whose: str, cluster: LocalCluster, work: Path) -> Iterator[Door]:
    """`whose`: ours before our brokers, before_java ours before RocketMQ's, java RocketMQ's before its own."""
    if whose == "ours":
        cluster.up("--proxy", conf=CONF)
        yield Door(cluster.status()["proxy"], cluster.namesrv, lambda: _restart_ours(cluster))
        return
    # On ports of the cluster, which is not started.
    name_server = JavaNameServer(work / "servers", cluster.base_port + 90)
    broker = JavaBroker(
        *(work / "servers", work / "store", name_server.address, cluster.base_port + 50),
        conf=CONF_OF_ROCKETMQ,
    )
    proxies = {"java": JavaProxy, "before_java": OurProxy}
    proxy = proxies[whose](work / "servers", name_server.address, cluster.base_port + 80)
    with name_server, broker:
        wait_for(lambda: _has_broker(name_server.address), WAIT_S, "the broker at its NameServer")
        with proxy:
            wait_for(lambda: listens(proxy.address), WAIT_S, "the proxy")

            def restart() -> None:
                proxy.stop()
                proxy.start()
                wait_for(lambda: listens(proxy.address), WAIT_S, "the proxy again")

            yield Door(proxy.address, name_server.address, restart)


def _restart_ours(cluster: LocalCluster) -> None:
    cluster.kill("proxy")
    cluster.start("proxy")
    wait_for(lambda: listens(cluster.status()["proxy"]), WAIT_S, "the proxy again")


class OurProxy:
    """`mqproxy` as a process of its own; `with` starts it, and ends it by pid."""

    def __init__(self, work: Path, namesrv: str, port: int, **settings: object) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{port}"
        self._log = work / "proxy.log"
        self._conf = work / "rmq-proxy.json"
        settings |= {"rocketMQClusterName": "DefaultCluster", "namesrvAddr": namesrv, "grpcServerPort": port}
        self._conf.write_text(json.dumps(settings))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            "from mq.server_entry import proxy; proxy()",
            "-pc",
            str(self._conf),
            "--host",
            "127.0.0.1",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def stop(self) -> None:
        assert self._process is not None, "it was started"
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> "OurProxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _has_broker(namesrv: str) -> bool:
    try:
        return bool(asyncio.run(_ask(namesrv, lambda admin: admin.brokers.leaders())))
    except MQClientError:
        return False


def listens(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True
