"""Pulls are answered in turns, between which a leader hears its followers.

A thousand queues pulled at once are 128 MB of messages. Answered in one go they took more than a second, in which no
answer to a heartbeat was read, and so the leader was deposed.

Nor is anything answered to a client that takes nothing: a few reads of its pulls were 130 MB of answers in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from broker.answers import WRITE_SIZE
from broker.clients.client_channel import ClientChannel
from broker.request_turns import CallSoon
from remoting.frame.command import RemotingCommand
from remoting.headers.headers import PullMessageRequestHeader

TURN_SIZE = 2 * 1024 * 1024  # bytes of answers, some 10 ms
PULL_COST = 4096  # in bytes of answers: the work of a pull that finds nothing
WAITING_MAX = 32_768


class Pull(NamedTuple):
    channel: ClientChannel
    command: RemotingCommand
    held_header: PullMessageRequestHeader | None = None  # of one that was held


class PullTurns:
    """Invariants: pulls of a channel are answered in the order in which they come, each once; while it is paused none
    of them is, and once it is closed never. Nothing more is read from channels whose pulls wait for another turn, until
    all that waits has had its turn.
    """

    def __init__(
        self,
        answer: Callable[[Pull, int, list[bytes]], None],
        clock: Callable[[], int],
        call_soon: CallSoon,
    ) -> None:
        """`answer(pull, now_ms, frames)` adds parts of an answer, or none for a pull that is held."""
        self._answer = answer
        self._clock = clock
        self._call_soon = call_soon
        self._waiting: deque[Pull] = deque()
        # By channel, until it goes on. No more are read from it meanwhile, so they take no room from others.
        self._paused: dict[int, list[Pull]] = {}
        self._not_read: dict[int, ClientChannel] = {}
        self._left = TURN_SIZE  # bytes of this turn
        self._is_next_turn_due = False

    @property
    def room(self) -> int:
        """How many pulls may come now. Those that were held before may always."""
        return max(0, WAITING_MAX - len(self._waiting))

    def take(self, pulls: Iterable[Pull], now_ms: int) -> None:
        self._waiting.extend(pulls)
        self._run(now_ms)

    def spend(self, cost: int) -> None:
        """Counts work, in bytes of answers, besides that of answering: the turn ends the sooner."""
        self._left -= cost

    def resumed(self, channel: ClientChannel, now_ms: int) -> None:
        """The channel is no longer paused."""
        pulls = self._paused.pop(channel.id, None)
        if pulls is not None:
            self.take(pulls, now_ms)

    def closed(self, channel: ClientChannel) -> None:
        self._paused.pop(channel.id, None)
        self._not_read.pop(channel.id, None)

    def _run(self, now_ms: int) -> None:
        answered: dict[int, tuple[ClientChannel, list[bytes]]] = {}
        sizes: dict[int, int] = {}  # of what is not written yet
        waiting = self._waiting
        try:
            while waiting and self._left > 0:
                pull = waiting.popleft()
                channel = pull.channel
                if not channel.is_open:
                    continue
                if channel.paused or channel.id in self._paused:
                    self._paused.setdefault(channel.id, []).append(pull)
                    continue
                frames = answered.setdefault(channel.id, (channel, []))[1]
                part_count = len(frames)
                self._answer(pull, now_ms, frames)
                size = sum(map(len, frames[part_count:]))
                self._left -= PULL_COST + size
                sizes[channel.id] = sizes.get(channel.id, 0) + size
                if sizes[channel.id] >= WRITE_SIZE:
                    channel.write(b"".join(frames))
                    frames.clear()
                    sizes[channel.id] = 0
        finally:
            # Also where a defect has ended the turn: it costs its own pull, and no other.
            for channel, frames in answered.values():
                if frames:
                    channel.write(b"".join(frames))
            self._hold_back()
            if (waiting or self._left < TURN_SIZE) and not self._is_next_turn_due:
                self._is_next_turn_due = True
                self._call_soon(self._next_turn)

    def _hold_back(self) -> None:
        if self._waiting:
            for pull in self._waiting:
                channel = pull.channel
                if channel.is_open and channel.id not in self._not_read:
                    self._not_read[channel.id] = channel
                    channel.pause_reading()
        elif self._not_read:
            for channel in self._not_read.values():
                channel.resume_reading()
            self._not_read.clear()

    def _next_turn(self) -> None:
        self._is_next_turn_due = False
        self._left = TURN_SIZE
        self._run(self._clock())
