"""Inputs and outputs of the real Java classes, one case per line."""

import json
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import pytest
from golden_message import INFLATABLE
from golden_store import vectors

from dledger.entry import ENTRY_HEADER, INDEX_UNIT, IndexUnit, parse_header, parse_index_units, walk
from message.batch import BatchMessage, decode_batch_body, encode_batch
from message.compression import CompressionMissingError, decompress
from message.decoder import decode_message
from message.encoder import encode_record, record_size
from message.errors import SubscriptionParseError
from message.message_id import (
    decode_offset_message_id,
    decode_uniq_key,
    offset_message_id,
    pack_host,
    unpack_host,
)
from message.properties import decode_properties, delete_property, encode_properties, find_property
from message.sql.errors import EvaluationError
from message.sql.parser import parse
from message.sys_flag import (
    TRANSACTION_ROLLBACK_TYPE,
    CompressionType,
    clear_compressed_flag,
    compressed_by,
    pull_sys_flag,
)
from message.tags import build_subscription, java_hash, tags_code, tags_code_of_bytes
from store.layout.index_file import index_key_hash

Vector = dict[str, Any]
# Ports that the recording program gave its hosts.
BORN_PORT, STORE_PORT = 10911, 20911


@pytest.mark.parametrize(
    "vector", vectors("hash_crc", "string"), ids=lambda vector: repr(vector["input"])[:20]
)
def test_hashes(vector: Vector) -> None:
    # The file's text cannot hold a lone surrogate; its UTF-16 form can.
    text = bytes.fromhex(vector["input_utf16"]).decode("utf-16-be", "surrogatepass")
    if text == "\N{REPLACEMENT CHARACTER}":
        text = chr(vector["hashCode"])
    assert java_hash(text) == vector["hashCode"]
    assert tags_code(text) == vector["tagsCode"]
    assert index_key_hash(text) == vector["indexKeyHash"]
    encoded = text.encode("utf-8", "replace")
    assert crc32(encoded) == vector["java_util_crc32_utf8"]
    assert crc32(encoded) & 0x7FFFFFFF == vector["crc32_utf8"]
    if encoded.decode() == text:
        assert tags_code_of_bytes(encoded) == vector["tagsCode"]


def test_crcs_of_bytes() -> None:
    for vector in vectors("hash_crc", "bytes"):
        data = bytes.fromhex(vector["input_hex"])
        assert (crc32(data), crc32(data) & 0x7FFFFFFF) == (vector["java_util_crc32"], vector["UtilAll.crc32"])


def test_ids_are_upper_case_hex() -> None:
    for vector in vectors("hash_crc", "bytes2string"):
        data = bytes.fromhex(vector["input_hex"])
        assert offset_message_id(data, 0).removesuffix("0" * 16) == vector["output"]


@pytest.mark.parametrize("vector", vectors("properties", "encode"))
def test_properties_encode(vector: Vector) -> None:
    pairs = {name: value for name, value in vector["input"] if value is not None}
    encoded = encode_properties(pairs)
    assert encoded.hex() == vector["output_utf8_hex"]
    assert decode_properties(encoded) == vector["decoded"]


@pytest.mark.parametrize("vector", vectors("properties", "decode"), ids=lambda vector: repr(vector["input"]))
def test_properties_decode(vector: Vector) -> None:
    encoded = bytes.fromhex(vector.get("input_hex", ""))
    assert decode_properties(encoded) == vector["output"]
    for name in ("a", "b", "c", "k", "k1", "v", ""):
        value = vector["output"].get(name)
        assert find_property(encoded, name.encode()) == (None if value is None else value.encode())


@pytest.mark.parametrize("vector", vectors("properties", "deleteProperty"))
def test_properties_delete(vector: Vector) -> None:
    assert delete_property(vector["input"].encode(), vector["name"].encode()) == vector["output"].encode()


@pytest.mark.parametrize("vector", vectors("message_id", "offsetMsgId"), ids=lambda vector: vector["output"])
def test_offset_message_ids(vector: Vector) -> None:
    host = f"{vector['host']}:{vector['port']}"
    packed = pack_host(host)
    assert packed.hex() == vector["addr_hex"]
    assert offset_message_id(packed, vector["offset"]) == vector["output"]
    java_host, _, offset = vector["decoded"].removeprefix("/").partition(" ")
    assert decode_offset_message_id(vector["output"]) == (java_host, int(offset))
    assert unpack_host(packed) == java_host
    assert pack_host(java_host) == packed


@pytest.mark.parametrize("vector", vectors("message_id", "uniqId"))
def test_unique_keys_of_java(vector: Vector) -> None:
    key = decode_uniq_key(vector["output"])
    assert key.ip.hex(":", 2) == vector["ip_part"]
    assert key.pid == vector["pid_part"]
    assert key.encode() == vector["output"]
    month = datetime.fromtimestamp(vector["nearly_time"] / 1000, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    assert month.timestamp() * 1000 + key.ms_since_month_start == vector["nearly_time"]


@pytest.mark.parametrize("vector", vectors("message_id", "uniqId_parse"))
def test_unique_keys_are_read_from_the_end(vector: Vector) -> None:
    key = decode_uniq_key(vector["input"])
    assert key.pid == vector["pid"]
    said = ".".join(map(str, key.ip)) if len(key.ip) == 4 else key.ip.hex(":", 2)
    assert said == vector["ip"]


def encoder_arguments(vector: Vector, properties: bytes) -> tuple[Any, ...]:
    return (
        vector["topic"].encode(),
        vector["queueId"],
        vector["flag"],
        vector["queueOffset"],
        vector.get("commitLogOffset", 0),
        vector["sysFlag"],
        vector["bornTimestamp"],
        pack_host(f"{vector['bornHost']}:{BORN_PORT}"),
        vector["storeTimestamp"],
        pack_host(f"{vector['storeHost']}:{STORE_PORT}"),
        vector["reconsumeTimes"],
        vector["preparedTransactionOffset"],
        bytes.fromhex(vector["body_hex"]),
        properties,
    )


@pytest.mark.parametrize(
    "vector", vectors("message_encode", "MessageExtEncoder"), ids=lambda vector: vector["topic"][:9]
)
def test_records_of_the_stores_encoder(vector: Vector) -> None:
    assert vector["result"] == "accepted"
    properties = vector["propertiesString"].encode()
    v2 = vector["version"] == "MESSAGE_VERSION_V2"
    record = encode_record(*encoder_arguments(vector, properties), v2=v2)
    assert record.hex() == vector["encoded_hex"]
    sizes = len(vector["topic"]), len(properties), len(vector["body_hex"]) // 2
    born_v6, store_v6 = ":" in vector["bornHost"], ":" in vector["storeHost"]
    assert record_size(*sizes, v2=v2, born_v6=born_v6, store_v6=store_v6) == len(record)
    message = decode_message(record)
    assert (message.topic, message.body.hex()) == (vector["topic"], vector["body_hex"])
    assert message.store_size == len(record)


COMMON_ENCODER = vectors("message_encode", "MessageDecoder.encode")


def test_a_topic_that_javas_common_encoder_fails_at_makes_a_v2_record() -> None:
    [vector] = [vector for vector in COMMON_ENCODER if "error" in vector]
    host = bytes(8)
    record = encode_record(vector["topic"].encode(), 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"")
    assert record[4:8].hex() == "daa320ab"
    assert decode_message(record).topic == vector["topic"]


@pytest.mark.parametrize(
    "vector",
    [vector for vector in COMMON_ENCODER if "error" not in vector],
    ids=lambda vector: vector["topic"][:9],
)
def test_records_of_the_common_encoder(vector: Vector) -> None:
    record = bytes.fromhex(vector["encoded_hex"])
    properties = encode_properties(vector["properties"])
    assert encode_record(*encoder_arguments(vector, properties)) == record
    message = decode_message(record)
    for said in (
        f"queueId={message.queue_id}, storeSize={message.store_size}, queueOffset={message.queue_offset}, ",
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host}, ",
        f"storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, msgId={message.msg_id}, ",
        f"commitLogOffset={message.phy_offset}, bodyCRC={message.body_crc}, ",
        f"reconsumeTimes={message.reconsume_times}, ",
        f"preparedTransactionOffset={message.prepared_transaction_offset}, ",
        f"Message{{topic='{message.topic}', flag={message.flag}, ",
    ):
        assert said in vector["decoded"]
    assert message.properties == vector["properties"]


def test_batch_of_one() -> None:
    [vector] = vectors("message_encode", "MessageDecoder.encodeMessage")
    encoded = bytes.fromhex(vector["encoded_hex"])
    [message] = decode_batch_body(encoded)
    assert (message.flag, message.body.decode()) == (vector["flag"], vector["body"])
    assert decode_properties(message.properties) == vector["properties"]
    assert encode_batch([message]) == encoded


def test_batch_of_two() -> None:
    [vector] = vectors("message_encode", "MessageDecoder.encodeMessages")
    encoded = bytes.fromhex(vector["encoded_hex"])
    messages = decode_batch_body(encoded)
    assert [message.body.decode() for message in messages] == vector["bodies"]
    assert messages[1] == BatchMessage(0, b"batch two", b"WAIT\x01true\x02")
    assert encode_batch(messages) == encoded


@pytest.mark.parametrize("vector", vectors("message_encode", "compress"), ids=lambda vector: vector["type"])
def test_compressed_bodies(vector: Vector) -> None:
    compression = CompressionType[vector["type"]]
    assert compression == vector["value"]
    assert compressed_by(compression) == vector["sysFlag_bits"]
    body, sys_flag = bytes.fromhex(vector["compressed_hex"]), vector["sysFlag_bits"]
    if INFLATABLE[compression]:
        assert decompress(body, sys_flag).hex() == vector["input_hex"]
    else:
        with pytest.raises(CompressionMissingError, match="pip install"):
            decompress(body, sys_flag)


def test_sys_flags_of_messages() -> None:
    for vector in vectors("sysflags", "MessageSysFlag"):
        assert vector["flag"] & TRANSACTION_ROLLBACK_TYPE == vector["transactionValue"]
        assert clear_compressed_flag(vector["flag"]) == vector["clearCompressed"]


def test_sys_flags_of_pulls() -> None:
    for vector in vectors("sysflags", "PullSysFlag"):
        flag = pull_sys_flag(
            commit_offset=vector["commitOffset"],
            suspend=vector["suspend"],
            subscription=vector["subscription"],
            class_filter=vector["classFilter"],
        )
        assert flag == vector["output"]


def test_entries_of_dledgers_coder() -> None:
    for vector in vectors("dledger", "DLedgerEntryCoder"):
        encoded = bytes.fromhex(vector["encoded_hex"])
        body = bytes.fromhex(vector["body_hex"])
        header = parse_header(encoded)
        said = (header.magic, header.index, header.term, header.pos, header.kind, header.chain_crc)
        assert said == tuple(
            vector[field] for field in ("magic", "index", "term", "pos", "channel", "chainCrc")
        )
        assert header.body_crc == vector["bodyCrc"] == crc32(body)
        [(walked, walked_body)] = walk(encoded, header.pos)
        assert (walked, bytes(walked_body)) == (header, body)
        packed = ENTRY_HEADER.pack(
            header.magic,
            len(encoded),
            header.index,
            header.term,
            header.pos,
            header.kind,
            header.chain_crc,
            header.body_crc,
            len(body),
        )
        assert packed + body == encoded
        unit = INDEX_UNIT.pack(1, header.pos, header.size, header.index, header.term)
        assert unit.hex() == vector["index_hex"]
        assert parse_index_units(unit) == [IndexUnit(1, header.pos, header.size, header.index, header.term)]


@pytest.mark.parametrize(
    "vector", vectors("json_bodies", "SubscriptionData"), ids=lambda vector: vector["input"]
)
def test_subscriptions(vector: Vector) -> None:
    if vector["output"].startswith("EX "):
        with pytest.raises(SubscriptionParseError, match=vector["output"].rpartition(": ")[2]):
            build_subscription("T", vector["input"])
        return
    said = json.loads(vector["output"])
    subscription = build_subscription("T", vector["input"])
    assert {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": set(subscription.code_set),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": set(subscription.tags_set),
        "topic": subscription.topic,
    } == said | {"codeSet": set(said["codeSet"]), "tagsSet": set(said["tagsSet"])}


def test_sql_expressions() -> None:
    properties = {
        name.encode(): value for name, value in vectors("sql92", "properties")[0]["properties"].items()
    }
    cases = vectors("sql92", "case")
    assert len(cases) == 195
    for vector in cases:
        status, value = "ok", None
        try:
            value = parse(vector["expr"]).truth(properties.get)
        except SubscriptionParseError:
            status = "compile_error"
        except EvaluationError:
            status = "eval_error"
        assert (status, value) == (vector["status"], vector["value"]), vector["expr"]
