"""One connection between members, over a real loopback socket: limits, directions, names."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, get_args

import pytest
import uvloop
from msgspec import structs
from msgspec.structs import replace

from dledger.config import DLedgerConfig
from dledger.core.messages import (
    EntryRange,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PushRequest,
    PushType,
    TimeoutNow,
)
from dledger.entry import ENTRY_SIZE_MAX, Index, Pos, Term
from dledger.peer_link import _ANSWERED_BY, _ASKED_BY, PeerLink
from dledger.rpc.codec import PeerMessage
from dledger.rpc.handshake import WIRE_VERSION_MAX, Hello
from dledger.rpc.requests import MetadataRequest, RepairMessage
from remoting.address import Address

PEERS = {f"n{number}": Address("127.0.0.1", 1 + number) for number in range(3)}
CONFIG = DLedgerConfig(group="g", self_id="n0", peers=PEERS, directory="unused")
HEART_BEAT = HeartBeatRequest(Term(1), "n0", Index(-1), 0)
TIMEOUT_NOW = TimeoutNow(Term(1), "n0", Index(-1))
HEART_BEAT_ANSWER = HeartBeatResponse(Term(1), "n1", 0, Index(-1))


both_loops = pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Owner:
    """Writes down what its links tell it."""

    def __init__(self) -> None:
        self.links: list[PeerLink] = []
        self.established = asyncio.Event()
        self.lost = asyncio.Event()
        self.heard = asyncio.Event()
        self.received: list[PeerMessage] = []
        self.sizes: list[int] = []

    def link_made(self, link: PeerLink) -> None:
        self.links.append(link)

    def link_established(self, link: PeerLink, peer: Hello) -> None:
        self.established.set()

    def link_received(self, link: PeerLink, messages: Sequence[tuple[PeerMessage, bytes]]) -> None:
        for message, payload in messages:
            self.received.append(message)
            self.sizes.append(len(payload))
        self.heard.set()

    def link_lost(self, link: PeerLink) -> None:
        self.lost.set()


def hello(member_id: str, addressee_id: str = "", wire_version_max: int = WIRE_VERSION_MAX) -> Hello:
    return Hello(
        wire_version_max=wire_version_max,
        group="g",
        member_id=member_id,
        addressee_id=addressee_id,
        nonce=member_id.encode() * 16,
        disk_uuid=member_id.encode() * 8,
        data_file_size=CONFIG.data_file_size,
    )


class Pair:
    """n0 has dialled n1."""

    def __init__(self, config: DLedgerConfig) -> None:
        self.config = config
        self.acceptor_wire_version_max = WIRE_VERSION_MAX
        self.dialler, self.acceptor = Owner(), Owner()
        self.server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(
            lambda: PeerLink(
                self.acceptor,
                replace(self.config, self_id="n1"),
                hello("n1", wire_version_max=self.acceptor_wire_version_max),
                members=frozenset(self.config.peers),
                dialled=None,
            ),
            "127.0.0.1",
            0,
        )
        self.port = self.server.sockets[0].getsockname()[1]

    async def connect(self) -> tuple[PeerLink, PeerLink]:
        await self.listen()
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: PeerLink(
                self.dialler,
                self.config,
                hello("n0", "n1"),
                members=frozenset(self.config.peers),
                dialled="n1",
            ),
            "127.0.0.1",
            self.port,
        )
        await self.dialler.established.wait()
        await self.acceptor.established.wait()
        return self.dialler.links[0], self.acceptor.links[0]

    async def close(self) -> None:
        assert self.server is not None
        self.server.close()
        for link in self.dialler.links + self.acceptor.links:
            link.abort("the test is over")
            await link.lost.wait()


def on_loop(
    scenario: Callable[[Pair], Coroutine[Any, Any, None]],
    config: DLedgerConfig = CONFIG,
    run_loop: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run,
) -> None:
    async def run() -> None:
        pair = Pair(config)
        try:
            async with asyncio.timeout(20):
                await scenario(pair)
        finally:
            await pair.close()

    run_loop(run())


def test_each_message_of_members_has_its_direction_and_its_sender() -> None:
    assert _ASKED_BY.keys().isdisjoint(_ANSWERED_BY)
    assert _ASKED_BY.keys() | _ANSWERED_BY.keys() == set(get_args(Message)) | set(get_args(RepairMessage))


@pytest.mark.parametrize(("acceptor_max", "heard"), [(1, [HEART_BEAT]), (2, [TIMEOUT_NOW, HEART_BEAT])])
def test_what_a_peer_of_a_former_version_does_not_know_is_not_sent_to_it(
    acceptor_max: int, heard: list[PeerMessage]
) -> None:
    async def scenario(pair: Pair) -> None:
        pair.acceptor_wire_version_max = acceptor_max
        dialling, _ = await pair.connect()
        assert dialling.wire_version == acceptor_max
        dialling.send(TIMEOUT_NOW)
        dialling.send(HEART_BEAT)
        while HEART_BEAT not in pair.acceptor.received:
            pair.acceptor.heard.clear()
            await pair.acceptor.heard.wait()
        assert pair.acceptor.received == heard

    on_loop(scenario)


@both_loops
def test_requests_go_one_way_and_answers_come_back(run_loop: Callable[..., None]) -> None:
    async def scenario(pair: Pair) -> None:
        dialling, accepting = await pair.connect()
        assert accepting.peer_id == "n0"
        dialling.send(HEART_BEAT)
        await pair.acceptor.heard.wait()
        accepting.send(HEART_BEAT_ANSWER)
        await pair.dialler.heard.wait()
        assert (pair.acceptor.received, pair.dialler.received) == ([HEART_BEAT], [HEART_BEAT_ANSWER])

    on_loop(scenario, run_loop=run_loop)


@pytest.mark.parametrize(
    "message",
    [HEART_BEAT_ANSWER, structs.replace(HEART_BEAT, leader_id="n2")],
    ids=["an answer where requests come in", "a request in another's name"],
)
def test_what_must_not_come_in_here_closes_the_link(message: PeerMessage) -> None:
    async def scenario(pair: Pair) -> None:
        dialling, _ = await pair.connect()
        dialling.send(message)
        await pair.acceptor.lost.wait()
        assert pair.acceptor.received == []

    on_loop(scenario)


def test_a_request_against_the_direction_closes_the_link() -> None:
    async def scenario(pair: Pair) -> None:
        _, accepting = await pair.connect()
        accepting.send(MetadataRequest(1))
        await pair.dialler.lost.wait()
        assert pair.dialler.received == []

    on_loop(scenario)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 64], ids=["http", "zeros", "ones"]
)
def test_garbage_on_the_port_closes_that_connection_alone(garbage: bytes) -> None:
    async def scenario(pair: Pair) -> None:
        dialling, _ = await pair.connect()
        reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
        writer.write(garbage)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        dialling.send(HEART_BEAT)
        await pair.acceptor.heard.wait()
        assert pair.acceptor.received == [HEART_BEAT]

    on_loop(scenario)


def test_a_stranger_who_says_nothing_is_shown_out() -> None:
    async def scenario(pair: Pair) -> None:
        await pair.listen()
        reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    on_loop(scenario, replace(CONFIG, handshake_timeout_ms=20))


@both_loops
def test_a_peer_that_takes_nothing_is_dropped_at_the_limit(run_loop: Callable[..., None]) -> None:
    entries = bytes(1 << 20)
    append = PushRequest(
        PushType.APPEND,
        Term(1),
        "n0",
        Index(-1),
        Term(-1),
        0,
        Index(-1),
        1,
        EntryRange(Index(0), Index(0), Pos(0), len(entries), Term(1), 0),
    )

    async def scenario(pair: Pair) -> None:
        dialling, accepting = await pair.connect()
        assert accepting._transport is not None
        assert dialling._transport is not None
        accepting._transport.pause_reading()
        for _ in range(9):  # a window, and one more
            dialling.send(append, [entries])
        assert not dialling._transport.is_closing()
        # What the kernel takes comes on top of the limit.
        for _ in range(36):
            dialling.send(append, [entries])
        await pair.dialler.lost.wait()

    config = replace(CONFIG, data_file_size=1 << 20)
    assert config.write_buffer_size_max < 12 << 20
    on_loop(scenario, config, run_loop)


def test_the_largest_push_passes() -> None:
    entries = bytes(CONFIG.member_config.push_size_max + ENTRY_SIZE_MAX)
    append = PushRequest(
        PushType.APPEND,
        Term(1),
        "n0",
        Index(-1),
        Term(-1),
        0,
        Index(-1),
        1,
        EntryRange(Index(0), Index(0), Pos(0), len(entries), Term(1), 0),
    )

    async def scenario(pair: Pair) -> None:
        dialling, _ = await pair.connect()
        dialling.send(append, [entries])
        await pair.acceptor.heard.wait()
        assert pair.acceptor.sizes == [len(entries)]

    on_loop(scenario)
