"""The listening side on loopback, under asyncio's loop and under uvloop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable

import pytest
import uvloop
from remoting_fakes import MemoryTransport, RecordingHandler, echo

from remoting.channel import Channel, ChannelProtocol
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand, encode_frame, encode_response, request
from remoting.frame.connection import RemotingConnection
from remoting.server import RemotingServer
from remoting.unread_budget import UnreadChannel

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


class RawPeer:
    """A client of bytes: sends anything, and reads commands or the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = RemotingConnection()
        self._received: list[RemotingCommand] = []

    @classmethod
    async def connect(cls, server: RemotingServer) -> RawPeer:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> RemotingCommand | None:
        """The next command, None at the end of the stream."""
        async with asyncio.timeout(10):
            while not self._received:
                data = await self._reader.read(1 << 16)
                if not data:
                    return None
                self._received += self._connection.receive_data(data)
        return self._received.pop(0)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the server may have ended it first
            await self._writer.wait_closed()

    async def call(self, opaque: int) -> None:
        self.send(request(1, {"k": "v"}, opaque=opaque).encode())
        answer = await self.receive()
        assert answer is not None
        assert answer.opaque == opaque


def test_all_commands_of_one_read_are_handed_over_at_once() -> None:
    async def main() -> None:
        handler = RecordingHandler()
        protocol = ChannelProtocol(handler, 1)
        transport = MemoryTransport(protocol, ("::1", 1234))
        transport.connect()
        frames = [request(1, {"k": "v"}, opaque=opaque).encode() for opaque in range(5)]
        protocol.data_received(b"".join(frames[:4]) + frames[4][:9])
        protocol.data_received(frames[4][9:12])
        protocol.data_received(frames[4][12:])
        assert [[command.opaque for command in batch] for _, batch in handler.batches] == [[0, 1, 2, 3], [4]]
        assert handler.opened[0].remote_address == "[::1]:1234"

    asyncio.run(main())


def test_requests_are_answered_and_channels_told_apart(run: Run) -> None:
    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        first, second = await RawPeer.connect(server), await RawPeer.connect(server)
        await first.call(1)
        await second.call(2)
        channels = [channel for channel, _ in handler.batches]
        assert channels[0].id != channels[1].id
        assert channels[0].remote_address.startswith("127.0.0.1:")
        assert server.channels == handler.opened
        await first.close()
        await handler.until(lambda: len(handler.closed) == 1)
        assert server.channels == [channels[1]]
        await second.close()
        await server.close()
        assert len(handler.closed) == 2

    run(main())


def test_a_server_that_writes_nothing_does_not_look_at_what_clients_have_left(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoting.server.LOOK_INTERVAL_S", 0.0)

    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0)
        looks: list[float] = []
        look = server.unread.look

        def counted_look(channels: Iterable[UnreadChannel], now_s: float) -> None:
            look(channels, now_s)
            looks.append(now_s)

        monkeypatch.setattr(server.unread, "look", counted_look)
        await server.start()
        peer = await RawPeer.connect(server)
        await handler.until(lambda: len(handler.opened) == 1)
        assert not looks
        await peer.call(1)
        others = [await RawPeer.connect(server) for _ in range(3)]
        await handler.until(lambda: len(handler.opened) == 4)
        assert len(looks) == 1
        for one in (peer, *others):
            await one.close()
        await server.close()

    run(main())


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", bytes.fromhex("16030102000100")]
)
def test_garbage_ends_its_own_connection_after_the_good_requests_and_no_other(
    run: Run, garbage: bytes
) -> None:
    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        good, bad = await RawPeer.connect(server), await RawPeer.connect(server)
        await good.call(1)
        bad.send(request(1, {"k": "v"}, opaque=9).encode() + garbage.ljust(8, b"\x00"))
        answer = await bad.receive()
        assert answer is not None
        assert answer.opaque == 9
        assert await bad.receive() is None
        await good.call(2)
        assert [channel.is_open for channel in handler.opened] == [True, False]
        await good.close()
        await bad.close()
        await server.close()

    run(main())


def test_a_handler_that_fails_costs_one_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def fail_on_nine(channel: Channel, command: RemotingCommand) -> None:
        if command.opaque == 9:
            raise ZeroDivisionError("a defect")
        echo(channel, command)

    async def main() -> None:
        handler = RecordingHandler(fail_on_nine)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        good, bad = await RawPeer.connect(server), await RawPeer.connect(server)
        bad.send(request(1, opaque=9).encode())
        await handler.until(lambda: len(handler.closed) == 1)
        await good.call(2)
        await good.close()
        await bad.close()
        await server.close()

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_no_request_is_read_from_a_peer_that_does_not_read_its_answers(run: Run) -> None:
    answer_size = 30_000_000

    def answer_hugely(channel: Channel, command: RemotingCommand) -> None:
        size = answer_size if command.opaque == 100 else 1
        for at in range(0, size, 10_000_000):
            body = bytes(min(10_000_000, size - at))
            channel.write([encode_response(command.opaque, 0, 0), b"", encode_response(at, 0, 0, None, body)])

    async def main() -> None:
        handler = RecordingHandler(answer_hugely)
        server = RemotingServer(handler, "127.0.0.1", 0, connection_unread_size_max=100_000)
        await server.start()
        greedy, other = await RawPeer.connect(server), await RawPeer.connect(server)
        greedy.send(request(1, opaque=100).encode())
        await handler.until(lambda: len(handler.batches) == 1)
        channel = handler.batches[0][0]
        assert channel.paused
        assert channel.pending_write_size > 100_000
        greedy.send(request(1, opaque=101).encode())
        for opaque in range(20):
            other.send(request(1, opaque=opaque).encode())
            await other.receive()
            await other.receive()
        assert 101 not in [command.opaque for command in handler.commands]
        for _ in range(6):
            assert await greedy.receive() is not None
        await handler.until(lambda: 101 in [command.opaque for command in handler.commands])
        assert not channel.paused
        await greedy.close()
        await other.close()
        await server.close()

    run(main())


def test_an_idle_channel_is_closed_and_a_busy_one_is_not(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0, idle_seconds=0.05)
        await server.start()
        busy, idle = await RawPeer.connect(server), await RawPeer.connect(server)
        await handler.until(lambda: len(handler.opened) == 2)
        opaque = 0
        while not handler.closed:
            opaque += 1
            await busy.call(opaque)
        assert handler.closed == [handler.opened[1]]
        await busy.close()
        await idle.close()
        await server.close()
        told = [record for record in caplog.records if "idle channel closed" in record.getMessage()]
        assert [record.__dict__.get("per_connection") for record in told] == [True], (
            "anybody may open thousands"
        )

    run(main())


def test_what_was_written_before_close_arrives_and_later_writes_go_nowhere(run: Run) -> None:
    def answer_and_close(channel: Channel, command: RemotingCommand) -> None:
        channel.write(encode_response(command.opaque, 0, 0, None, bytes(1_000_000)))
        channel.close()
        channel.write(b"never sent")
        channel.close()

    async def main() -> None:
        handler = RecordingHandler(answer_and_close)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        peer = await RawPeer.connect(server)
        peer.send(request(1, opaque=1).encode())
        answer = await peer.receive()
        assert answer is not None
        assert len(answer.body) == 1_000_000
        assert await peer.receive() is None
        handler.opened[0].write(b"after the end")
        assert handler.opened[0].pending_write_size == 0
        await peer.close()
        await server.close()

    run(main())


def test_closing_the_server_ends_all_channels_and_frees_the_port(run: Run) -> None:
    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        port = server.port
        peer = await RawPeer.connect(server)
        await peer.call(1)
        await server.close()
        assert handler.closed == handler.opened
        assert await peer.receive() is None
        await peer.close()
        again = RemotingServer(handler, "127.0.0.1", port)
        await again.start()
        await again.close()

    run(main())


def test_closing_the_server_does_not_wait_for_a_peer_that_reads_nothing(run: Run) -> None:
    def answer_hugely(channel: Channel, command: RemotingCommand) -> None:
        channel.write(encode_response(command.opaque, 0, 0, None, bytes(16_000_000)))

    async def main() -> None:
        handler = RecordingHandler(answer_hugely)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        peer = await RawPeer.connect(server)
        peer.send(request(1, opaque=1).encode())
        await handler.until(lambda: len(handler.batches) == 1)
        await server.close(flush_seconds=0.01)
        assert handler.closed == handler.opened
        await peer.close()

    run(main())


def test_a_request_whose_header_cannot_be_read_is_answered_and_the_others_too(run: Run) -> None:
    async def main() -> None:
        server = RemotingServer(RecordingHandler(echo), "127.0.0.1", 0)
        await server.start()
        peer = await RawPeer.connect(server)
        good = [request(1, {"k": "v"}, opaque=opaque).encode() for opaque in (1, 3)]
        bad = encode_frame(0, b'{"code":1,"opaque":2,"flag":0,"extFields":[]}', b"body")
        oneway = encode_frame(0, b'{"code":1,"opaque":9,"flag":2,"extFields":[]}', b"")
        nobodys = encode_frame(0, b"\xff\xfe", b"")
        peer.send(good[0] + bad + oneway + nobodys + good[1])
        answers = {}
        for _ in range(3):
            answer = await peer.receive()
            assert answer is not None
            answers[answer.opaque] = answer
        assert sorted(answers) == [1, 2, 3]
        assert answers[2].code == ResponseCode.SYSTEM_ERROR
        assert "JSON header" in (answers[2].remark or "")
        await peer.call(4)
        await peer.close()
        await server.close()

    run(main())
