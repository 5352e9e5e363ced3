"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: how popped messages end, and what that costs."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hostile_requests import as_json
from one_broker import OneBroker, RecordingChannel, pull_fields
from pops import PopClient, bodies

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode
from store.read_index_waits import OnReadIndex


def test_a_changed_invisible_time_counts_from_then_on(client: PopClient) -> None:
    messages = client.pop()
    client.ack(*messages[1:])
    changed = client.change(messages[0], 30_000)
    client.broker.run_for(20_000)
    assert client.pop() == []
    client.broker.run_for(11_000)
    (again,) = client.pop()
    client.ack(changed)
    client.ack(again)
    client.broker.run_for(20_000)
    assert client.pop() == []


def test_a_change_of_what_is_not_in_flight_is_no_success(client: PopClient) -> None:
    """Its answer would be a handle whose ack ends nothing. An ack by the old handle is told success, as ever."""
    broker = client.broker
    (expired, acked, *others) = client.pop()
    client.change(expired, 1000)
    client.ack(acked)
    broker.run_for(3000)
    for each in (expired, acked):
        fields = {**client.ack_fields(each), "invisibleTime": "1000"}
        answer = broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert (answer.code, answer.ext_fields) == (ResponseCode.NO_MESSAGE, {})
        assert (answer.remark or "").startswith(f"no message is in flight by the handle {each.handle}")
        client.ack(each)
    assert broker.store.tables.pop_table.in_flight_count == len(others)


def test_an_ack_or_a_change_by_a_handle_from_before_a_change_counts(client: PopClient) -> None:
    """The answer to the change may not have come, and then its client has no other handle."""
    (one, two, *others) = client.pop()
    client.ack(*others)
    client.change(one, 30_000)
    client.change(two, 30_000)
    client.ack(one)
    newest = client.change(two, 2000)
    client.broker.run_for(1000)
    assert client.broker.store.tables.pop_table.in_flight_count == 1
    client.ack(newest)
    client.broker.run_for(60_000)
    assert client.pop() == []


def test_a_message_that_is_suspended_comes_again_as_the_same_attempt(
    tmp_path: Path, client: PopClient
) -> None:
    """Also after what would be the last one."""
    broker = client.broker
    config = {"groupName": "g", "retryMaxTimes": 0}
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))
    (message, *others) = client.pop()
    client.ack(*others)
    suspended = client.change(message, 1000, suspend="true")
    broker.close(clean=True)
    client = PopClient(OneBroker(tmp_path, now_ms=broker.now_ms))
    client.broker.run_for(2000)
    (again,) = client.pop()
    assert (again.body, again.message.reconsume_times) == (message.body, 0)
    client.ack(suspended)
    client.broker.run_for(11_000)
    assert client.pop() == []
    dead = decode_messages(client.broker.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%g")).body)
    assert [each.body for each in dead] == [message.body]


def test_a_batch_of_acks_may_be_larger_than_a_record(tmp_path: Path) -> None:
    """Of messages that were popped one by one, by a group and of a topic with long names."""
    broker = OneBroker(tmp_path, "mapedFileSizeCommitLog=1048576\n")
    client = PopClient(broker, "T" * 120, "g" * 120)
    client.send(*[b"x"] * 600)
    messages = [message for _ in range(600) for message in client.pop(maxMsgNums="1")]
    body = client.batch_ack_body(messages)
    assert len(body) > broker.store.config.state_record_size_max
    assert broker.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body).code == ResponseCode.SUCCESS
    assert broker.store.tables.pop_table.in_flight_count == 0


def test_acks_that_are_partly_in_the_log_when_the_leader_ends_are_not_said_to_have_changed_nothing(
    tmp_path: Path,
) -> None:
    broker = OneBroker(tmp_path, "mapedFileSizeCommitLog=1048576\n")
    client = PopClient(broker, "T" * 120, "g" * 120)
    client.send(*[b"x"] * 600)
    messages = [message for _ in range(600) for message in client.pop(maxMsgNums="1")]
    request = broker.new_request(RequestCode.BATCH_ACK_MESSAGE, {}, client.batch_ack_body(messages))
    channel = RecordingChannel()
    broker.receive([request], channel)
    broker.end_turn()  # a part of them is in the log, the others wait for the end of that
    broker.step_down()
    answer = channel.response_to(request.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "nothing was changed" not in str(answer.remark)


def test_an_ack_of_more_messages_than_a_pop_has_is_refused(client: PopClient) -> None:
    """Each of them is looked for, and a leader has no time for 65,536 of each ack in a body."""
    (message, *others) = client.pop()
    batch = json.loads(client.batch_ack_body([message]))
    batch["acks"][0]["b"] = b64encode(bytes(4000) + b"\xff" * 5).decode()
    answer = client.broker.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(batch).encode())
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "an ack of the batch names 40 messages, and a pop has 32 at most"
    assert client.broker.store.tables.pop_table.in_flight_count == 1 + len(others)


def test_acks_of_one_turn_share_a_record(client: PopClient) -> None:
    """Of several clients, which popped one by one."""
    broker = client.broker
    messages = [message for _ in range(5) for message in client.pop(maxMsgNums="1")]
    end = broker.replica.log.ledger_end_index
    channels = [RecordingChannel(number) for number in range(5)]
    requests = [broker.new_request(RequestCode.ACK_MESSAGE, client.ack_fields(each)) for each in messages]
    for request, channel in zip(requests, channels, strict=True):
        broker.receive([request], channel)
    broker.settle()
    answers = [channel.response_to(each.opaque) for each, channel in zip(requests, channels, strict=True)]
    assert [answer.code for answer in answers if answer is not None] == [ResponseCode.SUCCESS] * 5
    assert broker.replica.log.ledger_end_index == end + 1


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
    asked = {**client.ack_fields(message), "invisibleTime": "1000", **fields}
    assert client.broker.ask(RequestCode.ACK_MESSAGE, asked).code == code
    change = client.broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, asked)
    assert change.code == (code or ResponseCode.NO_MESSAGE)
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
    for outcome, codes in (
        ("it was cut off", [ResponseCode.SERVICE_NOT_AVAILABLE] * 3),
        (None, [ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE, ResponseCode.SUCCESS]),
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
        assert [answer.code for answer in answers if answer is not None] == codes


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
