"""Requests of the broker to its clients, and who waits for their answers.

A client answers when it likes; each call ends at a time of its own, or with the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

import msgspec

from broker.clients.client_channel import ClientChannel
from remoting.frame.command import RemotingCommand, request

log = logging.getLogger(__name__)

OnAnswer = Callable[[RemotingCommand | None], None]  # None: none came in time


class _Call(msgspec.Struct):
    on_answer: OnAnswer
    deadline_ms: int


class ClientRequests(msgspec.Struct):
    """Invariant: `on_answer` of a call is called once."""

    _opaques: count[int] = msgspec.field(default_factory=lambda: count(1))
    _calls: dict[tuple[int, int], _Call] = msgspec.field(default_factory=dict)  # channel id, opaque

    def notify(
        self, channel: ClientChannel, code: int, ext_fields: dict[str, str], body: bytes = b""
    ) -> None:
        """Nobody waits for an answer."""
        command = request(code, ext_fields, body, opaque=self._next_opaque(), oneway=True)
        channel.write(command.encode())

    def call(
        self,
        channel: ClientChannel,
        code: int,
        ext_fields: dict[str, str],
        body: bytes,
        deadline_ms: int,
        on_answer: OnAnswer,
    ) -> None:
        command = request(code, ext_fields, body, opaque=self._next_opaque())
        self._calls[channel.id, command.opaque] = _Call(on_answer, deadline_ms)
        channel.write(command.encode())

    def answered(self, channel: ClientChannel, answer: RemotingCommand) -> None:
        """Any response that a client has sent; one that nobody waits for any more is dropped."""
        call = self._calls.pop((channel.id, answer.opaque), None)
        if call is None:
            log.debug("late answer addr=%s opaque=%d", channel.remote_address, answer.opaque)
        else:
            call.on_answer(answer)

    def tick(self, now_ms: int) -> None:
        if self._calls:
            self._give_up([key for key, call in self._calls.items() if call.deadline_ms <= now_ms])

    def channel_closed(self, channel_id: int) -> None:
        if self._calls:
            self._give_up([key for key in self._calls if key[0] == channel_id])

    def _give_up(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            self._calls.pop(key).on_answer(None)

    def _next_opaque(self) -> int:
        return next(self._opaques) & 0x7FFFFFFF
