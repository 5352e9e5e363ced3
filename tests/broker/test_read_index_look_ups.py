"""Look-ups that must not be stale: which they are, what they wait for, what a client hears when they cannot be had."""

from __future__ import annotations

import pytest
from one_broker import OneBroker, commit_fields, heart_beat, pull_fields, send_fields

from broker.registry import Lane
from remoting.codes import RequestCode, ResponseCode
from store.read_index_waits import OnReadIndex

QUEUE = {"topic": "T", "queueId": "0"}
FIELDS = {
    RequestCode.GET_MAX_OFFSET: QUEUE,
    RequestCode.GET_MIN_OFFSET: QUEUE,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: QUEUE | {"timestamp": "0"},
    RequestCode.QUERY_CONSUMER_OFFSET: QUEUE | {"consumerGroup": "g"},
}


class Held:
    """In the place of the store's reads: the test says when each is told what."""

    def __init__(self, broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[OnReadIndex] = []
        monkeypatch.setattr(
            broker.store.read_index_waits, "ask", lambda on_done, now_ms: self.reads.append(on_done)
        )


def _filled(broker: OneBroker) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1))


def test_each_of_them_has_its_answer_here(broker: OneBroker) -> None:
    types = broker.controller.pipeline.types
    assert FIELDS.keys() == {code for code, row in types.items() if row.lane is Lane.READ_INDEX}


@pytest.mark.parametrize("code", sorted(FIELDS))
def test_a_look_up_sees_what_came_while_it_waited(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    _filled(broker)
    held = Held(broker, monkeypatch)
    command = broker.new_request(code, FIELDS[code])
    broker.receive([command])
    assert broker.channel.response_to(command.opaque) is None
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body")
    (told,) = held.reads
    told(None)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    if code == RequestCode.GET_MAX_OFFSET:
        assert answer.ext_fields["offset"] == "2"


@pytest.mark.parametrize("code", sorted(FIELDS))
def test_a_look_up_that_cannot_be_had_is_refused_and_may_be_asked_again(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    _filled(broker)
    held = Held(broker, monkeypatch)
    command = broker.new_request(code, FIELDS[code])
    broker.receive([command])
    held.reads[0]("no majority has answered n0 within 1000 ms")
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "nothing was looked up: no majority has answered n0 within 1000 ms"


def test_a_member_that_has_stopped_says_so_and_answers_nothing_old(broker: OneBroker) -> None:
    _filled(broker)
    broker.step_down()
    answer = broker.ask(RequestCode.GET_MAX_OFFSET, QUEUE)
    assert (answer.code, answer.remark) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "nothing was looked up: this member has stopped",
    )


def test_a_group_of_one_answers_within_the_read_that_asked(broker: OneBroker) -> None:
    _filled(broker)
    commands = [broker.new_request(code, FIELDS[code]) for code in sorted(FIELDS)]
    writes = len(broker.channel.writes)
    broker.receive(commands)
    assert len(broker.channel.writes) == writes + 1, "all in one write"
    assert all(broker.channel.response_to(command.opaque) for command in commands)


def test_a_bad_header_is_found_when_the_look_up_is_made(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T"})
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_without_the_setting_a_member_answers_of_itself(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(broker)
    held = Held(broker, monkeypatch)
    answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"pyDLedgerReadIndexEnable=false")
    assert answer.code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.GET_MAX_OFFSET, QUEUE).ext_fields["offset"] == "1"
    assert held.reads == []


def test_pulls_wait_for_no_round(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    _filled(broker)
    held = Held(broker, monkeypatch)
    assert broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T")).code == ResponseCode.SUCCESS
    assert held.reads == []
