"""POP_MESSAGE: what clients see of messages that they pop."""

import json
from pathlib import Path

import pytest
from hostile_requests import as_json
from one_broker import OneBroker, commit_fields, pull_fields, send_fields
from pops import PopClient, bodies, pop_fields, popped

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode


def test_each_message_is_given_to_one_consumer(client: PopClient) -> None:
    first, second = client.pop(maxMsgNums="2"), client.pop()
    assert len(first) == 2
    assert bodies(first + second) == [b"0", b"1", b"2", b"3", b"4"]
    assert client.pop() == []


def test_an_acknowledged_message_never_comes_again_and_another_does_once(client: PopClient) -> None:
    messages = client.pop()
    client.ack(*[message for message in messages if message.body in (b"0", b"3")])
    client.broker.run_for(11_000)
    again = client.pop()
    assert bodies(again) == [b"1", b"2", b"4"]
    assert {message.message.reconsume_times for message in again} == {1}
    assert {message.message.topic for message in again} == {"T"}
    assert {message.topic for message in again} == {"%RETRY%g_T"}
    client.ack(*again)
    client.broker.run_for(60_000)
    assert client.pop() == []
    assert client.broker.store.tables.pop_table.in_flight_count == 0


def test_pops_that_come_together_begin_where_the_one_before_ends(client: PopClient) -> None:
    broker = client.broker
    requests = [
        broker.new_request(
            RequestCode.POP_MESSAGE,
            pop_fields(maxMsgNums="1", queueId="0"),
        )
        for _ in range(4)
    ]
    broker.receive(requests)
    broker.run_until(lambda: all(broker.channel.response_to(each.opaque) for each in requests))
    answers = [broker.channel.response_to(each.opaque) for each in requests]
    found = [decode_messages(answer.body) for answer in answers if answer is not None]
    assert [[message.body for message in messages] for messages in found] == [[b"0"], [b"1"], [b"2"], []]


def test_pops_under_way_when_the_offset_is_moved_begin_there(client: PopClient) -> None:
    """None of them takes effect. Each looks again, and not behind another one that will not either."""
    client.send(*[b"%d" % number for number in range(5, 50)])
    broker = client.broker
    client.pop(queueId="0", maxMsgNums="5")
    pops = [
        broker.new_request(RequestCode.POP_MESSAGE, pop_fields(maxMsgNums="1", queueId="0")) for _ in range(3)
    ]
    broker.receive([broker.new_request(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1)), *pops])
    broker.run_until(lambda: all(broker.channel.response_to(each.opaque) for each in pops))
    answers = [broker.channel.response_to(each.opaque) for each in pops]
    found = [decode_messages(answer.body) for answer in answers if answer is not None]
    assert sorted(message.queue_offset for messages in found for message in messages) == [1, 2, 3]


def test_a_filter_passes_over_what_it_does_not_want(client: PopClient) -> None:
    client.send(*[b"x"] * 3000, tag="B")
    client.send(b"wanted", tag="C")
    assert bodies(client.pop(exp="C")) == [b"wanted"]
    assert client.pop(exp="A") == []


def test_the_last_attempt_ends_in_the_dead_letter_topic(client: PopClient) -> None:
    broker = client.broker
    config = {"groupName": "g", "retryMaxTimes": 2}
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))
    assert answer.code == ResponseCode.SUCCESS
    seen = []
    for _ in range(3):
        seen.append([message.message.reconsume_times for message in client.pop()])
        broker.run_for(11_000)
    assert seen == [[0] * 5, [1] * 5, [2] * 5]
    assert client.pop() == []
    dead = decode_messages(broker.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%g")).body)
    assert sorted(message.body for message in dead) == [b"0", b"1", b"2", b"3", b"4"]
    assert {message.properties["RETRY_TOPIC"] for message in dead} == {"T"}


def test_the_offset_is_that_of_the_group_and_may_be_set_back(client: PopClient) -> None:
    broker = client.broker
    first = client.pop(queueId="0")
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    assert broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext_fields["offset"] == "3"
    reset = {
        "topic": "T",
        "group": "g",
        "timestamp": "0",
        "isForce": "true",
        "queueId": "0",
        "offset": "1",
    }
    assert broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.SUCCESS
    second = client.pop(queueId="0")
    assert bodies(second) == [b"1", b"2"]
    client.ack(*first)
    broker.run_for(11_000)
    # Only the second pop has these messages in flight, and its handles are not those of the first.
    assert bodies(client.pop()) == [b"1", b"2", b"3", b"4"]
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(3)).code == ResponseCode.SUCCESS


def test_an_offset_that_is_moved_on_leaves_what_is_in_flight_to_its_consumers(client: PopClient) -> None:
    """As `skip what is there`: what was given out is not skipped."""
    broker = client.broker
    messages = client.pop(queueId="0", maxMsgNums="2")
    reset = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "3"}
    assert broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.SUCCESS
    assert client.pop(queueId="0") == []
    client.ack(messages[0])
    broker.run_for(11_000)
    assert bodies(client.pop(queueId="0")) == [messages[1].body]


def test_a_filter_that_matches_seldom_comes_to_its_message_in_its_turns(tmp_path: Path) -> None:
    """Each pop ends after the part of the way for which it has time, and the next one goes on from there."""
    client = PopClient(OneBroker(tmp_path, "maxFilterMessageSize=40\n"), exp="C", maxMsgNums="1")
    client.send(*[b"x"] * 100, tag="B")
    client.send(b"wanted", tag="C")
    broker = client.broker
    found: list[bytes] = []
    for _ in range(10):
        request = broker.new_request(RequestCode.POP_MESSAGE, pop_fields(exp="C", maxMsgNums="1"))
        broker.receive([request])
        broker.now_ms += 1000
        broker.settle()
        answer = broker.channel.response_to(request.opaque)
        assert answer is not None
        found += bodies(popped(answer)) if answer.code == ResponseCode.SUCCESS else []
    assert found == [b"wanted"]


def test_a_topic_that_is_deleted_takes_its_popped_messages_along(client: PopClient) -> None:
    messages = client.pop()
    broker = client.broker
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    assert broker.store.tables.pop_table.in_flight_count == 0
    client.send(b"new")
    client.broker.run_for(11_000)
    assert bodies(client.pop()) == [b"new"]
    answer = broker.ask(RequestCode.ACK_MESSAGE, client.ack_fields(messages[0]))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE)


def test_a_group_that_is_deleted_and_made_again_has_nothing_in_flight(client: PopClient) -> None:
    broker = client.broker
    messages = client.pop()
    fields = {"groupName": "g", "cleanOffset": "true"}
    assert broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == ResponseCode.SUCCESS
    assert broker.store.tables.pop_table.in_flight_count == 0
    again = client.pop()
    assert bodies(again) == [b"0", b"1", b"2", b"3", b"4"]
    client.ack(*again)
    client.ack(*messages)
    broker.run_for(11_000)
    assert client.pop() == []


def test_what_came_again_goes_with_its_topic(client: PopClient) -> None:
    client.pop()
    broker = client.broker
    broker.run_for(11_000)
    assert broker.store.reads.max_offset("%RETRY%g_T", 0) == 5
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    client.send(b"new")
    assert bodies(client.pop()) == [b"new"]


def test_more_messages_in_flight_than_may_be_are_refused(tmp_path: Path) -> None:
    client = PopClient(OneBroker(tmp_path, "pyDLedgerMaxPoppedMessages=32\n"))
    client.send(*[b"x"] * 40)
    messages = client.pop(maxMsgNums="20")
    answer = client.ask(maxMsgNums="20")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "pyDLedgerMaxPoppedMessages=32" in (answer.remark or "")
    client.ack(*messages)
    assert len(client.pop(maxMsgNums="20")) == 20


def test_a_group_that_takes_all_it_can_leaves_others_room(tmp_path: Path) -> None:
    """Each may have as many as all leave free."""
    greedy = PopClient(
        OneBroker(tmp_path, "pyDLedgerMaxPoppedMessages=96\n"), maxMsgNums="16", invisibleTime="99999"
    )
    greedy.send(*[b"x"] * 100)
    taken = []
    while (answer := greedy.ask()).code == ResponseCode.SUCCESS:
        taken += popped(answer)
    assert (answer.code, len(taken)) == (ResponseCode.SYSTEM_BUSY, 48)
    other = PopClient(greedy.broker, group="other", maxMsgNums="16")
    assert len(other.pop()) == 16
    assert len(PopClient(greedy.broker, group="third", maxMsgNums="16").pop()) == 16
    greedy.ack(*taken[:32])
    assert len(other.pop()) == 16


def test_a_pop_whose_time_is_over_looks_on_for_nobody(tmp_path: Path) -> None:
    """Its filter wants one message behind many, and the first part of the way takes too long."""
    client = PopClient(OneBroker(tmp_path, "maxFilterMessageSize=40\n"), exp="C", maxMsgNums="1")
    client.send(*[b"x"] * 50, tag="B")
    client.send(b"wanted", tag="C")
    broker = client.broker
    request = broker.new_request(RequestCode.POP_MESSAGE, pop_fields(exp="C", maxMsgNums="1"))
    broker.receive([request])
    broker.now_ms += 1000
    broker.settle()
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert broker.store.tables.pop_table.in_flight_count == 0
    assert 0 < broker.store.tables.consumer_offset_table.query("g", "T", 0) < 50
    assert bodies(client.pop()) == [b"wanted"]


def test_what_is_in_flight_survives_a_restart(tmp_path: Path, client: PopClient) -> None:
    messages = client.pop()
    client.ack(messages[0])
    client.broker.close(clean=True)
    broker = OneBroker(tmp_path, now_ms=client.broker.now_ms)
    client = PopClient(broker)
    client.ack(messages[1])
    broker.run_for(11_000)
    assert bodies(client.pop()) == sorted(message.body for message in messages[2:])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "8"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-2"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "a >", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"bornTime": "1"}, ResponseCode.POLLING_TIMEOUT),
        ({"attemptId": "x" * 129}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_what_cannot_be_popped_is_refused(client: PopClient, fields: dict[str, str], code: int) -> None:
    answer = client.ask(**fields)
    assert (answer.code, answer.ext_fields["popTime"]) == (code, "0")
    assert client.broker.store.tables.pop_table.in_flight_count == 0


def test_a_member_that_does_not_lead_sends_consumers_elsewhere(client: PopClient) -> None:
    (message, *_) = client.pop(maxMsgNums="1")
    waiting = client.begin(queueId="3")
    client.broker.step_down()
    answer = client.broker.channel.response_to(waiting.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert client.ask().code == ResponseCode.SYSTEM_BUSY
    fields = client.ack_fields(message)
    assert client.broker.ask(RequestCode.ACK_MESSAGE, fields).code == ResponseCode.SYSTEM_BUSY


def test_a_consumer_that_pulls_goes_on_where_pops_have_come_to(client: PopClient) -> None:
    broker = client.broker
    client.ack(*client.pop(queueId="0", maxMsgNums="2"))
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    offset = int(broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields).ext_fields["offset"])
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, offset))
    assert [message.body for message in decode_messages(answer.body)] == [b"2"]
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(3)).code == ResponseCode.SUCCESS
    client.send(b"5")
    assert bodies(client.pop(queueId="0")) == [b"5"]


def test_both_names_of_the_retry_topic_are_read(tmp_path: Path) -> None:
    client = PopClient(OneBroker(tmp_path, "enableRetryTopicV2=true\n"))
    client.send(b"0", b"1")
    client.ack(client.pop()[0])
    client.broker.run_for(11_000)
    (again,) = client.pop()
    assert again.topic == "%RETRY%g+T"
    client.ack(again)
    v1 = PopClient(client.broker, topic="%RETRY%g_T")
    v1.send(b"old")
    (old,) = client.pop()
    assert (old.body, old.topic) == (b"old", "%RETRY%g_T")
    client.ack(old)
    client.broker.run_for(20_000)
    assert client.pop() == []


def test_tools_see_what_is_in_flight_and_until_when(client: PopClient) -> None:
    broker = client.broker
    assert json.loads(bytes(broker.ask(RequestCode.GET_POPPED_MESSAGES).body)) == {"queues": [], "total": 0}
    messages = client.pop(queueId="0")
    fifo = PopClient(broker, group="f", order="true", queueId="0", invisibleTime="5000")
    broker.run_for(100)
    fifo.pop()
    client.ack(messages[0])
    told = json.loads(bytes(broker.ask(RequestCode.GET_POPPED_MESSAGES).body))
    pop_time = int(messages[0].handle.split(" ")[1])
    assert told["total"] == 5
    assert [(each["group"], each["topic"], each["queueId"], each["count"]) for each in told["queues"]] == [
        ("g", "T", 0, 2),
        ("f", "T", 0, 3),
    ]
    assert (told["queues"][0]["oldestPopMs"], told["queues"][0]["nextVisibleMs"]) == (
        pop_time,
        pop_time + 10_000,
    )


def test_a_message_whose_properties_leave_no_room_for_a_handle_comes_again(client: PopClient) -> None:
    """It comes under the name of its retry topic, and others come with it."""
    broker = client.broker
    client.ack(*client.pop())
    client.send(b"plain", b"full")
    properties = f"LONG\x01{'x' * 32_650}\x02"
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, properties), b"long")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    client.pop()
    broker.run_for(11_000)
    found = decode_messages(client.ask().body)
    assert {message.body: message.topic for message in found} == {
        b"plain": "T",
        b"full": "T",
        b"long": "%RETRY%g_T",
    }
