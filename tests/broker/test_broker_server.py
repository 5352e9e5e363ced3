"""A broker and a NameServer on real ports; and what their processes load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import orjson
import pytest
import uvloop
from one_broker import pull_fields, send_fields

from broker.config.broker_config import BrokerConfig
from broker.config.config_file import read_broker_config
from broker.server import Broker, run_broker
from broker.store_lock import StoreLock, StoreLockedError
from disk.disk import NoSpaceError
from message.decoder import decode_messages
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from remoting.bodies.bodies import TopicRouteData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from remoting.frame.command import RemotingCommand, request
from store.derived.store_flusher import StoreFlusher
from tests.free_ports import free_ports


def config_of(directory: Path, namesrv_port: int) -> BrokerConfig:
    raft_port, listen_port, http_port = free_ports(3)
    text = f"""
enableDLegerCommitLog=true
dLegerGroup=G
dLegerPeers=n0-127.0.0.1:{raft_port}
dLegerSelfId=n0
listenPort={listen_port}
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
namesrvAddr=127.0.0.1:{namesrv_port}
storePathRootDir={directory}
pyDLedgerHttpPort={http_port}
mapedFileSizeCommitLog=1048576
maxHashSlotNum=97
maxIndexNum=300
"""
    return read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]


@contextlib.asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Broker]:
    """Stops the broker also where an assertion fails: its threads would keep the test's process alive."""
    broker = Broker(config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


Scenario = Callable[[RemotingClient, Broker, str], Awaitable[None]]


def run(directory: Path, scenario: Scenario) -> None:
    async def main() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        client = RemotingClient()
        try:
            async with running(config_of(directory, namesrv.port)) as broker:
                await scenario(client, broker, f"127.0.0.1:{namesrv.port}")
        finally:
            await client.close()
            await namesrv.close()

    uvloop.run(main())


async def ask(
    client: RemotingClient, address: str, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    return await client.invoke(address, request(code, fields, body, opaque=0), 20)


async def routed(client: RemotingClient, namesrv: str, topic: str) -> str:
    """The master's address, as soon as the NameServer knows the topic."""
    async with asyncio.timeout(20):
        while True:
            answer = await ask(client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            if answer.code == ResponseCode.SUCCESS:
                return TopicRouteData.decode(answer.body).broker_datas[0].broker_addrs[0]


@pytest.mark.slow
def test_a_message_goes_in_and_out_and_survives_a_restart(tmp_path: Path) -> None:
    async def first(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "TBW102")
        assert address == broker.config.broker_addr
        answer = await ask(client, address, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"hello")
        assert answer.code == ResponseCode.SUCCESS
        assert await routed(client, namesrv, "T") == address
        held = asyncio.create_task(
            ask(client, address, RequestCode.PULL_MESSAGE, pull_fields("T", 0, 1, sysFlag="6"))
        )
        await ask(client, address, RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        await ask(client, address, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"world")
        assert [message.body for message in decode_messages(bytes((await held).body))] == [b"world"]

    async def second(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "T")
        answer = await ask(client, address, RequestCode.PULL_MESSAGE, pull_fields("T"))
        assert [message.body for message in decode_messages(bytes(answer.body))] == [b"hello", b"world"]

    run(tmp_path, first)
    assert not (tmp_path / "abort").exists()
    run(tmp_path, second)


def test_a_topic_is_known_to_the_name_server_when_its_update_is_answered(tmp_path: Path) -> None:
    async def make(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "TBW102")
        known = []
        for number in range(20):
            fields = {"topic": f"T{number}", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
            fields |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "order": "false"}
            answer = await ask(client, address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
            route = await ask(client, namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": f"T{number}"})
            known.append(route.code)
        assert known == [ResponseCode.SUCCESS] * 20

    run(tmp_path, make)


@pytest.mark.slow
def test_clients_with_a_vip_channel_send_two_ports_below(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "TBW102")
        vip = f"127.0.0.1:{broker.config.listen_port - 2}"
        answer = await ask(client, vip, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"hello")
        assert answer.code == ResponseCode.SUCCESS
        answer = await ask(client, address, RequestCode.PULL_MESSAGE, pull_fields("T"))
        assert [message.body for message in decode_messages(bytes(answer.body))] == [b"hello"]

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_vip_port_that_is_taken_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        config = config_of(tmp_path, free_ports(1)[0])
        with socket.create_server(("127.0.0.1", config.listen_port - 2)):
            async with running(config):
                pass
        assert f"no VIP channel for clients of RocketMQ 4 port={config.listen_port - 2}: Address already" in (
            caplog.text
        )

    uvloop.run(main())


@pytest.mark.slow
def test_a_broker_whose_disk_is_full_when_it_stops_has_all_messages_at_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "TBW102")
        answer = await ask(client, address, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"hello")
        assert answer.code == ResponseCode.SUCCESS

    async def pull(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        address = await routed(client, namesrv, "T")
        answer = await ask(client, address, RequestCode.PULL_MESSAGE, pull_fields("T"))
        assert [message.body for message in decode_messages(bytes(answer.body))] == [b"hello"]

    def fail(*_: object) -> None:
        raise NoSpaceError(28, "no space left on device", "consumequeue")

    with monkeypatch.context() as full:
        full.setattr(StoreFlusher, "flush_all", fail)
        run(tmp_path, send)
    assert (tmp_path / "abort").exists()
    run(tmp_path, pull)


@pytest.mark.slow
def test_a_name_server_that_comes_back_is_told_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        (port,) = free_ports(1)
        config = NamesrvConfig(bind_address="127.0.0.1", listen_port=port)
        client = RemotingClient()
        async with running(config_of(tmp_path, port)) as broker:
            for _ in range(2):  # not there when the broker starts, and gone once more
                namesrv = Namesrv(config)
                await namesrv.start()
                assert await routed(client, f"127.0.0.1:{port}", "TBW102") == broker.config.broker_addr
                await namesrv.close()
        await client.close()

    uvloop.run(main())


@pytest.mark.slow
def test_a_broker_that_fails_while_starting_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Defect(Exception):
        pass

    async def start_and_fail(broker: Broker) -> None:
        await start(broker)
        client = RemotingClient()
        await ask(client, broker.config.broker_addr, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
        await client.close()
        raise Defect

    start = Broker.start
    monkeypatch.setattr(Broker, "start", start_and_fail)
    before = set(threading.enumerate())
    with pytest.raises(Defect):
        uvloop.run(run_broker(config_of(tmp_path, 1)))
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_status_health_and_metrics_over_http(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await routed(client, namesrv, "TBW102")

        def get(path: str) -> bytes:
            url = f"http://127.0.0.1:{broker.config.http_port}{path}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                content: bytes = answer.read()
                return content

        # Both at once: the second comes while aiohttp is being imported for the first.
        status, health = await asyncio.gather(
            asyncio.to_thread(get, "/status"), asyncio.to_thread(get, "/health")
        )
        assert health == b"ok\n"
        values = orjson.loads(status)
        expected = {"id": "n0", "group": "G", "role": "LEADER", "serving": True, "term": 1, "leader": "n0"}
        assert {name: values[name] for name in expected} == expected
        needed = (
            "pid ledger_begin ledger_end committed applied synced reput watermarks chain_crc listen raft http"
        )
        assert set(needed.split()) <= values.keys()
        assert values["store_dir"] == str(tmp_path)
        metrics = (await asyncio.to_thread(get, "/metrics")).decode()
        assert 'pydledger_serving{group="G",id="n0"} 1' in metrics

    run(tmp_path, scenario)


def test_two_brokers_cannot_have_one_store(tmp_path: Path) -> None:
    code = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(tmp_path / 'lock')!r}, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StoreLockedError, match="another broker runs on this store"):
            StoreLock(str(tmp_path))
        other.communicate(b"")
    StoreLock(str(tmp_path)).release()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["broker.server", "namesrv.namesrv"])
def test_a_server_process_loads_neither_the_command_line_nor_http(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    ).stdout.split()
    assert module.partition(".")[0] in loaded
    assert not {"typer", "rich", "aiohttp", "mq", "mqclient", "simulator"} & set(loaded)
