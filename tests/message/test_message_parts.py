"""Properties, ids, batches, bodies, names and tags."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message import const, names
from message.batch import BatchMessage, decode_batch_body, encode_batch
from message.compression import compress, decompress
from message.errors import MessageDecodeError, MessageEncodeError, SubscriptionParseError
from message.message_id import UniqKey, decode_offset_message_id, decode_uniq_key, pack_host, unpack_host
from message.properties import (
    decode_properties,
    delete_property,
    encode_properties,
    find_property,
    join_properties,
    pairs_of,
    with_properties,
)
from message.tags import (
    EXPRESSION_LENGTH_MAX,
    build_subscription,
    java_hash,
    tags_code,
    tags_code_of_bytes,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Few letters, so that names repeat, nest and touch.
tangled = st.text("ab\x01\x02", max_size=24).map(str.encode)
name = st.text("ab", max_size=3).map(str.encode)


@given(st.dictionaries(text, text))
def test_properties_come_back_without_the_pairs_that_cannot_be_told_apart(properties: dict[str, str]) -> None:
    sound = {
        name: value
        for name, value in properties.items()
        if name and value and not {"\x01", "\x02"} & set(name + value)
    }
    for last_separator in (True, False):
        encoded = encode_properties(sound, last_separator=last_separator)
        assert decode_properties(encoded) == sound
        assert encoded.endswith(b"\x02") == (last_separator and bool(sound))


@given(tangled, name)
def test_one_property_is_found_as_all_are_decoded(encoded: bytes, name: bytes) -> None:
    value = decode_properties(encoded).get(name.decode())
    assert find_property(encoded, name) == (None if value is None else value.encode())
    assert pairs_of(encoded).get(name) == find_property(encoded, name)


@given(tangled, name.filter(bool))
def test_a_deleted_property_is_gone_and_the_others_stay(encoded: bytes, name: bytes) -> None:
    left = decode_properties(encoded)
    left.pop(name.decode(), None)
    assert decode_properties(delete_property(encoded, name)) == left


@pytest.mark.parametrize(
    ("encoded", "left"),
    [
        (b"x\x01y\x02a\x01b", b"x\x01y\x02"),
        (b"a\x01b", b""),
        (b"a\x01b\x02", b""),
        (b"a\x01b\x02x\x01y", b"x\x01y"),
    ],
)
def test_what_stood_around_a_deleted_property_keeps_its_separators(encoded: bytes, left: bytes) -> None:
    assert delete_property(encoded, b"a") == left


@given(tangled, name.filter(bool))
def test_a_property_that_is_set_replaces_all_of_its_name(encoded: bytes, name: bytes) -> None:
    changed = with_properties(encoded, {name.decode(): "new"})
    assert decode_properties(changed) == {**decode_properties(encoded), name.decode(): "new"}
    assert changed.count(name + b"\x01new\x02") == 1
    assert find_property(changed, name) == b"new"


@pytest.mark.parametrize(
    ("encoded", "more", "joined"),
    [
        (b"", b"a\x01b\x02", b"a\x01b\x02"),
        (b"x\x01y", b"a\x01b\x02", b"x\x01y\x02a\x01b\x02"),
        (b"x\x01y\x02", b"a\x01b\x02", b"x\x01y\x02a\x01b\x02"),
        (b"x\x01y", b"", b"x\x01y"),
        (b"x\x01\xff", b"a\x01b\x02", b"x\x01\xff\x02a\x01b\x02"),
    ],
)
def test_joined_properties_have_one_separator_between(encoded: bytes, more: bytes, joined: bytes) -> None:
    assert join_properties(encoded, more) == joined


def test_properties_have_a_limit() -> None:
    assert len(encode_properties({"k": "v" * 32764})) == 32767
    with pytest.raises(MessageEncodeError, match="32768"):
        encode_properties({"k": "v" * 32765})


@given(st.integers(0, 2**32 - 1), st.integers(0, 65535))
def test_ipv4_hosts_come_back(address: int, port: int) -> None:
    host = f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}:{port}"
    packed = pack_host(host)
    assert packed == address.to_bytes(4, "big") + port.to_bytes(4, "big")
    assert unpack_host(packed) == host


@given(st.binary(min_size=16, max_size=16), st.integers(0, 65535))
def test_ipv6_hosts_come_back(address: bytes, port: int) -> None:
    packed = address + port.to_bytes(4, "big")
    assert pack_host(unpack_host(packed)) == packed


def test_a_name_is_no_host() -> None:
    with pytest.raises(ValueError, match="localhost"):
        pack_host("localhost:10911")


@pytest.mark.parametrize("message_id", ["", "7F", "xyz", "7F" * 20, "7F" * 15])
def test_what_is_no_message_id_is_refused(message_id: str) -> None:
    with pytest.raises(MessageDecodeError):
        decode_offset_message_id(message_id)


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
    st.integers(0, 31 * 86_400_000),  # the last days of a month do not fit into 31 bits
)
def test_unique_keys_come_back(ip: bytes, number: int, month_ms: int) -> None:
    key = UniqKey(ip, number, number - 40000, month_ms, 65535 - number)
    encoded = key.encode()
    assert len(encoded) == 2 * (len(ip) + 12)
    assert decode_uniq_key(encoded) == key


@pytest.mark.parametrize("key", ["", "0123", "no hex at all"])
def test_what_is_no_unique_key_is_refused(key: str) -> None:
    with pytest.raises(MessageDecodeError):
        decode_uniq_key(key)


@given(st.lists(st.builds(BatchMessage, st.integers(-5, 5), st.binary(max_size=30), st.binary(max_size=30))))
def test_a_batch_comes_back(messages: list[BatchMessage]) -> None:
    encoded = encode_batch(messages)
    assert decode_batch_body(encoded) == decode_batch_body(memoryview(encoded)) == messages


@pytest.mark.parametrize("end", range(1, 35))
def test_a_cut_batch_is_refused(end: int) -> None:
    encoded = encode_batch([BatchMessage(0, b"body", b"k\x01v\x02" * 2)])
    assert len(encoded) == 34
    if end < len(encoded):
        with pytest.raises(MessageDecodeError):
            decode_batch_body(encoded[:end])


@given(st.binary(max_size=80))
def test_junk_is_no_batch_and_no_crash(junk: bytes) -> None:
    try:
        messages = decode_batch_body(junk)
    except MessageDecodeError:
        return
    assert len(encode_batch(messages)) == len(junk)


@given(st.binary(max_size=500))
def test_a_compressed_body_comes_back(body: bytes) -> None:
    assert decompress(compress(body), 0x301) == body
    assert decompress(compress(body), 0x1) == body, "old clients set no type"


@pytest.mark.parametrize(
    ("body", "sys_flag", "reason"),
    [
        (b"no zlib", 0x301, "ZLIB"),
        (compress(b"x" * 100)[:-3], 0x301, "cut"),
        (zlib.compress(bytes(2000)), 0x301, "more than 1000"),
        (b"", 0x701, "0x701"),
    ],
)
def test_a_body_that_cannot_be_inflated_is_refused(body: bytes, sys_flag: int, reason: str) -> None:
    with pytest.raises(MessageDecodeError, match=reason):
        decompress(body, sys_flag, size_max=1000)


def test_a_body_of_just_the_limit_is_inflated() -> None:
    assert decompress(compress(bytes(1000)), 0x301, size_max=1000) == bytes(1000)


@given(st.text())
def test_hashes_of_text_and_bytes_agree(tags: str) -> None:
    by_hand = 0
    for unit in memoryview(tags.encode("utf-16-le", "surrogatepass")).cast("H"):
        by_hand = (by_hand * 31 + unit) % 2**32
    expected = by_hand - 2**32 if by_hand >= 2**31 else by_hand
    assert java_hash(tags) == tags_code(tags) == expected
    encoded = tags.encode("utf-8", "replace")
    assert tags_code_of_bytes(encoded) == java_hash(encoded.decode())


def test_a_subscription_wants_its_tags_and_all_that_hash_like_them() -> None:
    some = build_subscription("T", "Aa || C")
    assert some.matches(java_hash("Aa"))
    assert some.matches(java_hash("BB")), "the two have one hash"
    assert not some.matches(0)
    assert build_subscription("T", "*").matches(0)
    assert build_subscription("T", None).sub_string == "*"


@pytest.mark.parametrize("expression_type", ["TAG", "SQL92"])
def test_an_expression_has_a_longest_length(expression_type: str) -> None:
    longest = "||".join(["a" * 62] * 256)
    assert len(longest) == EXPRESSION_LENGTH_MAX - 2
    assert build_subscription("T", f"{longest}aa", expression_type).sub_string == f"{longest}aa"
    with pytest.raises(
        SubscriptionParseError, match="the expression has 16385 characters, the limit is 16384"
    ):
        build_subscription("T", f"{longest}aaa", expression_type)


def test_an_sql_expression_is_kept_as_it_is() -> None:
    subscription = build_subscription("T", "a > 1", "SQL92", sub_version=7)
    assert (subscription.sub_string, subscription.tags_set) == ("a > 1", frozenset())
    assert (subscription.expression_type, subscription.sub_version) == ("SQL92", 7)
    with pytest.raises(SubscriptionParseError):
        build_subscription("T", "", "SQL92")


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a-b_c|d", "x" * 127, "%RETRY%" + "x" * 248])
def test_sound_topics(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "illegal"),
        ("主题", "illegal"),
        ("a\n", "illegal"),
        ("x" * 128, "longer"),
        ("%DLQ%" + "x" * 251, "longer"),
    ],
)
def test_topics_that_are_refused(topic: str, fault: str) -> None:
    assert fault in (names.topic_fault(topic) or "")


@pytest.mark.parametrize(
    ("group", "fault"), [("g", None), ("", "blank"), ("a b", "illegal"), ("g" * 121, "longer")]
)
def test_groups(group: str, fault: str | None) -> None:
    found = names.group_fault(group)
    assert found is None if fault is None else fault in (found or "")


def test_names_of_retry_and_dead_letter_topics() -> None:
    assert names.retry_topic("g") == names.retry_topic("%RETRY%g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("g", "T") == "%RETRY%g_T"
    assert names.pop_retry_topic("g", "T", v2=True) == "%RETRY%g+T"


def test_what_belongs_to_the_system() -> None:
    assert names.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert names.is_system_topic("rmq_sys_pydledger_state")
    assert not names.is_system_topic("TopicTest")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("g")
    assert all(map(names.is_system_topic, names.NOT_ALLOWED_SEND_TOPICS))
    assert len({const.KEYS, const.TAGS, const.DELAY_TIME_LEVEL, const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX}) == 4
