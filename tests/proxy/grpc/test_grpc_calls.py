"""Calls by grpcio's client and by single frames: statuses, deadlines, cancellation, windows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import grpc.aio
import pytest
import uvloop
from grpc_fakes import PATH, FrameClient, echo, grpcio_channel, serving
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes

from proxy.grpc.call import Call, CallClosed, GrpcError, GrpcStatus
from proxy.grpc.messages import encode_message
from proxy.grpc.server import ALPN
from remoting.certificates import write_self_made_certificate
from remoting.tls import ServerTls, TlsFiles, TlsMode

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


def test_a_unary_call_is_answered(run: Run) -> None:
    seen: list[Call] = []

    async def greet(call: Call) -> None:
        seen.append(call)
        name = await call.receive()
        assert name is not None
        await call.send(b"hello " + name)

    async def main() -> None:
        async with serving({PATH: greet}) as server, grpcio_channel(server) as channel:
            answer = await channel.unary_unary(PATH)(b"you", metadata=[("x-mq-client-id", "c1")], timeout=20)
            assert answer == b"hello you"
        (call,) = seen
        assert call.path == PATH
        assert call.metadata["x-mq-client-id"] == "c1"
        assert call.peer.startswith("127.0.0.1:")
        assert call.deadline is not None

    run(main())


def test_messages_of_many_windows_come_whole_both_ways(run: Run) -> None:
    sizes = [0, 1, 16_384, 16_385, 5_000_000, 70_000]

    async def main() -> None:
        async with serving({PATH: echo}) as server, grpcio_channel(server) as channel:
            call = channel.stream_stream(PATH)()
            for size in sizes:
                await call.write(b"x" * size)
            await call.done_writing()
            assert [len(message) async for message in call] == sizes
            assert await call.code() is grpc.StatusCode.OK

    run(main())


def test_many_calls_at_once_get_their_own_answers(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server, grpcio_channel(server) as channel:
            method = channel.unary_unary(PATH)
            messages = [b"%d" % number * 200 for number in range(200)]
            assert await asyncio.gather(*map(method, messages)) == messages

    run(main())


def test_headers_come_before_the_first_message(run: Run) -> None:
    async def telemetry(call: Call) -> None:
        call.send_headers()
        await echo(call)

    async def main() -> None:
        async with serving({PATH: telemetry}) as server, grpcio_channel(server) as channel:
            call = channel.stream_stream(PATH)()
            await call.initial_metadata()
            await call.write(b"settings")
            assert await call.read() == b"settings"
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    run(main())


def test_an_error_of_a_handler_is_the_status_of_the_call(run: Run) -> None:
    async def refuse(call: Call) -> None:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "50 % für\nnichts")

    async def main() -> None:
        async with serving({PATH: refuse}) as server, grpcio_channel(server) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(PATH)(b"")
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert refused.value.details() == "50 % für\nnichts"

    run(main())


def test_a_status_after_messages_is_told_in_trailers(run: Run) -> None:
    async def break_off(call: Call) -> None:
        await call.send(b"first")
        raise GrpcError(GrpcStatus.UNAVAILABLE, "come again")

    async def main() -> None:
        async with serving({PATH: break_off}) as server, grpcio_channel(server) as channel:
            call = channel.unary_stream(PATH)(b"")
            assert await call.read() == b"first"
            assert await call.code() is grpc.StatusCode.UNAVAILABLE

    run(main())


def test_a_defect_of_a_handler_ends_its_call_alone(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: Call) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with serving({PATH: fail, "/a/b": echo}) as server, grpcio_channel(server) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await channel.unary_unary(PATH)(b"")
            assert failed.value.code() is grpc.StatusCode.INTERNAL
            assert await channel.unary_unary("/a/b")(b"x") == b"x"

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_a_path_that_is_not_served_is_unimplemented(run: Run) -> None:
    async def main() -> None:
        async with serving({}) as server, grpcio_channel(server) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/no.Such/Method")(b"x")
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert refused.value.details() == "no method /no.Such/Method is served here"

    run(main())


def test_a_compressed_message_is_unimplemented(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: echo}) as server, grpcio_channel(server) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(PATH)(b"x" * 1000, compression=grpc.Compression.Gzip)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert "uncompressed" in (refused.value.details() or "")

    run(main())


def test_a_message_above_the_limit_ends_its_call(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: echo}, message_size_max=1000) as server, grpcio_channel(server) as channel:
            method = channel.unary_unary(PATH)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(b"x" * 1001)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await method(b"x" * 1000) == b"x" * 1000

    run(main())


async def _waits_for_ever(call: Call) -> None:
    await asyncio.get_running_loop().create_future()


def test_a_call_ends_at_its_deadline(run: Run) -> None:
    async def main() -> None:
        async with serving({PATH: _waits_for_ever}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request(end=True, grpc_timeout="1m")
            answer = await client.event(ResponseReceived, stream_id)
            assert dict(answer.headers)["grpc-status"] == "4"

    run(main())


class Handled:
    """A handler that never ends by itself, and tells when it began and when it was cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        self.began.set()
        try:
            await call.receive()
            await call.receive()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def wait_cancelled(self) -> None:
        async with asyncio.timeout(10):
            await self.cancelled.wait()


def test_a_reset_by_the_client_cancels_the_handler(run: Run) -> None:
    async def main() -> None:
        handler = Handled()
        async with serving({PATH: handler}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request()
            await handler.began.wait()
            client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
            client.flush()
            await handler.wait_cancelled()

    run(main())


def test_the_end_of_the_connection_cancels_its_handlers(run: Run) -> None:
    async def main() -> None:
        handler = Handled()
        async with serving({PATH: handler}) as server:
            async with await FrameClient.connect(server) as client:
                client.request()
                await handler.began.wait()
            await handler.wait_cancelled()

    run(main())


def test_a_call_that_has_ended_takes_no_messages(run: Run) -> None:
    calls: list[Call] = []

    async def main() -> None:
        handler = Handled()

        async def note(call: Call) -> None:
            calls.append(call)
            await handler(call)

        async with serving({PATH: note}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request()
            await handler.began.wait()
            client.h2.reset_stream(stream_id)
            client.flush()
            await handler.wait_cancelled()
            with pytest.raises(CallClosed):
                await calls[0].send(b"too late")
            with pytest.raises(CallClosed):
                await calls[0].receive()

    run(main())


def test_a_sender_waits_for_the_clients_window(run: Run) -> None:
    sent: list[int] = []

    async def send_ten(call: Call) -> None:
        for number in range(10):
            await call.send(b"x" * 95)
            sent.append(number)

    async def main() -> None:
        async with serving({PATH: send_ten}) as server, await FrameClient.connect(server) as client:
            client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 250})
            stream_id = client.request(end=True)
            received = 0
            while received < 250:
                received += len((await client.event(DataReceived, stream_id)).data)
            assert received == 250
            assert sent == [0, 1]
            client.h2.increment_flow_control_window(1000, stream_id)
            client.flush()
            while received < 1000:
                received += len((await client.event(DataReceived, stream_id)).data)
            trailers = await client.event(TrailersReceived, stream_id)
            assert dict(trailers.headers)["grpc-status"] == "0"

    run(main())


def test_several_tasks_send_whole_messages_in_order(run: Run) -> None:
    messages = [b"%d" % number * 40_000 for number in range(8)]

    async def send_all(call: Call) -> None:
        async with asyncio.TaskGroup() as group:
            for message in messages:
                group.create_task(call.send(message))

    async def main() -> None:
        async with serving({PATH: send_all}) as server, grpcio_channel(server) as channel:
            assert [message async for message in channel.unary_stream(PATH)(b"")] == messages

    run(main())


def test_a_client_is_held_up_while_the_handler_receives_nothing(run: Run) -> None:
    """The window of the call is not given back before a message is received, so a client cannot fill the memory."""

    async def main() -> None:
        go_on = asyncio.Event()

        async def slow(call: Call) -> None:
            await go_on.wait()
            while await call.receive() is not None:
                pass

        async with serving({PATH: slow}) as server, await FrameClient.connect(server) as client:
            stream_id = client.request()
            await client.event(RemoteSettingsChanged)
            message = encode_message(b"x" * 8000)
            sent = 0
            while client.h2.local_flow_control_window(stream_id) >= len(message):
                client.h2.send_data(stream_id, message)
                sent += 1
                client.flush()
            client.h2.ping(b"12345678")
            client.flush()
            await client.event(PingAckReceived)
            assert client.h2.local_flow_control_window(stream_id) < len(message)
            go_on.set()
            await client.event(WindowUpdated, stream_id)
            assert client.h2.local_flow_control_window(stream_id) >= len(message)

    run(main())


def test_one_port_serves_clients_with_tls_and_without(run: Run, tmp_path: Path) -> None:
    files = TlsFiles(key_path=str(tmp_path / "key"), cert_path=str(tmp_path / "cert"))
    write_self_made_certificate(files)

    tls = ServerTls(TlsMode.PERMISSIVE, files, alpn=ALPN)
    trusted = grpc.ssl_channel_credentials(Path(files.cert_path).read_bytes())

    async def main() -> None:
        async with serving({PATH: echo}, tls=tls) as server:
            async with grpcio_channel(server) as channel:
                assert await channel.unary_unary(PATH)(b"plain") == b"plain"
            address = f"localhost:{server.port}"
            async with grpc.aio.secure_channel(address, trusted) as channel:
                assert await channel.unary_unary(PATH)(b"x" * 500_000) == b"x" * 500_000

    run(main())


@pytest.mark.parametrize("cut", [0, 20], ids=["at once", "in two pieces"])
def test_a_load_balancer_says_where_a_client_is(run: Run, cut: int) -> None:
    preface = b"PROXY TCP4 10.1.2.3 10.0.0.1 40000 8081\r\n"
    peers: list[str] = []

    async def note(call: Call) -> None:
        peers.append(call.peer)

    async def main() -> None:
        async with serving({PATH: note}, accept_proxy_protocol=True) as server:
            for balanced in (True, False):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                if balanced:
                    writer.write(preface[:cut])
                    await writer.drain()
                    for _ in range(20):
                        await asyncio.sleep(0)
                    writer.write(preface[cut:])
                async with FrameClient(reader, writer) as client:
                    client.h2.initiate_connection()
                    await client.event(ResponseReceived, client.request(end=True))
        assert peers[0] == "10.1.2.3:40000"
        assert peers[1].startswith("127.0.0.1:")

    run(main())
