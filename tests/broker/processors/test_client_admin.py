"""Clients as tools see them, and requests that a broker passes on to one."""

from __future__ import annotations

import pytest
from one_broker import OneBroker, RecordingChannel, heart_beat, send_fields

from remoting.bodies.admin_bodies import (
    ConsumerConnection,
    GetConsumerStatusBody,
    ProducerConnection,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from remoting.bodies.bodies import MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response

RUNNING_INFO = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}


@pytest.fixture
def client() -> RecordingChannel:
    return RecordingChannel(7, "127.0.0.1:50007")


@pytest.fixture
def second() -> RecordingChannel:
    return RecordingChannel(8, "127.0.0.1:50008")


def asked_of(client: RecordingChannel, code: int) -> RemotingCommand:
    (command,) = [c for c in client.received if not c.is_response and c.code == code]
    return command


def reply(
    broker: OneBroker, client: RecordingChannel, asked: RemotingCommand, remark: str, body: bytes
) -> None:
    broker.receive([response(asked, 0, remark, {"a": "1"}, body)], client)
    broker.settle()


def test_connections_of_a_consumer_group_are_shown(broker: OneBroker, client: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    answer = broker.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    shown = ConsumerConnection.decode(answer.body)
    assert [(c.client_id, c.client_addr) for c in shown.connection_set] == [("c1", "127.0.0.1:50007")]
    assert shown.subscription_table["T"].sub_string == "*"
    assert (shown.message_model, shown.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")


def test_a_consumer_group_without_clients_is_not_online(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "nobody"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.remark == "the consumer group[nobody] not online"


def test_connections_of_producers_are_shown(broker: OneBroker, client: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    answer = broker.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p"})
    assert ProducerConnection.decode(answer.body).connection_set[0].client_id == "c1"
    table = ProducerTableInfo.decode(broker.ask(RequestCode.GET_ALL_PRODUCER_INFO).body)
    assert table.data["p"][0].remote_ip == "/127.0.0.1:50007"
    answer = broker.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "nobody"})
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_the_subscription_of_a_group_is_shown(broker: OneBroker, client: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    ask = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    shown = QuerySubscriptionResponseBody.decode(broker.ask(ask, {"group": "g", "topic": "T"}).body)
    assert shown.subscription_data is not None
    assert shown.subscription_data.sub_string == "*"
    shown = QuerySubscriptionResponseBody.decode(broker.ask(ask, {"group": "g", "topic": "U"}).body)
    assert shown.subscription_data is None


def test_running_info_is_asked_of_the_client_and_its_answer_passed_back(
    broker: OneBroker, client: RecordingChannel
) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    command = broker.new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
    broker.receive([command])
    assert broker.channel.response_to(command.opaque) is None
    asked = asked_of(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
    assert asked.ext_fields == RUNNING_INFO
    reply(broker, client, asked, "well", b'{"mqTable":{}}')
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert (answer.code, answer.remark, answer.ext_fields, bytes(answer.body)) == (
        ResponseCode.SUCCESS,
        "well",
        {"a": "1"},
        b'{"mqTable":{}}',
    )


def test_a_client_that_does_not_answer_costs_a_timeout_and_its_late_answer_nothing(
    broker: OneBroker, client: RecordingChannel
) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    command = broker.new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
    broker.receive([command])
    broker.run_for(9_900)
    assert broker.channel.response_to(command.opaque) is None
    broker.run_for(200)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    reply(broker, client, asked_of(client, RequestCode.GET_CONSUMER_RUNNING_INFO), "late", b"")
    assert broker.channel.response_to(command.opaque) == answer


def test_a_client_that_goes_away_meanwhile_ends_the_wait(broker: OneBroker, client: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    command = broker.new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
    broker.receive([command])
    broker.controller.pipeline.channel_closed(client)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT


def test_an_unknown_client_is_not_online(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The Consumer <g> <c1> not online",
    )


def test_a_message_to_consume_directly_travels_with_the_request(
    broker: OneBroker, client: RecordingChannel
) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    sent = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"look at me")
    fields = {"consumerGroup": "g", "clientId": "c1", "msgId": sent.ext_fields["msgId"]}
    broker.receive([broker.new_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)])
    asked = asked_of(client, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert b"look at me" in bytes(asked.body)
    assert asked.ext_fields == fields | {"brokerName": broker.config.broker_name}
    for bad_id in ("zz", "00" * 16):
        answer = broker.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "msgId": bad_id})
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)


def test_the_status_of_a_group_is_put_together_from_all_its_clients(
    broker: OneBroker, client: RecordingChannel, second: RecordingChannel
) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c2"), second)
    ask = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    command = broker.new_request(ask, {"group": "g", "topic": "T"})
    broker.receive([command])
    queue = MessageQueue(topic="T", broker_name="golden-a", queue_id=0)
    told = GetConsumerStatusBody(message_queue_table={queue: 5}).encode()
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    reply(broker, client, asked_of(client, code), "", told)
    assert broker.channel.response_to(command.opaque) is None
    reply(broker, second, asked_of(second, code), "", b"no status")
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert GetConsumerStatusBody.decode(answer.body).consumer_table == {"c1": {queue: 5}}


def test_the_status_of_nobody_is_an_error(broker: OneBroker) -> None:
    ask = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    assert broker.ask(ask, {"group": "g", "topic": "T"}).code == ResponseCode.SYSTEM_ERROR


def test_a_group_that_asked_for_no_notices_gets_none_when_a_member_leaves(
    broker: OneBroker, client: RecordingChannel, second: RecordingChannel
) -> None:
    body = b'{"groupName":"g","notifyConsumerIdsChangedEnable":false}'
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c2"), second)
    broker.controller.pipeline.channel_closed(second)
    assert not [c for c in client.received if not c.is_response]
