"""Real clients of one server: what one of them does ends or holds up no other, and how a server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import grpc.aio
import pytest
import uvloop
from grpc_fakes import PATH, FrameClient, echo, grpcio_channel, serving, turns
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamReset, TrailersReceived

from proxy.grpc import connection as connection_module
from proxy.grpc import frames
from proxy.grpc.call import Call, CallClosed
from proxy.grpc.frames import DATA, END_STREAM, ErrorCode, frame
from proxy.grpc.messages import encode_message

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


def test_a_slow_reader_does_not_hold_up_another_client(run: Run) -> None:
    async def send_a_lot(call: Call) -> None:
        with contextlib.suppress(CallClosed):
            await call.send(b"x" * 8_000_000)

    async def main() -> None:
        handlers = {PATH: send_a_lot, "/a.B/C": echo}
        async with serving(handlers) as server, await FrameClient.connect(server) as slow:
            slow.request(end=True)
            await slow.event(DataReceived)
            async with grpcio_channel(server) as channel:
                assert await channel.unary_unary("/a.B/C")(b"x") == b"x"

    run(main())


def test_a_call_that_is_open_ends_well_while_the_server_stops(run: Run) -> None:
    async def main() -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def slow(call: Call) -> None:
            began.set()
            await go_on.wait()
            await echo(call)

        async with serving({PATH: slow}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request()
            await began.wait()
            stopping = asyncio.create_task(server.stop())
            goaway = await client.event(ConnectionTerminated)
            assert goaway.error_code is ErrorCodes.NO_ERROR
            assert goaway.last_stream_id == frames.STREAM_ID_MAX
            # The h2 of this client takes a GOAWAY for the end.
            client.writer.write(frame(DATA, END_STREAM, stream_id, encode_message(b"the last")))
            go_on.set()
            async with asyncio.timeout(10):
                data = await client.reader.read()
            assert encode_message(b"the last") in data
            assert data.endswith(frames.goaway(stream_id, ErrorCode.NO_ERROR))
            await stopping

    run(main())


def test_a_call_that_does_not_end_is_cancelled_when_the_server_stops(run: Run) -> None:
    ended = False

    async def main() -> None:
        began = asyncio.Event()

        async def never(call: Call) -> None:
            nonlocal ended
            began.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended = True

        async with serving({PATH: never}) as server, await FrameClient.connect(server) as client:
            client.request()
            await began.wait()
            await server.stop(0.01)
            await turns(lambda: ended)
            await client.closed()

    run(main())


def test_clients_of_a_server_that_stops_call_again_elsewhere(run: Run) -> None:
    """The last GOAWAY tells which call was the last one, so grpcio repeats by itself those that came later."""

    async def main() -> None:
        async with serving({PATH: echo}) as server, grpcio_channel(server) as channel:
            method = channel.unary_unary(PATH)
            assert await method(b"1") == b"1"
            await server.stop()
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await method(b"2")
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE

    run(main())


def test_a_browser_is_told_what_is_served_here(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request("/", method="GET", end=True)
            answer = await client.event(ResponseReceived, stream_id)
            assert dict(answer.headers)[":status"] == "405"
            text = await client.event(DataReceived, stream_id)
            assert text.data == b"gRPC is served here: the method is GET, and only POST is taken\n"
            await client.event(TrailersReceived, stream_id)

    run(main())


def test_a_malformed_request_ends_its_stream_alone(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server, await FrameClient.connect(server) as client:
            stream_id = client.h2.get_next_available_stream_id()
            client.h2.config.validate_outbound_headers = False
            client.h2.send_headers(stream_id, [(":method", "POST"), (":path", PATH)], end_stream=True)
            client.flush()
            reset = await client.event(StreamReset, stream_id)
            assert reset.error_code is ErrorCodes.PROTOCOL_ERROR
            stream_id = client.request(end=True)
            await client.event(ResponseReceived, stream_id)

    run(main())


def test_a_defect_in_reading_ends_its_connection_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with serving({PATH: echo}) as server:
            with monkeypatch.context() as patched:
                patched.setattr(connection_module, "read_request", fail)
                async with await FrameClient.connect(server) as client:
                    client.request(end=True)
                    await client.closed()
            async with grpcio_channel(server) as channel:
                assert await channel.unary_unary(PATH)(b"x") == b"x"

    run(main())
