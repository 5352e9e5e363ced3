"""What a connection makes of streams: any cut of good ones, and each kind of bad one."""

from __future__ import annotations

import re
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RemotingProtocolError
from remoting.frame.command import RemotingCommand, encode_frame, request
from remoting.frame.connection import BadHeader, RemotingConnection

GOOD = request(310, {"a": "group", "b": "topic"}, b"body", opaque=5)


def binary_header(*, remark_length: int = 0, ext_length: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hbhiiII", 10, 0, 0, 7, 0, remark_length, ext_length) + tail


def feed(
    connection: RemotingConnection, stream: bytes, chunk_size: int, received: list[RemotingCommand]
) -> None:
    for at in range(0, len(stream), chunk_size):
        received += connection.receive_data(stream[at : at + chunk_size])


@given(data=st.data(), serialize_types=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6))
def test_any_cut_of_a_stream_into_reads_gives_the_same_commands(
    data: st.DataObject, serialize_types: list[int]
) -> None:
    commands = [
        request(310, {"a": "x" * at}, b"b" * (at * 7), opaque=at, serialize_type=kind)
        for at, kind in enumerate(serialize_types)
    ]
    stream = b"".join(command.encode() for command in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    connection = RemotingConnection()
    received: list[RemotingCommand] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += connection.receive_data(stream[start:end])
    assert [command.encode() for command in received] == [
        RemotingConnection().receive_data(command.encode())[0].encode() for command in commands
    ]
    assert connection.pending_size == 0


# What announces a length that no frame has: where the next one begins is unknown.
BAD_STREAMS = [
    ("a length below the header's", struct.pack(">II", 3, 0), "frame of 7 bytes"),
    ("a length beyond the limit", struct.pack(">II", 16_777_213, 20), "limit is 16777216"),
    ("a negative length", struct.pack(">iI", -5, 20), "limit is 16777216"),
    ("a TLS handshake", bytes.fromhex("16030102000100 01fc0303"), "TLS handshake"),
    ("a HAProxy preface, version 1", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "HAProxy preface"),
    ("a HAProxy preface, version 2", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11", "HAProxy preface"),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it starts 47 45 54 20"),
]


@pytest.mark.parametrize(("name", "stream", "reason"), BAD_STREAMS, ids=[case[0] for case in BAD_STREAMS])
@pytest.mark.parametrize("chunk_size", [1 << 20, 7])
def test_a_bad_length_is_refused_and_the_commands_before_it_are_kept(
    name: str, stream: bytes, reason: str, chunk_size: int
) -> None:
    connection = RemotingConnection()
    received: list[RemotingCommand] = []
    whole = GOOD.encode() * 2 + stream
    with pytest.raises(RemotingProtocolError, match=reason) as caught:
        feed(connection, whole, chunk_size, received)
    received += caught.value.commands
    assert [command.encode() for command in received] == [GOOD.encode()] * 2
    assert connection.pending_size == 0


# Frames whose header cannot be read; its opaque, where it can be told, is 7.
BAD_HEADERS = [
    (
        "longer than its frame",
        struct.pack(">II", 10, 7) + b"sixbyt",
        "header of 7 bytes in a frame of 14",
        None,
    ),
    ("beyond the limit", encode_frame(1, binary_header() + bytes(300_000), b""), "limit is 262144", 7),
    ("an unknown serialization", encode_frame(2, b'{"opaque":7}', b""), "serialize type 2", None),
    ("no JSON", encode_frame(0, b"nonsense", b""), "JSON header", None),
    ("none", encode_frame(0, b"", b"body"), "JSON header", None),
    ("JSON that is no object", encode_frame(0, b"[1,2]", b""), "JSON header", None),
    (
        "JSON with a code that is no int32",
        encode_frame(0, b'{"code":4294967296,"opaque":7}', b""),
        "JSON header",
        7,
    ),
    ("JSON with a code of words", encode_frame(0, b'{"code":"send","opaque" : "7"}', b""), "JSON header", 7),
    (
        "JSON with an opaque that is no int32",
        encode_frame(0, b'{"opaque":4294967296}', b""),
        "JSON header",
        None,
    ),
    (
        "JSON with ext fields that are a list",
        encode_frame(0, b'{"extFields":[],"opaque":7}', b""),
        "JSON header",
        7,
    ),
    ("JSON cut off", encode_frame(0, b'{"code":10,"opaque":7,"extFields":{"a":"b', b""), "JSON header", 7),
    ("JSON nested without end", encode_frame(0, b'{"opaque":7,"x":' + b"[" * 200_000, b""), "JSON header", 7),
    ("binary cut off", encode_frame(1, binary_header()[:17], b""), "binary header", 7),
    (
        "binary cut off before its opaque ends",
        encode_frame(1, binary_header()[:7], b""),
        "binary header",
        None,
    ),
    ("a remark that lies", encode_frame(1, binary_header(remark_length=1 << 31), b""), "binary header", 7),
    ("ext fields that lie", encode_frame(1, binary_header(ext_length=1 << 31), b""), "binary header", 7),
    ("bytes after its map", encode_frame(1, binary_header(tail=b"tail"), b""), "end at 21", 7),
    (
        "a key that reaches into the body",
        encode_frame(1, binary_header(ext_length=4, tail=b"\xff\xffab"), b"b" * 0x20000),
        "binary header",
        7,
    ),
    (
        "a value that reaches into the body",
        encode_frame(1, binary_header(ext_length=8, tail=b"\x00\x01a\x00\x00\x01\x00v"), b"b" * 400),
        "ends 255 bytes after",
        7,
    ),
]


@pytest.mark.parametrize(
    ("name", "frame", "reason", "opaque"), BAD_HEADERS, ids=[row[0] for row in BAD_HEADERS]
)
@pytest.mark.parametrize("chunk_size", [1 << 20, 7])
def test_a_header_that_cannot_be_read_costs_its_own_frame_alone(
    name: str, frame: bytes, reason: str, opaque: int | None, chunk_size: int
) -> None:
    connection = RemotingConnection()
    received: list[RemotingCommand] = []
    bad: list[BadHeader] = []
    stream = GOOD.encode() + frame + GOOD.encode()
    for at in range(0, len(stream), chunk_size):
        received += connection.receive_data(stream[at : at + chunk_size])
        bad += connection.bad_headers
    assert [command.encode() for command in received] == [GOOD.encode()] * 2
    ((command, told),) = bad
    assert re.search(reason, told)
    assert (command.opaque if command is not None else None) == opaque


# Java puts U+FFFD for bytes that are no UTF-8, and a question mark for half a character.
REPLACED = [
    ("JSON in no UTF-8", encode_frame(0, b'{"code":1,"opaque":7,"extFields":{"a":"x\xff"}}', b""), "x\ufffd"),
    (
        "JSON with half a character",
        encode_frame(0, b'{"code":1,"opaque":7,"extFields":{"a":"x\\ud800"}}', b""),
        "x?",
    ),
    (
        "JSON with an object",
        encode_frame(0, b'{"code":1,"opaque":7,"extFields":{"a":{"b":1}}}', b""),
        '{"b":1}',
    ),
    (
        "binary in no UTF-8",
        encode_frame(1, binary_header(ext_length=8, tail=b"\x00\x01a\x00\x00\x00\x01\xff"), b""),
        "\ufffd",
    ),
]


@pytest.mark.parametrize(("name", "frame", "value"), REPLACED, ids=[row[0] for row in REPLACED])
def test_characters_that_are_none_are_replaced_as_java_does(name: str, frame: bytes, value: str) -> None:
    (command,) = RemotingConnection().receive_data(frame)
    assert (command.opaque, command.ext_fields) == (7, {"a": value})


def test_nothing_is_read_any_more_after_a_bad_frame() -> None:
    connection = RemotingConnection()
    with pytest.raises(RemotingProtocolError):
        connection.receive_data(b"\xff" * 8)
    with pytest.raises(RemotingProtocolError) as caught:
        connection.receive_data(GOOD.encode())
    assert caught.value.commands == []


def test_the_frame_limit_counts_the_whole_frame() -> None:
    frame = GOOD.encode()
    assert len(RemotingConnection(frame_size_max=len(frame)).receive_data(frame)) == 1
    with pytest.raises(RemotingProtocolError, match="limit"):
        RemotingConnection(frame_size_max=len(frame) - 1).receive_data(frame)


def test_memory_follows_the_received_bytes_and_not_the_announced_ones() -> None:
    announced = struct.pack(">II", 16_000_000, 200)
    tracemalloc.start()
    try:
        connections = [RemotingConnection() for _ in range(50)]
        for connection in connections:
            connection.receive_data(announced)
            connection.receive_data(b"x" * 1_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(connection.pending_size for connection in connections) == 50 * 1_008
    assert peak < 1_000_000


def test_a_large_frame_that_trickles_in_is_not_copied_at_each_read() -> None:
    body = bytes(4_000_000)
    frame = request(310, None, body, opaque=1).encode()
    connection = RemotingConnection()
    received: list[RemotingCommand] = []
    # Quadratic copying would move 16 GB here.
    feed(connection, frame, 500, received)
    assert [command.body for command in received] == [body]


def test_binary_headers_of_one_shape_are_read_as_the_first_of_them() -> None:
    connection = RemotingConnection()
    for opaque in range(10):
        value = f"value-{opaque}"
        frame = request(310, {"a": value, "n": "ö"}, b"b", opaque=opaque, serialize_type=1).encode()
        (command,) = connection.receive_data(frame)
        assert (command.opaque, command.ext_fields) == (opaque, {"a": value, "n": "ö"})
        assert command.encode() == frame


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y", "xx", "ö"])),
            st.sampled_from([None, "r"]),
        ),
        max_size=40,
    )
)
def test_what_earlier_headers_looked_like_never_changes_how_one_is_read(
    headers: list[tuple[dict[str, str], str | None]],
) -> None:
    connection = RemotingConnection()
    for ext_fields, remark in headers:
        command = RemotingCommand(code=1, remark=remark, ext_fields=ext_fields, serialize_type=1)
        (known,) = connection.receive_data(command.encode())
        (fresh,) = RemotingConnection().receive_data(command.encode())
        assert known == fresh
        assert (known.ext_fields, known.remark) == (ext_fields, remark)


def test_more_shapes_than_are_kept_are_all_read() -> None:
    connection = RemotingConnection()
    for _ in range(3):
        for size in range(100):
            frame = request(310, {"a": "x" * size}, opaque=1, serialize_type=1).encode()
            assert connection.receive_data(frame)[0].ext_fields == {"a": "x" * size}


def test_a_known_shape_with_a_value_in_no_utf_8_is_read_as_any_other() -> None:
    frame = request(310, {"a": "value"}, opaque=1, serialize_type=1).encode()
    connection = RemotingConnection()
    for _ in range(3):
        connection.receive_data(frame)
    (command,) = connection.receive_data(frame.replace(b"value", b"\xffalue"))
    assert command.ext_fields == {"a": "\ufffdalue"}


def test_a_header_of_the_most_fields_that_fit_takes_little_memory() -> None:
    fields = b",".join(b'"%d":""' % at for at in range(24_000))
    bomb = encode_frame(0, b'{"code":1,"extFields":{' + fields + b"}}", b"")
    tracemalloc.start()
    try:
        (command,) = RemotingConnection().receive_data(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(command.ext_fields) == 24_000
    assert peak < 8_000_000


def test_properties_of_the_greatest_length_fit_in_their_worst_json_form() -> None:
    frame = request(310, {"i": "\x01" * 32_767}, opaque=1).encode()
    assert RemotingConnection().receive_data(frame)[0].ext_fields == {"i": "\x01" * 32_767}
