"""Every recorded frame decodes and encodes back to the same bytes; so do the values of the typed ones."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_manifest import MANIFEST, build_manifest, render
from wire_frames import BODIES, HEADERS, TEXT_CODES, RecordedFrame, recorded_files, recorded_frames

from remoting.bodies.bodies import TopicRouteData
from remoting.codes import RequestCode
from remoting.configuration import format_properties, parse_properties
from remoting.errors import RemotingHeaderError
from remoting.fastjson import dumps_fastjson, loads_fastjson
from remoting.frame.command import RemotingCommand, encode_header
from remoting.frame.connection import RemotingConnection
from remoting.headers import headers

# What travels in ext fields beside the values of a header class.
MARKS = {"ReqT", "MSG_REGION", "TRACE_ON"}
# Written by us always, left out by clients of a version that did not have it.
DEFAULTS = {"committed": "true", "topicSeq": "0"}
# Requests that the recorder sent without a required field, to see them refused.
# (code, the field that is named, whether the frame has it) -> frames
INCOMPLETE = {
    (RequestCode.PULL_MESSAGE, "consumerGroup", False): 4,
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "topic", False): 4,
    (RequestCode.SEND_MESSAGE_V2, "a", False): 3,
}


@cache
def all_frames() -> list[RecordedFrame]:
    return [frame for path in recorded_files() for frame in recorded_frames(path)]


def decode_frame(frame: bytes) -> RemotingCommand:
    (command,) = RemotingConnection().receive_data(frame)
    return command


def is_typed(frame: RecordedFrame, table: dict[tuple[int, str], object]) -> bool:
    """An answer that reports an error carries neither header values nor a body."""
    return not frame.is_dledger and frame.response_code == 0 and (frame.code, frame.direction) in table


@pytest.mark.slow
def test_every_recorded_frame_encodes_back_to_its_bytes() -> None:
    frames = all_frames()
    assert len(frames) == 11_243
    for frame in frames:
        command = decode_frame(frame.frame)
        assert command.encode() == frame.frame, (frame.file, frame.seq)
        assert command.is_response == (frame.kind == "response")
        assert command.is_oneway == (frame.kind == "oneway")


@pytest.mark.slow
def test_recorded_header_values_pass_through_their_classes_unchanged() -> None:
    refused: list[tuple[int, str, bool]] = []
    for frame in all_frames():
        if not is_typed(frame, HEADERS):
            continue
        ext_fields = decode_frame(frame.frame).ext_fields
        header_type = HEADERS[frame.code, frame.direction]
        try:
            header = headers.decode(header_type, ext_fields)
        except RemotingHeaderError as error:
            refused.append((frame.code, error.field, error.field in ext_fields))
            continue
        written = headers.to_ext_fields(header)
        recorded = {key: value for key, value in ext_fields.items() if key not in MARKS}
        added = {key: value for key, value in written.items() if key not in recorded}
        assert added.items() <= DEFAULTS.items(), (frame.file, frame.seq)
        assert recorded == {key: value for key, value in written.items() if key not in added}
    assert Counter(refused) == INCOMPLETE


@pytest.mark.slow
def test_recorded_json_bodies_are_written_back_to_their_bytes() -> None:
    bodies = [bytes(decode_frame(frame.frame).body) for frame in all_frames()]
    json_bodies = {body for body in bodies if body[:1] in {b"{", b"["}}
    assert len(json_bodies) > 1_000
    for body in json_bodies:
        assert dumps_fastjson(loads_fastjson(body)) == body


@pytest.mark.slow
def test_recorded_bodies_pass_through_their_classes_unchanged() -> None:
    seen = set()
    for frame in all_frames():
        body = bytes(decode_frame(frame.frame).body)
        if not body or not is_typed(frame, BODIES):
            continue
        seen.add((frame.code, frame.direction))
        value = BODIES[frame.code, frame.direction].decode(body)
        if isinstance(value, TopicRouteData):
            assert body in {value.encode(), value.encode_for(standard_json=True)}, (frame.file, frame.seq)
        else:
            assert value.encode() == body, (frame.file, frame.seq)
    assert seen == BODIES.keys()


@pytest.mark.slow
def test_recorded_settings_are_written_back_to_their_lines() -> None:
    texts = {bytes(decode_frame(frame.frame).body) for frame in all_frames() if frame.code in TEXT_CODES} - {
        b""
    }
    assert len(texts) > 6
    for text in texts:
        pairs = [(item.key, item.value) for item in parse_properties(text.decode(), "recorded")]
        assert format_properties(pairs).splitlines() == sorted(text.decode().splitlines())


@cache
def typed_headers() -> list[tuple[RemotingCommand, headers.CommandHeader]]:
    """One recorded frame with values for each header class."""
    found: dict[type[headers.CommandHeader], tuple[RemotingCommand, headers.CommandHeader]] = {}
    for frame in all_frames():
        if not is_typed(frame, HEADERS):
            continue
        header_type = HEADERS[frame.code, frame.direction]
        command = decode_frame(frame.frame)
        if header_type in found or not command.ext_fields:
            continue
        try:
            header = headers.decode(header_type, command.ext_fields)
        except RemotingHeaderError:
            continue
        if headers.to_ext_fields(header):
            found[header_type] = (command, header)
    return list(found.values())


def mutated(value: object, data: st.DataObject) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return data.draw(st.integers(-(1 << 31), (1 << 31) - 1).filter(lambda other: other != value))
    return data.draw(st.text().filter(lambda other: other != value))


@pytest.mark.slow
@given(st.data())
def test_a_recorded_header_with_one_value_changed_encodes_differently(data: st.DataObject) -> None:
    command, header = data.draw(st.sampled_from(typed_headers()))
    values = {name: getattr(header, name) for name in header.__struct_fields__}
    field = data.draw(st.sampled_from([name for name, value in values.items() if value is not None]))
    changed = type(header)(**{**values, field: mutated(values[field], data)})
    before = encode_header(
        RemotingCommand(
            code=command.code,
            ext_fields=headers.to_ext_fields(header),
            serialize_type=command.serialize_type,
        )
    )
    after_command = RemotingCommand(
        code=command.code, ext_fields=headers.to_ext_fields(changed), serialize_type=command.serialize_type
    )
    after = encode_header(after_command)
    assert after != before
    assert headers.decode(type(header), after_command.ext_fields) == changed


@pytest.mark.slow
def test_the_manifest_accounts_for_every_recorded_frame() -> None:
    text = MANIFEST.read_text(encoding="utf-8")
    assert text == render(build_manifest()), "run tests/golden/make_manifest.py and review the difference"
    manifest = json.loads(text)
    assert len(manifest["files"]) == 161
    assert sum(count for kinds in manifest["files"].values() for count in kinds.values()) == 11_243
    assert {key for kinds in manifest["files"].values() for key in kinds} == manifest["coverage"].keys()
