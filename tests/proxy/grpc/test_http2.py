"""Frames of clients, sound ones and others, without a socket."""

from __future__ import annotations

import contextlib

import pytest
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st

from proxy.grpc import frames
from proxy.grpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    UINT32,
    WINDOW_UPDATE,
    ErrorCode,
    Setting,
    frame,
)
from proxy.grpc.header_block import Field
from proxy.grpc.http2 import (
    CLOSED_STREAMS_MAX,
    CONNECTION_WINDOW,
    HEADER_BLOCK_FRAMES_MAX,
    STREAM_WINDOW,
    Http2,
    Http2Error,
)

START = PREFACE + frames.settings({})
FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), ("te", "trailers")]
BLOCK = Encoder().encode(FIELDS)
PIECE = b"x" * frames.FRAME_SIZE_MAX


class Recorder:
    """A Receiver that notes what it is told, and gives back what it gets if it is to."""

    def __init__(self, *, gives_back: bool = True) -> None:
        self.told: list[tuple[object, ...]] = []
        self.http2 = Http2(self, 100, 1_000_000)
        self.http2.take_output()
        self._gives_back = gives_back

    def request_received(self, stream_id: int, fields: list[Field], ended: bool) -> None:
        self.told.append(("request", stream_id, fields, ended))

    def data_on_stream(self, stream_id: int, data: bytes, size: int, ended: bool) -> None:
        self.told.append(("data", stream_id, data, ended))
        if self._gives_back:
            self.http2.give_back(stream_id, size)

    def request_ended(self, stream_id: int) -> None:
        self.told.append(("ended", stream_id))

    def stream_reset(self, stream_id: int) -> None:
        self.told.append(("reset", stream_id))

    def window_opened(self, stream_id: int) -> None:
        self.told.append(("window", stream_id))

    def receive(self, *received: bytes) -> list[tuple[object, ...]]:
        """What the frames tell."""
        self.told.clear()
        self.http2.receive_data(b"".join(received))
        return list(self.told)

    def code(self, *received: bytes) -> ErrorCode:
        """How the connection ends by the frames."""
        with pytest.raises(Http2Error) as ended:
            self.http2.receive_data(b"".join(received))
        goaway = frames.goaway(self.http2.highest_stream_id, ended.value.code)
        assert self.http2.take_output().endswith(goaway)
        return ended.value.code


def started(*, gives_back: bool = True) -> Recorder:
    recorder = Recorder(gives_back=gives_back)
    assert recorder.receive(START) == []
    assert recorder.http2.take_output() == frame(SETTINGS, ACK, 0)
    return recorder


def request(stream_id: int, flags: int = 0, block: bytes = BLOCK) -> bytes:
    return frame(HEADERS, END_HEADERS | flags, stream_id, block)


def test_a_request_and_its_data_are_told() -> None:
    recorder = started()
    told = recorder.receive(
        request(1), frame(DATA, 0, 1, b"ab"), frame(DATA, END_STREAM | PADDED, 1, b"\x02cd\0\0")
    )
    assert told == [("request", 1, FIELDS, False), ("data", 1, b"ab", False), ("data", 1, b"cd", True)]


def test_a_header_block_may_come_in_pieces() -> None:
    recorder = started()
    told = recorder.receive(
        frame(HEADERS, END_STREAM, 1, BLOCK[:3]),
        frame(CONTINUATION, 0, 1, BLOCK[3:9]),
        frame(CONTINUATION, END_HEADERS, 1, BLOCK[9:]),
    )
    assert told == [("request", 1, FIELDS, True)]


def test_trailers_end_a_request() -> None:
    recorder = started()
    trailers = Encoder().encode([("k", "v")])
    assert recorder.receive(request(1), request(1, END_STREAM, trailers))[1:] == [("ended", 1)]


_SOUND = [
    request(1),
    frame(DATA, 0, 1, b"hello"),
    frame(PING, 0, 0, b"12345678"),
    frames.window_update(0, 5),
    frame(DATA, END_STREAM, 1, b"hello"),
    request(3, END_STREAM),
    frames.rst_stream(3, ErrorCode.CANCEL),
    frames.settings({Setting.INITIAL_WINDOW_SIZE: 7}),
    frame(99, 0, 0, b"unknown kinds are passed over"),
]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_any_cut_of_the_bytes_tells_the_same(sizes: list[int]) -> None:
    data = START + b"".join(_SOUND)
    whole, cut = Recorder(), Recorder()
    whole.receive(data)
    start = number = 0
    while start < len(data):
        size = sizes[number % len(sizes)]
        cut.http2.receive_data(data[start : start + size])
        start, number = start + size, number + 1
    assert cut.told == whole.told
    assert cut.http2.take_output() == whole.http2.take_output()


_ANY_FRAME = st.builds(
    frame,
    st.integers(0, 10),
    st.integers(0, 255),
    st.integers(0, 7),
    st.sampled_from([b"", BLOCK, b"\0" * 4, b"\0" * 5, b"\0\0\0\1", b"12345678", b"\0\4\xff\xff\xff\xff"])
    | st.binary(max_size=30),
)


@given(st.lists(st.sampled_from(_SOUND) | _ANY_FRAME | st.binary(max_size=20), max_size=12))
def test_any_frames_are_taken_or_end_the_connection(received: list[bytes]) -> None:
    recorder = started()
    with contextlib.suppress(Http2Error):
        for data in received:
            recorder.http2.receive_data(data)
    assert len(recorder.http2.streams) <= 100


@pytest.mark.parametrize(
    ("received", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(PING, 0, 0, b"12345678"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(SETTINGS, ACK, 0), ErrorCode.PROTOCOL_ERROR),
        (START + frame(SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (START + frames.settings({Setting.INITIAL_WINDOW_SIZE: 2**31}), ErrorCode.FLOW_CONTROL_ERROR),
        (START + frame(DATA, 0, 1, PIECE + b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (START + frame(HEADERS, 0, 1, BLOCK) + frame(PING, 0, 0, b"12345678"), ErrorCode.PROTOCOL_ERROR),
        (START + request(2), ErrorCode.PROTOCOL_ERROR),
        (START + request(5) + request(3), ErrorCode.PROTOCOL_ERROR),
        (START + frame(DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (START + frame(PUSH_PROMISE, END_HEADERS, 1, BLOCK), ErrorCode.PROTOCOL_ERROR),
        (START + frame(GOAWAY, 0, 1, b"\0" * 8), ErrorCode.PROTOCOL_ERROR),
        (START + request(1, 0, b"\x80"), ErrorCode.COMPRESSION_ERROR),
        (START + request(1, 0, b"\x00\x01A\x01x"), ErrorCode.PROTOCOL_ERROR),
        (START + frames.window_update(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (START + frame(RST_STREAM, 0, 1, b"\0" * 4), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_what_breaks_the_protocol_ends_the_connection(received: bytes, code: ErrorCode) -> None:
    assert Recorder().code(received) is code


def test_a_header_block_of_very_many_frames_ends_the_connection() -> None:
    """CVE-2024-27316 and its kind: CONTINUATION without end."""
    recorder = started()
    more = frame(CONTINUATION, 0, 1)
    assert recorder.receive(frame(HEADERS, 0, 1, BLOCK), more * (HEADER_BLOCK_FRAMES_MAX - 1)) == []
    assert recorder.code(more) is ErrorCode.ENHANCE_YOUR_CALM


def test_data_beyond_the_streams_window_ends_the_stream() -> None:
    recorder = started(gives_back=False)
    told = recorder.receive(request(1), frame(DATA, 0, 1, PIECE) * (STREAM_WINDOW // len(PIECE)))
    assert told[-1] == ("data", 1, PIECE, False)
    assert recorder.receive(frame(DATA, 0, 1, b"x")) == [("reset", 1)]
    assert recorder.http2.take_output() == frames.rst_stream(1, ErrorCode.FLOW_CONTROL_ERROR)


def test_data_beyond_the_connections_window_ends_the_connection() -> None:
    recorder = started(gives_back=False)
    for stream_id in range(1, 2 * CONNECTION_WINDOW // STREAM_WINDOW, 2):
        recorder.receive(request(stream_id), frame(DATA, 0, stream_id, PIECE) * (STREAM_WINDOW // len(PIECE)))
    assert recorder.code(request(99), frame(DATA, 0, 99, b"x")) is ErrorCode.FLOW_CONTROL_ERROR


def test_windows_are_given_back_so_that_data_goes_on() -> None:
    """Ten times the connection's window, by a client that keeps to what it is given."""
    recorder = started()
    recorder.receive(request(1))
    stream_room, room = STREAM_WINDOW, CONNECTION_WINDOW
    for _ in range(10 * CONNECTION_WINDOW // len(PIECE)):
        assert min(stream_room, room) >= len(PIECE)
        recorder.receive(frame(DATA, 0, 1, PIECE))
        stream_room, room = stream_room - len(PIECE), room - len(PIECE)
        output = recorder.http2.take_output()
        for start in range(0, len(output), 13):
            _, _, kind, _, stream_id = frames.FRAME_HEADER.unpack_from(output, start)
            assert kind == WINDOW_UPDATE
            (size,) = UINT32.unpack_from(output, start + 9)
            stream_room, room = (stream_room + size, room) if stream_id else (stream_room, room + size)


def test_what_was_under_way_to_a_stream_that_we_ended_is_passed_over() -> None:
    recorder = started()
    recorder.receive(request(1))
    recorder.http2.reset(1, ErrorCode.NO_ERROR)
    recorder.http2.take_output()
    assert (
        recorder.receive(frame(DATA, 0, 1, b"late"), request(1, END_STREAM), frames.window_update(1, 9)) == []
    )
    assert not recorder.http2.has_output


def test_data_for_streams_that_we_ended_is_given_back_to_the_connection() -> None:
    recorder = started()
    recorder.receive(request(1))
    recorder.http2.reset(1, ErrorCode.NO_ERROR)
    recorder.receive(frame(DATA, 0, 1, PIECE) * (CONNECTION_WINDOW // 2 // len(PIECE)))
    assert recorder.http2.take_output().endswith(frames.window_update(0, CONNECTION_WINDOW // 2))


def test_a_frame_after_the_clients_own_end_ends_the_connection() -> None:
    recorder = started()
    recorder.receive(request(1), frames.rst_stream(1, ErrorCode.CANCEL))
    assert recorder.code(frame(DATA, 0, 1, b"x")) is ErrorCode.STREAM_CLOSED


def test_a_client_that_leaves_keeps_its_open_calls() -> None:
    recorder = started()
    assert recorder.receive(
        request(1), frames.goaway(0, ErrorCode.NO_ERROR), frame(DATA, END_STREAM, 1, b"x")
    )[1:] == [("data", 1, b"x", True)]


def test_too_many_streams_are_refused_one_by_one() -> None:
    recorder = started()
    recorder.receive(*(request(stream_id) for stream_id in range(1, 201, 2)))
    assert recorder.receive(request(201), request(203)) == [("reset", 201), ("reset", 203)]
    refused = [frames.rst_stream(stream_id, ErrorCode.REFUSED_STREAM) for stream_id in (201, 203)]
    assert recorder.http2.take_output() == b"".join(refused)


def test_a_changed_initial_window_holds_for_open_streams() -> None:
    recorder = started()
    told = recorder.receive(request(1), request(3), frames.settings({Setting.INITIAL_WINDOW_SIZE: 70_000}))
    assert told[-2:] == [("window", 1), ("window", 3)]
    told = recorder.receive(frames.settings({Setting.INITIAL_WINDOW_SIZE: 10}))
    assert told == []
    assert recorder.http2.window_of(1) == 10
    recorder.http2.send_data(1, b"1234567")
    recorder.receive(frames.settings({Setting.INITIAL_WINDOW_SIZE: 5}))
    assert recorder.http2.window_of(1) == -2


def test_of_a_setting_that_comes_several_times_the_last_value_counts() -> None:
    """Each change is a walk over all streams, and one frame has room for 2730 of them."""
    recorder = started()
    sizes = (2**31, 3, 10)
    payload = b"".join(SETTING.pack(Setting.INITIAL_WINDOW_SIZE, size) for size in sizes)
    recorder.receive(request(1), frame(SETTINGS, 0, 0, payload))
    assert recorder.http2.window_of(1) == 10


def test_memory_of_closed_streams_is_bounded() -> None:
    recorder = started()
    for stream_id in range(1, 4 * CLOSED_STREAMS_MAX, 2):
        recorder.receive(request(stream_id), frames.rst_stream(stream_id, ErrorCode.CANCEL))
    assert len(recorder.http2._closed) == CLOSED_STREAMS_MAX
    assert recorder.http2.streams == {}


def test_a_long_header_block_of_ours_leaves_in_pieces() -> None:
    recorder = started()
    recorder.receive(request(1, END_STREAM))
    recorder.http2.send_fields(1, [(b"grpc-message", b"m" * 40_000)], end_stream=True)
    output = recorder.http2.take_output()
    kinds = []
    while output:
        high, size, kind, flags, _ = frames.FRAME_HEADER.unpack_from(output)
        kinds.append((kind, flags))
        output = output[9 + (high << 16) + size :]
    assert kinds == [(HEADERS, END_STREAM), (CONTINUATION, 0), (CONTINUATION, END_HEADERS)]
    assert recorder.http2.streams == {}
