"""Messages of gRPC clients as brokers get them, and those that are refused."""

from typing import Any

import pytest

from message import const
from message.properties import decode_properties
from proxy.config import ProxyConfig
from proxy.messages.outgoing import OutgoingMessage, check_type, outgoing_message
from proxy.protocol.definition import Code, Encoding, Message, MessageType, Resource, SystemProperties
from proxy.status import StatusError

NOW_MS = 1_800_000_000_000
CONFIG = ProxyConfig(namesrv_addr=("127.0.0.1:1",))


def message(**system: Any) -> Message:
    own = system.pop("user_properties", {})
    body = system.pop("body", b"x")
    properties = SystemProperties(message_id="01AB", **system)
    return Message(topic=Resource(name="T"), user_properties=own, system_properties=properties, body=body)


def outgoing(one: Message, config: ProxyConfig = CONFIG) -> OutgoingMessage:
    return outgoing_message(one, "T", "127.0.0.1:5", NOW_MS, config)


@pytest.mark.parametrize("seconds", [-5, 2**62])
def test_times_that_brokers_cannot_store_are_not_handed_on(seconds: int) -> None:
    sent = outgoing(
        message(born_timestamp={"seconds": seconds}, delivery_timestamp={"seconds": -abs(seconds)})
    )
    assert sent.born_timestamp_ms == NOW_MS
    assert const.BORN_TIMESTAMP not in sent.properties
    assert sent.properties[const.TIMER_DELIVER_MS] == "0"


def test_all_that_a_client_says_reaches_the_broker() -> None:
    one = message(
        tag="A",
        keys=["k1", "k2"],
        message_group="g",
        trace_context="t",
        body_encoding=Encoding.GZIP,
        born_timestamp={"seconds": 1_700_000_000, "nanos": 5_000_000},
        born_host="host",
        user_properties={"a": "1", "empty": ""},
    )
    sent = outgoing(one)
    fields = sent.ext_fields("B", 3)
    assert decode_properties(fields.pop("i").encode()) == {
        "a": "1",
        const.TAGS: "A",
        const.KEYS: "k1 k2",
        const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "01AB",
        const.SHARDING_KEY: "g",
        const.TRACE_CONTEXT: "t",
        const.BORN_HOST: "host",
        const.BORN_TIMESTAMP: "1700000000005",
        const.RECONSUME_TIME: "0",
        const.PRODUCER_GROUP: "T",
    }
    assert fields == {
        "a": "T", "b": "T", "c": "TBW102", "d": "4", "e": "3", "f": "1", "g": "1700000000005", "h": "0", "j": "0",
        "k": "false", "m": "false", "n": "B",
    }  # fmt: skip
    assert sent.type == MessageType.FIFO


def test_a_transaction_is_prepared_and_says_how_long_it_is_not_to_be_asked_about() -> None:
    sent = outgoing(
        message(message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration={"seconds": 30})
    )
    assert sent.properties[const.TRANSACTION_PREPARED] == "true"
    assert sent.properties[const.CHECK_IMMUNITY_TIME_IN_SECONDS] == "30"
    assert sent.ext_fields("B", 0)["f"] == "4"
    assert sent.type == MessageType.TRANSACTION


def test_a_delivery_time_is_never_early() -> None:
    sent = outgoing(message(delivery_timestamp={"seconds": NOW_MS // 1000 + 1, "nanos": 1_000_001}))
    assert sent.properties[const.TIMER_DELIVER_MS] == str(NOW_MS + 1002)
    assert sent.type == MessageType.DELAY


@pytest.mark.parametrize(
    ("system", "code", "reason"),
    [
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY, "empty"),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, Code.MESSAGE_BODY_TOO_LARGE, "4194304"),
        (
            {"user_properties": {str(n): "x" for n in range(129)}},
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            "max is 128, there are 129",
        ),
        (
            {"user_properties": {"UNIQ_KEY": "x"}},
            Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
            "property is used by system: UNIQ_KEY",
        ),
        ({"user_properties": {"a\x01": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "control character"),
        ({"user_properties": {"a": "\x7f"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the value of property a"),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG, "whitespace"),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG, "cannot contain '|'"),
        ({"tag": "a\n"}, Code.ILLEGAL_MESSAGE_TAG, "control character"),
        ({"keys": ["\t"]}, Code.ILLEGAL_MESSAGE_KEY, "whitespace"),
        (
            {"user_properties": {"a": "x" * 16_000}, "tag": "t" * 200, "keys": ["k" * 200]},
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            "max is 16384",
        ),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty"),
        ({"message_id": "a\x02b"}, Code.ILLEGAL_MESSAGE_ID, "control character"),
        (
            {
                "message_type": MessageType.TRANSACTION,
                "orphaned_transaction_recovery_duration": {"seconds": 3601},
            },
            Code.BAD_REQUEST,
            "max is 3600",
        ),
        (
            {"delivery_timestamp": {"seconds": NOW_MS // 1000 + 86_401}},
            Code.ILLEGAL_DELIVERY_TIME,
            "max is 86400000",
        ),
        ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP, "whitespace"),
        ({"message_group": "ü" * 32}, Code.ILLEGAL_MESSAGE_GROUP, "max size 64"),
        ({"trace_context": "a\x01b"}, Code.BAD_REQUEST, "trace context"),
        ({"lite_topic": "l"}, Code.NOT_IMPLEMENTED, "send without lite_topic"),
        ({"trace_context": "a" * 40_000}, Code.MESSAGE_PROPERTIES_TOO_LARGE, "32767"),
        (
            {"message_type": MessageType.TRANSACTION, "delivery_timestamp": {"seconds": NOW_MS // 1000 + 5}},
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "cannot be delayed",
        ),
    ],
)
def test_a_broken_rule_is_named(system: dict[str, Any], code: Code, reason: str) -> None:
    message_id = system.pop("message_id", None)
    one = message(**system)
    if message_id is not None:
        one.system_properties.message_id = message_id
    with pytest.raises(StatusError) as error:
        outgoing(one)
    assert error.value.code == code
    assert reason in error.value.message


def test_limits_of_zero_are_none() -> None:
    config = ProxyConfig(
        namesrv_addr=("127.0.0.1:1",),
        max_message_size=0,
        max_delay_time_ms=0,
        max_message_group_size=0,
        enable_message_body_empty_check=False,
    )
    for one in (
        message(body=b""),
        message(body=bytes(5 * 1024 * 1024)),
        message(delivery_timestamp={"seconds": NOW_MS // 1000 + 900_000}),
        message(message_group="g" * 100),
    ):
        outgoing(one, config)


@pytest.mark.parametrize(
    ("system", "actual"),
    [
        ({}, "NORMAL"),
        ({"message_group": "g"}, "FIFO"),
        ({"delivery_timestamp": {"seconds": 1}}, "DELAY"),
        ({"message_type": MessageType.TRANSACTION}, "TRANSACTION"),
        ({"user_properties": {const.SHARDING_KEY: "g"}}, "FIFO"),
        ({"priority": 3}, "PRIORITY"),
    ],
)
def test_a_topic_takes_messages_of_its_type(system: dict[str, Any], actual: str) -> None:
    sent = outgoing(message(**system))
    check_type(sent, actual)
    check_type(sent, "MIXED")
    other = "NORMAL" if actual != "NORMAL" else "FIFO"
    with pytest.raises(StatusError) as error:
        check_type(sent, other)
    assert error.value.message == (
        f"TopicMessageType validate failed, the expected type is {other}, but actual type is {actual}"
    )
