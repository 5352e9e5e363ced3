"""What ends a connection: silence, floods, clients that do not read."""

from __future__ import annotations

import asyncio

import pytest
from grpc_fakes import PATH, echo, serving, turns
from hpack import Encoder

from proxy.grpc import connection as connection_module
from proxy.grpc import frames
from proxy.grpc.call import Call, CallClosed
from proxy.grpc.connection import (
    CONCURRENT_CALLS_MAX,
    PENDING_WRITE_LIMIT,
    PING_ANSWER_SECONDS,
    PING_SECONDS,
    STRIKES_MAX,
    GrpcConnection,
)
from proxy.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, ErrorCode, frame
from proxy.grpc.messages import encode_message
from proxy.grpc.server import IDLE_SECONDS, GrpcServer


class Socket(asyncio.Transport):
    """A transport whose peer takes what a test lets it take."""

    def __init__(self, connection: GrpcConnection, *, reads: bool = True) -> None:
        super().__init__()
        self.written = bytearray()
        self.state = "open"
        self._connection = connection
        self._reads = reads
        self._high = 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return 0 if self._reads else len(self.written)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        was_below = self.get_write_buffer_size() <= self._high
        self.written += data
        if was_below and self.get_write_buffer_size() > self._high:
            self._connection.pause_writing()

    def close(self) -> None:
        if self._reads:
            self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if self.state == "open":
            self.state = how
            self._connection.connection_lost(None)


def connected(server: GrpcServer, *, reads: bool = True) -> tuple[GrpcConnection, Socket]:
    connection = GrpcConnection(server)
    socket = Socket(connection, reads=reads)
    connection.connection_made(socket)
    connection.data_received(PREFACE + frames.settings({}))
    socket.written.clear()
    return connection, socket


FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", PATH), ("content-type", "application/grpc")]
BLOCK = Encoder().encode(FIELDS)


def request(stream_id: int, flags: int = 0) -> bytes:
    return frame(HEADERS, END_HEADERS | flags, stream_id, BLOCK)


async def waits_for_ever(call: Call) -> None:
    await call.receive()
    await asyncio.get_running_loop().create_future()


def test_a_silent_client_is_asked_and_then_left() -> None:
    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            connection, socket = connected(server)
            connection.data_received(request(1))
            now = asyncio.get_running_loop().time()
            connection.look(now + PING_SECONDS - 1)
            assert socket.written == b""
            connection.look(now + PING_SECONDS + 1)
            assert socket.written == frame(PING, 0, 0, b"are you?")
            connection.look(now + PING_SECONDS + PING_ANSWER_SECONDS)
            assert socket.state == "open"
            connection.look(now + PING_SECONDS + PING_ANSWER_SECONDS + 2)
            assert socket.state == "aborted"
            assert server.connection_count == 0

    asyncio.run(main())


def test_a_client_that_answers_stays_as_long_as_it_has_a_call() -> None:
    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            connection, socket = connected(server)
            connection.data_received(request(1))
            now = asyncio.get_running_loop().time()
            for second in range(int(3 * IDLE_SECONDS)):
                connection.look(now + second)
                if socket.written:
                    connection._read_at = now + second
                    connection._pinged_at = None
                    socket.written.clear()
            assert socket.state == "open"

    asyncio.run(main())


def test_a_connection_without_calls_is_closed_after_a_time() -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server:
            connection, socket = connected(server)
            connection.data_received(request(1, END_STREAM))
            await turns(lambda: not connection.calls)
            now = asyncio.get_running_loop().time()
            connection.look(now + IDLE_SECONDS - 1)
            assert socket.state == "open"
            connection.look(now + IDLE_SECONDS + 1)
            assert socket.state == "closed"
            assert socket.written.endswith(frames.goaway(1, ErrorCode.NO_ERROR))

    asyncio.run(main())


def test_a_client_that_does_not_read_cannot_keep_a_connection_from_closing() -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server:
            connection, socket = connected(server, reads=False)
            now = asyncio.get_running_loop().time()
            connection.look(now + IDLE_SECONDS + 1)
            assert socket.state == "open"
            connection.look(now + PING_ANSWER_SECONDS + 1)
            assert socket.state == "aborted"
            assert server.connection_count == 0

    asyncio.run(main())


def test_a_window_that_opens_byte_by_byte_ends_the_connection() -> None:
    async def send(call: Call) -> None:
        await call.send(b"x" * 10_000)

    async def main() -> None:
        async with serving({PATH: send}) as server:
            connection, socket = connected(server)
            connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 1}))
            connection.data_received(request(1, END_STREAM))
            await turns(lambda: frame(DATA, 0, 1, b"\0") in socket.written)
            for _ in range(STRIKES_MAX):
                connection.data_received(frames.window_update(1, 1))
            assert socket.state == "closed"

    asyncio.run(main())


def test_frames_that_carry_nothing_are_counted_one_by_one() -> None:
    """One read can bring 15,000 of them: those after the last that is allowed cost nothing."""

    async def main() -> None:
        async with serving({PATH: echo}) as server:
            connection, socket = connected(server)
            connection.data_received(frame(PING, 0, 0, b"12345678") * 10 * STRIKES_MAX)
            assert socket.state == "closed"
            assert socket.written.count(frame(PING, frames.ACK, 0, b"12345678")) <= STRIKES_MAX

    asyncio.run(main())


def test_the_window_of_the_connection_costs_nothing_for_calls_that_wait_for_their_own() -> None:
    async def send(call: Call) -> None:
        await call.send(b"x" * 100)

    async def main() -> None:
        async with serving({PATH: send}) as server:
            connection, socket = connected(server)
            connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 10}))
            connection.data_received(
                b"".join(request(stream_id, END_STREAM) for stream_id in range(1, 21, 2))
            )
            await turns(lambda: socket.written.count(b"x" * 5) == 10)
            assert connection._blocked == {}
            socket.written.clear()
            connection.data_received(frames.window_update(3, 10))
            connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 15}))
            await turns(lambda: socket.written.count(b"x" * 5) == 2 + 10)
            connection.abort()

    asyncio.run(main())


def test_calls_that_are_reset_at_once_cost_no_more_than_those_that_are_open() -> None:
    """CVE-2023-44487: a reset call leaves its place only when its handler has ended."""
    running = 0
    most = 0

    async def slow_to_end(call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            for _ in range(50):
                await asyncio.sleep(0)
            raise
        finally:
            running -= 1

    async def main() -> None:
        async with serving({PATH: slow_to_end}) as server:
            connection, socket = connected(server)
            for first in range(1, 8 * CONCURRENT_CALLS_MAX, 400):
                stream_ids = range(first, first + 400, 2)
                connection.data_received(b"".join(map(request, stream_ids)))
                await asyncio.sleep(0)
                connection.data_received(
                    b"".join(frames.rst_stream(each, ErrorCode.CANCEL) for each in stream_ids)
                )
                connection.look(asyncio.get_running_loop().time())
            assert socket.state == "open"
            assert CONCURRENT_CALLS_MAX // 2 < most <= CONCURRENT_CALLS_MAX
            connection.abort()

    asyncio.run(main())


def test_a_call_that_is_reset_before_its_handler_begins_leaves_its_place() -> None:
    """A client may open and cancel a call with one write: a task that has not begun has no `finally`."""

    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            connection, _ = connected(server)
            connection.data_received(request(1) + frames.rst_stream(1, ErrorCode.CANCEL))
            await turns(lambda: not connection.calls)

    asyncio.run(main())


@pytest.mark.parametrize(
    "empty",
    [
        frame(PING, 0, 0, b"12345678"),
        frames.settings({}),
        frame(DATA, 0, 1),
        frames.window_update(0, 1),
        frame(99, 0, 0),
        request(3) + frames.rst_stream(3, ErrorCode.CANCEL),
    ],
    ids=["pings", "settings", "empty data", "windows", "unknown", "resets"],
)
def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(
    empty: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def numbered(number: int) -> bytes:
        stream_id = 3 + 2 * number
        return request(stream_id) + frames.rst_stream(stream_id, ErrorCode.CANCEL)

    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            connection, socket = connected(server)
            connection.data_received(request(1))
            is_reset = empty[3] == HEADERS
            for number in range(STRIKES_MAX + 1):
                connection.data_received(numbered(number) if is_reset else empty)
            assert socket.state == "closed"
            assert (
                frames.goaway(connection._http2.highest_stream_id, ErrorCode.ENHANCE_YOUR_CALM)
                in socket.written
            )

    asyncio.run(main())
    assert "frames that carry nothing" in caplog.text


def test_pings_of_a_client_that_is_sent_data_are_no_flood() -> None:
    """grpcio and Go measure the way with a PING for each piece of data."""

    async def main() -> None:
        async with serving({PATH: echo}) as server:
            connection, socket = connected(server)
            connection.data_received(request(1))
            for _ in range(3):
                for _ in range(STRIKES_MAX - 10):
                    connection.data_received(frame(PING, 0, 0, b"12345678"))
                socket.written.clear()
                connection.data_received(frame(DATA, 0, 1, encode_message(b"x")))
                await turns(lambda: bool(socket.written))
            assert socket.state == "open"

    asyncio.run(main())


def test_answers_that_nobody_reads_end_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages wait in their calls, but statuses and answers to frames must leave: they are bounded together."""
    monkeypatch.setattr(connection_module, "PENDING_WRITE_MAX", 100_000)

    async def main() -> None:
        async with serving({}) as server:
            connection, socket = connected(server, reads=False)
            stream_id = 1
            while socket.state == "open":
                connection.data_received(request(stream_id, END_STREAM))
                await asyncio.sleep(0)
                stream_id += 2
                connection.look(asyncio.get_running_loop().time())
                assert len(socket.written) < 101_000
            assert socket.state == "aborted"

    asyncio.run(main())
    assert "does not read its answers" in caplog.text


def test_messages_wait_in_their_calls_while_the_client_does_not_read() -> None:
    sent = 0

    async def send_without_end(call: Call) -> None:
        nonlocal sent
        while True:
            await call.send(b"x" * 10_000)
            sent += 10_000

    async def main() -> None:
        async with serving({PATH: send_without_end}) as server:
            connection, socket = connected(server, reads=False)
            connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 2**30}))
            connection.data_received(frames.window_update(0, 2**30))
            for stream_id in range(1, 41, 2):
                connection.data_received(request(stream_id, END_STREAM))
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(socket.written) < 2 * PENDING_WRITE_LIMIT
            assert PENDING_WRITE_LIMIT // 2 < sent < 2 * PENDING_WRITE_LIMIT
            before = sent
            socket.written.clear()
            connection.resume_writing()
            for _ in range(1000):
                await asyncio.sleep(0)
            assert before + PENDING_WRITE_LIMIT // 2 < sent < before + 2 * PENDING_WRITE_LIMIT
            connection.abort()

    asyncio.run(main())


def test_calls_take_turns_when_the_client_reads_again() -> None:
    async def send_a_lot(call: Call) -> None:
        await call.send(b"x" * 2_000_000)

    async def main() -> None:
        async with serving({PATH: send_a_lot}) as server:
            connection, socket = connected(server, reads=False)
            connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 2**30}))
            connection.data_received(frames.window_update(0, 2**30))
            connection.data_received(b"".join(request(stream_id, END_STREAM) for stream_id in (1, 3, 5)))
            served = set()
            for _ in range(4):
                await turns(lambda: len(socket.written) > PENDING_WRITE_LIMIT)
                written = bytes(socket.written)
                socket.written.clear()
                while written:
                    high, size, kind, _, stream_id = frames.FRAME_HEADER.unpack_from(written)
                    if kind == DATA:
                        served.add(stream_id)
                    written = written[9 + (high << 16) + size :]
                connection.resume_writing()
            assert served == {1, 3, 5}
            connection.abort()

    asyncio.run(main())


def test_the_call_that_holds_most_ends_when_requests_hold_too_much() -> None:
    """So a client that leaves large messages unfinished, and answers pings, locks nobody out."""

    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            server.held.size_max = 50_000
            (hostile, hostile_socket), (honest, honest_socket) = connected(server), connected(server)
            unfinished = b"\0\0\1\0\0" + b"x" * 15_000
            hostile.data_received(request(1) + frame(DATA, 0, 1, unfinished) * 3)
            honest.data_received(request(1) + frame(DATA, 0, 1, unfinished[:4000]))
            assert server.held.size == 49_015
            honest.data_received(frame(DATA, 0, 1, b"x" * 1000))
            assert server.held.size == 5000
            await asyncio.sleep(0)
            told = b"the server holds 49015 bytes of messages, and this call 45015 of them: call again later"
            assert told in hostile_socket.written
            assert honest_socket.written == b""
            honest.data_received(frame(DATA, 0, 1, b"x" * 15_000) * 3 + frame(DATA, 0, 1, b"x" * 1000))
            await asyncio.sleep(0)
            assert b"and this call 50000 of them" in honest_socket.written
            assert server.held.size == 0
            hostile.abort()
            honest.abort()

    asyncio.run(main())


def test_the_call_that_holds_most_ends_when_answers_that_nobody_reads_are_too_much() -> None:
    """One connection has 1024 calls, and each can ask for an answer of megabytes."""
    failures: list[int] = []

    async def answer(call: Call) -> None:
        size = int(await call.receive() or b"")
        try:
            await call.send(b"x" * size)
        except (CallClosed, asyncio.CancelledError):
            failures.append(size)
            raise

    async def main() -> None:
        async with serving({PATH: answer}) as server:
            server.held.size_max = 50_000

            def ask(connection: GrpcConnection, stream_id: int, size: int) -> None:
                data = encode_message(b"%d" % size)
                connection.data_received(request(stream_id) + frame(DATA, END_STREAM, stream_id, data))

            (hostile, hostile_socket), (honest, honest_socket) = connected(server), connected(server)
            for connection in (hostile, honest):
                connection.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}))
            ask(hostile, 1, 30_000)
            ask(hostile, 3, 10_000)
            ask(honest, 1, 5_000)
            await turns(lambda: server.held.size == 45_044)
            ask(honest, 3, 5_000)
            await turns(lambda: failures == [30_000])
            assert server.held.size == 20_043
            assert frames.rst_stream(1, ErrorCode.CANCEL) in hostile_socket.written
            ask(hostile, 5, 40_000)
            await turns(lambda: failures == [30_000, 40_000])
            honest.data_received(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 60_000}))
            assert server.held.size == 10_033
            await turns(lambda: not honest.calls)
            assert honest_socket.written.count(b"x" * 5_000) == 2
            hostile.abort()
            assert server.held.size == 0
            honest.abort()

    asyncio.run(main())


def test_the_call_that_holds_most_ends_when_header_fields_are_too_much() -> None:
    """One connection has 1024 calls with 32 KiB of them each, and a call may stay open for ever."""

    async def main() -> None:
        async with serving({PATH: waits_for_ever}) as server:
            server.held.size_max = 5000
            (hostile, hostile_socket), (honest, honest_socket) = connected(server), connected(server)
            for stream_id in (1, 3):
                block = Encoder().encode([*FIELDS, ("x", "y" * (2000 + stream_id))])
                hostile.data_received(frame(HEADERS, END_HEADERS, stream_id, block))
            block = Encoder().encode([*FIELDS, ("x", "y" * 1000)])
            honest.data_received(frame(HEADERS, END_HEADERS, 1, block))
            assert server.held.size == 2001 + 1 + 1000 + 1
            await turns(lambda: len(hostile.calls) == 1)
            assert b"and this call 2004 of them" in hostile_socket.written
            assert honest_socket.written == b""
            hostile.abort()
            honest.abort()
            assert server.held.size == 0

    asyncio.run(main())


def test_a_message_counts_until_its_handler_asks_for_the_next_one() -> None:
    """A handler has it while it waits for brokers, and there may be a thousand handlers on each connection."""
    turn = asyncio.Event()

    async def handler(call: Call) -> None:
        await call.receive()
        await turn.wait()
        await waits_for_ever(call)

    async def main() -> None:
        async with serving({PATH: handler}) as server:
            connection, _ = connected(server)
            connection.data_received(request(1) + frame(DATA, 0, 1, encode_message(b"x" * 100) + b"\0\0"))
            await asyncio.sleep(0)
            assert server.held.size == 107
            turn.set()
            await turns(lambda: server.held.size == 2)
            connection.data_received(frame(DATA, 0, 1, encode_message(b"")[2:] + encode_message(b"x") * 3))
            assert server.held.size == 23
            connection.abort()
            await asyncio.sleep(0)
            assert server.held.size == 0

    asyncio.run(main())
