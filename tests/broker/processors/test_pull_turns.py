"""However many pulls come at once, a leader hears its followers between them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from broker.answers import WRITE_SIZE
from broker.processors.pull.pull_turns import PULL_COST, TURN_SIZE
from remoting.codes import RequestCode, ResponseCode
from store.get_message import GetMessageResult

PULL = RequestCode.PULL_MESSAGE
BODY = bytes(100_000)


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    broker = OneBroker(tmp_path)
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, ""), BODY)
    assert answer.code == ResponseCode.SUCCESS
    return broker


def test_a_turn_answers_no_more_than_its_size_and_the_next_ones_the_rest_in_order(broker: OneBroker) -> None:
    pulls = [broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(100)]
    channels = [RecordingChannel(2 + number) for number in range(5)]
    for number, channel in enumerate(channels):
        broker.receive(pulls[number::5], channel)
    in_first_turn = [answer.opaque for channel in channels for answer in channel.received]
    size = sum(len(data) for channel in channels for data in channel.writes)
    assert TURN_SIZE - PULL_COST * len(pulls) <= size <= TURN_SIZE + 2 * len(BODY)
    broker.settle()
    for number, channel in enumerate(channels):
        assert [answer.opaque for answer in channel.received] == [pull.opaque for pull in pulls[number::5]]
        assert {answer.code for answer in channel.received} == {ResponseCode.SUCCESS}
    assert (
        in_first_turn
        == [pull.opaque for number in range(5) for pull in pulls[number::5]][: len(in_first_turn)]
    )


def test_pulls_that_find_nothing_have_their_cost(broker: OneBroker) -> None:
    pulls = [broker.new_request(PULL, pull_fields("T", 0, 1)) for _ in range(2 * TURN_SIZE // PULL_COST)]
    broker.receive(pulls)
    assert 0 < len(broker.channel.received) - 1 < len(pulls) // 2 + 1
    broker.settle()
    assert len(broker.channel.received) - 1 == len(pulls)


def test_nothing_more_is_read_from_those_whose_pulls_wait(broker: OneBroker) -> None:
    flood, other, gone = RecordingChannel(2), RecordingChannel(3), RecordingChannel(4)
    broker.receive([broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(5)], other)
    broker.receive([broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(60)], flood)
    broker.receive([broker.new_request(PULL, pull_fields("T", 0, 0))], gone)
    assert [channel.reading_pauses for channel in (flood, other, gone)] == [1, 0, 1]
    gone.close()
    broker.controller.pipeline.channel_closed(gone)
    broker.settle()
    assert len(flood.received) == 60
    assert flood.reading_pauses == 0
    assert gone.reading_pauses == 1, "nothing is done with a closed one"


def test_what_waits_for_a_closed_channel_is_not_read(broker: OneBroker) -> None:
    gone, there = RecordingChannel(2), RecordingChannel(3)
    broker.receive([broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(60)], gone)
    answered = len(gone.received)
    broker.receive([last := broker.new_request(PULL, pull_fields("T", 0, 0))], there)
    assert there.response_to(last.opaque) is None, "it waits behind the others"
    gone.close()
    broker.settle()
    assert len(gone.received) == answered
    assert there.response_to(last.opaque) is not None


def test_a_client_that_takes_nothing_is_answered_nothing_more_until_it_does(broker: OneBroker) -> None:
    pulls = [broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(61)]
    idle, busy = RecordingChannel(2), RecordingChannel(3)
    broker.receive(pulls[:60], idle)
    answered = len(idle.received)
    assert 0 < answered < 60
    idle.paused = True
    broker.settle()
    broker.tick()
    assert len(idle.received) == answered
    broker.receive([other := broker.new_request(PULL, pull_fields("T", 0, 0))], busy)
    assert busy.response_to(other.opaque) is not None, "others do not wait for it"
    idle.paused = False
    broker.controller.pipeline.channel_resumed(idle)
    broker.receive(pulls[60:], idle)
    broker.settle()
    assert [answer.opaque for answer in idle.received] == [pull.opaque for pull in pulls]


class FullChannel(RecordingChannel):
    """Nothing that is written to it is taken."""

    def write(self, data: bytes) -> None:
        super().write(data)
        self.paused = True


def test_it_is_seen_within_a_turn_that_a_client_takes_nothing(broker: OneBroker) -> None:
    pulls = [broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(10)]
    full = FullChannel(2)
    broker.receive(pulls, full)
    broker.settle()
    assert sum(map(len, full.writes)) <= WRITE_SIZE + 2 * len(BODY)
    while len(full.received) < len(pulls):
        answered = len(full.received)
        full.paused = False
        broker.controller.pipeline.channel_resumed(full)
        broker.settle()
        assert len(full.received) > answered
    assert [answer.opaque for answer in full.received] == [pull.opaque for pull in pulls]


class ClosedWhenFull(RecordingChannel):
    """As of a server that holds too much of what its clients have not taken."""

    def write(self, data: bytes) -> None:
        if self.is_open:
            super().write(data)
            self.is_open = sum(map(len, self.writes)) < 3 * WRITE_SIZE


def test_nothing_more_is_looked_up_for_a_client_that_was_closed_for_what_it_left(broker: OneBroker) -> None:
    """One read may ask for a thousand messages of megabytes."""
    (put,) = [answer for answer in broker.channel.received if answer.code == ResponseCode.SUCCESS]
    offset = str(int(put.ext_fields["msgId"][-16:], 16))
    views = [broker.new_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset}) for _ in range(100)]
    full = ClosedWhenFull(2)
    broker.receive(views, full)
    assert 3 * WRITE_SIZE <= sum(map(len, full.writes)) <= 4 * WRITE_SIZE
    assert len(full.received) < len(views) // 2


def test_what_waits_for_a_paused_channel_goes_with_it(broker: OneBroker) -> None:
    channel = RecordingChannel(2)
    channel.paused = True
    broker.receive([broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(3)], channel)
    channel.close()
    broker.controller.pipeline.channel_closed(channel)
    assert channel.received == []
    gone = weakref.ref(channel)
    del channel
    gc.collect()
    assert gone() is None, "nothing is kept for it"


def test_more_pulls_than_may_wait_are_refused_and_the_others_answered(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.processors.pull.pull_turns.WAITING_MAX", 50)
    pulls = [broker.new_request(PULL, pull_fields("T", 0, 0)) for _ in range(80)]
    broker.receive(pulls)
    broker.settle()
    answers = [broker.channel.response_to(pull.opaque) for pull in pulls]
    codes = [answer.code for answer in answers if answer is not None]
    assert codes == [ResponseCode.SUCCESS] * 50 + [ResponseCode.SYSTEM_BUSY] * 30


def test_pulls_that_were_held_are_answered_in_turns_too(broker: OneBroker) -> None:
    channels = [RecordingChannel(2 + number) for number in range(40)]
    for channel in channels:
        broker.receive([broker.new_request(PULL, pull_fields("T", 0, 1, sysFlag="6"))], channel)
    broker.settle()
    assert not any(channel.received for channel in channels)
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, ""), BODY)
    assert answer.code == ResponseCode.SUCCESS
    broker.settle()
    assert [len(channel.received) for channel in channels] == [1] * 40


@pytest.mark.parametrize("number", [0, 2])
def test_a_defect_costs_the_pull_that_has_it_and_no_other(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    pulls = [broker.new_request(PULL, pull_fields("T", 0, -77 if at == number else 0)) for at in range(60)]
    get_message = broker.store.reads.get_message

    def defective(topic: str, queue_id: int, offset: int, *more: Any) -> GetMessageResult:
        assert offset != -77, "a defect"
        return get_message(topic, queue_id, offset, *more)

    monkeypatch.setattr(broker.store.reads, "get_message", defective)
    with pytest.raises(AssertionError, match="a defect"):
        broker.receive(pulls)
    broker.settle()
    answered = [broker.channel.response_to(pull.opaque) is not None for pull in pulls]
    assert answered == [at != number for at in range(60)]
