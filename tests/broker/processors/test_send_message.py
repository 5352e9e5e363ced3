"""The send table, row by row, and what becomes of a read with many sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import START_MS, OneBroker, RecordingChannel, pull_fields, send_fields

from message.batch import BatchMessage, encode_batch
from message.decoder import decode_message, decode_messages, raw_properties
from message.message_id import decode_offset_message_id
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, SerializeType

SEND = RequestCode.SEND_MESSAGE_V2
CREATE = {
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "defaultTopic": "TBW102",
    "order": "false",
}


def create(broker: OneBroker, topic: str, **more: str) -> None:
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": topic, **more})
    assert answer.code == ResponseCode.SUCCESS


def stored(broker: OneBroker, answer: RemotingCommand) -> bytes:
    _, phy_offset = decode_offset_message_id(answer.ext_fields["msgId"])
    record = broker.store.reads.look_message_by_offset(phy_offset)
    assert record is not None
    return record


def test_an_unknown_topic_is_made_from_its_template_and_the_send_is_stored(broker: OneBroker) -> None:
    answer = broker.ask(SEND, send_fields("New", 3), b"hello")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueId"] == "3"
    assert answer.ext_fields["queueOffset"] == "0"
    config = broker.controller.topics.select("New")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)


def test_without_automatic_creation_no_default_topic_makes_a_topic(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "autoCreateTopicEnable=false\ntraceTopicEnable=true\n")
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": "Mine", "perm": "7"}).code == 0
    for template in ("TBW102", "Mine", "", *broker.controller.topics.all_topics()):
        answer = broker.ask(SEND, send_fields("New", 0, c=template), b"hello")
        assert (template, answer.code) == (template, ResponseCode.TOPIC_NOT_EXIST)
    broker.close()


def test_with_automatic_creation_the_cluster_and_the_broker_are_templates(broker: OneBroker) -> None:
    for number, template in enumerate(("GoldenCluster", "golden-a")):
        answer = broker.ask(SEND, send_fields(f"New{number}", 0, c=template), b"hello")
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", ["RMQ_SYS_TRACE_TOPIC", "MyTraces"])
def test_the_trace_topic_is_there_from_the_start(tmp_path: Path, name: str) -> None:
    conf = f"autoCreateTopicEnable=false\ntraceTopicEnable=true\nmsgTraceTopicName={name}\n"
    broker = OneBroker(tmp_path, conf, elect=False)
    config = broker.controller.topics.select(name)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    broker.run_until(lambda: broker.store.serving)
    assert broker.ask(SEND, send_fields(name, 0), b"a trace").code == ResponseCode.SUCCESS
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": name})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    broker.close()


def test_sends_that_wait_for_a_topic_are_all_stored_in_order(broker: OneBroker) -> None:
    commands = [broker.new_request(SEND, send_fields("New"), b"%d" % number) for number in range(5)]
    broker.receive(commands)
    broker.run_until(lambda: all(broker.channel.response_to(command.opaque) for command in commands))
    offsets = [broker.channel.response_to(command.opaque).ext_fields["queueOffset"] for command in commands]  # type: ignore[union-attr]
    assert offsets == ["0", "1", "2", "3", "4"]
    result = broker.store.reads.get_message("New", 0, 0, 32, 1 << 20, None)
    assert [message.body for message in decode_messages(b"".join(result.buffers))] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_the_stored_message_is_what_was_sent_with_the_brokers_own_properties(broker: OneBroker) -> None:
    create(broker, "T")
    properties = "UNIQ_KEY\x01FD01\x02KEYS\x01k1 k2\x02TAGS\x01A\x02WAIT\x01true\x02"
    fields = send_fields("T", 1, properties, f="769", h="5", j="2")
    message = decode_message(stored(broker, broker.ask(SEND, fields, b"body")))
    assert message.topic == "T"
    assert message.queue_id == 1
    assert message.body == b"body"
    assert message.flag == 5
    assert message.sys_flag == 0x301
    assert message.reconsume_times == 2
    assert message.born_timestamp == 1795166744856
    assert message.born_host == "127.0.0.1:50001"
    assert message.store_host == "127.0.0.1:17911"
    assert message.properties == {
        "UNIQ_KEY": "FD01",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "true",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "GoldenCluster",
    }


@pytest.mark.parametrize("properties", ["TAGS\x01A\x02UNIQ_KEY\x01FD01\x02", "TAGS\x01A\x02UNIQ_KEY\x01FD01"])
def test_the_transaction_id_is_the_clients_unique_key(broker: OneBroker, properties: str) -> None:
    answer = broker.ask(SEND, send_fields("T", properties=properties), b"x")
    assert answer.ext_fields["transactionId"] == "FD01"
    assert decode_message(stored(broker, answer)).properties["TAGS"] == "A"


def test_a_message_without_unique_key_gets_one(broker: OneBroker) -> None:
    answer = broker.ask(SEND, send_fields("T", properties="MY_UNIQ_KEY\x01no\x02"), b"x")
    key = answer.ext_fields["transactionId"]
    assert len(key) == 32
    assert decode_message(stored(broker, answer)).properties["UNIQ_KEY"] == key


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        ("TAGS\x01A\x02X_TAGS\x01B\x02", "A"),
        ("X_TAGS\x01B\x02", None),
        ("TAGS\x01A\x02TAGS\x01C\x02", "C"),
        ("TAGS\x01A\x02TAGS\x01\x02", "A"),
    ],
)
def test_the_filter_sees_the_tags_that_consumers_see(
    broker: OneBroker, properties: str, tags: str | None
) -> None:
    message = decode_message(stored(broker, broker.ask(SEND, send_fields("T", properties=properties), b"x")))
    assert message.properties.get("TAGS") == tags
    for wanted in ("A", "B", "C"):
        answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", subscription=wanted))
        assert (answer.code == ResponseCode.SUCCESS) == (wanted == tags)


def test_bits_that_say_how_a_record_is_laid_out_are_not_taken_from_a_client(broker: OneBroker) -> None:
    answer = broker.ask(SEND, send_fields("T", f=str(0x37F)), b"x")
    assert decode_message(stored(broker, answer)).sys_flag == 0x303
    assert broker.ask(SEND, send_fields("T"), b"y").ext_fields["queueOffset"] == "1"


@pytest.mark.parametrize(
    ("fields", "body", "code", "remark"),
    [
        ({"b": "bad*topic"}, b"x", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"b": "t" * 128}, b"x", ResponseCode.INVALID_PARAMETER, "max length"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", ResponseCode.NO_PERMISSION, "is forbidden."),
        ({"b": "Other", "c": "NoDefault"}, b"x", ResponseCode.TOPIC_NOT_EXIST, "topic[Other] not exist"),
        (
            {"e": "4"},
            b"x",
            ResponseCode.INVALID_PARAMETER,
            "request queueId[4] is illegal, TopicConfig [topicName=T",
        ),
        ({}, b"", ResponseCode.MESSAGE_ILLEGAL, "msg body length limit 4194304B"),
        ({}, b"x" * 4194305, ResponseCode.MESSAGE_ILLEGAL, "msg body length limit 4194304B"),
        (
            {"i": "k\x01" + "p" * 32760 + "\x02"},
            b"x",
            ResponseCode.MESSAGE_ILLEGAL,
            "properties length limit 32KB",
        ),
        ({"i": "DELAY\x01soon\x02"}, b"x", ResponseCode.SYSTEM_ERROR, "bad header field"),
        (
            {"i": "DELAY\x013\x02k\x01" + "p" * 32640 + "\x02"},
            b"x",
            ResponseCode.MESSAGE_ILLEGAL,
            "the message's properties has 327",
        ),
        (
            {"i": "TRAN_MSG\x01true\x02", "m": "true"},
            b"x",
            ResponseCode.MESSAGE_ILLEGAL,
            "a batch cannot be a transaction",
        ),
        ({"e": "one"}, b"x", ResponseCode.SYSTEM_ERROR, "bad header field"),
    ],
)
def test_what_the_table_refuses_is_refused_and_takes_no_queue_offset(
    broker: OneBroker, fields: dict[str, str], body: bytes, code: int, remark: str
) -> None:
    create(broker, "T")
    answer = broker.ask(SEND, {**send_fields("T"), **fields}, body)
    assert answer.code == code
    assert answer.remark is not None
    assert remark in answer.remark
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert broker.ask(SEND, send_fields("T"), b"next").ext_fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    ("code", "properties", "body"),
    [
        (SEND, "k\x01" + "p" * 32760 + "\x02", b"x"),
        (SEND, "DELAY\x013\x02k\x01" + "p" * 32640 + "\x02", b"x"),
        (RequestCode.SEND_BATCH_MESSAGE, "DELAY\x013\x02", encode_batch([BatchMessage(0, b"x", b"")])),
    ],
    ids=["properties", "properties of a delayed one", "a delayed batch"],
)
def test_a_send_that_is_refused_leaves_no_topic_behind(
    broker: OneBroker, code: int, properties: str, body: bytes
) -> None:
    answer = broker.ask(code, send_fields("New", properties=f"UNIQ_KEY\x01{32 * 'u'}\x02{properties}"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.controller.topics.select("New") is None


def test_an_ordered_topic_of_a_broker_that_is_not_to_be_written_takes_no_sends(broker: OneBroker) -> None:
    create(broker, "Ordered", order="true")
    create(broker, "T")
    assert broker.ask(SEND, send_fields("Ordered"), b"before").code == ResponseCode.SUCCESS
    broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4")
    for _ in range(2):
        answer = broker.ask(SEND, send_fields("Ordered"), b"x")
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] sending message is forbidden",
        )
    assert broker.ask(SEND, send_fields("T"), b"of a client with an old route").code == ResponseCode.SUCCESS


def test_a_property_that_only_looks_like_a_delay_is_no_reason_to_refuse(broker: OneBroker) -> None:
    properties = "MY_DELAY\x013\x02DELAY\x010\x02NOTE\x01no TIMER_DELAY_SEC\x02POP_CK\x01handle\x02"
    answer = broker.ask(SEND, send_fields("T", properties=properties), b"x")
    assert answer.code == ResponseCode.SUCCESS
    assert "POP_CK" not in decode_message(stored(broker, answer)).properties


def test_a_missing_field_is_named(broker: OneBroker) -> None:
    fields = send_fields("T")
    del fields["g"]
    answer = broker.ask(SEND, fields, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "missing required field `g`" in answer.remark


def test_a_negative_queue_id_means_any_queue(broker: OneBroker) -> None:
    create(broker, "T")
    queues = {int(broker.ask(SEND, send_fields("T", -1), b"x").ext_fields["queueId"]) for _ in range(40)}
    assert queues == {0, 1, 2, 3}


def test_one_bad_send_in_a_read_costs_the_others_nothing(broker: OneBroker) -> None:
    create(broker, "T")
    good = [broker.new_request(SEND, send_fields("T"), b"%d" % number) for number in range(3)]
    bad = broker.new_request(SEND, send_fields("T", 9), b"x")
    broker.receive([good[0], bad, good[1], good[2]])
    broker.settle()
    codes = [broker.channel.response_to(command.opaque).code for command in (*good, bad)]  # type: ignore[union-attr]
    assert codes == [0, 0, 0, ResponseCode.INVALID_PARAMETER]


@pytest.mark.parametrize("loosely", [{"e": "1.0"}, {"f": "0.0"}])
def test_a_loosely_written_send_is_not_overtaken(broker: OneBroker, loosely: dict[str, str]) -> None:
    create(broker, "T")
    loose, plain = {**send_fields("T", 1), **loosely}, send_fields("T", 1)
    commands = [broker.new_request(SEND, loose if at % 2 else plain, b"m%d" % at) for at in range(3000)]
    broker.receive(commands)
    broker.settle()
    answers = [broker.channel.response_to(command.opaque) for command in (*commands[:9], commands[-1])]
    offsets = [answer.ext_fields["queueOffset"] for answer in answers if answer is not None]
    assert offsets == [*map(str, range(9)), "2999"]


def test_a_send_with_a_number_without_end_costs_the_others_nothing(broker: OneBroker) -> None:
    create(broker, "T")
    bad = broker.new_request(SEND, {**send_fields("T"), "e": "1e999"}, b"m")
    good = broker.new_request(SEND, send_fields("T"), b"m")
    broker.receive([bad, good])
    broker.settle()
    codes = [getattr(broker.channel.response_to(command.opaque), "code", None) for command in (bad, good)]
    assert codes == [ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS]


@pytest.mark.parametrize("field", ["g", "h", "j"])
def test_a_number_that_no_record_can_hold_is_illegal_and_costs_the_others_nothing(
    broker: OneBroker, field: str
) -> None:
    bad = broker.new_request(SEND, send_fields("New", **{field: str(2**64)}), b"x")
    broker.receive([bad])
    broker.settle()
    assert broker.channel.response_to(bad.opaque).code == ResponseCode.MESSAGE_ILLEGAL  # type: ignore[union-attr]
    commands = [broker.new_request(SEND, send_fields("New"), b"%d" % number) for number in range(3)]
    commands[1].ext_fields[field] = str(-(2**64))
    broker.receive(commands)
    broker.settle()
    answers = [broker.channel.response_to(command.opaque) for command in commands]
    assert [answer.code for answer in answers if answer] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
    offsets = [answer.ext_fields["queueOffset"] for answer in answers if answer and answer.code == 0]
    assert offsets == ["0", "1"]


def test_a_read_of_sends_is_one_write_of_answers(broker: OneBroker) -> None:
    create(broker, "T")
    broker.channel.writes.clear()
    commands = [broker.new_request(SEND, send_fields("T", number % 4), b"x") for number in range(50)]
    broker.receive(commands)
    assert broker.channel.writes == []
    broker.settle()
    assert len(broker.channel.writes) == 1
    assert all(broker.channel.response_to(command.opaque) for command in commands)


def test_a_oneway_send_is_stored_and_never_answered(broker: OneBroker) -> None:
    create(broker, "T")
    broker.channel.writes.clear()
    broker.receive(
        [
            broker.new_request(SEND, send_fields("T"), b"kept", oneway=True),
            broker.new_request(SEND, send_fields("T", 9), b"refused", oneway=True),
        ]
    )
    broker.settle()
    assert broker.channel.writes == []
    assert broker.store.reads.max_offset("T", 0) == 1


def test_the_long_names_of_the_first_send_request_are_read(broker: OneBroker) -> None:
    create(broker, "T")
    fields = {
        "producerGroup": "p",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "2",
        "sysFlag": "0",
        "bornTimestamp": "1795166744856",
        "flag": "7",
        "properties": "TAGS\x01v1\x02",
    }
    answer = broker.ask(RequestCode.SEND_MESSAGE, fields, b"x")
    assert answer.ext_fields["queueId"] == "2"
    assert decode_message(stored(broker, answer)).flag == 7


def test_an_answer_comes_in_the_serialization_of_its_request(broker: OneBroker) -> None:
    create(broker, "T")
    command = broker.new_request(SEND, send_fields("T"), b"x", serialize_type=SerializeType.ROCKETMQ)
    broker.receive([command])
    broker.settle()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.serialize_type == SerializeType.ROCKETMQ
    assert answer.ext_fields["queueOffset"] == "0"


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_a_batch_is_stored_message_by_message(broker: OneBroker, code: RequestCode) -> None:
    """The header says that it is one; Java's clients have a code for it besides."""
    create(broker, "T")
    batch = [
        BatchMessage(number, b"m%d" % number, b"UNIQ_KEY\x01K%d\x02TAGS\x01B\x02" % number)
        for number in range(3)
    ]
    answer = broker.ask(code, send_fields("T", 2, m="true"), encode_batch(batch))
    ids = answer.ext_fields["msgId"].split(",")
    assert len(ids) == 3
    assert answer.ext_fields["queueOffset"] == "0"
    records = [broker.store.reads.look_message_by_offset(decode_offset_message_id(one)[1]) for one in ids]
    messages = [decode_message(record) for record in records if record is not None]
    assert [(m.body, m.flag, m.queue_offset) for m in messages] == [
        (b"m0", 0, 0),
        (b"m1", 1, 1),
        (b"m2", 2, 2),
    ]
    assert messages[0].properties == {"UNIQ_KEY": "K0", "TAGS": "B"}


def test_before_its_time_a_broker_takes_no_sends(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, f"startAcceptSendRequestTimeStamp={START_MS + 60_000}\n")
    create(broker, "T")
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"broker unable to service, until {START_MS + 60_000} ms since 1970",
    )
    broker.run_for(60_000)
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x").code == ResponseCode.SUCCESS
    assert broker.store.reads.max_offset("T", 0) == 1
    broker.close()


def test_a_message_of_a_batch_has_no_handle_of_an_earlier_pop(broker: OneBroker) -> None:
    """Its consumers would acknowledge that one, and get the message again."""
    body = encode_batch([BatchMessage(0, b"x", b"POP_CK\x01handle\x02A\x01b\x02")])
    answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("T"), body)
    assert answer.code == ResponseCode.SUCCESS
    assert raw_properties(stored(broker, answer)).startswith(b"A\x01b\x02")


def test_a_batch_that_cannot_be_read_is_refused_as_a_whole(broker: OneBroker) -> None:
    create(broker, "T")
    body = encode_batch([BatchMessage(0, b"one", b""), BatchMessage(0, b"two", b"")])[:-1]
    answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("T", m="true"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.reads.max_offset("T", 0) == 0


def test_a_batch_of_very_many_messages_is_refused_as_a_whole(broker: OneBroker) -> None:
    create(broker, "T")
    body = encode_batch([BatchMessage(0, b"x", b"")]) * 32_769
    answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("T", m="true"), body)
    assert (answer.code, answer.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "batch of 32769 messages: 32768 are allowed",
    )
    assert broker.store.reads.max_offset("T", 0) == 0


def test_a_member_that_does_not_serve_answers_14_and_never_2(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    answer = broker.ask(SEND, send_fields("TBW102"), b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "service not available now: this member is FOLLOWER in term -1"
    broker.close()


def test_stepping_down_ends_sends_as_unknown_with_no_code_that_counts_as_stored(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    create(broker, "T")
    command = broker.new_request(SEND, send_fields("T"), b"x")
    broker.receive([command])
    broker.end_turn()
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("outcome unknown")


def test_stepping_down_refuses_for_sure_what_is_in_no_log_yet(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    create(broker, "T")
    command = broker.new_request(SEND, send_fields("T"), b"x")
    broker.receive([command])
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_send_that_waits_for_a_topic_is_answered_when_the_member_steps_down(broker: OneBroker) -> None:
    command = broker.new_request(SEND, send_fields("New"), b"x")
    broker.receive([command])
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_deleted_topic_takes_no_more_sends(broker: OneBroker) -> None:
    create(broker, "T")
    assert broker.ask(SEND, send_fields("T", c="None"), b"x").code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    assert broker.ask(SEND, send_fields("T", c="None"), b"x").code == ResponseCode.TOPIC_NOT_EXIST


def test_an_ipv6_client_is_stored_with_its_address(broker: OneBroker) -> None:
    channel = RecordingChannel(2, "::1:50002")
    answer = broker.ask(SEND, send_fields("T"), b"x", channel)
    message = decode_message(stored(broker, answer))
    assert message.born_host == "[0:0:0:0:0:0:0:1]:50002"
    assert message.sys_flag == 0x10
