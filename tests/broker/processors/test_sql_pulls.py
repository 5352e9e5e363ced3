"""SQL92 filters at a broker: with the pull, by heartbeat, by the check of a client's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from broker.processors.clients.client_manage_processor import SQL_SUBSCRIPTIONS_MAX
from broker.waiting.waiting_room import RECORDS_LOOKED_AT_MAX
from message.decoder import decode_messages
from remoting.bodies.bodies import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

PULL = RequestCode.PULL_MESSAGE
SUSPEND = "6"  # sysFlag: may wait, and brings its subscription


def send(broker: OneBroker, number: int, properties: str) -> None:
    fields = send_fields("T", 0, properties.replace("=", "\x01").replace(";", "\x02"))
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % number)
    assert answer.code == ResponseCode.SUCCESS


def fill(broker: OneBroker, count: int = 6) -> None:
    for number in range(count):
        send(broker, number, f"number={number};" + ("even=yes;" if number % 2 == 0 else ""))


def sql(expression: str, offset: int = 0, **more: str) -> dict[str, str]:
    fields = {"expressionType": "SQL92", "subscription": expression}
    return pull_fields("T", 0, offset, **(fields | more))


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_messages(bytes(answer.body))]


def heart_beat(broker: OneBroker, *expressions: str) -> RemotingCommand:
    """Of the group g; the first expression is for the topic T."""
    subscriptions = [
        SubscriptionData(
            topic="T" if number == 0 else f"T{number}",
            sub_string=expression,
            sub_version=5,
            expression_type="SQL92",
        )
        for number, expression in enumerate(expressions)
    ]
    consumer = ConsumerData(group_name="g", subscription_data_set=subscriptions)
    data = HeartbeatData(client_id="c1", consumer_data_set=[consumer])
    return broker.ask(RequestCode.HEART_BEAT, {}, data.encode())


def check(broker: OneBroker, **subscription: Any) -> RemotingCommand:
    body = {"clientId": "c1", "group": "g", "subscriptionData": {"topic": "T"} | subscription}
    return broker.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, json.dumps(body).encode())


def test_a_pull_brings_its_expression(broker: OneBroker) -> None:
    fill(broker)
    answer = broker.ask(PULL, sql("number > 1 AND even IS NOT NULL"))
    assert (answer.code, bodies_of(answer)) == (ResponseCode.SUCCESS, [b"2", b"4"])
    assert answer.ext_fields["nextBeginOffset"] == "6"
    nothing = broker.ask(PULL, sql("number > 9"))
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert nothing.ext_fields["nextBeginOffset"] == "6"


def test_a_pull_goes_by_the_expression_of_the_heartbeat(broker: OneBroker) -> None:
    fill(broker)
    assert heart_beat(broker, "number BETWEEN 1 AND 2").code == ResponseCode.SUCCESS
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0", subVersion="5"))
    assert bodies_of(answer) == [b"1", b"2"]


def test_an_expression_that_cannot_be_read_delivers_nothing(broker: OneBroker) -> None:
    """RocketMQ delivers everything to the first of the two."""
    fill(broker, 1)
    answer = broker.ask(PULL, sql("number == 0"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "column 9: " in (answer.remark or "")
    assert heart_beat(broker, "number == 0").code == ResponseCode.SUCCESS
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0", subVersion="5"))
    assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "Your expression may be wrong! column 9: " in (answer.remark or "")


def test_a_client_hears_what_is_wrong_with_its_subscription(broker: OneBroker) -> None:
    assert check(broker, subString="a = 1", expressionType="SQL92").code == ResponseCode.SUCCESS
    assert check(broker, subString="||").code == ResponseCode.SUCCESS, "tags are the client's to look at"
    for expression in ("a = ", ""):
        answer = check(broker, subString=expression, expressionType="SQL92")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED, expression


def test_filters_can_be_turned_off_while_the_broker_runs(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "enablePropertyFilter=false\n")
    fill(broker, 1)
    refused = "The broker does not support consumer to filter message by SQL92"
    for answer in (
        broker.ask(PULL, sql("number = 0")),
        broker.ask(PULL, sql("number == 0")),
        check(broker, subString="number = 0", expressionType="SQL92"),
    ):
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, refused)
    assert broker.ask(PULL, pull_fields("T")).code == ResponseCode.SUCCESS
    turned_on = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"enablePropertyFilter=true")
    assert turned_on.code == ResponseCode.SUCCESS
    assert broker.ask(PULL, sql("number = 0")).code == ResponseCode.SUCCESS
    assert check(broker, subString="number = 0", expressionType="SQL92").code == ResponseCode.SUCCESS
    broker.close()


def test_a_group_has_so_many_subscriptions_at_most(broker: OneBroker) -> None:
    most = ["a = 1"] * SQL_SUBSCRIPTIONS_MAX
    assert heart_beat(broker, *most).code == ResponseCode.SUCCESS
    answer = heart_beat(broker, *most, "a = 1")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert f"{SQL_SUBSCRIPTIONS_MAX + 1} SQL92 subscriptions of the group g" in (answer.remark or "")


def hold(broker: OneBroker, expression: str, channel: RecordingChannel) -> RemotingCommand:
    command = broker.new_request(PULL, sql(expression, 1, sysFlag=SUSPEND))
    broker.receive([command], channel)
    broker.settle()
    assert channel.response_to(command.opaque) is None
    return command


def test_a_waiting_pull_wakes_for_what_it_wants_alone(broker: OneBroker) -> None:
    fill(broker, 1)
    channel = RecordingChannel(2)
    command = hold(broker, "number > 5", channel)
    send(broker, 1, "number=1;")
    send(broker, 2, "number=x;")
    broker.settle()
    assert channel.response_to(command.opaque) is None
    send(broker, 6, "number=6;")
    broker.settle()
    answer = channel.response_to(command.opaque)
    assert answer is not None
    assert bodies_of(answer) == [b"6"]


def test_a_waiting_pull_moves_on_behind_what_it_does_not_want(broker: OneBroker) -> None:
    fill(broker, 1)
    channel = RecordingChannel(2)
    command = hold(broker, "number > 5", channel)
    send(broker, 1, "number=1;")
    broker.run_for(6000)
    answer = channel.response_to(command.opaque)
    assert answer is not None
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


def test_many_arrivals_wake_a_pull_unseen(broker: OneBroker) -> None:
    """Looking at all of them for all who wait would hold up the sends."""
    fill(broker, 1)
    channel = RecordingChannel(2)
    command = hold(broker, "number > 5", channel)
    sends = [
        broker.new_request(RequestCode.SEND_MESSAGE_V2, send_fields("T", 0, "number\x011\x02"), b"x")
        for _ in range(RECORDS_LOOKED_AT_MAX + 1)
    ]
    broker.receive(sends)
    broker.settle()
    answer = channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_what_a_consumer_gave_back_comes_whatever_its_expression(broker: OneBroker) -> None:
    """As in RocketMQ: clients subscribe their retry topic with `*`."""
    assert heart_beat(broker, "number > 100").code == ResponseCode.SUCCESS
    fill(broker, 1)
    sent = broker.ask(PULL, pull_fields("T"))
    message = decode_messages(bytes(sent.body))[0]
    fields = {"group": "g", "offset": str(message.phy_offset), "delayLevel": "1", "originTopic": "T"}
    given_back = broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert given_back.code == ResponseCode.SUCCESS
    broker.run_for(3000)
    answer = broker.ask(PULL, pull_fields("%RETRY%g"))
    assert bodies_of(answer) == [b"0"]
