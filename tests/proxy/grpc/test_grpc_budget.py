"""What the messages and header fields of all calls may hold together: the call that holds most ends."""

from __future__ import annotations

import asyncio

from grpc_fakes import FIELDS, PATH, connected, request, serving, turns, waits_for_ever
from hpack import Encoder

from proxy.grpc import frames
from proxy.grpc.call import Call, CallClosed
from proxy.grpc.connection import GrpcConnection
from proxy.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, ErrorCode, frame
from proxy.grpc.messages import encode_message


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
