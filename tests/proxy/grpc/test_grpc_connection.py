"""What ends a connection: silence, floods, clients that do not read."""

from __future__ import annotations

import asyncio

import pytest
from grpc_fakes import PATH, connected, echo, request, serving, turns, waits_for_ever

from proxy.grpc import connection as connection_module
from proxy.grpc import frames
from proxy.grpc.call import Call
from proxy.grpc.connection import (
    CONCURRENT_CALLS_MAX,
    PENDING_WRITE_LIMIT,
    PING_ANSWER_SECONDS,
    PING_SECONDS,
    STRIKES_MAX,
)
from proxy.grpc.frames import DATA, END_STREAM, HEADERS, PING, ErrorCode, frame
from proxy.grpc.messages import encode_message
from proxy.grpc.server import IDLE_SECONDS


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
