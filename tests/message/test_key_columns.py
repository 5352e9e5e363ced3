"""Keys of stored records and their hashes, as RocketMQ's IndexFile has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.dispatch_columns import scan_records
from message.encoder import encode_record
from message.key_columns import key_hash, keys_of, scan_keys
from message.message_id import pack_host
from message.sys_flag import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from message.tags import java_hash
from store.layout.index_file import index_key, index_key_hash

HOST = pack_host("127.0.0.1:1")
UNIQUE = b"7F00000100002A139A5500000000000A"


def record(topic: bytes, properties: bytes, number: int, sys_flag: int = 0) -> bytes:
    return encode_record(
        topic, 0, 0, number, 48, sys_flag, 5, HOST, 6 + number, HOST, 0, 0, b"body", properties
    )


@given(st.text(max_size=20), st.one_of(st.text(max_size=40), st.text("0123456789ABCDEF", max_size=300)))
def test_a_key_s_hash_is_rocketmq_s(topic: str, key: str) -> None:
    topic_bytes, key_bytes = topic.encode("utf-8", "replace"), key.encode("utf-8", "replace")
    assert key_hash(topic_bytes, key_bytes) == index_key_hash(
        index_key(topic_bytes.decode(), key_bytes.decode())
    )


def test_the_hash_without_an_absolute_value_counts_as_0() -> None:
    rest = (0x8000_0000 - ord("#") * 31**7) % 2**32
    key = bytes(rest // 31**power % 31 for power in range(6, -1, -1))
    assert java_hash(f"#{key.decode()}") == -0x8000_0000
    assert key_hash(b"", key) == 0


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"", []),
        (b"KEYS\x01a\x02", [b"a"]),
        (b"KEYS\x01a b  c \x02", [b"a", b"b", b"c"]),
        (b"KEYS\x01a\x02UNIQ_KEY\x01u\x02", [b"u", b"a"]),
        (b"UNIQ_KEY\x01u\x02TAGS\x01t", [b"u"]),
        (b"KEYS\x01   \x02", []),
        (b"MYKEYS\x01a\x02", []),
    ],
)
def test_the_unique_key_comes_before_the_words_of_keys(properties: bytes, keys: list[bytes]) -> None:
    assert keys_of(properties) == keys


def test_each_key_of_a_record_is_a_row() -> None:
    records = [
        record(b"T", b"KEYS\x01a b\x02UNIQ_KEY\x01" + UNIQUE + b"\x02", 0),
        record(b"T", b"", 100),
        record(b"U", b"KEYS\x01a\x02", 200, TRANSACTION_PREPARED_TYPE),
        record(b"T", b"KEYS\x01gone\x02", 300, TRANSACTION_ROLLBACK_TYPE),
    ]
    offsets = [sum(map(len, records[:number])) for number in range(len(records))]
    columns = scan_records(b"".join(records), offsets)
    keys = scan_keys(columns)
    expected = [("T", UNIQUE.decode(), 0), ("T", "a", 0), ("T", "b", 0), ("U", "a", 2)]
    assert keys.key_hashes == [index_key_hash(index_key(topic, key)) for topic, key, _ in expected]
    assert keys.phy_offsets == [columns.phy_offsets[row] for _, _, row in expected]
    assert keys.store_timestamps == [columns.store_timestamps[row] for _, _, row in expected]
