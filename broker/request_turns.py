"""Requests that do not come in batches, so many of a turn of the event loop that heartbeats to peers are not late.

A client may send thousands of requests in one write, and on many connections. Handled in one go, they would keep a
leader from its followers until these elect another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker.answers import Answers
from broker.clients.client_channel import ClientChannel
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand

TURN_MS: Final = 4  # at most, unless one request takes longer by itself
WAITING_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes, of all channels
OWN_SIZE: Final = 64 * 1024  # of each channel in any case, so that a flood shuts nobody out
AT_ONCE: Final = 16  # of one channel, before the next one's turn

# Calls back once, after others have had their turn.
CallSoon = Callable[[Callable[[], None]], object]
# (channel, answers, command, now_ms): handles or refuses it, and raises nothing.
Handle = Callable[[ClientChannel, Answers, RemotingCommand, int], None]


class _Waiting(NamedTuple):
    channel: ClientChannel
    requests: deque[tuple[RemotingCommand, int]]  # with their sizes


class RequestTurns:
    """Invariants: requests of a channel are handled in the order in which they come, each once; of a closed one none.
    While some wait, nothing more is read from their channel. `_size` is the sum over those that wait.
    """

    def __init__(
        self, handle: Handle, wake: Callable[[], None], clock: Callable[[], int], call_soon: CallSoon
    ) -> None:
        """`wake`: lets the next tick come soon, for some requests go on in ticks."""
        self._handle = handle
        self._wake = wake
        self._clock = clock
        self._call_soon = call_soon
        self._waiting: dict[int, _Waiting] = {}  # by channel id; the first is the next one's turn
        self._size = 0
        self._ends_ms: int | None = None  # of this turn; None: nothing was handled in it yet

    def take(self, channel: ClientChannel, commands: Sequence[RemotingCommand]) -> None:
        """Those of one read."""
        waiting = self._waiting.get(channel.id)
        if waiting is None:
            commands = commands[self._work(channel, commands) :]
            if not commands or not channel.is_open:
                return
            waiting = self._waiting[channel.id] = _Waiting(channel, deque())
            channel.pause_reading()
        own_size = sum(size for _, size in waiting.requests)
        answers = Answers(channel)
        for command in commands:
            size = _size_of(command)
            if own_size + size > OWN_SIZE and self._size + size > WAITING_SIZE_MAX:
                answers.add(command, ResponseCode.SYSTEM_BUSY, f"requests of {self._size} bytes wait")
                continue
            waiting.requests.append((command, size))
            own_size += size
            self._size += size
        answers.flush()

    def closed(self, channel: ClientChannel) -> None:
        waiting = self._waiting.pop(channel.id, None)
        if waiting is not None:
            self._size -= sum(size for _, size in waiting.requests)

    def _work(self, channel: ClientChannel, commands: Sequence[RemotingCommand]) -> int:
        """Handles them while this turn lasts, and returns how many it has handled."""
        now_ms = self._clock()
        if self._ends_ms is None:
            self._ends_ms = now_ms + TURN_MS
            self._call_soon(self._next_turn)
        answers = Answers(channel)
        count = 0
        # Its client may take no answers, and have more than it may leave.
        while count < len(commands) and channel.is_open and now_ms < self._ends_ms:
            self._handle(channel, answers, commands[count], now_ms)
            count += 1
            now_ms = self._clock()
        answers.flush()
        self._wake()
        return count

    def _next_turn(self) -> None:
        self._ends_ms = None
        while self._waiting and (self._ends_ms is None or self._clock() < self._ends_ms):
            channel_id = next(iter(self._waiting))
            waiting = self._waiting.pop(channel_id)
            channel, requests = waiting
            count = self._work(channel, [command for command, _ in islice(requests, AT_ONCE)])
            for _ in range(count if channel.is_open else len(requests)):
                self._size -= requests.popleft()[1]
            if requests:
                self._waiting[channel_id] = waiting
            else:
                channel.resume_reading()


def _size_of(command: RemotingCommand) -> int:
    """Bytes that a request holds, with a share for the objects that it is made of."""
    return len(command.body) + sum(map(len, command.ext_fields.values())) + 1024
