"""One HTTP/2 connection: frames and windows by the library h2, calls and their handlers' tasks by us.

What the calls of one turn of the event loop send leaves with one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Protocol, cast

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from proxy.grpc.call import Call, CallClosed, GrpcError, GrpcStatus, Handler
from proxy.grpc.messages import IncomingBudget
from proxy.grpc.metadata import RESPONSE_HEADERS, BadRequest, Fields, read_request, status_trailers
from proxy.grpc.stream import ServerStream
from remoting.address import join

log = logging.getLogger(__name__)

_PER_CONNECTION = {"per_connection": True}  # anybody may open as many as they like: mq/log_limit.py

STREAM_WINDOW = 1024 * 1024  # bytes that a client may send on one call before its handler takes them
CONNECTION_WINDOW = 4 * STREAM_WINDOW
CONCURRENT_CALLS_MAX = 1024
HEADER_LIST_SIZE_MAX = 32 * 1024
STREAM_ID_MAX = 2**31 - 1
FRAME_SIZE = 16384  # no data frame of ours is larger, so that calls take turns
PENDING_WRITE_LIMIT = 256 * 1024  # above it no messages leave
PING_SECONDS = 30.0  # of silence, before the client is asked whether it is there
PING_ANSWER_SECONDS = 10.0
IDLE_SECONDS = 120.0  # without a call
STRIKES_MAX = 1000  # frames that carry nothing, between two looks and without an answer of ours
PENDING_WRITE_MAX = 2 * 1024 * 1024  # above it the connection ends: it sends without reading its answers


class Owner(Protocol):
    """The server, as its connections see it."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    @property
    def hidden_metadata(self) -> Collection[str]: ...

    @property
    def incoming(self) -> IncomingBudget: ...

    def connection_opened(self, connection: GrpcConnection) -> None: ...

    def connection_closed(self, connection: GrpcConnection) -> None: ...


class GrpcConnection(asyncio.Protocol):
    """Invariant: `_calls` has each call whose handler has not returned, be its stream open or not.

    So a client that opens calls and resets them at once never has more handlers at work than calls it may have.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.peer = ""
        self._calls: dict[int, ServerStream] = {}
        self._blocked: dict[int, ServerStream] = {}  # their outbox waits for a window or the socket
        self._paused = False
        self._closed = False
        self._retired = False
        self._read_at = self._called_at = self._loop.time()
        self._pinged_at: float | None = None
        self._strikes = 0
        self._flush_scheduled = False
        self._unflushed_size = 0
        self._h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=False,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_CONCURRENT_STREAMS: CONCURRENT_CALLS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIST_SIZE_MAX,
            },
        )
        self._h2.decoder.max_header_list_size = HEADER_LIST_SIZE_MAX
        self._on_event: dict[type[Event], Callable[..., None]] = {
            RequestReceived: self._request_received,
            DataReceived: self._data_received,
            StreamEnded: self._stream_ended,
            StreamReset: self._stream_reset,
            WindowUpdated: self._window_updated,
            RemoteSettingsChanged: self._settings_changed,
            ConnectionTerminated: self._client_leaves,
        }

    @property
    def call_count(self) -> int:
        return len(self._calls)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's transports are of no asyncio class.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=PENDING_WRITE_LIMIT)
        self.peer = _address(transport.get_extra_info("peername"))
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW - self._h2.inbound_flow_control_window)
        self._owner.connection_opened(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._read_at = self._loop.time()
        self._pinged_at = None
        try:
            events = self._h2.receive_data(data)
        except H2Error as error:
            log.warning("bad frame from=%s reason=%s", self.peer, error, extra=_PER_CONNECTION)
            self._flush()
            self.close()
            return
        for event in events:
            self._on_event.get(event.__class__, self._nothing_received)(event)
        if self._strikes > STRIKES_MAX:
            log.warning("frames that carry nothing from=%s", self.peer, extra=_PER_CONNECTION)
            self._leave(ErrorCodes.ENHANCE_YOUR_CALM)
        self._flush()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump_blocked()

    def look(self, now: float) -> None:
        """Ping a silent client, leave one that does not answer or has no calls. The server calls it each second."""
        self._strikes = 0
        if self._calls:
            self._called_at = now
        elif now - self._called_at >= IDLE_SECONDS:
            self._leave(ErrorCodes.NO_ERROR)
            return
        if self._pinged_at is not None:
            if now - self._pinged_at >= PING_ANSWER_SECONDS:
                log.info("does not answer peer=%s", self.peer, extra=_PER_CONNECTION)
                self.abort()
        elif now - self._read_at >= PING_SECONDS:
            self._pinged_at = now
            self._h2.ping(b"are you?")
            self._flush()

    def retire(self) -> None:
        """Tell the client to open its next calls elsewhere, and close after the last one of those that are open."""
        self._retired = True
        if not self._calls:
            self._leave(ErrorCodes.NO_ERROR)
            return
        # Not h2's close_connection, which would end the calls. Which call is the last one is told at the end.
        self._flush()
        self._transport.write(GoAwayFrame(0, last_stream_id=STREAM_ID_MAX).serialize())

    def _leave(self, code: ErrorCodes) -> None:
        if not self._closed:
            self._h2.close_connection(code)
            self._flush()
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._abandon_all()
        self._owner.connection_closed(self)

    def close(self) -> None:
        """Close when what has been written is sent. Calls end as if their client had left."""
        self._abandon_all()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what is pending is lost."""
        self._abandon_all()
        self._transport.abort()

    def _abandon_all(self) -> None:
        self._closed = True
        for stream in list(self._calls.values()):
            self._abandon(stream)

    # What the client sends.

    def _request_received(self, event: RequestReceived) -> None:
        owner = self._owner
        ended = event.stream_ended is not None
        try:
            request = read_request(event.headers, owner.hidden_metadata)
        except BadRequest as error:
            stream = ServerStream(self, event.stream_id, "", {}, self.peer, None, owner.incoming)
            self._begin(stream, partial(_tell_what_is_served, error), ended)
            return
        deadline = None if request.timeout_s is None else self._loop.time() + request.timeout_s
        stream = ServerStream(
            self, event.stream_id, request.path, request.metadata, self.peer, deadline, owner.incoming
        )
        self._begin(stream, owner.handlers.get(request.path, _refuse_path), ended)

    def _begin(
        self, stream: ServerStream, handler: Callable[[ServerStream], Awaitable[None]], ended: bool
    ) -> None:
        stream.request_ended = ended
        if len(self._calls) >= CONCURRENT_CALLS_MAX:
            self._reset(stream, ErrorCodes.REFUSED_STREAM)
            return
        self._calls[stream.id] = stream
        if stream.deadline is not None:
            stream.timer = self._loop.call_at(stream.deadline, self._expire, stream)
        stream.task = self._loop.create_task(self._run(stream, handler))

    def _data_received(self, event: DataReceived) -> None:
        if not event.data:
            self._strikes += 1
        stream = self._calls.get(event.stream_id)
        if stream is None or stream.ended:
            self._acknowledge(event.stream_id, event.flow_controlled_length)
            return
        stream.request_ended = event.stream_ended is not None
        try:
            stream.data_received(event.data, event.flow_controlled_length)
        except GrpcError as error:
            self._acknowledge(event.stream_id, event.flow_controlled_length)
            self._end(stream, error.status, error.message)
            self._cancel(stream)

    def _stream_ended(self, event: StreamEnded) -> None:
        stream = self._calls.get(event.stream_id)
        if stream is not None:
            stream.end_request()

    def _nothing_received(self, event: Event) -> None:
        self._strikes += 1

    def _stream_reset(self, event: StreamReset) -> None:
        self._strikes += 1
        stream = self._calls.get(event.stream_id)
        if stream is not None:
            self._abandon(stream)

    def _window_updated(self, event: WindowUpdated) -> None:
        self._strikes += 1
        if event.stream_id == 0:
            self._pump_blocked()
        elif (stream := self._blocked.get(event.stream_id)) is not None:
            self.pump(stream)

    def _settings_changed(self, event: RemoteSettingsChanged) -> None:
        self._strikes += 1
        if SettingCodes.INITIAL_WINDOW_SIZE in event.changed_settings:
            self._pump_blocked()

    def _client_leaves(self, event: ConnectionTerminated) -> None:
        """A client that says GOAWAY opens no more calls; those that are open go on. h2 would end them."""
        self._h2.state_machine.state = ConnectionState.SERVER_OPEN

    # Calls.

    async def _run(self, stream: ServerStream, handler: Callable[[ServerStream], Awaitable[None]]) -> None:
        status, message = GrpcStatus.OK, ""
        try:
            await handler(stream)
            if stream.outbox:
                await stream.drained()
        except GrpcError as error:
            status, message = error.status, error.message
        except asyncio.CancelledError:
            status, message = GrpcStatus.UNAVAILABLE, "the server stops"
        except CallClosed:
            status, message = GrpcStatus.CANCELLED, "the call has ended"
        except Exception:
            log.exception("handler failed path=%s peer=%s", stream.path, stream.peer)
            status, message = GrpcStatus.INTERNAL, "the server has failed, and its log says where"
        del self._calls[stream.id]
        if stream.timer is not None:
            stream.timer.cancel()
        self._end(stream, status, message)
        if not self._calls:
            self._called_at = self._loop.time()
            if self._retired:
                self._leave(ErrorCodes.NO_ERROR)

    def _expire(self, stream: ServerStream) -> None:
        self._end(stream, GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed")
        self._cancel(stream)

    def _abandon(self, stream: ServerStream) -> None:
        """The client has no use for the call any more."""
        self._blocked.pop(stream.id, None)
        stream.close()
        self._cancel(stream)

    @staticmethod
    def _cancel(stream: ServerStream) -> None:
        if stream.task is not None:
            stream.task.cancel()

    def _end(self, stream: ServerStream, status: GrpcStatus, message: str) -> None:
        """Send the status, unless the stream has ended."""
        if stream.ended:
            return
        if stream.outbox:  # half a message cannot be followed by a status
            self._reset(stream, ErrorCodes.CANCEL)
            return
        trailers = status_trailers(status, message)
        fields = trailers if stream.headers_sent else RESPONSE_HEADERS + trailers
        self._h2.send_headers(stream.id, fields, end_stream=True)
        if not stream.request_ended:
            self._h2.reset_stream(stream.id, ErrorCodes.NO_ERROR)
        stream.close()
        self._schedule_flush()

    def _reset(self, stream: ServerStream, code: ErrorCodes) -> None:
        self._blocked.pop(stream.id, None)
        self._h2.reset_stream(stream.id, code)
        stream.close()
        self._schedule_flush()

    # What goes out.

    def send_headers(self, stream: ServerStream, fields: Fields) -> None:
        stream.headers_sent = True
        self._h2.send_headers(stream.id, fields)
        self._schedule_flush()

    def pump(self, stream: ServerStream) -> None:
        h2 = self._h2
        while stream.outbox:
            unsent = stream.outbox[0]
            data, start = unsent.data, unsent.sent_size
            while start < len(data) and not self._paused:
                room = min(h2.local_flow_control_window(stream.id), h2.max_outbound_frame_size, FRAME_SIZE)
                if room <= 0:
                    break
                piece = data[start : start + room]
                h2.send_data(stream.id, piece)
                self._strikes = 0
                start += len(piece)
                self._unflushed_size += len(piece)
                if self._unflushed_size >= PENDING_WRITE_LIMIT:
                    self._flush()
            unsent.sent_size = start
            if start < len(data):
                self._blocked[stream.id] = stream
                break
            stream.outbox.popleft()
            if unsent.waiter is not None and not unsent.waiter.done():
                unsent.waiter.set_result(None)
        else:
            self._blocked.pop(stream.id, None)
        self._schedule_flush()

    def _pump_blocked(self) -> None:
        for stream in list(self._blocked.values()):
            # Those that get no further go to the end, so that the next window is another's.
            del self._blocked[stream.id]
            self.pump(stream)

    def give_back(self, stream: ServerStream, size: int) -> None:
        self._acknowledge(stream.id, size)
        self._schedule_flush()

    def _acknowledge(self, stream_id: int, size: int) -> None:
        if size and not self._closed:
            self._h2.acknowledge_received_data(size, stream_id)

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._unflushed_size = 0
        data = self._h2.data_to_send()
        if not data or self._closed:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > PENDING_WRITE_MAX:
            log.warning("does not read its answers peer=%s", self.peer, extra=_PER_CONNECTION)
            self.abort()


async def _refuse_path(call: Call) -> None:
    raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"no method {call.path} is served here")


async def _tell_what_is_served(error: BadRequest, stream: ServerStream) -> None:
    """Answer a browser, or another program that does not speak gRPC."""
    status = b"%d" % error.http_status
    stream.carrier.send_headers(
        stream, [(b":status", status), (b"content-type", b"text/plain; charset=utf-8")]
    )
    await stream.write(f"{error}\n".encode())
    raise GrpcError(GrpcStatus.INTERNAL, str(error))


def _address(peername: object) -> str:
    """`ip:port`. A client that reached an IPv6 socket by IPv4 is known by its IPv4 address."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return join(str(peername[0]).removeprefix("::ffff:"), peername[1])
    return str(peername)
