"""Messages by key and by unique key, as tools ask for them."""

from __future__ import annotations

import pytest
from one_broker import OneBroker, RecordingChannel, send_fields

from broker.processors.pull.query_message_processor import (
    COUNT_MAX,
    NOT_FOUND_REMARK,
    PENDING_MAX,
    STEPS_PER_TICK,
    UNIQUE_KEY_COUNT_MAX,
    WAIT_MS_MAX,
)
from message.decoder import MessageExt, decode_messages
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from store.message_query import RECORDS_PER_STEP, MessageQuery

FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


def send(broker: OneBroker, body: bytes, keys: str = "", unique_key: str = "", topic: str = "T") -> None:
    properties = f"KEYS\x01{keys}\x02" if keys else ""
    if unique_key:
        properties += f"UNIQ_KEY\x01{unique_key}\x02"
    assert (
        broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic, properties=properties), body).code
        == ResponseCode.SUCCESS
    )


def query_fields(key: str, **more: str) -> dict[str, str]:
    return {"topic": "T", "key": key, "maxNum": "32", **FOREVER, **more}


def query(broker: OneBroker, key: str, **more: str) -> RemotingCommand:
    return broker.ask(RequestCode.QUERY_MESSAGE, query_fields(key, **more))


def messages(answer: RemotingCommand) -> list[MessageExt]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_messages(bytes(answer.body))


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


def test_messages_are_found_by_each_of_their_keys_oldest_first(broker: OneBroker) -> None:
    send(broker, b"1", "order-1 paid", "U1")
    send(broker, b"2", "order-2 paid", "U2")
    send(broker, b"3", "", "U3")
    assert bodies(query(broker, "paid")) == [b"1", b"2"]
    assert bodies(query(broker, "order-1")) == [b"1"]
    assert bodies(query(broker, "U3", _UNIQUE_KEY_QUERY="true")) == [b"3"]


def test_the_answer_says_how_far_the_index_is(broker: OneBroker) -> None:
    send(broker, b"1", "a")
    send(broker, b"2", "b")
    answer = query(broker, "a")
    (first,) = messages(answer)
    (second,) = messages(query(broker, "b"))
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": str(second.store_timestamp),
        "indexLastUpdatePhyoffset": str(second.phy_offset),
    }
    assert first.phy_offset < second.phy_offset


def test_another_key_with_the_same_hash_and_another_topic_are_not_found(broker: OneBroker) -> None:
    send(broker, b"wanted", "Aa")
    send(broker, b"same hash", "BB")
    send(broker, b"other topic", "Aa", topic="Other")
    assert bodies(query(broker, "Aa")) == [b"wanted"]


@pytest.mark.parametrize("key", ["nothing", "order", "order-12", ""])
def test_what_is_not_there_is_said_so(broker: OneBroker, key: str) -> None:
    send(broker, b"1", "order-1")
    answer = query(broker, key)
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_REMARK)


def test_only_messages_stored_in_the_time_are_found(broker: OneBroker) -> None:
    stored_ms = []
    for number in range(3):
        send(broker, b"%d" % number, "k")
        stored_ms.append(broker.store.reads.store_timestamp("T", 0, number))
        broker.run_for(1500)
    second_ms = str(stored_ms[1])
    assert bodies(query(broker, "k", beginTimestamp=second_ms)) == [b"1", b"2"]
    assert bodies(query(broker, "k", endTimestamp=second_ms)) == [b"0", b"1"]
    assert bodies(query(broker, "k", beginTimestamp=second_ms, endTimestamp=second_ms)) == [b"1"]


def test_the_newest_are_found_up_to_a_number(broker: OneBroker) -> None:
    count = COUNT_MAX + 10
    for number in range(count):
        send(broker, b"%d" % number, "k")
    expected = [b"%d" % number for number in range(count)]
    assert bodies(query(broker, "k", maxNum="3")) == expected[-3:]
    assert bodies(query(broker, "k", maxNum="1000000")) == expected[-COUNT_MAX:]
    assert (
        bodies(query(broker, "k", maxNum="1", _UNIQUE_KEY_QUERY="true")) == expected[-UNIQUE_KEY_COUNT_MAX:]
    )
    for nothing in ("0", "-5"):
        assert query(broker, "k", maxNum=nothing).code == ResponseCode.QUERY_NOT_FOUND


def test_a_query_that_comes_with_the_message_finds_it(broker: OneBroker) -> None:
    sent = broker.new_request(
        RequestCode.SEND_MESSAGE_V2, send_fields("T", properties="KEYS\x01new\x02"), b"b"
    )
    broker.receive([sent])
    broker.settle()
    assert bodies(query(broker, "new")) == [b"b"]


def test_a_query_does_not_wait_forever_for_the_index(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_TICK", 0)
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_IDLE_TICK", 0)
    send(broker, b"1", "k")
    asked = broker.new_request(RequestCode.QUERY_MESSAGE, query_fields("k"))
    broker.receive([asked])
    broker.run_for(WAIT_MS_MAX - 200)
    assert broker.channel.response_to(asked.opaque) is None
    broker.run_for(400)
    answer = broker.channel.response_to(asked.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark is not None
    assert "the IndexFiles are" in answer.remark
    assert "ask again" in answer.remark


def test_a_client_that_is_gone_is_not_looked_for(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_TICK", 0)
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_IDLE_TICK", 0)
    send(broker, b"1", "k")
    channel = RecordingChannel(7)
    asked = broker.new_request(RequestCode.QUERY_MESSAGE, query_fields("k"))
    broker.receive([asked], channel)
    channel.close()
    broker.run_for(WAIT_MS_MAX + 200)
    assert channel.response_to(asked.opaque) is None


def test_many_messages_of_one_key_take_several_ticks_and_are_searched_to_the_end(broker: OneBroker) -> None:
    send(broker, b"wanted", "Aa")
    for number in range(5 * RECORDS_PER_STEP):
        send(broker, b"%d" % number, "BB")
    asked = broker.new_request(RequestCode.QUERY_MESSAGE, query_fields("Aa"))
    broker.receive([asked])
    assert broker.channel.response_to(asked.opaque) is None
    broker.run_until(lambda: broker.channel.response_to(asked.opaque) is not None)
    answer = broker.channel.response_to(asked.opaque)
    assert answer is not None
    assert bodies(answer) == [b"wanted"]


def test_a_search_by_tag_is_refused_with_what_to_do(broker: OneBroker) -> None:
    answer = query(broker, "A", indexType="T")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "consume the topic with that tag" in answer.remark


def test_a_message_that_retention_took_is_not_found(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, b"1", "k")
    monkeypatch.setattr(type(broker.store.reads), "look_message_by_offset", lambda self, offset: None)
    assert query(broker, "k").code == ResponseCode.QUERY_NOT_FOUND


def test_a_record_that_is_damaged_is_answered_with_an_error(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, b"1", "k")
    monkeypatch.setattr(type(broker.store.reads), "look_message_by_offset", lambda self, offset: b"\0" * 100)
    answer = query(broker, "k")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "no sound message" in answer.remark


def test_queries_that_wait_are_limited_in_number(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_TICK", 0)
    monkeypatch.setattr("store.index.index_service.ENTRIES_PER_IDLE_TICK", 0)
    send(broker, b"1", "k")
    asked = [broker.new_request(RequestCode.QUERY_MESSAGE, query_fields("k")) for _ in range(PENDING_MAX + 1)]
    broker.receive(asked)
    refused = broker.channel.response_to(asked[-1].opaque)
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert broker.channel.response_to(asked[-2].opaque) is None
    broker.run_for(WAIT_MS_MAX)
    broker.run_until(lambda: all(broker.channel.response_to(command.opaque) for command in asked))
    monkeypatch.undo()
    assert bodies(query(broker, "k")) == [b"1"]


def test_a_tick_looks_for_a_few_queries_and_the_others_have_their_turn(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, b"wanted", "Aa")
    for number in range(2 * RECORDS_PER_STEP):
        send(broker, b"%d" % number, "BB")
    broker.run_until(lambda: broker.store.index.behind == 0)
    asked = [broker.new_request(RequestCode.QUERY_MESSAGE, query_fields("Aa")) for _ in range(PENDING_MAX)]
    broker.receive(asked)
    steps: list[MessageQuery] = []
    look = MessageQuery.look

    def counted(query: MessageQuery) -> None:
        steps.append(query)
        look(query)

    monkeypatch.setattr(MessageQuery, "look", counted)
    broker.tick()
    assert 0 < len(steps) <= STEPS_PER_TICK
    broker.run_until(lambda: all(broker.channel.response_to(command.opaque) for command in asked))
