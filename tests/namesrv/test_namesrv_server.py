"""A NameServer on a real port: frames in, frames out, and its one file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig, load_namesrv_config
from remoting.bodies.bodies import ClusterInfo, DataVersion
from remoting.bodies.topic_bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import ConfigError
from remoting.frame.command import request
from remoting.headers.headers import RegisterBrokerRequestHeader, to_ext_fields

Scenario = Callable[[RemotingClient, str], Awaitable[None]]


def run(config: NamesrvConfig, scenario: Scenario) -> None:
    async def main() -> None:
        namesrv = Namesrv(config)
        await namesrv.start()
        client = RemotingClient()
        try:
            await scenario(client, f"127.0.0.1:{namesrv.port}")
        finally:
            await client.close()
            await namesrv.close()

    uvloop.run(main())


def local(kv_config_path: str | None = None) -> NamesrvConfig:
    return NamesrvConfig(bind_address="127.0.0.1", listen_port=0, kv_config_path=kv_config_path)


def body() -> RegisterBrokerBody:
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(timestamp=1, counter=1),
            topic_config_table={name: TopicConfig(topic_name=name) for name in ("T", "U")},
        )
    )


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_broker_registers_and_is_gone_with_its_connection(is_compressed: bool) -> None:
    async def scenario(client: RemotingClient, address: str) -> None:
        sent = body().encode_compressed() if is_compressed else body().encode()
        header = RegisterBrokerRequestHeader(
            broker_name="b",
            broker_addr="127.0.0.1:1",
            cluster_name="c",
            ha_server_addr="",
            broker_id=0,
            compressed=is_compressed,
            body_crc32=body_crc32(sent),
        )
        broker = RemotingClient()
        command = request(RequestCode.REGISTER_BROKER, to_ext_fields(header), sent, opaque=0)
        assert (await broker.invoke(address, command, 5)).code == ResponseCode.SUCCESS
        cluster = request(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=0)
        answer = await client.invoke(address, cluster, 5)
        assert ClusterInfo.decode(answer.body).broker_addr_table["b"].broker_addrs == {0: "127.0.0.1:1"}
        await broker.close()
        for _ in range(100):
            answer = await client.invoke(address, cluster, 5)
            if not ClusterInfo.decode(answer.body).broker_addr_table:
                return
        raise AssertionError("still registered")

    run(local(), scenario)


def test_a_body_with_another_checksum_is_refused() -> None:
    async def scenario(client: RemotingClient, address: str) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="b",
            broker_addr="127.0.0.1:1",
            cluster_name="c",
            ha_server_addr="",
            broker_id=0,
            body_crc32=1,
        )
        command = request(RequestCode.REGISTER_BROKER, to_ext_fields(header), body().encode(), opaque=0)
        answer = await client.invoke(address, command, 5)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")

    run(local(), scenario)


def test_the_key_value_store_survives_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "namesrv" / "kvConfig.json")
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}

    async def put(client: RemotingClient, address: str) -> None:
        command = request(RequestCode.PUT_KV_CONFIG, {**fields, "value": "b:4"}, opaque=0)
        assert (await client.invoke(address, command, 5)).code == ResponseCode.SUCCESS

    async def get(client: RemotingClient, address: str) -> None:
        answer = await client.invoke(address, request(RequestCode.GET_KV_CONFIG, fields, opaque=0), 5)
        assert answer.ext_fields == {"value": "b:4"}

    run(local(kv_config_path=path), put)
    run(local(kv_config_path=path), get)


def test_what_it_does_not_do_is_told() -> None:
    async def scenario(client: RemotingClient, address: str) -> None:
        answer = await client.invoke(address, request(RequestCode.SEND_MESSAGE, opaque=0), 5)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        answer = await client.invoke(address, request(RequestCode.GET_NAMESRV_CONFIG, opaque=0), 5)
        assert b"bindAddress=127.0.0.1\n" in bytes(answer.body)

    run(local(), scenario)


def test_its_conf_file_is_rocketmqs(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=9999\nkvConfigPath=/tmp/kv.json\nclientRequestThreadPoolNums=8\n")
    config, warnings = load_namesrv_config(str(path), {"bindAddress": "127.0.0.1"})
    assert (config.listen_port, config.kv_config_path, config.bind_address) == (
        9999,
        "/tmp/kv.json",
        "127.0.0.1",
    )
    assert "without effect here: clientRequestThreadPoolNums" in warnings[0]
    path.write_text("listenPort=70000\n")
    with pytest.raises(ConfigError, match=r"namesrv\.conf:1"):
        load_namesrv_config(str(path))


def test_its_conf_file_is_read_as_leniently_as_a_brokers(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=x\nscanNotActiveBrokerInterval=0\n")
    config, warnings = load_namesrv_config(str(path))
    assert (config.listen_port, config.scan_not_active_broker_interval_ms) == (9876, 10)
    assert ["9876 is taken" in warnings[0], "10 is taken" in warnings[1]] == [True, True]


def test_its_security_switches_stop_the_start_unless_it_may_be_open(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("tlsMode=enforcing\n")
    with pytest.raises(ConfigError, match="this NameServer would be open to all"):
        load_namesrv_config(str(path))
    assert load_namesrv_config(str(path), {"pyDLedgerAllowOpen": "true"})[0].open_switches
