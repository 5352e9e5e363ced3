"""Stored messages as gRPC clients get them."""

import gzip
import zlib
from hashlib import md5

import pytest

from message.compression import compress
from message.decoder import MessageExt, decode_message
from message.encoder import encode_record
from message.message_id import pack_host
from message.properties import encode_properties
from message.sys_flag import COMPRESSED_FLAG, CompressionType, compressed_by
from proxy.messages.v2_message import v2_message
from proxy.protocol.definition import DigestType, Encoding, MessageType

BORN, STORED = pack_host("10.0.0.7:54321"), pack_host("127.0.0.1:10911")


def stored(
    body: bytes = b"body", sys_flag: int = 0, reconsume_times: int = 0, **properties: str
) -> MessageExt:
    return decode_message(
        encode_record(
            *(b"T", 3, 0, 7, 4096, sys_flag, 1_700_000_000_123, BORN, 1_700_000_000_456, STORED),
            *(reconsume_times, 0, body, encode_properties(properties)),
        )
    )


def test_a_message_is_told_with_all_that_is_stored_of_it() -> None:
    message = stored(
        TAGS="red",
        KEYS="k1 k2",
        UNIQ_KEY="01ABC",
        TRACE_CONTEXT="trace",
        POP_CK="hidden",
        MSG_REGION="hidden",
        TRACE_ON="true",
        CLUSTER="hidden",
        colour="blue",
        __BORNHOST="10.9.9.9",
    )
    message.reconsume_times = 2
    v2 = v2_message(message, "handle")
    assert v2.topic.name == "T"
    assert dict(v2.user_properties) == {"colour": "blue", "TRACE_CONTEXT": "trace"}
    system = v2.system_properties
    assert (system.tag, list(system.keys), system.message_id) == ("red", ["k1", "k2"], "01ABC")
    assert system.message_type == MessageType.NORMAL
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.store_timestamp.ToMilliseconds() == 1_700_000_000_456
    assert (system.born_host, system.store_host) == ("10.9.9.9", "127.0.0.1:10911")
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (3, 7, 3)
    assert system.receipt_handle == "handle"
    assert system.trace_context == "trace"
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("message_group")
    assert not system.HasField("dead_letter_queue")
    assert not system.HasField("invisible_duration")


@pytest.mark.parametrize("text", ["99999999999", "2147483648", "-1", "high", "9" * 5000])
def test_a_number_that_the_api_has_no_room_for_is_left_out(text: str) -> None:
    """A producer of Remoting may write anything, and its message must not hold up those behind it."""
    system = v2_message(stored(_SYS_MSG_PRIORITY_=text)).system_properties
    assert not system.HasField("priority")
    assert not v2_message(stored(TIMER_DELIVER_MS="9" * 18)).system_properties.HasField("delivery_timestamp")
    assert v2_message(stored(_SYS_MSG_PRIORITY_="2147483647")).system_properties.priority == 2**31 - 1


def test_a_message_without_an_id_of_its_sender_has_the_one_of_its_place() -> None:
    message = stored()
    v2 = v2_message(message)
    assert v2.system_properties.message_id == message.msg_id
    assert v2.system_properties.born_host == "10.0.0.7"
    assert not v2.system_properties.HasField("tag")
    assert not v2.system_properties.HasField("receipt_handle")


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
        ({"TRAN_MSG": "false"}, MessageType.NORMAL),
        ({"DELAY": "3", "__SHARDINGKEY": "g"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1700000000789"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "5"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "5"}, MessageType.DELAY),
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"_SYS_MSG_PRIORITY_": "3"}, MessageType.PRIORITY),
    ],
)
def test_the_type_of_a_message_follows_from_its_properties(properties: dict[str, str], kind: int) -> None:
    assert v2_message(stored(**properties)).system_properties.message_type == kind


def test_group_time_priority_and_origin_are_told() -> None:
    properties = {
        "__SHARDINGKEY": "g", "TIMER_DELIVER_MS": "1700000000789", "_SYS_MSG_PRIORITY_": "3", "DLQ_ORIGIN_TOPIC": "O",
        "DLQ_ORIGIN_MESSAGE_ID": "01A",
    }  # fmt: skip
    system = v2_message(stored(**properties)).system_properties
    assert system.message_group == "g"
    assert system.delivery_timestamp.ToMilliseconds() == 1_700_000_000_789
    assert system.priority == 3
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("O", "01A")


def test_numbers_that_are_none_are_left_out() -> None:
    system = v2_message(stored(TIMER_DELIVER_MS="soon", _SYS_MSG_PRIORITY_="-1")).system_properties
    assert not system.HasField("delivery_timestamp")
    assert not system.HasField("priority")


TEXT = b"a body that is worth it " * 100


@pytest.mark.parametrize(
    ("body", "sys_flag", "told", "encoding"),
    [
        (TEXT, 0, TEXT, Encoding.IDENTITY),
        # gRPC producers
        (gzip.compress(TEXT, mtime=0), COMPRESSED_FLAG, gzip.compress(TEXT, mtime=0), Encoding.GZIP),
        # Remoting producers, new and old
        (compress(TEXT), compressed_by(CompressionType.ZLIB), TEXT, Encoding.IDENTITY),
        (compress(TEXT), COMPRESSED_FLAG, TEXT, Encoding.IDENTITY),
        # A flag that says what is not so
        (TEXT, COMPRESSED_FLAG, TEXT, Encoding.IDENTITY),
        (b"", COMPRESSED_FLAG, b"", Encoding.IDENTITY),
    ],
)
def test_a_body_is_told_as_clients_of_all_languages_can_read_it(
    body: bytes, sys_flag: int, told: bytes, encoding: int
) -> None:
    v2 = v2_message(stored(body, sys_flag))
    assert v2.body == told
    system = v2.system_properties
    assert system.body_encoding == encoding
    assert system.body_digest.type == DigestType.MD5
    assert system.body_digest.checksum == md5(told).hexdigest().upper()


def test_a_large_body_stays_compressed() -> None:
    """Some clients take messages of 4 MiB at most."""
    text = bytes(5 << 20)
    v2 = v2_message(stored(zlib.compress(text), compressed_by(CompressionType.ZLIB)))
    assert v2.system_properties.body_encoding == Encoding.GZIP
    assert gzip.decompress(v2.body) == text


def test_no_more_attempts_are_told_than_a_client_can_be() -> None:
    message = v2_message(stored(reconsume_times=2**31 - 1), "handle")
    assert message.system_properties.delivery_attempt == 2**31 - 1
