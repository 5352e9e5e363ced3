"""Brokers whose registration somebody else contests, with a NameServer on real ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from one_broker import OneBroker
from test_broker_server import ask, config_of, routed, running

from broker.config.broker_config import BrokerConfig
from broker.config.config_file import read_broker_config
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from remoting.bodies.bodies import DataVersion
from remoting.bodies.topic_bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from remoting.headers.headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader, to_ext_fields
from tests.free_ports import free_ports

pytestmark = pytest.mark.slow


def plain_config(directory: Path, namesrv_port: int) -> BrokerConfig:
    text = f"""
brokerName=G
listenPort={free_ports(1)[0]}
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
namesrvAddr=127.0.0.1:{namesrv_port}
storePathRootDir={directory}
mapedFileSizeCommitLog=1048576
maxHashSlotNum=97
maxIndexNum=300
"""
    return read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]


def run(scenario: Callable[[RemotingClient, int], Awaitable[None]]) -> None:
    async def main() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        stranger = RemotingClient()
        try:
            await scenario(stranger, namesrv.port)
        finally:
            await stranger.close()
            await namesrv.close()

    uvloop.run(main())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """`condition` asks a server, so that the loop goes on."""
    async with asyncio.timeout(20):
        while not await condition():
            pass


async def forge(stranger: RemotingClient, namesrv: str, address: str) -> None:
    """Registers `address` as the leader of group G, in a term that nobody reaches."""
    header = RegisterBrokerRequestHeader(
        broker_name="G",
        broker_addr=address,
        cluster_name="DefaultCluster",
        ha_server_addr=address,
        broker_id=0,
        enable_acting_master=False,
    )
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(timestamp=1, counter=1, state_version=2**63 - 1),
            topic_config_table={name: TopicConfig(topic_name=name) for name in ("TBW102", "Forged")},
        )
    ).encode()
    answer = await ask(stranger, namesrv, RequestCode.REGISTER_BROKER, to_ext_fields(header), body)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("is_its_own_address", [False, True])
def test_a_living_broker_wins_over_a_forged_registration(
    tmp_path: Path, is_plain: bool, is_its_own_address: bool
) -> None:
    async def scenario(stranger: RemotingClient, port: int) -> None:
        async with running((plain_config if is_plain else config_of)(tmp_path, port)) as broker:
            namesrv, address = f"127.0.0.1:{port}", broker.config.broker_addr
            assert await routed(stranger, namesrv, "TBW102") == address
            await forge(stranger, namesrv, address if is_its_own_address else "127.0.0.1:1")

            async def forged_is_gone() -> bool:
                fields = {"topic": "Forged"}
                answer = await ask(stranger, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
                return answer.code == ResponseCode.TOPIC_NOT_EXIST

            await until(forged_is_gone)
            assert await routed(stranger, namesrv, "TBW102") == address

    run(scenario)


@pytest.mark.parametrize("cluster", ["DefaultCluster", "Another"])
def test_a_stranger_cannot_unregister_a_living_broker(tmp_path: Path, cluster: str) -> None:
    async def scenario(stranger: RemotingClient, port: int) -> None:
        namesrv = f"127.0.0.1:{port}"
        async with running(config_of(tmp_path, port)) as broker:
            address = broker.config.broker_addr
            assert await routed(stranger, namesrv, "TBW102") == address
            header = UnRegisterBrokerRequestHeader(
                broker_name="G", broker_addr=address, cluster_name=cluster, broker_id=0
            )
            answer = await ask(stranger, namesrv, RequestCode.UNREGISTER_BROKER, to_ext_fields(header))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert await routed(stranger, namesrv, "TBW102") == address
        fields = {"topic": "TBW102"}
        answer = await ask(stranger, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST, "it leaves by itself"

    run(scenario)


def test_two_living_plain_brokers_of_one_name_are_told_of_in_one_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stranger: RemotingClient, port: int) -> None:
        namesrv = f"127.0.0.1:{port}"
        async with contextlib.AsyncExitStack() as until_end:
            async with running(plain_config(tmp_path / "first", port)) as first:
                assert await routed(stranger, namesrv, "TBW102") == first.config.broker_addr
                second = await until_end.enter_async_context(running(plain_config(tmp_path / "second", port)))

                async def second_is_told() -> bool:
                    await routed(stranger, namesrv, "TBW102")
                    refused = f"broker G id 0 is held by {first.config.broker_addr}, which lives"
                    return "name server refuses" in caplog.text and refused in caplog.text

                await until(second_is_told)
                assert await routed(stranger, namesrv, "TBW102") == first.config.broker_addr
                assert caplog.text.count("two living brokers of one name") == 1

            async def second_is_routed() -> bool:
                answer = await ask(stranger, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
                return answer.code == ResponseCode.SUCCESS

            await until(second_is_routed)
            assert await routed(stranger, namesrv, "TBW102") == second.config.broker_addr

    run(scenario)


def test_a_replacement_is_routed_although_the_dead_broker_of_its_name_had_started_more_often(
    tmp_path: Path,
) -> None:
    """The dead one's host is gone without a word: its connection stays open, and the NameServer hears nothing on it."""

    async def scenario(stranger: RemotingClient, port: int) -> None:
        namesrv = f"127.0.0.1:{port}"
        for _ in range(3):
            dead = OneBroker(
                tmp_path / "dead", "brokerName=G\nbrokerClusterName=DefaultCluster\n", is_plain=True
            )
            command = dead.controller.registration.register_request()
            dead.close()
        answer = await ask(stranger, namesrv, command.code, command.ext_fields, bytes(command.body))
        assert answer.code == ResponseCode.SUCCESS
        assert await routed(stranger, namesrv, "TBW102") == dead.config.broker_addr
        async with running(plain_config(tmp_path / "replacement", port)) as replacement:

            async def replacement_is_routed() -> bool:
                return await routed(stranger, namesrv, "TBW102") == replacement.config.broker_addr

            await until(replacement_is_routed)

    run(scenario)
