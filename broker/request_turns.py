"""Requests that do not come in batches, so many of a turn of the event loop that heartbeats to peers are not late.

A client may send thousands of requests in one write, and on many connections. Handled in one go, they would keep a
leader from its followers until these elect another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.answers import Answers
from broker.clients.client_channel import ClientChannel
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand

TURN_MS: Final = 4  # at most, unless one request takes longer by itself
WAITING_MAX: Final = 65_536  # of all channels, beside AT_ONCE of each, so that a flood shuts nobody out
AT_ONCE: Final = 16  # of one channel, before the next one's turn

# Calls back once, after others have had their turn.
CallSoon = Callable[[Callable[[], None]], object]
# (channel, answers, command, now_ms): handles or refuses it, and raises nothing.
Handle = Callable[[ClientChannel, Answers, RemotingCommand, int], None]


class RequestTurns:
    """Invariants: requests of a channel are handled in the order in which they come, each once; of a closed one none.
    While some wait, nothing more is read from their channel.
    """

    def __init__(
        self, handle: Handle, wake: Callable[[], None], clock: Callable[[], int], call_soon: CallSoon
    ) -> None:
        """`wake`: lets the next tick come soon, for some requests go on in ticks."""
        self._handle = handle
        self._wake = wake
        self._clock = clock
        self._call_soon = call_soon
        # By channel id; the first is the next one's turn.
        self._waiting: dict[int, tuple[ClientChannel, deque[RemotingCommand]]] = {}
        self._waiting_count = 0
        self._ends_ms: int | None = None  # of this turn; None: nothing was handled in it yet

    def take(self, channel: ClientChannel, commands: list[RemotingCommand]) -> None:
        """Those of one read."""
        todo = deque(commands)
        waiting = self._waiting.get(channel.id)
        if waiting is None:
            self._work(channel, todo, len(todo))
            if not todo or not channel.is_open:
                return
            waiting = self._waiting[channel.id] = channel, deque()
            channel.pause_reading()
        room = max(AT_ONCE - len(waiting[1]), WAITING_MAX - self._waiting_count)
        kept = [todo.popleft() for _ in range(min(room, len(todo)))]
        waiting[1].extend(kept)
        self._waiting_count += len(kept)
        answers = Answers(channel)
        for command in todo:
            answers.add(command, ResponseCode.SYSTEM_BUSY, f"{self._waiting_count} requests wait")
        answers.flush()

    def closed(self, channel: ClientChannel) -> None:
        waiting = self._waiting.pop(channel.id, None)
        if waiting is not None:
            self._waiting_count -= len(waiting[1])

    def _work(self, channel: ClientChannel, todo: deque[RemotingCommand], count: int) -> None:
        """Handles up to `count` of them, while this turn lasts."""
        now_ms = self._clock()
        if self._ends_ms is None:
            self._ends_ms = now_ms + TURN_MS
            self._call_soon(self._next_turn)
        answers = Answers(channel)
        # Its client may take no answers, and have more than it may leave.
        while todo and count and channel.is_open and now_ms < self._ends_ms:
            self._handle(channel, answers, todo.popleft(), now_ms)
            count -= 1
            now_ms = self._clock()
        answers.flush()
        self._wake()

    def _next_turn(self) -> None:
        self._ends_ms = None
        while self._waiting and (self._ends_ms is None or self._clock() < self._ends_ms):
            channel_id = next(iter(self._waiting))
            channel, todo = self._waiting.pop(channel_id)
            count = len(todo)
            self._work(channel, todo, AT_ONCE)
            self._waiting_count -= count - len(todo)
            if todo and channel.is_open:
                self._waiting[channel_id] = channel, todo
            else:
                self._waiting_count -= len(todo)
                channel.resume_reading()
