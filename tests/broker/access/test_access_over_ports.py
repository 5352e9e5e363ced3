"""A group of three with access control over real ports: our clients with and without keys, changes at any member."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from test_broker_server import routed

import mqclient
from broker.config.broker_config import BrokerConfig
from broker.config.config_file import read_broker_config
from broker.server import Broker
from mqclient.errors import MQClientError
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import load_namesrv_config
from remoting.bodies.auth_bodies import PolicyEntryInfo, UserInfo
from remoting.bodies.topic_bodies import TopicConfig
from remoting.client import RemotingClient
from remoting.configuration import parse_properties
from tests.free_ports import free_ports

ROOT, APP = mqclient.Credentials("root", "root-secret"), mqclient.Credentials("app", "app-secret")
NAMESRV_KEYS = {
    "authenticationEnabled": "true",
    "pyDLedgerUsers": '[{"username":"inner","password":"inner-secret","userType":"Super"},'
    '{"username":"root","password":"root-secret","userType":"Super"},{"username":"app","password":"app-secret"}]',
    "bindAddress": "127.0.0.1",
    "listenPort": "0",
}


def configs(directory: Path, namesrv_port: int) -> list[BrokerConfig]:
    ports = free_ports(6)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports[3:]))
    made = []
    for number, port in enumerate(ports[:3]):
        text = f"""
enableDLegerCommitLog=true
dLegerGroup=G
dLegerPeers={peers}
dLegerSelfId=n{number}
listenPort={port}
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
namesrvAddr=127.0.0.1:{namesrv_port}
storePathRootDir={directory}/n{number}
mapedFileSizeCommitLog=1048576
maxHashSlotNum=97
maxIndexNum=300
pyDLedgerClusterSecret=of members
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={{"username":"root","password":"root-secret"}}
innerClientAuthenticationCredentials={{"accessKey":"inner","secretKey":"inner-secret"}}
"""
        made.append(read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0])
    return made


async def send(namesrv: str, topic: str, credentials: mqclient.Credentials | None) -> None:
    config = mqclient.ProducerConfig(credentials=credentials, retry_times=0, send_timeout_s=3.0)
    async with mqclient.Producer(namesrv, "p", config=config) as producer:
        await producer.send(mqclient.Message(topic, b"m"))


async def received(namesrv: str, credentials: mqclient.Credentials) -> bytes:
    config = mqclient.ConsumerConfig(credentials=credentials, consume_from=mqclient.ConsumeFromWhere.FIRST)
    async with mqclient.PushConsumer(namesrv, "g", {"orders": "*"}, config=config) as consumer:
        async for message in consumer:
            return message.body
    raise AssertionError("a consumer waits for messages")


@pytest.mark.slow
def test_users_and_policies_decide_at_all_members(tmp_path: Path) -> None:
    async def main() -> None:
        namesrv = Namesrv(load_namesrv_config(None, NAMESRV_KEYS)[0])
        await namesrv.start()
        brokers = [Broker(config) for config in configs(tmp_path, namesrv.port)]
        for broker in brokers:
            await broker.start()
        client = RemotingClient(before_request=ROOT.sign)
        try:
            leader = await routed(client, f"127.0.0.1:{namesrv.port}", "TBW102")
            followers = [it.config.broker_addr for it in brokers if it.config.broker_addr != leader]
            await at(f"127.0.0.1:{namesrv.port}", leader, followers[0])
        finally:
            await client.close()
            await asyncio.gather(*(broker.stop() for broker in brokers))
            await namesrv.close()

    async def at(namesrv: str, leader: str, follower: str) -> None:
        async with mqclient.Admin(namesrv, credentials=ROOT) as admin:
            # At a follower, which passes it on.
            await admin.access.create_user(follower, UserInfo(username="app", password="app-secret"))
            entries = [
                PolicyEntryInfo(resource=resource, actions=["Pub", "Sub"], decision="Allow")
                for resource in ("Topic:orders", "Group:g")
            ]
            await admin.access.put_policy(follower, "User:app", "Custom", entries)
            for topic in ("orders", "other"):
                config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
                await admin.topics.put(follower, config)
        await send(namesrv, "orders", APP)
        assert await received(namesrv, APP) == b"m"
        for topic, credentials in (
            ("other", APP),
            ("orders", mqclient.Credentials("app", "wrong")),
            ("orders", mqclient.Credentials("nobody", "app-secret")),
            ("orders", None),
        ):
            with pytest.raises(MQClientError):
                await send(namesrv, topic, credentials)
        async with mqclient.Admin(namesrv, credentials=APP) as admin:
            with pytest.raises(mqclient.AdminError, match="User:app has no permission to access Cluster:"):
                await admin.access.users(leader)

    uvloop.run(main())
