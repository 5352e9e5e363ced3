"""Requests that do not come in batches, and the turns in which they are handled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from one_broker import RecordingChannel

from broker import request_turns
from broker.answers import Answers
from broker.clients.client_channel import ClientChannel
from broker.request_turns import TURN_MS, RequestTurns
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request


class Turns:
    """Each request takes a quarter of a turn; those of one turn end when `next_turn` is called."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.handled: list[tuple[int, int]] = []  # channel, opaque
        self.soon: list[Callable[[], None]] = []
        self.turns = RequestTurns(self._handle, lambda: None, lambda: self.now_ms, self.soon.append)

    def _handle(
        self, channel: ClientChannel, answers: Answers, command: RemotingCommand, now_ms: int
    ) -> None:
        assert now_ms == self.now_ms
        self.now_ms += TURN_MS // 4
        self.handled.append((channel.id, command.opaque))
        answers.add(command)

    def take(self, channel: RecordingChannel, *opaques: int) -> None:
        self.turns.take(
            channel, [request(RequestCode.GET_BROKER_CONFIG, {}, opaque=opaque) for opaque in opaques]
        )

    def next_turn(self) -> list[tuple[int, int]]:
        """What is handled in it."""
        before = len(self.handled)
        soon, self.soon[:] = [*self.soon], []
        assert len(soon) <= 1
        for callback in soon:
            callback()
        return self.handled[before:]


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_what_comes_is_handled_at_once_while_the_turn_lasts(turns: Turns) -> None:
    one, other, late = (RecordingChannel(number) for number in (1, 2, 3))
    turns.take(one, 1, 2)
    turns.take(other, 3, 4)
    turns.take(late, 5)
    assert turns.handled == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert turns.now_ms == TURN_MS
    assert [len(channel.writes) for channel in (one, other, late)] == [1, 1, 0], "one write for one read"
    assert turns.next_turn() == [(3, 5)]
    assert turns.next_turn() == []


def test_channels_take_turns_and_keep_their_order(turns: Turns) -> None:
    flood, honest = RecordingChannel(1), RecordingChannel(2)
    turns.take(flood, *range(30))
    turns.take(flood, 30)
    turns.take(honest, 100)
    assert turns.next_turn() == [(1, 4), (1, 5), (1, 6), (1, 7)]
    assert turns.next_turn()[0] == (2, 100)
    while turns.next_turn():
        pass
    assert [opaque for channel, opaque in turns.handled if channel == 1] == list(range(31))


def test_nothing_more_is_read_from_a_channel_while_requests_of_it_wait(turns: Turns) -> None:
    flood, honest = RecordingChannel(1), RecordingChannel(2)
    turns.take(honest, 1)
    turns.take(flood, *range(30))
    assert (flood.reading_pauses, honest.reading_pauses) == (1, 0)
    turns.next_turn()
    assert flood.reading_pauses == 1
    while turns.next_turn():
        pass
    assert flood.reading_pauses == 0


def test_above_the_limit_a_request_is_refused_unless_its_channel_has_little(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_turns, "WAITING_SIZE_MAX", 30 * 1024)
    monkeypatch.setattr(request_turns, "OWN_SIZE", 16 * 1024)
    flood, other = RecordingChannel(1), RecordingChannel(2)
    turns.take(flood, *range(40))  # a KiB each; four are handled at once
    assert [(a.opaque, a.code) for a in flood.received if a.code] == [
        (number, ResponseCode.SYSTEM_BUSY) for number in range(34, 40)
    ]
    turns.take(other, *range(100, 117))
    assert [(a.opaque, a.code) for a in other.received] == [(116, ResponseCode.SYSTEM_BUSY)]
    while turns.next_turn():
        pass
    turns.take(other, *range(200, 230))
    while turns.next_turn():
        pass
    assert turns.handled[-1] == (2, 229), "there is room again"


def test_large_bodies_take_the_room_that_they_have(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_turns, "WAITING_SIZE_MAX", 1024 * 1024)
    channel = RecordingChannel(1)
    bodies = [request(RequestCode.HEART_BEAT, {}, bytes(400 * 1024), opaque=opaque) for opaque in range(8)]
    turns.turns.take(channel, bodies)
    assert [a.opaque for a in channel.received if a.code == ResponseCode.SYSTEM_BUSY] == [6, 7]


def test_of_a_channel_that_is_closed_nothing_is_handled(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_turns, "WAITING_SIZE_MAX", 30 * 1024)
    monkeypatch.setattr(request_turns, "OWN_SIZE", 0)
    gone, closing, kept = (RecordingChannel(number) for number in (1, 2, 3))
    turns.take(gone, *range(30))
    turns.take(closing, 6)
    turns.take(kept, 7)
    closing.close()
    turns.turns.closed(gone)
    assert turns.next_turn() == [(3, 7)]
    turns.next_turn()
    turns.take(kept, *range(10, 43))  # four at once, and the others wait
    assert not [answer for answer in kept.received if answer.code], "what is gone takes no room"
