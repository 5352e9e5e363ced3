"""What a connection makes of streams: any cut of good ones, and each kind of bad one."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.command import RemotingCommand, encode_frame, request
from remoting.connection import RemotingConnection
from remoting.errors import RemotingProtocolError

GOOD = request(310, {"a": "group", "b": "topic"}, b"body", opaque=5)


def binary_header(*, remark_length: int = 0, ext_length: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hbhiiII", 10, 0, 0, 1, 0, remark_length, ext_length) + tail


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


BAD_STREAMS = [
    ("a length below the header's", struct.pack(">II", 3, 0), "header of 0 bytes in a frame of 7"),
    ("a header longer than its frame", struct.pack(">II", 10, 7), "header of 7 bytes in a frame of 14"),
    ("a length beyond the limit", struct.pack(">II", 16_777_213, 20), "limit is 16777216"),
    ("a negative length", struct.pack(">iI", -5, 20), "limit is 16777216"),
    ("a header beyond the limit", struct.pack(">II", 16_000_000, 15_000_000), "limit is 262144"),
    ("an unknown serialization", encode_frame(2, b"{}", b""), "serialize type 2"),
    ("no JSON", encode_frame(0, b"nonsense", b""), "JSON header"),
    ("no header", encode_frame(0, b"", b"body"), "JSON header"),
    ("JSON that is no object", encode_frame(0, b"[1,2]", b""), "JSON header"),
    ("JSON with a code that is no int32", encode_frame(0, b'{"code":4294967296}', b""), "JSON header"),
    ("JSON with a code that is a fraction", encode_frame(0, b'{"code":1.5}', b""), "JSON header"),
    ("JSON in no UTF-8", encode_frame(0, b'{"code":1,"extFields":{"a":"\xff"}}', b""), "JSON header"),
    ("JSON with a value that is an object", encode_frame(0, b'{"extFields":{"a":{}}}', b""), "JSON header"),
    ("JSON nested without end", encode_frame(0, b'{"x":' + b"[" * 200_000, b""), "JSON header"),
    ("a binary header that is cut off", encode_frame(1, b"\x00" * 20, b""), "binary header"),
    ("a remark that lies", encode_frame(1, binary_header(remark_length=1 << 31), b""), "binary header"),
    ("ext fields that lie", encode_frame(1, binary_header(ext_length=1 << 31), b""), "binary header"),
    (
        "a binary header with bytes after its map",
        encode_frame(1, binary_header(tail=b"tail"), b""),
        "end at 21",
    ),
    (
        "a key that reaches into the body",
        encode_frame(1, binary_header(ext_length=4, tail=b"\xff\xffab"), b"b" * 0x20000),
        "binary header",
    ),
    (
        "a value that reaches into the body",
        encode_frame(1, binary_header(ext_length=8, tail=b"\x00\x01a\x00\x00\x01\x00v"), b"b" * 400),
        "ends 255 bytes after",
    ),
    (
        "a binary value in no UTF-8",
        encode_frame(1, binary_header(ext_length=8, tail=b"\x00\x01a\x00\x00\x00\x01\xff"), b""),
        "binary header",
    ),
    ("a TLS handshake", bytes.fromhex("16030102000100 01fc0303"), "TLS handshake"),
    ("a HAProxy preface, version 1", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "HAProxy preface"),
    ("a HAProxy preface, version 2", b"\r\n\r\n\x00\r\nQUIT\n\x21\x11", "HAProxy preface"),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it starts 47 45 54 20"),
]


@pytest.mark.parametrize(("name", "stream", "reason"), BAD_STREAMS, ids=[case[0] for case in BAD_STREAMS])
@pytest.mark.parametrize("chunk_size", [1 << 20, 7])
def test_a_bad_frame_is_refused_and_the_commands_before_it_are_kept(
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


def test_a_known_shape_with_a_value_in_no_utf_8_is_refused() -> None:
    frame = request(310, {"a": "value"}, opaque=1, serialize_type=1).encode()
    connection = RemotingConnection()
    for _ in range(3):
        connection.receive_data(frame)
    with pytest.raises(RemotingProtocolError, match="binary header"):
        connection.receive_data(frame.replace(b"value", b"\xffalue"))


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
