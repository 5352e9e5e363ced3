"""Records as columns say what the decoder says of each, and end at no bad one."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from message.decoder import MessageExt, decode_message
from message.encoder import encode_record
from message.errors import MessageDecodeError
from message.message_id import pack_host, unpack_host
from message.properties import decode_properties, encode_properties
from message.record_columns import RecordColumns, read_records
from message.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

V4, V6 = "127.0.0.1:10911", "[fe80:0:0:0:0:0:0:1]:10912"

records = st.builds(
    lambda topic, sys_flag, body, number, v2: encode_record(
        topic,
        number % 7,
        number % 5,
        number,
        48 + number,
        sys_flag,
        1_700_000_000_123,
        pack_host(V6 if sys_flag & BORNHOST_V6_FLAG else V4),
        1_700_000_000_456 + number,
        pack_host(V6 if sys_flag & STOREHOSTADDRESS_V6_FLAG else V4),
        3,
        5,
        body,
        encode_properties({"KEYS": str(number)}),
        v2=v2,
    ),
    topic=st.binary(min_size=1, max_size=100).map(lambda name: name.hex().encode()[:120]),
    sys_flag=st.sampled_from([0, 1, 4, BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, 0x30]),
    body=st.binary(max_size=40),
    number=st.integers(0, 2**40),
    v2=st.booleans(),
)


def row_of(columns: RecordColumns, row: int, buffer: bytes) -> MessageExt:
    """As decode_message says it."""

    def value(name: str) -> Any:
        return getattr(columns, name)[row]

    start = value("body_starts")
    return MessageExt(
        topic=value("topics").decode(),
        queue_id=value("queue_ids"),
        queue_offset=value("queue_offsets"),
        phy_offset=value("phy_offsets"),
        flag=value("flags"),
        sys_flag=value("sys_flags"),
        born_timestamp=value("born_timestamps"),
        born_host=unpack_host(value("born_hosts")),
        store_timestamp=value("store_timestamps"),
        store_host=unpack_host(value("store_hosts")),
        reconsume_times=value("reconsume_times"),
        prepared_transaction_offset=value("prepared_transaction_offsets"),
        body=buffer[start : start + value("body_lengths")],
        body_crc=value("body_crcs"),
        properties=decode_properties(value("properties")),
        store_size=value("sizes"),
    )


@given(st.lists(records, max_size=5))
def test_columns_say_what_the_decoder_says(encoded: list[bytes]) -> None:
    buffer = b"".join(b"head" + record for record in encoded)
    offsets = [sum(len(record) + 4 for record in encoded[:number]) for number in range(len(encoded))]
    columns = read_records(buffer, offsets, shift=4)
    assert columns.numbers == list(range(len(encoded)))
    assert not columns.faults
    assert [row_of(columns, row, buffer) for row in range(len(encoded))] == list(map(decode_message, encoded))


@given(records, st.data())
def test_a_record_is_refused_exactly_where_the_decoder_refuses_it(record: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(record) - 1))
    damaged = bytearray(record)
    damaged[at] ^= data.draw(st.integers(1, 255))
    damaged_record = bytes(damaged[: data.draw(st.integers(0, len(record)) | st.just(len(record)))])
    columns = read_records(damaged_record, [0])
    try:
        message = decode_message(damaged_record, check_crc=False)
    except MessageDecodeError:
        assert set(columns.faults) == {0}
    else:
        assert not columns.faults
        assert columns.queue_offsets == [message.queue_offset]
        assert columns.topics[0] is not None
        assert columns.topics[0].decode("utf-8", "replace") == message.topic


@given(st.lists(records, min_size=1, max_size=4))
def test_one_topic_and_what_cannot_be_read_are_left_of_a_selection(encoded: list[bytes]) -> None:
    wanted = decode_message(encoded[-1]).topic
    buffer = b"".join(encoded) + b"\1" * 100
    starts = [sum(map(len, encoded[:number])) for number in range(len(encoded) + 1)]
    columns = read_records(buffer, starts, topic=wanted.encode())
    expected = [number for number, record in enumerate(encoded) if decode_message(record).topic == wanted]
    assert columns.numbers == [*expected, len(encoded)]
    assert set(columns.faults) == {len(expected)}
    assert columns.topics[-1] is None
