"""POP_MESSAGE, ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: what clients see of messages that they pop."""

import json
from pathlib import Path

import pytest
from hostile_requests import TOPIC_CONFIG, as_json
from one_broker import OneBroker, RecordingChannel, commit_fields, pull_fields, send_fields
from pops import PopClient, PoppedMessage, pop_fields, popped

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode
from store.read_index_waits import OnReadIndex


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


@pytest.fixture
def client(tmp_path: Path) -> PopClient:
    client = PopClient(OneBroker(tmp_path, "timerWheelEnable=false\n"))
    client.send(b"0", b"1", b"2", queue_id=0)
    client.send(b"3", b"4", queue_id=1)
    return client


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


def test_a_pop_waits_for_a_message_of_its_topic(client: PopClient) -> None:
    client.ack(*client.pop())
    requests = [client.begin() for _ in range(2)]
    broker = client.broker
    broker.run_for(1000)
    assert [broker.channel.response_to(request.opaque) for request in requests] == [None, None]
    client.send(b"5")
    broker.run_for(100)
    answers = [broker.channel.response_to(request.opaque) for request in requests]
    assert answers[1] is None
    assert answers[0] is not None
    messages = popped(answers[0])
    assert bodies(messages) == [b"5"]
    client.ack(*messages)
    broker.run_for(20_000)
    late = broker.channel.response_to(requests[1].opaque)
    assert late is not None
    assert late.code == ResponseCode.POLLING_TIMEOUT


def test_a_pop_that_waits_gets_what_has_expired(client: PopClient) -> None:
    client.ack(*client.pop()[1:])
    request = client.begin()
    client.broker.run_for(11_000)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert [message.message.reconsume_times for message in popped(answer)] == [1]


def test_a_changed_invisible_time_counts_from_then_on(client: PopClient) -> None:
    messages = client.pop()
    client.ack(*messages[1:])
    changed = client.change(messages[0], 30_000)
    client.broker.run_for(20_000)
    client.ack(messages[0])  # by the old handle, which says nothing any more
    assert client.pop() == []
    client.broker.run_for(11_000)
    (again,) = client.pop()
    client.ack(changed)
    client.ack(again)
    client.broker.run_for(20_000)
    assert client.pop() == []


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


def test_fifo_consumers_get_the_next_messages_once_all_have_their_ack(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0")
    messages = fifo.pop(maxMsgNums="2", attemptId="a")
    assert [message.body for message in messages] == [b"0", b"1"]
    assert fifo.pop(attemptId="b") == []
    again = fifo.pop(maxMsgNums="2", attemptId="a")
    assert [(message.body, message.count) for message in again] == [(b"0", 0), (b"1", 0)]
    fifo.ack(again[1])
    assert fifo.pop(attemptId="b") == []
    client.broker.run_for(11_000)
    third = fifo.pop(attemptId="b")
    assert [(message.body, message.count) for message in third] == [(b"0", 1), (b"2", 0)]
    fifo.ack(*third)
    client.send(b"5")
    assert [message.body for message in fifo.pop(attemptId="c")] == [b"5"]


def test_a_fifo_pop_that_waits_is_woken_by_the_ack(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0")
    messages = fifo.pop(maxMsgNums="2")
    request = fifo.begin()
    fifo.ack(*messages)
    client.broker.run_for(100)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"2"]


def test_a_fifo_message_that_may_come_again_at_once_does(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0", maxMsgNums="1")
    (message,) = fifo.pop()
    request = fifo.begin()
    fifo.change(message, 500)
    client.broker.run_for(1000)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert [(each.body, each.count) for each in popped(answer)] == [(b"0", 1)]


def test_a_fifo_message_whose_attempts_are_over_is_dead_and_blocks_nobody(client: PopClient) -> None:
    broker = client.broker
    config = {"groupName": "f", "retryMaxTimes": 1}
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    counts = []
    for _ in range(2):
        (message,) = fifo.pop()
        counts.append((message.body, message.count))
        broker.run_for(11_000)
    assert counts == [(b"0", 0), (b"0", 1)]
    assert [message.body for message in fifo.pop()] == [b"1"]
    dead = decode_messages(broker.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%f")).body)
    assert [message.body for message in dead] == [b"0"]


def test_a_fifo_message_whose_attempts_are_over_is_not_popped_before_it_is_dead(client: PopClient) -> None:
    """The pop comes when the last attempt has just expired, and the leader has not ended it yet."""
    broker = client.broker
    config = {"groupName": "f", "retryMaxTimes": 0}
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    assert bodies(fifo.pop()) == [b"0"]
    broker.now_ms += 10_000
    assert fifo.pop() == []
    broker.run_for(100)
    assert bodies(fifo.pop()) == [b"1"]
    dead = decode_messages(broker.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%f")).body)
    assert [message.body for message in dead] == [b"0"]


def test_fewer_attempts_than_a_fifo_message_has_had_end_it(client: PopClient) -> None:
    """It had expired, and was to come again, when its group was set so."""
    broker = client.broker
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    fifo.pop()
    broker.run_for(11_000)
    config = {"groupName": "f", "retryMaxTimes": 0}
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))
    request = fifo.begin()
    broker.run_for(500)
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"1"]


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


def test_what_came_again_goes_with_its_topic(client: PopClient) -> None:
    client.pop()
    broker = client.broker
    broker.run_for(11_000)
    assert broker.store.reads.max_offset("%RETRY%g_T", 0) == 5
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    client.send(b"new")
    assert bodies(client.pop()) == [b"new"]


def test_a_client_that_has_gone_leaves_its_messages_to_others(client: PopClient) -> None:
    client.pop()
    other = RecordingChannel(2)
    client.begin(other)
    other.close()
    client.broker.controller.pipeline.channel_closed(other)
    request = client.begin()
    client.send(b"5")
    client.broker.run_for(100)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"5"]


def test_more_messages_in_flight_than_may_be_are_refused(tmp_path: Path) -> None:
    client = PopClient(OneBroker(tmp_path, "pyDLedgerMaxPoppedMessages=32\n"))
    client.send(*[b"x"] * 40)
    messages = client.pop(maxMsgNums="20")
    answer = client.ask(maxMsgNums="20")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "pyDLedgerMaxPoppedMessages=32" in (answer.remark or "")
    client.ack(*messages)
    assert len(client.pop(maxMsgNums="20")) == 20


def test_what_is_in_flight_survives_a_restart(tmp_path: Path, client: PopClient) -> None:
    messages = client.pop()
    client.ack(messages[0])
    client.broker.close(clean=True)
    broker = OneBroker(tmp_path, now_ms=client.broker.now_ms)
    client = PopClient(broker)
    client.ack(messages[1])
    broker.run_for(11_000)
    assert bodies(client.pop()) == sorted(message.body for message in messages[2:])


def test_an_ack_goes_before_a_change_that_comes_behind_it(client: PopClient) -> None:
    """As from a proxy that asks for more time while its client acknowledges."""
    broker = client.broker
    (message, *others) = client.pop()
    client.ack(*others)
    fields = client.ack_fields(message)
    change = {**fields, "invisibleTime": "1000"}
    requests = [
        broker.new_request(RequestCode.ACK_MESSAGE, fields),
        broker.new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, change),
    ]
    broker.receive(requests)
    broker.run_until(lambda: all(broker.channel.response_to(each.opaque) for each in requests))
    assert broker.store.tables.pop_table.in_flight_count == 0
    broker.run_for(11_000)
    assert client.pop() == []


def test_a_batch_of_acks_is_one_request_and_one_change(client: PopClient) -> None:
    messages = client.pop()
    end = client.broker.replica.log.ledger_end_index
    answer = client.broker.ask(RequestCode.BATCH_ACK_MESSAGE, {}, client.batch_ack_body(messages[1:]))
    assert answer.code == ResponseCode.SUCCESS
    assert client.broker.replica.log.ledger_end_index == end + 1
    client.broker.run_for(11_000)
    assert bodies(client.pop()) == [messages[0].body]


def test_messages_of_a_batch_are_two_records_and_one_by_one_two_each(tmp_path: Path) -> None:
    """What a popped and acknowledged message costs in the log."""
    broker = OneBroker(tmp_path)
    client = PopClient(broker)
    client.send(*[b"x"] * 65)
    client.ack(*client.pop(maxMsgNums="1"))  # the topic and the group are there now
    end = broker.replica.log.ledger_end_index
    messages = client.pop()
    assert len(messages) == 32
    requests = [
        broker.new_request(RequestCode.ACK_MESSAGE, client.ack_fields(message)) for message in messages
    ]
    broker.receive(requests)
    broker.run_until(lambda: all(broker.channel.response_to(each.opaque) for each in requests))
    assert broker.replica.log.ledger_end_index == end + 2
    client.ack(*client.pop(maxMsgNums="1"))
    assert broker.replica.log.ledger_end_index == end + 4


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


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "8"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": "99"}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "1 2 3"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 x 3 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": f"0 {1 << 63} 3 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 7 3 0 0 b 0 0"}, ResponseCode.SUCCESS),
    ],
)
def test_a_handle_of_nothing_ends_nothing(client: PopClient, fields: dict[str, str], code: int) -> None:
    message = client.pop()[0]
    for request in (RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME):
        asked = {**client.ack_fields(message), "invisibleTime": "1000", **fields}
        assert client.broker.ask(request, asked).code == code
    assert client.broker.store.tables.pop_table.in_flight_count == 5


def test_what_is_not_in_flight_has_ended_only_where_a_majority_confirms_the_leader(
    client: PopClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may lead by now, and the message be popped there: it would come again after its ack."""
    broker = client.broker
    (message, *others) = client.pop()
    client.ack(message)
    asked: list[OnReadIndex] = []
    monkeypatch.setattr(broker.store.read_index_waits, "ask", lambda on_done, now_ms: asked.append(on_done))
    fields = client.ack_fields(message)
    batch = client.batch_ack_body([message, others[0]])
    requests = [
        broker.new_request(RequestCode.ACK_MESSAGE, fields),
        broker.new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {**fields, "invisibleTime": "1000"}),
        broker.new_request(RequestCode.BATCH_ACK_MESSAGE, {}, batch),
    ]
    for outcome, code in (
        ("it was cut off", ResponseCode.SERVICE_NOT_AVAILABLE),
        (None, ResponseCode.SUCCESS),
    ):
        channel = RecordingChannel()
        broker.receive(requests, channel)
        broker.settle()
        assert len(asked) == 3
        assert [channel.response_to(each.opaque) for each in requests] == [None] * 3
        while asked:
            asked.pop()(outcome)
        broker.run_for(100)
        answers = [channel.response_to(each.opaque) for each in requests]
        assert [answer.code for answer in answers if answer is not None] == [code] * 3


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


def test_an_ack_that_waits_for_the_end_of_its_turn_comes_before_a_tick(client: PopClient) -> None:
    """The leader's tick comes first, and finds the message expired."""
    broker = client.broker
    messages = client.pop(queueId="0")
    client.ack(*messages[1:])
    broker.now_ms += 9_990
    request = broker.new_request(RequestCode.ACK_MESSAGE, client.ack_fields(messages[0]))
    broker.receive([request])
    broker.tick(100)
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    broker.run_for(10_000)
    assert broker.store.reads.max_offset("%RETRY%g_T", 0) == 0


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


LOOK = {"consumerGroup": "g", "topic": "T", "queueId": "-1"}


def test_a_topic_of_many_queues_is_popped_from_in_several_records(broker: OneBroker) -> None:
    """The first pop of a group sets its offset in each of them."""
    config = {
        **TOPIC_CONFIG,
        "topicName": "Wide",
        "readQueueNums": 300,
        "writeQueueNums": 300,
        "attributes": {},
    }
    body = as_json({"topicConfigList": [config]})
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == ResponseCode.SUCCESS
    client = PopClient(broker, "Wide")
    request = client.begin()
    broker.run_for(200)
    assert broker.channel.response_to(request.opaque) is None
    assert len(broker.store.tables.consumer_offset_table.queues_of("g", "Wide")) == 300
    client.send(b"0", queue_id=299)
    broker.run_for(100)
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer, "Wide")) == [b"0"]


def test_a_peek_shows_what_is_next_and_takes_nothing(client: PopClient) -> None:
    fields = {**LOOK, "maxMsgNums": "4"}
    for _ in range(2):
        answer = client.broker.ask(RequestCode.PEEK_MESSAGE, fields)
        assert len(decode_messages(answer.body)) == 4
        assert answer.ext_fields["restNum"] == "1"
    client.pop()
    assert client.broker.ask(RequestCode.PEEK_MESSAGE, fields).code == ResponseCode.PULL_NOT_FOUND
    assert client.broker.ask(RequestCode.PEEK_MESSAGE, {**fields, "topic": "U"}).code == (
        ResponseCode.TOPIC_NOT_EXIST
    )


def test_a_notification_comes_when_there_is_a_message_and_leaves_it_to_pops(client: PopClient) -> None:
    broker = client.broker
    asked = {**LOOK, "pollTime": "5000", "bornTime": "0"}
    assert broker.ask(RequestCode.NOTIFICATION, asked).ext_fields["hasMsg"] == "true"
    client.ack(*client.pop())
    notification = broker.new_request(RequestCode.NOTIFICATION, {**asked, "bornTime": str(broker.now_ms)})
    broker.receive([notification])
    pop = client.begin()
    answer = broker.ask(RequestCode.POLLING_INFO, LOOK)
    assert answer.ext_fields == {"pollingNum": "2"}
    client.send(b"5")
    broker.run_for(100)
    told, found = (broker.channel.response_to(each.opaque) for each in (notification, pop))
    assert told is not None
    assert told.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
    assert found is not None
    assert bodies(popped(found)) == [b"5"]


def test_a_notification_that_nothing_comes_to_ends_with_its_time(client: PopClient) -> None:
    client.ack(*client.pop())
    broker = client.broker
    asked = {**LOOK, "pollTime": "500", "bornTime": str(broker.now_ms)}
    notification = broker.new_request(RequestCode.NOTIFICATION, asked)
    broker.receive([notification])
    assert broker.channel.response_to(notification.opaque) is None
    broker.run_for(1000)
    told = broker.channel.response_to(notification.opaque)
    assert told is not None
    assert told.ext_fields == {"hasMsg": "false", "pollingFull": "false"}


def test_a_message_tells_all_that_wait_to_be_notified_and_the_pop_behind_them(client: PopClient) -> None:
    """They are many enough that a call in a call in a call would not end."""
    client.ack(*client.pop())
    broker = client.broker
    asked = {**LOOK, "pollTime": "5000", "bornTime": str(broker.now_ms)}
    notifications = [broker.new_request(RequestCode.NOTIFICATION, asked) for _ in range(600)]
    broker.receive(notifications)
    pop = client.begin()
    client.send(b"5")
    broker.run_for(100)
    told = [broker.channel.response_to(each.opaque) for each in notifications]
    assert {answer.ext_fields["hasMsg"] for answer in told if answer is not None} == {"true"}
    assert None not in told
    found = broker.channel.response_to(pop.opaque)
    assert found is not None
    assert bodies(popped(found)) == [b"5"]


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
