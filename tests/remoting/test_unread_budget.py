"""Answers that clients do not take: how much of them a server holds, and whose connection ends for it."""

import asyncio
from dataclasses import dataclass, field

import pytest
import uvloop
from remoting_fakes import RecordingHandler

from remoting.channel import Channel
from remoting.frame.command import RemotingCommand, encode_response, request
from remoting.server import RemotingServer
from remoting.unread_budget import UnreadBudget

MIB = 1 << 20


@dataclass
class Unread:
    id: int
    pending_write_size: int = 0
    written_size: int = 0
    remote_address: str = "127.0.0.1:50001"
    limits: list[int] = field(default_factory=list)
    is_aborted: bool = False

    def write(self, size: int) -> None:
        self.pending_write_size += size
        self.written_size += size

    def limit_pending_writes(self, size: int) -> None:
        self.limits.append(size)

    def abort(self) -> None:
        self.is_aborted = True
        self.pending_write_size = 0


def test_from_half_of_the_budget_on_each_has_to_take_what_came_before() -> None:
    budget, channels = UnreadBudget(100, 20), [Unread(1), Unread(2)]
    channels[0].write(50)
    budget.look(channels, 0.0)
    assert (budget.limit, budget.unread_size, budget.room) == (20, 50, 50)
    channels[1].write(1)
    budget.look(channels, 1.0)
    assert (budget.limit, [channel.limits for channel in channels]) == (0, [[0], [0]])
    channels[0].pending_write_size = 25  # it is not loosened and tightened with every answer
    budget.look(channels, 2.0)
    assert budget.limit == 0
    channels[0].pending_write_size = 24
    budget.look(channels, 3.0)
    assert (budget.limit, channels[0].limits, budget.room) == (20, [0, 20], 25)


def test_above_the_budget_those_are_closed_that_hold_most_for_longest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = UnreadBudget(100, 20)
    reads_slowly, reads_nothing, _, greedy = channels = [Unread(number) for number in range(4)]
    reads_slowly.write(40)
    reads_nothing.write(40)

    def look(second: int) -> None:
        reads_slowly.pending_write_size -= 1
        reads_slowly.write(1)
        budget.look(channels, float(second))

    for second in range(10):
        look(second)
    greedy.write(30)
    look(10)
    assert [channel.is_aborted for channel in channels] == [False, True, False, False]
    assert (budget.unread_size, budget.closed_count) == (70, 1)
    greedy.write(31)
    look(11)
    assert [channel.is_aborted for channel in channels] == [False, True, False, True]
    assert (budget.unread_size, budget.room, budget.closed_count) == (40, 10, 2)
    limited = [record.__dict__.get("per_connection") for record in caplog.records]
    assert limited == [True, True], "anybody may have thousands closed"


def test_at_the_bound_not_each_write_is_followed_by_a_look() -> None:
    budget, channel = UnreadBudget(6400, 20), Unread(1)
    channel.write(6400)
    budget.look([channel], 0.0)
    assert (channel.is_aborted, budget.room) == (False, 100)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_a_closed_channel_has_still_to_send_counts(run) -> None:
    handler = RecordingHandler(lambda channel, command: channel.write(bytes(32 * MIB)))

    async def main() -> None:
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(request(1, opaque=1).encode() + b"no frame")
        await handler.until(lambda: bool(handler.batches) and not handler.opened[0].is_open)
        server.unread.look(server.channels, 0.0)
        assert server.unread.unread_size > MIB
        writer.transport.abort()
        await server.close()

    run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_server_holds_no_more_than_its_budget_whatever_its_clients_leave(run) -> None:
    """Each asks again and again, and reads nothing."""
    size_max, answer_size = 16 * MIB, MIB // 4
    held: list[int] = []

    def answer(channel: Channel, command: RemotingCommand) -> None:
        if not channel.paused:
            channel.write(encode_response(command.opaque, 0, 0, None, bytes(answer_size)))
            held.append(sum(channel.pending_write_size for channel in handler.opened))

    handler = RecordingHandler(answer)

    async def main() -> None:
        server = RemotingServer(
            handler, "127.0.0.1", 0, unread_size_max=size_max, connection_unread_size_max=8 * MIB
        )
        await server.start()
        requests = b"".join(request(1, opaque=opaque).encode() for opaque in range(100))
        writers = []
        for number in range(1, 21):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
            writer.write(requests)
            writers.append(writer)
            await handler.until(
                lambda number=number: len({channel.id for channel, _ in handler.batches}) == number
            )
        assert size_max // 2 < max(held) <= size_max + answer_size
        assert server.unread.limit == 0
        for writer in writers:
            writer.transport.abort()
        await handler.until(lambda: len(handler.closed) == 20)
        server.unread.look(server.channels, 0.0)
        assert (server.unread.unread_size, server.unread.limit) == (0, 8 * MIB)
        await server.close()

    run(main())
