"""Changes of topics and groups that a tool sends to a follower."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from one_broker import OneBroker
from test_broker_server import ask, routed

from broker.access.access_check import AccessCheck, RequestAccess, Sender
from broker.access.passed_on import PASSED_ON, PassedOn
from broker.answers import Answers, Request
from broker.config.broker_config import BrokerConfig
from broker.config.config_file import read_broker_config
from broker.leadership.follower_changes import FollowerChanges, OnLeaderAnswer
from broker.server import Broker
from dledger.cluster_secrets import NO_CLUSTER_SECRET
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from remoting.frame.command import RemotingCommand, request, response
from remoting.headers.headers import CommandHeader
from tests.free_ports import free_ports


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
"""
        made.append(read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0])
    return made


@pytest.mark.slow
def test_a_topic_and_a_group_are_deleted_at_any_member(tmp_path: Path) -> None:
    """RocketMQ's deleteSubGroup deletes the group's retry topic at each address that the NameServer knows."""

    async def main() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        brokers = [Broker(config) for config in configs(tmp_path, namesrv.port)]
        for broker in brokers:
            await broker.start()
        client = RemotingClient()
        try:
            leader = await routed(client, f"127.0.0.1:{namesrv.port}", "TBW102")
            addresses = [broker.config.broker_addr for broker in brokers]
            await change(client, leader, [address for address in addresses if address != leader])
        finally:
            await client.close()
            await asyncio.gather(*(broker.stop() for broker in brokers))
            await namesrv.close()

    async def change(client: RemotingClient, leader: str, followers: list[str]) -> None:
        fields = {
            "topic": "T",
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
        }
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        made = await ask(client, followers[0], RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert made.code == ResponseCode.SUCCESS, made.remark
        assert (await ask(client, leader, RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})).code == 0
        for address in (*followers, leader):
            answer = await ask(client, address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        answer = await ask(client, leader, RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        refused = await ask(
            client, followers[1], RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"perm": "77"}
        )
        assert refused.code == ResponseCode.INVALID_PARAMETER, "as the leader says"

    uvloop.run(main())


def delete(broker: OneBroker, answer: int | None, fields: dict[str, str]) -> tuple[list[int], int]:
    """Codes that the leader is asked for, which answers `answer`, and what the tool is told."""
    asked: list[int] = []

    def ask_leader(command: RemotingCommand, on_answer: OnLeaderAnswer) -> None:
        assert command.ext_fields[PASSED_ON] == "10.1.2.3"
        asked.append(command.code)
        on_answer(None if answer is None else response(command, answer))

    told: list[int] = []

    class Told(Answers):
        def add(self, command: RemotingCommand, code: int = 0, *_: object, **__: object) -> None:
            told.append(code)

    command = request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"} | fields, opaque=1)
    check = AccessCheck(
        broker.config.access, "", "", broker.store.tables.access_table, PassedOn(NO_CLUSTER_SECRET)
    )
    access = RequestAccess(check, command.code, (), Sender("10.1.2.3"))
    asking = Request(command, CommandHeader(), broker.channel, Told(broker.channel), access)
    changes = FollowerChanges(broker.store, lambda: broker.now_ms, PassedOn(NO_CLUSTER_SECRET), ask_leader)
    changes.handle(asking, lambda now_ms: asking.answer(ResponseCode.SERVICE_NOT_AVAILABLE), broker.now_ms)
    return asked, told[0]


def test_what_was_passed_on_is_not_passed_on_again_and_without_a_leader_it_is_refused(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    assert delete(broker, ResponseCode.SUCCESS, {}) == ([code], ResponseCode.SUCCESS)
    assert delete(broker, None, {}) == ([code], ResponseCode.SERVICE_NOT_AVAILABLE)
    assert delete(broker, ResponseCode.SUCCESS, {PASSED_ON: "true"}) == (
        [],
        ResponseCode.SERVICE_NOT_AVAILABLE,
    )
    broker.close()


def test_the_leader_changes_it_itself(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    assert delete(broker, ResponseCode.SUCCESS, {}) == ([], ResponseCode.SERVICE_NOT_AVAILABLE)
    broker.close()
