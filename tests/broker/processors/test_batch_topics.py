"""Topics with queue.type=BatchCQ, as clients and tools see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import START_MS, OneBroker, pull_fields, send_fields
from test_send_message import CREATE, SEND, create, stored

from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt, decode_message, decode_messages
from message.inner_batch import unwrapped
from message.message_id import decode_offset_message_id, pack_host
from remoting.bodies.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, SerializeType
from store.put_message import PutMessage

BATCH = RequestCode.SEND_BATCH_MESSAGE
BODY = encode_batch(
    BatchMessage(
        number, b"m%d" % number, b"UNIQ_KEY\x01K%d\x02TAGS\x01%s\x02" % (number, b"AB"[number % 2 :][:1])
    )
    for number in range(3)
)


@pytest.fixture
def broker(broker: OneBroker) -> OneBroker:
    create(broker, "B", attributes="+queue.type=BatchCQ")
    return broker


def send(
    broker: OneBroker, properties: str = "UNIQ_KEY\x01WHOLE\x02WAIT\x01true\x02", **more: str
) -> RemotingCommand:
    return broker.ask(BATCH, send_fields("B", 1, properties, m="true", **more), BODY)


def pulled(answer: RemotingCommand, offset: int) -> list[MessageExt]:
    assert answer.code == ResponseCode.SUCCESS
    return unwrapped(decode_messages(answer.body), offset)


@pytest.mark.parametrize("serialize_type", [SerializeType.JSON, SerializeType.ROCKETMQ])
def test_a_batch_is_one_record_and_its_sender_is_told_so(broker: OneBroker, serialize_type: int) -> None:
    for first in (0, 3):
        command = broker.new_request(
            BATCH, send_fields("B", 1, "UNIQ_KEY\x01WHOLE\x02", m="true"), BODY, serialize_type=serialize_type
        )
        broker.receive([command])
        broker.settle()
        answer = broker.channel.response_to(command.opaque)
        assert answer is not None
        assert answer.ext_fields == {
            "msgId": answer.ext_fields["msgId"],
            "queueId": "1",
            "queueOffset": str(first),
            "transactionId": "WHOLE",
            "batchUniqId": "WHOLE",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        record = decode_message(stored(broker, answer))
        assert (record.sys_flag, record.queue_offset, record.body) == (0xC0, first, BODY)
        assert record.properties["INNER_NUM"] == "3"
        assert int(record.properties["INNER_BASE"]) == first
        assert record.properties["CLUSTER"] == "GoldenCluster"
    assert broker.store.reads.max_offset("B", 1) == 6


def test_batches_and_messages_of_one_read_are_stored_each_as_its_topic_says(broker: OneBroker) -> None:
    create(broker, "T")
    commands = [
        broker.new_request(BATCH, send_fields("B", 1, m="true"), BODY),
        broker.new_request(SEND, send_fields("T"), b"alone"),
        broker.new_request(BATCH, send_fields("T", m="true"), BODY),
        broker.new_request(BATCH, send_fields("B", 1, m="true"), BODY),
    ]
    broker.receive(commands)
    broker.settle()
    answers = [broker.channel.response_to(command.opaque) for command in commands]
    assert [answer and answer.ext_fields["queueOffset"] for answer in answers] == ["0", "0", "1", "3"]
    assert (broker.store.reads.max_offset("B", 1), broker.store.reads.max_offset("T", 0)) == (6, 4)


@pytest.mark.parametrize("subscription", ["*", "A", "C"])
def test_a_pull_at_any_offset_brings_the_batch_whatever_tags_it_wants(
    broker: OneBroker, subscription: str
) -> None:
    send(broker)
    for offset in range(3):
        answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("B", 1, offset, subscription=subscription))
        found = pulled(answer, offset)
        assert [message.queue_offset for message in found] == list(range(offset, 3))
        assert answer.ext_fields["nextBeginOffset"] == "3"


def test_a_pull_that_waits_for_tags_is_woken_by_a_batch(broker: OneBroker) -> None:
    create(broker, "T")
    waiting = broker.new_request(
        RequestCode.PULL_MESSAGE,
        pull_fields("B", 1, 0, sysFlag="6", subscription="A", suspendTimeoutMillis="9000"),
    )
    broker.receive([waiting])
    broker.settle()
    assert broker.channel.response_to(waiting.opaque) is None
    send(broker)
    answer = broker.channel.response_to(waiting.opaque)
    assert answer is not None
    assert len(pulled(answer, 0)) == 3


def test_offsets_times_and_lag_count_messages(broker: OneBroker) -> None:
    send(broker)
    stats = broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "B"})
    assert b'"maxOffset":3' in stats.body
    of_queue = {"topic": "B", "queueId": "1"}
    assert broker.ask(RequestCode.GET_MAX_OFFSET, of_queue).ext_fields["offset"] == "3"
    assert broker.ask(RequestCode.GET_MIN_OFFSET, of_queue).ext_fields["offset"] == "0"
    searched = broker.ask(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**of_queue, "timestamp": str(broker.now_ms + 1)}
    )
    assert searched.ext_fields["offset"] == "3"
    units = broker.ask(RequestCode.QUERY_CONSUME_QUEUE, {**of_queue, "index": "1", "count": "10"})
    assert units.body.count(b"physicOffset") == 1


@pytest.mark.parametrize(
    ("code", "fields", "body", "words"),
    [
        (SEND, {}, b"x", "queue.type=BatchCQ"),
        (SEND, {"f": "128"}, b"x", "queue.type=BatchCQ"),
        (BATCH, {"f": "769"}, BODY, "cannot be compressed each"),
        (BATCH, {"i": "INNER_NUM\x013\x02"}, BODY, "INNER_NUM"),
        (BATCH, {}, BODY[:-1], "cannot be read"),
        (BATCH, {}, encode_batch([BatchMessage(0, b"x", b"")]) * 32_768, "32767 are allowed"),
    ],
)
def test_what_is_no_batch_for_such_a_topic_is_refused(
    broker: OneBroker, code: int, fields: dict[str, str], body: bytes, words: str
) -> None:
    answer = broker.ask(code, send_fields("B", 1, **fields), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in (answer.remark or "")
    assert broker.store.reads.max_offset("B", 1) == 0


@pytest.mark.parametrize("fields", [{"f": "128"}, {"i": "INNER_NUM\x011\x02"}])
def test_nobody_but_the_broker_makes_inner_batches(broker: OneBroker, fields: dict[str, str]) -> None:
    create(broker, "T")
    for code, body in ((SEND, b"x"), (BATCH, BODY)):
        assert broker.ask(code, send_fields("T", **fields), body).code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.reads.max_offset("T", 0) == 0


@pytest.mark.parametrize(
    ("topic", "attributes", "remark"),
    [
        ("T", "+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("B", "-queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
        ("T", "-message.type", "attempt to delete a nonexistent key: message.type"),
        ("New", "+queue.type=RocksDBCQ", "attribute queue.type=RocksDBCQ: allowed are SimpleCQ, BatchCQ"),
        ("New", "-queue.type", "only add attribute is supported while creating topic. key: queue.type"),
        ("New", "+reserve.time=soon", "attribute reserve.time=soon: a number of ms is allowed, or -1"),
        (
            "%DLQ%g",
            "+queue.type=BatchCQ",
            "attribute queue.type=BatchCQ: the broker puts single messages into %DLQ%g",
        ),
    ],
)
def test_a_queue_type_is_for_good(broker: OneBroker, topic: str, attributes: str, remark: str) -> None:
    create(broker, "T")
    fields = {**CREATE, "topic": topic, "attributes": attributes}
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


def test_other_settings_of_such_a_topic_change_and_its_type_stays(broker: OneBroker) -> None:
    create(broker, "B", perm="4")
    config = broker.controller.topics.select("B")
    assert config is not None
    assert (config.perm, config.attributes) == (4, {"queue.type": "BatchCQ"})


def test_a_topic_made_anew_may_be_of_the_other_type_and_its_offsets_go_on(broker: OneBroker) -> None:
    send(broker)
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "B"}).code == ResponseCode.SUCCESS
    create(broker, "B")
    assert broker.ask(SEND, send_fields("B", 1), b"x").ext_fields["queueOffset"] == "3"
    assert broker.ask(SEND, send_fields("B", 1), b"y").ext_fields["queueOffset"] == "4"
    messages = pulled(broker.ask(RequestCode.PULL_MESSAGE, pull_fields("B", 1, 2)), 2)
    assert [(message.queue_offset, message.body) for message in messages] == [(3, b"x"), (4, b"y")]
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "B"}).code == ResponseCode.SUCCESS
    create(broker, "B", attributes="+queue.type=BatchCQ")
    assert send(broker).ext_fields["queueOffset"] == "5"
    messages = pulled(broker.ask(RequestCode.PULL_MESSAGE, pull_fields("B", 1, 0)), 0)
    assert [message.body for message in messages] == [b"m0", b"m1", b"m2"]


def test_a_topic_of_batches_takes_none_where_its_queue_holds_single_messages(broker: OneBroker) -> None:
    """As they were stored before the attribute had an effect."""
    create(broker, "T", attributes="+queue.type=BatchCQ")
    single = PutMessage(b"T", 1, b"x", b"", 0, START_MS, pack_host("127.0.0.1:1"))
    broker.put(single)
    broker.run_until(lambda: broker.store.reads.max_offset("T", 1) == 1)
    answer = broker.ask(BATCH, send_fields("T", 1, m="true"), BODY)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "holds messages of queue.type=SimpleCQ, and this is a batch" in (answer.remark or "")
    assert broker.ask(BATCH, send_fields("T", 2, m="true"), BODY).code == ResponseCode.SUCCESS


def test_a_message_of_a_batch_is_given_back_alone(broker: OneBroker) -> None:
    answer = send(broker)
    fields = {
        "offset": str(decode_offset_message_id(answer.ext_fields["msgId"])[1]),
        "group": "g",
        "delayLevel": "1",
        "originMsgId": "K1",
        "originTopic": "B",
        "unitMode": "false",
    }
    assert broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "originMsgId": "none"}).code == (
        ResponseCode.SYSTEM_ERROR
    )
    assert broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == ResponseCode.SUCCESS
    broker.run_until(lambda: broker.store.reads.max_offset("%RETRY%g", 0) == 1)
    again = decode_message(broker.store.reads.get_message("%RETRY%g", 0, 0, 32, 1 << 20).buffers[0])
    assert (again.body, again.sys_flag, again.reconsume_times) == (b"m1", 0, 1)
    assert (again.properties["UNIQ_KEY"], again.properties["RETRY_TOPIC"]) == ("K1", "B")


def test_a_delayed_message_for_a_topic_that_takes_batches_is_not_stored(broker: OneBroker) -> None:
    answer = broker.ask(SEND, send_fields("B", 1, "DELAY\x011\x02"), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_topics_with_attributes_survive_a_restart(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    create(broker, "B", attributes="+queue.type=BatchCQ")
    send(broker)
    broker.close(clean=True)
    again = OneBroker(tmp_path)
    assert send(again).ext_fields["queueOffset"] == "3"
    assert b'"queue.type":"BatchCQ"' in (tmp_path / "config/topics.json").read_bytes()
    again.close()


@pytest.mark.parametrize("expression", ["TAGS = 'A'", "x IS NULL", "TAGS ="])
def test_an_sql_subscription_of_a_topic_of_batches_is_refused_by_pulls_and_when_it_is_made(
    broker: OneBroker, expression: str
) -> None:
    """Of a batch only the properties of the whole are there to be looked at."""
    send(broker)
    subscription = SubscriptionData(topic="B", sub_string=expression, expression_type="SQL92")
    consumer = ConsumerData(group_name="g", subscription_data_set=[subscription])
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    assert broker.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode()).code == ResponseCode.SUCCESS
    fields = pull_fields("B", 1, expressionType="SQL92", subscription=expression)
    check = CheckClientRequestBody(client_id="c", group="g", subscription_data=subscription)
    for answer in (
        broker.ask(RequestCode.PULL_MESSAGE, fields),
        broker.ask(RequestCode.PULL_MESSAGE, {**fields, "sysFlag": "0"}),
        broker.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, check.encode()),
    ):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "The broker does not support consumer to filter message by SQL92 in topic B, which has "
            "queue.type=BatchCQ: subscribe by tags"
        )
