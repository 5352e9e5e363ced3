"""A NameServer and a broker that leads a group of one, in this process and without sockets, for `mq admin` and Admin.

Connections that the event loop is asked for lead here (`connect`). Time stands still but for what a request needs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from one_broker import OneBroker, RecordingChannel, heart_beat

from mq.admin.__main__ import main
from namesrv.kv_config_manager import KVConfigManager
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import RouteInfoManager
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand, request, response
from remoting.frame.connection import RemotingConnection

NAMESRV = "127.0.0.1:9876"
BROKER = "127.0.0.1:17911"
FOLLOWER = "127.0.0.1:17921"  # registered, and nobody is there


class AdminCluster:
    """`broker` is real, and so is what the NameServer knows of it. `refuse` answers some requests instead of it, and
    `alter` changes answers of both, each given with its request's code, before they leave.
    """

    def __init__(self, directory: Path) -> None:
        self.broker = OneBroker(directory)
        self.is_namesrv_down = False
        self.broker_address = BROKER
        self.codes: list[int] = []  # of all requests that brokers got
        self.refuse: dict[int, tuple[int, str]] = {}  # by request code: what is answered instead
        self.hanging_up: set[str] = set()  # addresses where each request ends its connection
        self.alter: Callable[[int, RemotingCommand], None] = lambda code, answer: None
        self._namesrv = NamesrvProcessor(
            RouteInfoManager(), KVConfigManager(), {"listenPort": "9876"}, lambda _: None
        )
        self._channel_count = 0
        self.register()

    def register(self) -> None:
        """As a broker does when its topics or its role have changed."""
        self._namesrv.process(
            RecordingChannel(), [self.broker.controller.registration.register_request()], self.broker.now_ms
        )

    def register_follower(self) -> None:
        """One that has died, and whom the NameServer still believes alive."""
        command = self.broker.controller.registration.register_request()
        command.ext_fields |= {"brokerAddr": FOLLOWER, "brokerId": "2", "haServerAddr": FOLLOWER}
        self._namesrv.process(RecordingChannel(2), [command], self.broker.now_ms)

    def unregister_leader(self) -> None:
        """The group elects: of its members the one that has died is all that the NameServer knows."""
        self.register_follower()
        self.unregister()

    def unregister(self) -> None:
        """The broker takes leave: but for its follower, if that was registered, there is none then."""
        command = self.broker.controller.registration.unregister_request()
        self._namesrv.process(RecordingChannel(), [command], self.broker.now_ms)

    def forget_topic(self, topic: str) -> None:
        """The NameServer knows the topic no more, until brokers register again."""
        command = request(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}, opaque=1)
        self._namesrv.process(RecordingChannel(), [command], self.broker.now_ms)

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> tuple[Any, Any]:
        address = f"{host}:{port}"
        is_there = address in (NAMESRV, self.broker_address) or address in self.hanging_up
        if not is_there or (address == NAMESRV and self.is_namesrv_down):
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        self._channel_count += 1
        protocol = factory()
        transport = _Transport(self, protocol, address, self._channel_count)
        protocol.connection_made(transport)
        return transport, protocol

    def received(self, address: str, channel: RecordingChannel, commands: list[RemotingCommand]) -> None:
        if address == NAMESRV:
            self._namesrv.process(channel, commands, self.broker.now_ms)
            return
        self.codes += [command.code for command in commands]
        answered = len(channel.writes)
        self.broker.receive(commands, channel)
        self.broker.settle()
        for _ in range(30):
            if len(channel.writes) > answered:
                break
            self.broker.tick()
        self.register()

    def close(self) -> None:
        self.broker.close()


class _Transport(asyncio.Transport):
    """The client's end; what it writes is worked on at once, what the server writes comes with the loop's next turn."""

    def __init__(
        self, cluster: AdminCluster, protocol: asyncio.Protocol, address: str, channel_id: int
    ) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._cluster = cluster
        self._protocol = protocol
        self._address = address
        self._connection = RemotingConnection()
        self._channel = _ServerEnd(cluster, channel_id, protocol)
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._address in self._cluster.hanging_up:
            self.close()
            return
        commands = self._connection.receive_data(bytes(data))
        for command in commands:
            self._channel.asked[command.opaque] = command.code
            if command.code in self._cluster.refuse and self._address != NAMESRV:
                code, remark = self._cluster.refuse[command.code]
                self._channel.write(_refusal(command, code, remark))
            else:
                self._cluster.received(self._address, self._channel, [command])

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class _ServerEnd(RecordingChannel):
    def __init__(self, cluster: AdminCluster, channel_id: int, protocol: asyncio.Protocol) -> None:
        super().__init__(channel_id, f"127.0.0.1:{50_000 + channel_id}")
        self.asked: dict[int, int] = {}  # codes of requests, by opaque
        self._cluster = cluster
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        whole = data if isinstance(data, bytes) else b"".join(data)
        answers = RemotingConnection().receive_data(whole)
        for answer in answers:
            if answer.is_response:
                self._cluster.alter(self.asked[answer.opaque], answer)
        whole = b"".join(answer.encode() for answer in answers)
        self.writes.append(whole)
        asyncio.get_running_loop().call_soon(self._protocol.data_received, whole)


def _refusal(command: RemotingCommand, code: int, remark: str) -> bytes:
    return response(command, code, remark).encode()


def run(*arguments: str) -> None:
    main([*arguments, "-n", NAMESRV])


def in_one_line(text: str) -> str:
    return re.sub(r"[ \n]+", " ", text)


@contextmanager
def asked_cluster(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    """With a topic of two queues and three messages, and a consumer and a producer that are connected."""
    made = AdminCluster(directory / "store")
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", lambda _, *given: made.connect(*given))
    made.broker.tick()  # what comes from now on is counted
    run("updateTopic", "-t", "T", "-r", "2", "-w", "2")
    for queue, tags, body in (("0", "A", "one"), ("0", "B", "two"), ("1", "A", "three")):
        run(
            "sendMessage", "-t", "T", "-p", body, "-k", f"k{queue}", "-c", tags, "-b", "golden-a", "-i", queue
        )
    made.broker.ask(RequestCode.HEART_BEAT, body=heart_beat("c1"))
    for queue_id in ("0", "1"):
        fields = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "commitOffset": "0"}
        made.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    made.broker.run_for(11_000)  # to the next sample
    made.register()
    yield made
    made.close()
