"""Commands and frames: one table of cases, read and written, fed in every way a stream can come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.codes import MQ_VERSION, LanguageCode, RequestCode, ResponseCode
from remoting.errors import RemotingEncodeError
from remoting.frame.command import (
    HEADER_LENGTH_MAX,
    RemotingCommand,
    SerializeType,
    decode_json,
    encode_frame,
    encode_header,
    encode_response,
    encode_response_head,
    request,
    response,
)
from remoting.frame.connection import RemotingConnection

VECTORS = Path(__file__).parent.parent / "golden" / "vectors" / "remoting_command.jsonl"

JSON = SerializeType.JSON
BINARY = SerializeType.ROCKETMQ


def frame_of(header: str, body: bytes = b"") -> bytes:
    return encode_frame(JSON, header.encode(), body)


# (name, frame, command): written by hand from wire.md, both directions.
CASES = [
    (
        "a JSON request with one ext field",
        bytes.fromhex("0000007f0000007b")
        + b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
        + b'"serializeTypeCurrentRPC":"JSON","version":479}',
        RemotingCommand(
            code=105, wire_language="JAVA", version=479, opaque=7, flag=0, ext_fields={"topic": "T"}
        ),
    ),
    (
        "a JSON response with a remark and no ext fields",
        frame_of(
            '{"code":17,"flag":1,"language":"JAVA","opaque":7,"remark":"no",'
            '"serializeTypeCurrentRPC":"JSON","version":0}'
        ),
        RemotingCommand(code=17, wire_language="JAVA", opaque=7, flag=1, remark="no"),
    ),
    (
        "a JSON oneway request with an empty map and a body",
        frame_of(
            '{"code":34,"extFields":{},"flag":2,"language":"GO","opaque":1,'
            '"serializeTypeCurrentRPC":"JSON","version":513}',
            b"{}",
        ),
        RemotingCommand(
            code=34,
            wire_language="GO",
            version=513,
            opaque=1,
            flag=2,
            body=b"{}",
            has_empty_ext_fields=True,
        ),
    ),
    (
        "a binary request with one ext field",
        bytes.fromhex(
            "00000025010000210069 00 01df 00000007 00000000 00000000 0000000c 0005746f706963 00000001 54"
        ),
        RemotingCommand(
            code=105,
            wire_language=0,
            version=479,
            opaque=7,
            flag=0,
            ext_fields={"topic": "T"},
            serialize_type=1,
        ),
    ),
    (
        "a binary response with a remark, no map, a body, and a negative code",
        bytes.fromhex("0000001d 01000018 ffff 03 0201 00000008 00000001 00000003 c3a921 00000000 62"),
        RemotingCommand(
            code=-1,
            wire_language=3,
            version=513,
            opaque=8,
            flag=1,
            remark="é!",
            body=b"b",
            serialize_type=1,
        ),
    ),
    (
        "a binary request whose map has an empty value and a two-byte length",
        encode_frame(
            BINARY,
            bytes.fromhex("0136 09 0000 00000009 00000000 00000000 00000139")
            + bytes.fromhex("0001 61 00000000")
            + bytes.fromhex("0002 6225 0000012a")
            + b"x" * 298,
            b"",
        ),
        RemotingCommand(
            code=310,
            wire_language=9,
            opaque=9,
            ext_fields={"a": "", "b%": "x" * 298},
            serialize_type=1,
        ),
    ),
]
CASE_IDS = [name for name, _, _ in CASES]


@pytest.mark.parametrize(("name", "frame", "command"), CASES, ids=CASE_IDS)
def test_a_command_encodes_to_its_frame(name: str, frame: bytes, command: RemotingCommand) -> None:
    assert command.encode() == frame


@pytest.mark.parametrize(("name", "frame", "command"), CASES, ids=CASE_IDS)
def test_a_whole_frame_decodes_to_its_command(name: str, frame: bytes, command: RemotingCommand) -> None:
    assert RemotingConnection().receive_data(frame) == [command]


@pytest.mark.parametrize(("name", "frame", "command"), CASES, ids=CASE_IDS)
def test_a_frame_fed_byte_by_byte_decodes_at_its_last_byte(
    name: str, frame: bytes, command: RemotingCommand
) -> None:
    connection = RemotingConnection()
    for at in range(len(frame) - 1):
        assert connection.receive_data(frame[at : at + 1]) == []
    assert connection.receive_data(frame[-1:]) == [command]
    assert connection.pending_size == 0


@pytest.mark.parametrize(("name", "frame", "command"), CASES, ids=CASE_IDS)
def test_a_frame_with_a_tail_decodes_and_the_tail_waits(
    name: str, frame: bytes, command: RemotingCommand
) -> None:
    connection = RemotingConnection()
    assert connection.receive_data(frame + frame[:11]) == [command]
    assert connection.pending_size == 11
    assert connection.receive_data(frame[11:]) == [command]


def vectors(kind: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["kind"] == kind]


def command_of(row: dict[str, object]) -> RemotingCommand:
    body_hex = row["body_hex"]
    ext_fields = row["extFields"]
    assert isinstance(ext_fields, dict | None)
    return RemotingCommand(
        code=row["code"],  # type: ignore[arg-type]
        wire_language=row["language"],  # type: ignore[arg-type]
        version=row["version"],  # type: ignore[arg-type]
        opaque=row["opaque"],  # type: ignore[arg-type]
        flag=row["flag"],  # type: ignore[arg-type]
        remark=row["remark"],  # type: ignore[arg-type]
        ext_fields=ext_fields or {},
        has_empty_ext_fields=ext_fields == {},
        body=bytes.fromhex(body_hex) if isinstance(body_hex, str) else b"",
        serialize_type=SerializeType[str(row["serializeType"])].value,
    )


@pytest.mark.parametrize("row", vectors("encode"), ids=lambda row: f"{row['serializeType']}-{row['code']}")
def test_frames_are_those_of_the_java_encoder(row: dict[str, object]) -> None:
    frame = bytes.fromhex(str(row["frame_hex"]))
    (decoded,) = RemotingConnection().receive_data(frame)
    assert decoded.code == row["decoded_back_code"]
    assert decoded.encode() == frame
    if decoded.code == row["code"]:
        assert command_of(row).encode() == frame


def test_a_code_beyond_sixteen_bits_is_sent_as_json_where_java_would_truncate_it() -> None:
    command = request(RequestCode.POP_MESSAGE, {"k": "v"}, opaque=1, serialize_type=BINARY)
    (decoded,) = RemotingConnection().receive_data(command.encode())
    assert decoded.code == 200050
    assert decoded.serialize_type == JSON


def test_language_codes_are_java_s() -> None:
    assert {row["name"]: row["code"] for row in vectors("language")} == {
        language.name: language.value for language in LanguageCode
    }


def test_our_version_is_that_of_5_5_0() -> None:
    assert next(row["value"] for row in vectors("version") if row["name"] == "V5_5_0") == MQ_VERSION


@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
def test_a_response_answers_in_the_serialization_and_opaque_of_its_request(
    serialize_type: SerializeType,
) -> None:
    asked = request(RequestCode.PULL_MESSAGE, {"topic": "T"}, opaque=77, serialize_type=serialize_type)
    answer = response(asked, ResponseCode.PULL_NOT_FOUND, "nothing", {"nextBeginOffset": "3"}, b"body")
    (decoded,) = RemotingConnection().receive_data(answer.encode())
    assert (decoded.opaque, decoded.serialize_type, decoded.is_response) == (77, serialize_type, True)
    assert (decoded.code, decoded.remark, decoded.body) == (19, "nothing", b"body")
    assert decoded.language is LanguageCode.PYTHON


TEXT = st.text(max_size=300)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    opaque=INT32,
    serialize_type=st.sampled_from([0, 1]),
    code=st.integers(-0x8000, 0x7FFF),
    ext_fields=st.none() | st.dictionaries(st.text(min_size=1, max_size=20), TEXT, max_size=6),
    body=st.binary(max_size=40),
    remark=st.none() | st.text(min_size=1),
)
def test_the_fast_response_encoder_writes_what_the_command_writes(
    opaque: int,
    serialize_type: int,
    code: int,
    ext_fields: dict[str, str] | None,
    body: bytes,
    remark: str | None,
) -> None:
    asked = RemotingCommand(opaque=opaque, serialize_type=serialize_type)
    frame = encode_response(opaque, serialize_type, code, ext_fields, body, remark)
    (decoded,) = RemotingConnection().receive_data(frame)
    assert (
        decoded
        == RemotingConnection().receive_data(response(asked, code, remark, ext_fields, body).encode())[0]
    )
    assert (decoded.code, decoded.ext_fields, decoded.body) == (code, ext_fields or {}, body)
    head = encode_response_head(opaque, serialize_type, code, ext_fields, len(body), remark)
    assert head + body == frame


@given(
    command=st.builds(
        RemotingCommand,
        code=st.integers(-0x8000, 0x7FFF),
        wire_language=st.sampled_from([language.value for language in LanguageCode]),
        version=st.integers(0, 0x7FFF),
        opaque=INT32,
        flag=st.integers(0, 3),
        remark=st.none() | st.text(min_size=1),
        ext_fields=st.dictionaries(st.text(min_size=1), TEXT),
        body=st.binary(),
        serialize_type=st.sampled_from([0, 1]),
    )
)
def test_any_command_survives_its_own_frame(command: RemotingCommand) -> None:
    (decoded,) = RemotingConnection().receive_data(command.encode())
    decoded.wire_language = decoded.language.value
    assert decoded == command


def test_a_json_header_with_nulls_numbers_and_strange_keys_is_read_as_java_reads_it() -> None:
    command = decode_json(
        b'{"code":10,"extFields":{"a":1,"b":true,"c":null,"d":1.5,"e":"x"},"language":9,"flag":null,'
        b'"body":7,"remark":null,"serialize_type":"x","unknown":[{}]}',
    )
    assert command.ext_fields == {"a": "1", "b": "true", "d": "1.5", "e": "x"}
    assert (command.code, command.flag, command.remark, command.body) == (10, 0, None, b"")
    assert command.language is LanguageCode.GO
    assert command.serialize_type == JSON


def test_a_json_header_without_ext_fields_or_with_null_for_them_has_an_empty_map() -> None:
    for header in (b'{"code":1}', b'{"code":1,"extFields":null}', b'{"code":1,"extFields":{}}'):
        assert decode_json(header).ext_fields == {}


def test_a_body_in_a_json_header_is_not_taken_for_the_body() -> None:
    assert decode_json(b'{"code":1,"body":"Ynl0ZXM=","extFields":{"a":"b"}}').body == b""


def test_an_unknown_language_is_other_and_still_written_back() -> None:
    header = b'{"code":1,"flag":0,"language":"COBOL","opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}'
    command = decode_json(header)
    assert command.language is LanguageCode.OTHER
    assert encode_header(command) == header


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(code=1, version=1 << 15, serialize_type=1),
        RemotingCommand(code=1, ext_fields={"k" * 0x10000: "v"}, serialize_type=1),
        RemotingCommand(code=1, remark="\ud800", serialize_type=1),
        RemotingCommand(code=1, remark="\ud800"),
        RemotingCommand(code=1, remark="x" * (HEADER_LENGTH_MAX + 1)),
    ],
)
def test_a_header_that_fits_no_frame_is_our_error_and_nothing_is_encoded(command: RemotingCommand) -> None:
    with pytest.raises(RemotingEncodeError):
        command.encode()
