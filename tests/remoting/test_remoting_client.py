"""The calling side: matching, pipelining, and what each way of failing says about the outcome."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
import uvloop
from remoting_fakes import MemoryNetwork, RecordingHandler, echo

from remoting.channel import Channel
from remoting.client import RemotingClient
from remoting.errors import (
    RemotingAnswerError,
    RemotingClosedError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from remoting.frame.command import RemotingCommand, encode_frame, encode_response, request
from remoting.server import RemotingServer

ADDRESS = "10.0.0.1:10911"
TIMEOUT_S = 10.0


def asked(body: bytes = b"") -> RemotingCommand:
    return request(1, {"k": "v"}, body, opaque=0)


def let_time_pass(seconds: float) -> None:
    """For the running loop."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_many_requests_share_a_connection_and_get_their_own_responses(run: object) -> None:
    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        client = RemotingClient()
        address = f"127.0.0.1:{server.port}"
        answers = await asyncio.gather(
            *(client.invoke(address, asked(b"%d" % at), TIMEOUT_S) for at in range(200))
        )
        assert [answer.body for answer in answers] == [b"%d" % at for at in range(200)]
        assert len(handler.opened) == 1
        await client.invoke_oneway(address, asked(b"oneway"))
        await handler.until(lambda: len(handler.commands) == 201)
        assert handler.commands[-1].is_oneway
        await client.close()
        await server.close()

    assert callable(run)
    run(main())


def test_responses_match_by_opaque_in_any_order() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        calls = [asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S)) for _ in range(3)]
        opaques = [command.opaque for command in await network.sent(3)]
        assert len(set(opaques)) == 3
        protocol = network.transports[0].protocol
        for opaque in reversed(opaques):
            protocol.data_received(encode_response(opaque, 0, 0, None, b"to %d" % opaque))
        assert [(await call).body for call in calls] == [b"to %d" % opaque for opaque in opaques]
        assert network.targets == [("10.0.0.1", 10911)]
        await client.close()

    asyncio.run(main())


def test_requests_of_one_turn_of_the_loop_leave_in_one_write() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        await client.invoke_oneway(ADDRESS, asked())
        await network.sent(1)
        writes = network.transports[0].writes
        writes.clear()
        calls = [asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S)) for _ in range(50)]
        await network.sent(50)
        assert len(writes) == 1
        await client.close()
        for call in calls:
            with pytest.raises(RemotingClosedError):
                await call

    asyncio.run(main())


def test_a_refused_connection_is_surely_nothing_sent() -> None:
    async def main() -> None:
        server = RemotingServer(RecordingHandler(), "127.0.0.1", 0)
        await server.start()
        await server.close()
        client = RemotingClient()
        refused = f"127.0.0.1:{server.port}"
        for address in (refused, "no-port", "127.0.0.1:99999999"):
            with pytest.raises(RemotingConnectError) as caught:
                await client.invoke(address, asked(), TIMEOUT_S)
            assert caught.value.definite
            assert caught.value.retriable
            if address == refused:
                assert str(caught.value) == f"{refused}: Connection refused", "the address is named once"
        await client.close()

    asyncio.run(main())


def test_a_connection_that_does_not_come_about_in_time_is_surely_nothing_sent() -> None:
    async def never(*_: object) -> tuple[object, object]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def main() -> None:
        for client, timeout_s in (
            (RemotingClient(connect=never, connect_timeout_s=0.01), TIMEOUT_S),
            (RemotingClient(connect=never), 0.01),
        ):
            with pytest.raises(RemotingConnectError):
                await client.invoke(ADDRESS, asked(), timeout_s)
            await client.close()

    asyncio.run(main())


def test_requests_that_wait_when_the_connection_ends_have_an_unknown_outcome() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        closed: list[str] = []
        client = RemotingClient(connect=network.connect, on_close=closed.append)
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        await network.sent(1)
        network.transports[0].protocol.connection_lost(ConnectionResetError())
        with pytest.raises(RemotingClosedError) as caught:
            await call
        assert not caught.value.definite
        assert closed == [ADDRESS]
        again = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        (command,) = await network.sent(1, at=1)
        assert len(network.transports) == 2
        network.transports[1].protocol.data_received(encode_response(command.opaque, 0, 0))
        assert (await again).is_response
        await client.close()
        assert closed == [ADDRESS, ADDRESS]

    asyncio.run(main())


def test_a_request_that_was_still_queued_when_the_connection_ended_failed_in_sending() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        await client.invoke_oneway(ADDRESS, asked())
        await network.sent(1)
        coroutine = client.invoke(ADDRESS, asked(), TIMEOUT_S)
        coroutine.send(None)  # runs up to its wait for the response; the write is due at the turn's end
        network.transports[0].protocol.connection_lost(None)
        with pytest.raises(RemotingSendError) as caught:
            coroutine.send(None)
        assert not caught.value.definite
        await network.sent(1)
        await client.close()

    asyncio.run(main())


def test_a_late_response_is_dropped_and_the_connection_serves_on() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        given_up = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        (late,) = await network.sent(1)
        let_time_pass(TIMEOUT_S)
        with pytest.raises(RemotingTimeoutError) as caught:
            await given_up
        assert not caught.value.definite
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        _, command = await network.sent(2)
        network.transports[0].protocol.data_received(
            encode_response(late.opaque, 0, 0, None, b"late")
            + encode_response(command.opaque, 0, 0, None, b"right")
        )
        assert (await call).body == b"right"
        await client.close()

    asyncio.run(main())


def test_one_who_gives_up_does_not_take_the_connection_from_the_others() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        network.accepts.clear()
        client = RemotingClient(connect=network.connect)
        first = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        second = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        await network.until(lambda: len(network.targets) == 1)
        first.cancel()
        await asyncio.wait([first])
        network.accepts.set()
        (command,) = await network.sent(1)
        network.transports[0].protocol.data_received(encode_response(command.opaque, 0, 0))
        assert (await second).is_response
        assert first.cancelled()
        await client.close()

    asyncio.run(main())


def test_requests_of_the_peer_go_to_on_request_even_under_an_opaque_of_ours() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        requests: list[tuple[Channel, RemotingCommand]] = []
        client = RemotingClient(
            connect=network.connect, on_request=lambda channel, command: requests.append((channel, command))
        )
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        (opaque,) = [command.opaque for command in await network.sent(1)]
        protocol = network.transports[0].protocol
        protocol.data_received(request(40, {"consumerGroup": "g"}, opaque=opaque, oneway=True).encode())
        assert not call.done()
        ((channel, command),) = requests
        assert (command.code, channel.remote_address) == (40, ADDRESS)
        protocol.data_received(encode_response(opaque, 0, 0))
        assert (await call).is_response
        await client.close()

    asyncio.run(main())


def test_a_peer_that_takes_nothing_holds_requests_back_until_it_does() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        await client.invoke_oneway(ADDRESS, asked())
        await network.sent(1)
        transport = network.transports[0]
        transport.writes.clear()
        transport.protocol.pause_writing()
        # A client that stopped reading as well would never see the server drain.
        assert not transport.is_reading_paused
        with pytest.raises(RemotingTooMuchRequestError) as caught:
            await client.invoke(ADDRESS, asked(), 0.01)
        assert caught.value.definite
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        written_before: list[list[bytes]] = []

        def drain() -> None:
            written_before.append(list(transport.writes))
            transport.protocol.resume_writing()

        # Callbacks run in the order of their registration: the request waits by then.
        asyncio.get_running_loop().call_soon(drain)
        (command,) = await network.sent(1)
        assert written_before == [[]]
        transport.protocol.data_received(encode_response(command.opaque, 0, 0))
        assert (await call).is_response
        await client.close()

    asyncio.run(main())


def test_a_closed_client_connects_no_more() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        await client.close()
        with pytest.raises(RemotingConnectError, match="closed"):
            await client.invoke(ADDRESS, asked(), TIMEOUT_S)
        assert network.targets == []

    asyncio.run(main())


def test_closing_while_a_connection_is_being_made_ends_the_wait() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        network.accepts.clear()
        client = RemotingClient(connect=network.connect)
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        await network.until(lambda: len(network.targets) == 1)
        await client.close()
        with pytest.raises(RemotingConnectError, match="closed"):
            await call

    asyncio.run(main())


def test_a_connection_closed_by_its_address_is_made_anew_for_the_next_request() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        await client.invoke_oneway(ADDRESS, asked(b"first"))
        client.close_connection(ADDRESS)
        client.close_connection("10.0.0.2:1")
        await client.invoke_oneway(ADDRESS, asked(b"second"))
        assert [command.body for command in await network.sent(1, at=0)] == [b"first"]
        assert [command.body for command in await network.sent(1, at=1)] == [b"second"]
        await client.close()

    asyncio.run(main())


def test_many_requests_of_one_caller_end_each_in_its_own_way() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        assert await client.invoke_many(ADDRESS, [], TIMEOUT_S) == []
        three_calls = client.invoke_many(ADDRESS, [asked() for _ in range(3)], TIMEOUT_S)
        calls = asyncio.create_task(three_calls)
        first, second, third = [command.opaque for command in await network.sent(3)]
        assert len(network.transports[0].writes) == 1
        protocol = network.transports[0].protocol
        protocol.data_received(encode_response(third, 0, 17) + encode_response(first, 0, 0))
        loop = asyncio.get_running_loop()
        # Behind whatever those two answers have set in motion.
        is_done = loop.create_future()
        loop.call_soon(lambda: loop.call_soon(lambda: is_done.set_result(calls.done())))
        assert not await is_done
        protocol.connection_lost(None)
        one, two, three = await calls
        assert isinstance(one, RemotingCommand)
        assert isinstance(two, RemotingClosedError)
        assert isinstance(three, RemotingCommand)
        assert (one.code, three.code) == (0, 17)
        assert str(second) in str(two)
        await client.close()

    asyncio.run(main())


def test_many_requests_time_out_together_and_fail_together_without_a_connection() -> None:
    async def refuse(*_: object) -> tuple[object, object]:
        raise ConnectionRefusedError("nobody listens")

    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        calls = asyncio.create_task(client.invoke_many(ADDRESS, [asked(), asked()], TIMEOUT_S))
        _, command = await network.sent(2)
        network.transports[0].protocol.data_received(encode_response(command.opaque, 0, 0))
        let_time_pass(TIMEOUT_S)
        timed_out, answered = await calls
        assert isinstance(timed_out, RemotingTimeoutError)
        assert isinstance(answered, RemotingCommand)
        await client.close()
        client = RemotingClient(connect=refuse)
        ends = await client.invoke_many(ADDRESS, [asked(), asked()], TIMEOUT_S)
        assert [type(end) for end in ends] == [RemotingConnectError] * 2
        await client.close()

    asyncio.run(main())


def test_who_asks_in_the_turn_in_which_a_connection_was_made_and_lost_gets_another_one() -> None:
    """As behind a proxy that takes connections for a broker that is down. Taking the lost one again, the caller would
    have gone round without ever letting the loop turn, and with it all that the process does.
    """

    def stuck(*_: object) -> None:
        raise AssertionError("the loop does not turn")

    async def main() -> None:
        network = MemoryNetwork()
        calls: list[asyncio.Task[RemotingCommand]] = []

        def ask() -> None:
            calls.append(asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S)))

        async def connect(*arguments: Any) -> tuple[Any, Any]:
            transport, protocol = await network.connect(*arguments)
            if len(network.transports) == 1:
                protocol.connection_lost(ConnectionResetError())
                ask()  # its turn comes when the dial is done and nobody has been told of that
            return transport, protocol

        client = RemotingClient(connect=connect)
        ask()
        opaques = [command.opaque for command in await network.sent(2, at=1)]
        for opaque in opaques:
            network.transports[1].protocol.data_received(encode_response(opaque, 0, 0, None, b""))
        await asyncio.gather(*calls)
        await client.close()

    before = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(30)
    try:
        asyncio.run(main())
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_aborting_a_connection_ends_the_waits_on_it() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        call = asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S))
        await network.sent(1)
        client.abort_connection("10.0.0.2:1")
        client.abort_connection(ADDRESS)
        with pytest.raises(RemotingClosedError):
            await call
        assert network.transports[0].is_aborted
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "address", ["127.0.0.1", ":9876", "127.0.0.1:", "127.0.0.1:0", "h:65536", "h:-1", "h:" + "9" * 5000]
)
def test_an_address_without_a_port_that_can_be_is_told_in_words(address: str) -> None:
    async def story() -> None:
        client = RemotingClient()
        with pytest.raises(RemotingConnectError, match=": write host:port"):
            await client.invoke(address, asked(), TIMEOUT_S)
        await client.close()

    asyncio.run(story())


def test_a_response_whose_header_cannot_be_read_ends_its_own_request_alone() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        client = RemotingClient(connect=network.connect)
        calls = [asyncio.create_task(client.invoke(ADDRESS, asked(), TIMEOUT_S)) for _ in range(2)]
        first, second = [command.opaque for command in await network.sent(2)]
        protocol = network.transports[0].protocol
        bad = encode_frame(0, b'{"code":0,"flag":1,"opaque":%d,"extFields":7}' % first, b"")
        protocol.data_received(bad + encode_response(second, 0, 0, None, b"sound"))
        with pytest.raises(RemotingAnswerError, match="a bad response: JSON header") as caught:
            await calls[0]
        assert not caught.value.definite
        assert (await calls[1]).body == b"sound"
        assert len(network.transports) == 1
        await client.close()

    asyncio.run(main())
