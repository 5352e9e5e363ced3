"""Connections beyond the limit, and large frames whose ends never come."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass

import uvloop
from remoting_fakes import RecordingHandler, echo
from test_remoting_server import RawPeer

from remoting.channel import Channel
from remoting.connection_limits import ADMITTED, COUNTED_FROM, UnfinishedFrames
from remoting.frame.command import RemotingCommand, request
from remoting.server import RemotingServer


@dataclass
class Held:
    id: int
    remote_address: str = "127.0.0.1:50001"
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


def test_the_frame_that_began_first_is_given_up() -> None:
    frames, (first, second, third) = UnfinishedFrames(100), [Held(number) for number in range(3)]
    frames.changed(first, 40)
    frames.changed(second, 30)
    frames.changed(first, 50)
    assert frames.size == 80
    frames.changed(third, 30)
    assert (first.is_aborted, second.is_aborted, third.is_aborted) == (True, False, False)
    assert (frames.size, frames.closed_count) == (60, 1)
    frames.changed(first, 0)
    assert frames.size == 60
    frames.changed(second, 0)
    frames.changed(second, 60)
    frames.changed(second, 80)
    assert (third.is_aborted, second.is_aborted) == (True, False), (
        "a frame that ended does not count as begun"
    )
    assert frames.size == 80


def test_one_that_is_too_much_alone_is_given_up() -> None:
    frames, alone = UnfinishedFrames(100), Held(1)
    frames.changed(alone, 101)
    assert (alone.is_aborted, frames.size) == (True, 0)


def test_the_beginnings_of_many_large_frames_do_not_add_up() -> None:
    """A client that sends whole ones is served as ever."""

    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0, unfinished_size_max=4 * COUNTED_FROM)
        await server.start()
        frame = request(1, opaque=1, body=bytes(16 * COUNTED_FROM)).encode()
        hoarders = [await RawPeer.connect(server) for _ in range(6)]
        for hoarder in hoarders:
            hoarder.send(frame[: COUNTED_FROM + 10])
        await handler.until(lambda: len(handler.closed) == 3)
        assert server.figures()["unfinished_closed_total"] == 3
        assert server.figures()["unfinished_bytes"] == 3 * (COUNTED_FROM + 10)
        honest = await RawPeer.connect(server)
        for opaque in (1, 2):
            await honest.call(opaque)
        for peer in (*hoarders, honest):
            await peer.close()
        await handler.until(lambda: len(handler.closed) == 7)
        assert server.figures()["unfinished_bytes"] == 0
        await server.close()

    uvloop.run(main())


def test_beyond_the_limit_the_oldest_connection_that_asks_for_nothing_is_closed() -> None:
    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0, connections_max=3)
        await server.start()
        first, silent = await RawPeer.connect(server), await RawPeer.connect(server)
        await first.call(1)
        await handler.until(lambda: len(handler.opened) == 2)
        second, third = await RawPeer.connect(server), await RawPeer.connect(server)
        assert await silent.receive() is None
        await second.call(2)
        await third.call(3)
        refused = await RawPeer.connect(server)
        assert await refused.receive() is None, "all others have asked for something"
        assert server.figures()["connections_refused_total"] == 2
        await first.call(4)
        await second.close()
        await handler.until(lambda: len(handler.closed) == 3)
        fourth = await RawPeer.connect(server)
        await fourth.call(5)
        for peer in (first, third, fourth, silent, refused):
            await peer.close()
        await server.close()

    uvloop.run(main())


def test_a_client_that_sends_large_frames_without_a_pause_is_not_the_one_that_does_not_end() -> None:
    """Most of its reads end in the middle of the next frame."""

    async def main() -> None:
        handler = RecordingHandler(echo)
        server = RemotingServer(handler, "127.0.0.1", 0, unfinished_size_max=5 * COUNTED_FROM)
        await server.start()
        busy = await RawPeer.connect(server)
        frames = [request(1, opaque=opaque, body=bytes(2 * COUNTED_FROM)).encode() for opaque in (1, 2)]
        busy.send(frames[0][: COUNTED_FROM + 10])
        await handler.until(lambda: len(handler.opened) == 1)
        hoarder = await RawPeer.connect(server)
        hoarder.send(frames[0][: 2 * COUNTED_FROM])
        async with asyncio.timeout(20):
            while server.figures()["unfinished_bytes"] < 3 * COUNTED_FROM:  # noqa: ASYNC110 (no event tells of parts)
                await asyncio.sleep(0)
        busy.send(frames[0][COUNTED_FROM + 10 :] + frames[1][: COUNTED_FROM + 10])
        assert await busy.receive() is not None
        late = await RawPeer.connect(server)
        late.send(frames[0][: 2 * COUNTED_FROM])
        await handler.until(lambda: len(handler.closed) == 1)
        assert handler.closed == [handler.opened[1]]
        for peer in (busy, hoarder, late):
            await peer.close()
        await server.close()

    uvloop.run(main())


def test_a_connection_without_a_user_ends_however_busy_it_is() -> None:
    def answer(channel: Channel, command: RemotingCommand) -> None:
        if command.ext_fields["k"] == "user":
            channel.attributes[ADMITTED] = True
        echo(channel, command)

    async def main() -> None:
        handler = RecordingHandler(answer)
        server = RemotingServer(handler, "127.0.0.1", 0, admission_seconds=0.05)
        await server.start()
        known, unknown = await RawPeer.connect(server), await RawPeer.connect(server)
        known.send(request(1, {"k": "user"}, opaque=1).encode())
        await known.receive()
        await handler.until(lambda: len(handler.opened) == 2)
        with contextlib.suppress(AssertionError, ConnectionError):  # it ends at some time
            for opaque in itertools.count(1):
                await unknown.call(opaque)
        await handler.until(lambda: bool(handler.closed))
        await known.call(2)
        assert handler.closed == [handler.opened[1]]
        await known.close()
        await unknown.close()
        await server.close()

    uvloop.run(main())
