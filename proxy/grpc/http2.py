"""HTTP/2 as a server of gRPC speaks it: frames, windows and the state of streams, without sockets, clock and tasks.

Bytes go in by receive_data(), which calls the Receiver for each frame that means something to calls. What is to be sent
gathers until take_output(). Priorities, pushes and the dynamic table of what we send are left out; no gRPC client
misses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from proxy.grpc import frames
from proxy.grpc.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_SIZE,
    FRAME_SIZE_MAX,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    SETTING,
    SETTINGS,
    STREAM_ID_MAX,
    UINT32,
    WINDOW_DEFAULT,
    WINDOW_MAX,
    WITH_PRIORITY,
    ErrorCode,
    Setting,
)
from proxy.grpc.header_block import (
    TABLE_OF_SIZE_0,
    Field,
    HeaderBlockError,
    HeaderDecoder,
    MalformedFieldError,
    encode_fields,
)

STREAM_WINDOW = 1024 * 1024  # bytes that a client may send on one stream before they are given back
CONNECTION_WINDOW = 4 * STREAM_WINDOW
HEADER_LIST_SIZE_MAX = 32 * 1024
HEADER_BLOCK_FRAMES_MAX = 8
CLOSED_STREAMS_MAX = 1024


class Http2Error(Exception):
    """The peer has broken the protocol, so its connection ends."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StreamError(Exception):
    """What the peer does on one stream ends that stream."""

    def __init__(self, stream_id: int, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.stream_id = stream_id
        self.code = code


class Receiver(Protocol):
    """What a frame means for calls. Each method may raise StreamError."""

    def request_received(self, stream_id: int, fields: list[Field], ended: bool) -> None: ...

    def data_on_stream(self, stream_id: int, data: bytes, size: int, ended: bool) -> None:
        """`size`: what of the window it took, padding included; to be given back by give_back()."""

    def request_ended(self, stream_id: int) -> None: ...

    def stream_reset(self, stream_id: int) -> None:
        """By the peer, or for a mistake of the peer."""

    def window_opened(self, stream_id: int) -> None:
        """0: of the connection."""


class Stream:
    """Windows of one stream. It is known until both sides have ended it, or one has reset it."""

    __slots__ = ("consumed_size", "in_window", "local_ended", "out_window", "remote_ended", "unsent_size")

    def __init__(self, out_window: int, remote_ended: bool) -> None:
        self.in_window = STREAM_WINDOW
        self.out_window = out_window
        self.remote_ended = remote_ended
        self.local_ended = False
        self.consumed_size = 0  # taken by us, and not given back to the peer yet
        self.unsent_size: int | None = None  # what the peer's content-length still lets come


class Http2:
    """Invariant: the peer's windows never let it send more than `STREAM_WINDOW` on a stream, nor more than
    `CONNECTION_WINDOW` on all of them, beyond what has been given back.

    `strikes` counts frames that ask for work and carry nothing; the owner resets it.
    """

    def __init__(self, receiver: Receiver, streams_max: int, strikes_max: int) -> None:
        self.strikes = 0
        self.streams: dict[int, Stream] = {}
        self.highest_stream_id = 0
        self.out_window = WINDOW_DEFAULT
        self._receiver = receiver
        self._streams_max = streams_max
        self._strikes_max = strikes_max
        self._decoder = HeaderDecoder(HEADER_LIST_SIZE_MAX)
        self._rest = b""
        self._prefaced = False
        self._settled = False  # the peer's first SETTINGS have come
        self._in_window = CONNECTION_WINDOW
        self._consumed_size = 0
        self._peer_initial_window = WINDOW_DEFAULT
        self._block: list[bytes] = []  # a header block that is not complete, on
        self._block_stream_id = 0  # this stream, 0: none
        self._block_flags = 0
        # Closed streams, and whether frames of the peer may still be under way, because we have ended the stream.
        self._closed: dict[int, bool] = {}
        self._on_frame = (
            self._data,
            self._headers,
            self._priority,
            self._rst_stream,
            self._settings,
            self._push_promise,
            self._ping,
            self._goaway,
            self._window_update,
            self._continuation,
        )
        first = {
            Setting.MAX_CONCURRENT_STREAMS: streams_max,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: HEADER_LIST_SIZE_MAX,
        }
        self._output = [
            frames.settings(first),
            frames.window_update(0, CONNECTION_WINDOW - WINDOW_DEFAULT),
        ]
        self._block_start = TABLE_OF_SIZE_0

    # What comes in.

    def receive_data(self, data: bytes) -> None:
        """Act on all frames that are complete. Raises Http2Error, with the GOAWAY in the output."""
        try:
            self._receive(self._rest + data if self._rest else data)
        except Http2Error as error:
            self.send_goaway(self.highest_stream_id, error.code)
            raise

    def _receive(self, data: bytes) -> None:
        position = 0
        if not self._prefaced:
            if not data.startswith(PREFACE):
                if not PREFACE.startswith(data):
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"no HTTP/2: begins with {data[:24]!r}")
                self._rest = data
                return
            self._prefaced = True
            position = len(PREFACE)
        end = len(data)
        unpack = FRAME_HEADER.unpack_from
        while end - position >= FRAME_HEADER_SIZE:
            high, size, kind, flags, stream_id = unpack(data, position)
            if high or size > FRAME_SIZE_MAX:
                raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {high << 16 | size} bytes")
            start, position = position + FRAME_HEADER_SIZE, position + FRAME_HEADER_SIZE + size
            if position > end:
                position = start - FRAME_HEADER_SIZE
                break
            if not self._settled and kind != SETTINGS:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"the first frame is of kind {kind}, not SETTINGS")
            if self._block_stream_id and kind != CONTINUATION:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame of kind {kind} in a header block")
            if self.strikes > self._strikes_max:
                raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "frames that carry nothing")
            if kind > CONTINUATION:
                self.strikes += 1
                continue
            try:
                self._on_frame[kind](flags, stream_id & STREAM_ID_MAX, data[start:position])
            except StreamError as error:
                self.strikes += 1
                self.reset(error.stream_id, error.code)
                self._receiver.stream_reset(error.stream_id)
        self._rest = data[position:]

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._in_window -= size
        if self._in_window < 0:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window")
        stream = self.streams.get(stream_id)
        if stream is None or stream.remote_ended:
            self._consume(size)
            self._check_late(stream_id, stream)
            return
        stream.in_window -= size
        if stream.in_window < 0:
            self._consume(size)
            raise StreamError(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        if flags & PADDED:
            payload = _unpadded(payload)
        if not payload:
            self.strikes += 1
        ended = flags & END_STREAM != 0
        if stream.unsent_size is not None:
            stream.unsent_size -= len(payload)
            if stream.unsent_size < 0 or (ended and stream.unsent_size):
                self._consume(size)
                raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)
        stream.remote_ended = ended
        self._receiver.data_on_stream(stream_id, payload, size, ended)

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & WITH_PRIORITY:
            _check_priority(stream_id, payload[:5])
            payload = payload[5:]
        if flags & END_HEADERS:
            self._block_complete(flags, stream_id, payload)
        else:
            self._block, self._block_stream_id, self._block_flags = [payload], stream_id, flags

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id or stream_id != self._block_stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION that continues nothing")
        self._block.append(payload)
        if len(self._block) > HEADER_BLOCK_FRAMES_MAX:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of over {HEADER_BLOCK_FRAMES_MAX} frames"
            )
        if flags & END_HEADERS:
            block, self._block, self._block_stream_id = b"".join(self._block), [], 0
            self._block_complete(self._block_flags, stream_id, block)

    def _block_complete(self, flags: int, stream_id: int, block: bytes) -> None:
        try:
            fields = self._decoder.decode(
                block
            )  # also of closed streams: the peer's table and ours must stay equal
        except HeaderBlockError as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except MalformedFieldError as error:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, str(error)) from None
        ended = flags & END_STREAM != 0
        stream = self.streams.get(stream_id)
        if stream_id <= self.highest_stream_id:
            if stream is None or stream.remote_ended:
                self._check_late(stream_id, stream)
            elif not ended or stream.unsent_size or any(name[:1] == ":" for name, _ in fields):
                raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)  # no trailers
            else:
                stream.remote_ended = True
                self._receiver.request_ended(stream_id)
            return
        self.highest_stream_id = stream_id
        if len(self.streams) >= self._streams_max:
            raise StreamError(stream_id, ErrorCode.REFUSED_STREAM)
        self.streams[stream_id] = Stream(self._peer_initial_window, ended)
        self._receiver.request_received(stream_id, fields, ended)

    def _check_late(self, stream_id: int, stream: Stream | None) -> None:
        """Let pass what was under way when we ended the stream. Raises for all else after its end."""
        if stream is not None:
            raise StreamError(stream_id, ErrorCode.STREAM_CLOSED)
        is_late = self._closed.get(stream_id)
        if is_late:
            return
        if not stream_id or stream_id > self.highest_stream_id or is_late is None:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"a frame on stream {stream_id}, which is not open")
        raise Http2Error(ErrorCode.STREAM_CLOSED, f"a frame on stream {stream_id}, which has ended")

    def expect_size(self, stream_id: int, size: int) -> None:
        """Hold the client to its content-length."""
        stream = self.streams[stream_id]
        stream.unsent_size = size
        if size and stream.remote_ended:
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR)

    def _priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        self.strikes += 1
        if not stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
        _check_priority(stream_id, payload)

    def _rst_stream(self, flags: int, stream_id: int, payload: bytes) -> None:
        self.strikes += 1
        _check_size("RST_STREAM", payload, 4)
        if not stream_id or stream_id > self.highest_stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM on stream {stream_id}, which is not open")
        is_open = stream_id in self.streams
        self._close(stream_id, late=False)
        if is_open:
            self._receiver.stream_reset(stream_id)

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self.strikes += 1
        if stream_id or (flags & ACK and not self._settled):
            raise Http2Error(
                ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream, or an answer without a question"
            )
        self._settled = True
        if flags & ACK:
            _check_size("the answer to SETTINGS", payload, 0)
            return
        _check_size("SETTINGS", payload[: len(payload) % SETTING.size], 0)
        initial_window = self._peer_initial_window
        # Of a setting that comes several times the last value counts: each change of windows walks over all streams.
        for number, value in dict(SETTING.iter_unpack(payload)).items():
            if number == Setting.INITIAL_WINDOW_SIZE:
                self._change_windows(value)
            elif number == Setting.ENABLE_PUSH:
                if value > 1:
                    raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
            elif number == Setting.MAX_FRAME_SIZE and not FRAME_SIZE_MAX <= value < 1 << 24:
                raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
        self._output.append(frames.frame(SETTINGS, ACK, 0))
        if self._peer_initial_window > initial_window:
            for stream_id in list(self.streams):
                self._receiver.window_opened(stream_id)

    def _change_windows(self, initial: int) -> None:
        if initial > WINDOW_MAX:
            raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {initial}")
        change = initial - self._peer_initial_window
        self._peer_initial_window = initial
        for stream in self.streams.values():
            stream.out_window += change
            if stream.out_window > WINDOW_MAX:
                raise Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "a window is too large")

    def _push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        self.strikes += 1
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"PING on stream {stream_id}")
        _check_size("PING", payload, 8)
        if not flags & ACK:
            self._output.append(frames.frame(PING, ACK, 0, payload))

    def _goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The peer opens no more streams. Those that are open go on."""
        self.strikes += 1
        if stream_id:
            raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"GOAWAY on stream {stream_id}")

    def _window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        self.strikes += 1
        _check_size("WINDOW_UPDATE", payload, 4)
        size = UINT32.unpack(payload)[0] & WINDOW_MAX
        code = ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR
        if not stream_id:
            self.out_window += size
            if not size or self.out_window > WINDOW_MAX:
                raise Http2Error(code, f"WINDOW_UPDATE by {size} bytes")
        else:
            stream = self.streams.get(stream_id)
            if stream is None:
                if stream_id > self.highest_stream_id or not size:
                    raise Http2Error(
                        ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE by {size} on stream {stream_id}"
                    )
                return
            stream.out_window += size
            if not size or stream.out_window > WINDOW_MAX:
                raise StreamError(stream_id, code)
        self._receiver.window_opened(stream_id)

    # What goes out.

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    def take_output(self) -> bytes:
        output = b"".join(self._output)
        self._output.clear()
        return output

    def has_window(self, stream_id: int) -> bool:
        """Whether the stream's own window is open, whatever the connection's."""
        return self.streams[stream_id].out_window > 0

    def window_of(self, stream_id: int) -> int:
        """Bytes that may leave on the stream now; never more than one frame."""
        return min(self.streams[stream_id].out_window, self.out_window, FRAME_SIZE_MAX)

    def send_fields(
        self, stream_id: int, fields: Iterable[tuple[bytes, bytes]], *, end_stream: bool = False
    ) -> None:
        self.send_block(stream_id, encode_fields(fields), end_stream=end_stream)

    def send_block(self, stream_id: int, block: bytes, *, end_stream: bool = False) -> None:
        """Send header fields that are encoded already."""
        if self._block_start:
            block, self._block_start = self._block_start + block, b""
        kind = HEADERS
        while len(block) > FRAME_SIZE_MAX:
            flags = END_STREAM if end_stream and kind == HEADERS else 0
            self._output.append(frames.frame(kind, flags, stream_id, block[:FRAME_SIZE_MAX]))
            block, kind = block[FRAME_SIZE_MAX:], CONTINUATION
        flags = END_HEADERS | END_STREAM if end_stream and kind == HEADERS else END_HEADERS
        self._output.append(FRAME_HEADER.pack(0, len(block), kind, flags, stream_id) + block)
        if end_stream:
            stream = self.streams[stream_id]
            stream.local_ended = True
            if stream.remote_ended:
                self._close(stream_id, late=False)

    def send_data(self, stream_id: int, data: bytes) -> None:
        """Send at most what window_of() says."""
        size = len(data)
        self._output.append(FRAME_HEADER.pack(0, size, DATA, 0, stream_id))
        self._output.append(data)
        self.out_window -= size
        self.streams[stream_id].out_window -= size

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        self._output.append(frames.rst_stream(stream_id, code))
        self._close(stream_id, late=True)

    def send_ping(self) -> None:
        self._output.append(frames.frame(PING, 0, 0, b"are you?"))

    def send_goaway(self, last_stream_id: int, code: ErrorCode) -> None:
        self._output.append(frames.goaway(last_stream_id, code))

    def give_back(self, stream_id: int, size: int) -> None:
        """Let the peer send that much more, once it is worth a frame."""
        self._consume(size)
        stream = self.streams.get(stream_id)
        if stream is None or stream.remote_ended:
            return
        stream.consumed_size += size
        if stream.consumed_size >= STREAM_WINDOW // 2:
            stream.in_window += stream.consumed_size
            self._output.append(frames.window_update(stream_id, stream.consumed_size))
            stream.consumed_size = 0

    def _consume(self, size: int) -> None:
        self._consumed_size += size
        if self._consumed_size >= CONNECTION_WINDOW // 2:
            self._in_window += self._consumed_size
            self._output.append(frames.window_update(0, self._consumed_size))
            self._consumed_size = 0

    def _close(self, stream_id: int, *, late: bool) -> None:
        self.streams.pop(stream_id, None)
        self._closed[stream_id] = late
        if len(self._closed) > CLOSED_STREAMS_MAX:
            del self._closed[next(iter(self._closed))]


def _unpadded(payload: bytes) -> bytes:
    if not payload:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without its padding's length")
    if payload[0] >= len(payload):
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]


def _check_priority(stream_id: int, payload: bytes) -> None:
    _check_size("PRIORITY", payload, 5)
    if UINT32.unpack_from(payload)[0] & STREAM_ID_MAX == stream_id:
        raise Http2Error(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} depends on itself")


def _check_size(name: str, payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise Http2Error(ErrorCode.FRAME_SIZE_ERROR, f"{name} of {len(payload)} bytes")
