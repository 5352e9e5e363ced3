"""Records of the CommitLog: encoder, decoder, the walk over a file and the scan for dispatch."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.decoder import decode_message, decode_messages, raw_properties, walk_records
from message.dispatch_columns import DispatchColumns, scan_records
from message.encoder import encode_again, encode_record, record_size
from message.errors import MessageDecodeError, MessageEncodeError
from message.message_id import offset_message_id, pack_host
from message.properties import encode_properties
from message.record_layout import BLANK_HEADER, BLANK_MAGIC
from message.sys_flag import (
    BORNHOST_V6_FLAG,
    STOREHOSTADDRESS_V6_FLAG,
    has_consume_queue_unit,
    has_index_entry,
)
from message.tags import java_hash

V4, V6 = "127.0.0.1:10911", "[fe80:0:0:0:0:0:0:1]:10912"


def record(
    topic: str = "TopicTest",
    body: bytes = b"hello",
    properties: dict[str, str] | None = None,
    *,
    sys_flag: int = 0,
    queue_id: int = 1,
    queue_offset: int = 77,
    phy_offset: int = 48,
    store_timestamp: int = 1_700_000_000_456,
    v2: bool = False,
) -> bytes:
    return encode_record(
        topic.encode(),
        queue_id,
        9,
        queue_offset,
        phy_offset,
        sys_flag,
        1_700_000_000_123,
        pack_host(V6 if sys_flag & BORNHOST_V6_FLAG else V4),
        store_timestamp,
        pack_host(V6 if sys_flag & STOREHOSTADDRESS_V6_FLAG else V4),
        3,
        5,
        body,
        encode_properties(properties or {}),
        v2=v2,
    )


names = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200).filter(
        lambda topic: len(topic.encode()) < 300
    ),
    st.binary(max_size=200),
    st.dictionaries(names, names, max_size=4),
    st.sampled_from(
        [0, BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG]
    ),
    st.booleans(),
    st.integers(0, 2**62),
)
def test_a_record_comes_back_as_it_went_in(
    topic: str, body: bytes, properties: dict[str, str], sys_flag: int, v2: bool, offset: int
) -> None:
    encoded = record(
        topic, body, properties, sys_flag=sys_flag, phy_offset=offset, queue_offset=offset // 3, v2=v2
    )
    message = decode_message(b"junk" + encoded, 4)
    assert (message.topic, message.body, message.properties) == (topic, body, properties)
    assert raw_properties(encoded) == encode_properties(properties)
    assert (message.queue_id, message.queue_offset, message.phy_offset) == (1, offset // 3, offset)
    assert (message.flag, message.sys_flag, message.reconsume_times) == (9, sys_flag, 3)
    assert (message.born_timestamp, message.store_timestamp) == (1_700_000_000_123, 1_700_000_000_456)
    assert message.born_host == (V6 if sys_flag & BORNHOST_V6_FLAG else V4)
    assert message.store_host == (V6 if sys_flag & STOREHOSTADDRESS_V6_FLAG else V4)
    assert message.prepared_transaction_offset == 5
    assert message.msg_id == offset_message_id(pack_host(message.store_host), offset)
    topic_len, properties_len = len(topic.encode()), len(encode_properties(properties))
    assert (
        message.store_size
        == len(encoded)
        == record_size(
            topic_len,
            properties_len,
            len(body),
            v2=v2,
            born_v6=bool(sys_flag & BORNHOST_V6_FLAG),
            store_v6=bool(sys_flag & STOREHOSTADDRESS_V6_FLAG),
        )
    )
    columns = scan_records(b"junk" + encoded, [0], shift=4)
    assert columns == DispatchColumns(
        topics=[topic.encode()],
        queue_ids=[1],
        queue_offsets=[offset // 3],
        phy_offsets=[offset],
        sizes=[len(encoded)],
        tags_codes=[java_hash(properties.get("TAGS", ""))],
        store_timestamps=[1_700_000_000_456],
        sys_flags=[sys_flag],
        properties=[encode_properties(properties)],
    )


@pytest.mark.parametrize("sys_flag", [0, BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG])
def test_a_message_is_encoded_again_with_another_topic_queue_and_properties(sys_flag: int) -> None:
    message = decode_message(record(sys_flag=sys_flag))
    again = encode_again(message, b"Other", 4, b"TAGS\x01a\x02")
    assert again == record("Other", properties={"TAGS": "a"}, sys_flag=sys_flag, queue_id=4)


@given(st.binary(max_size=300), st.integers(0, 250), st.binary(min_size=1, max_size=8))
def test_damage_is_refused_and_never_a_crash(junk: bytes, at: int, patch: bytes) -> None:
    whole = record(properties={"TAGS": "A", "KEYS": "k"}, body=b"x" * 100)
    at = min(at, len(whole) - len(patch))
    for damaged in (junk, whole[: len(junk)], whole[:at] + patch + whole[at + len(patch) :]):
        for read in (
            decode_message,
            lambda buffer: scan_records(buffer, [0]),
            lambda buffer: list(walk_records(buffer)),
        ):
            with contextlib.suppress(MessageDecodeError):
                read(damaged)


def test_a_damaged_body_is_refused_unless_nobody_asks() -> None:
    damaged = bytearray(record(body=b"hello"))
    damaged[88] ^= 1
    with pytest.raises(MessageDecodeError, match="body CRC"):
        decode_message(damaged)
    assert decode_message(damaged, check_crc=False).body == b"iello"
    assert decode_message(damaged, read_body=False).body == b""


@pytest.mark.parametrize(
    ("topic_len", "properties_len"), [(32768, 0), (5, 32768)], ids=["topic", "properties"]
)
def test_what_has_no_room_in_its_length_field_is_refused(topic_len: int, properties_len: int) -> None:
    host = pack_host(V4)
    with pytest.raises(MessageEncodeError, match="limit"):
        encode_record(b"t" * topic_len, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"p" * properties_len)


@pytest.mark.parametrize(
    ("sys_flag", "born", "store"),
    [(0, V6, V4), (0, V4, V6), (BORNHOST_V6_FLAG, V4, V6), (STOREHOSTADDRESS_V6_FLAG, V4, V4)],
)
def test_hosts_that_contradict_the_flag_are_refused(sys_flag: int, born: str, store: str) -> None:
    with pytest.raises(MessageEncodeError, match="hosts"):
        encode_record(b"T", 0, 0, 0, 0, sys_flag, 0, pack_host(born), 0, pack_host(store), 0, 0, b"", b"")


@pytest.mark.parametrize(("length", "magic"), [(127, "daa320a7"), (128, "daa320ab")])
def test_a_long_topic_makes_a_v2_record(length: int, magic: str) -> None:
    encoded = record("t" * length)
    assert encoded[4:8].hex() == magic
    assert decode_message(encoded).topic == "t" * length


def test_records_one_behind_the_other_are_walked_to_the_blank() -> None:
    records = [record(body=b"x" * size) for size in (0, 5, 50)]
    blank = BLANK_HEADER.pack(100, BLANK_MAGIC)
    sizes = [len(encoded) for encoded in records]
    spans = [(0, sizes[0]), (sizes[0], sizes[1]), (sizes[0] + sizes[1], sizes[2])]
    whole = b"".join(records)
    for rest in (b"", blank + bytes(92), bytes(100), whole[:60]):
        assert list(walk_records(whole + rest)) == spans
    with pytest.raises(MessageDecodeError):
        list(walk_records(whole + b"\1" * 100))
    assert [message.body for message in decode_messages(whole)] == [b"", b"x" * 5, b"x" * 50]
    with pytest.raises(MessageDecodeError):
        decode_messages(whole + blank)


@pytest.mark.parametrize(
    ("properties", "tags"),
    [
        ({}, ""),
        ({"KEYS": "k", "TAGS": "TagA"}, "TagA"),
        ({"TAGS": "TagA", "KEYS": "k"}, "TagA"),
        ({"MYTAGS": "TagB"}, ""),
        ({"KEYS": "TAGS"}, ""),
        ({"TAGS": "标签"}, "标签"),
    ],
)
def test_a_scan_finds_the_tags(properties: dict[str, str], tags: str) -> None:
    assert scan_records(record(properties=properties), [0]).tags_codes == [java_hash(tags)]


def test_a_scan_reads_empty_and_repeated_tags_as_the_decoder_does() -> None:
    host = pack_host(V4)

    def scanned(properties: bytes) -> tuple[int, str | None]:
        encoded = encode_record(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", properties)
        return scan_records(encoded, [0]).tags_codes[0], decode_message(encoded).tags

    for properties in (
        b"TAGS\x01a\x02TAGS\x01b",
        b"TAGS\x01a\x02TAGS\x01\x02",
        b"TAGS\x01\x02",
        b"x\x01TAGS\x01y\x02",
    ):
        code, tags = scanned(properties)
        assert code == java_hash(tags or "")


LEVELS = {1: 1000, 2: 5000, 3: 10_000}


@pytest.mark.parametrize(
    ("topic", "delay", "code"),
    [
        ("SCHEDULE_TOPIC_XXXX", "2", 1_700_000_005_456),
        ("SCHEDULE_TOPIC_XXXX", "99", 1_700_000_010_456),
        ("SCHEDULE_TOPIC_XXXX", "0", java_hash("TagA")),
        ("SCHEDULE_TOPIC_XXXX", "x", java_hash("TagA")),
        ("TopicTest", "2", java_hash("TagA")),
    ],
)
def test_in_the_delay_topic_the_tags_code_is_the_delivery_time(topic: str, delay: str, code: int) -> None:
    encoded = record(topic, properties={"TAGS": "TagA", "DELAY": delay})
    assert scan_records(encoded, [0], delay_levels=LEVELS).tags_codes == [code]
    assert scan_records(encoded, [0]).tags_codes == [java_hash("TagA")]


def test_a_scan_of_nothing_has_empty_columns() -> None:
    columns = scan_records(b"", [])
    assert len(columns) == 0
    assert columns == DispatchColumns()


def test_a_scan_takes_any_buffer() -> None:
    encoded = record()
    buffers: list[Any] = [encoded, bytearray(encoded), memoryview(encoded)]
    assert {tuple(scan_records(buffer, [0]).sizes) for buffer in buffers} == {(len(encoded),)}


@pytest.mark.parametrize(
    ("sys_flag", "unit", "index"),
    [(0, True, True), (0x4, False, True), (0x8, True, True), (0xC, False, False), (0x301, True, True)],
)
def test_which_messages_are_dispatched(sys_flag: int, unit: bool, index: bool) -> None:
    assert (has_consume_queue_unit(sys_flag), has_index_entry(sys_flag)) == (unit, index)
