"""One connection: HTTP/2 by http2.py, a call and its handler's task for each stream, and what a socket needs.

What the calls of one turn of the event loop send leaves with one write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Protocol, cast

from proxy.grpc.call import Call, CallClosed, GrpcError, GrpcStatus, Handler
from proxy.grpc.frames import STREAM_ID_MAX, ErrorCode
from proxy.grpc.header_block import Field, encode_fields
from proxy.grpc.http2 import Http2, Http2Error, StreamError
from proxy.grpc.messages import HeldBudget
from proxy.grpc.metadata import (
    OK_TRAILERS,
    RESPONSE_HEADERS,
    BadRequest,
    MalformedRequestError,
    read_request,
    status_trailers,
)
from proxy.grpc.stream import ServerStream
from remoting.address import join

log = logging.getLogger(__name__)

_PER_CONNECTION = {"per_connection": True}  # anybody may open as many as they like: mq/log_limit.py

CONCURRENT_CALLS_MAX = 1024
PENDING_WRITE_LIMIT = 256 * 1024  # above it no messages leave
PING_SECONDS = 30.0  # of silence, before the client is asked whether it is there
PING_ANSWER_SECONDS = 10.0
STRIKES_MAX = 1000  # frames that carry nothing, between two looks and without a whole message of ours
PENDING_WRITE_MAX = 2 * 1024 * 1024  # above it the connection ends: it sends without reading its answers

_RESPONSE_BLOCK = encode_fields(RESPONSE_HEADERS)
_OK_BLOCK = encode_fields(OK_TRAILERS)


class Owner(Protocol):
    """The server, as its connections see it."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    @property
    def hidden_metadata(self) -> Collection[str]: ...

    @property
    def held(self) -> HeldBudget: ...

    @property
    def idle_seconds(self) -> float: ...

    def make_room(self) -> None:
        """Have the call that holds most of `held` end."""

    def connection_opened(self, connection: GrpcConnection) -> None: ...

    def connection_closed(self, connection: GrpcConnection) -> None: ...


class GrpcConnection(asyncio.Protocol):
    """Invariant: `_calls` has each call whose handler has not returned, be its stream open or not.

    So a client that opens calls and resets them at once never has more handlers at work than calls it may have.
    """

    def __init__(self, owner: Owner, source: str | None = None) -> None:
        """`source`: where the client is, if a load balancer has said so."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.peer = source or ""
        self._calls: dict[int, ServerStream] = {}
        self._blocked: dict[
            int, ServerStream
        ] = {}  # their outbox waits for the connection's window or the socket, not for a window of their own
        self._paused = False
        self._closed = False
        self._closed_at = 0.0
        self._retired = False
        self._read_at = self._called_at = self._loop.time()
        self._pinged_at: float | None = None
        self._flush_scheduled = False
        self._unflushed_size = 0
        self._http2 = Http2(self, CONCURRENT_CALLS_MAX, STRIKES_MAX)

    @property
    def calls(self) -> Collection[ServerStream]:
        return self._calls.values()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance(): uvloop's transports inherit from no class of asyncio.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=PENDING_WRITE_LIMIT)
        self.peer = self.peer or _address(transport.get_extra_info("peername"))
        self._owner.connection_opened(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._read_at = self._loop.time()
        self._pinged_at = None
        try:
            self._http2.receive_data(data)
        except Http2Error as error:
            log.warning("bad frame from=%s reason=%s", self.peer, error, extra=_PER_CONNECTION)
            self._flush()
            self.close()
            return
        if self._http2.has_output:
            self._flush()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump_blocked()

    def look(self, now: float) -> None:
        """Ping a silent client; leave one that does not answer, or has no calls. The server calls this each second."""
        if self._closed:
            # The client does not read what it was sent last, so close() would wait for ever.
            if now - self._closed_at >= PING_ANSWER_SECONDS:
                self._transport.abort()
            return
        self._http2.strikes = 0
        if self._calls:
            self._called_at = now
        elif now - self._called_at >= self._owner.idle_seconds:
            self._leave(ErrorCode.NO_ERROR)
            return
        if self._pinged_at is not None:
            if now - self._pinged_at >= PING_ANSWER_SECONDS:
                log.info("does not answer peer=%s", self.peer, extra=_PER_CONNECTION)
                self.abort()
        elif now - self._read_at >= PING_SECONDS:
            self._pinged_at = now
            self._http2.send_ping()
            self._flush()

    def retire(self) -> None:
        """Tell the client to open its next calls elsewhere, and close after the last one of those that are open."""
        self._retired = True
        if not self._calls:
            self._leave(ErrorCode.NO_ERROR)
            return
        # Calls that are under way here are still taken. Which one was the last is told at the end.
        self._http2.send_goaway(STREAM_ID_MAX, ErrorCode.NO_ERROR)
        self._flush()

    def _leave(self, code: ErrorCode) -> None:
        if not self._closed:
            self._http2.send_goaway(self._http2.highest_stream_id, code)
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
        self._closed_at = self._loop.time()
        for stream in list(self._calls.values()):
            self._abandon(stream)

    # What the client sends: the Receiver of Http2.

    def request_received(self, stream_id: int, fields: list[Field], ended: bool) -> None:
        owner = self._owner
        try:
            request = read_request(fields, owner.hidden_metadata)
        except MalformedRequestError as error:
            log.warning("malformed request from=%s reason=%s", self.peer, error, extra=_PER_CONNECTION)
            raise StreamError(stream_id, ErrorCode.PROTOCOL_ERROR) from None
        if request.content_size is not None:
            self._http2.expect_size(stream_id, request.content_size)
        deadline = None if request.timeout_s is None else self._loop.time() + request.timeout_s
        stream = ServerStream(
            self, stream_id, request.path, request.metadata, self.peer, deadline, owner.held
        )
        stream.request_ended = ended
        if len(self._calls) >= CONCURRENT_CALLS_MAX:
            self._reset(stream, ErrorCode.REFUSED_STREAM)
            return
        handler: Callable[[ServerStream], Awaitable[None]] = owner.handlers.get(request.path, _refuse_path)
        if request.refusal is not None:
            handler = partial(_tell_what_is_served, request.refusal)
            stream.discards = True
        self._calls[stream_id] = stream
        if deadline is not None:
            stream.timer = self._loop.call_at(deadline, self._expire, stream)
        self._loop.create_task(self._run(stream, handler))
        if owner.held.size > owner.held.size_max:
            owner.make_room()

    def data_on_stream(self, stream_id: int, data: bytes, size: int, ended: bool) -> None:
        stream = self._calls.get(stream_id)
        if stream is not None and ended:
            stream.end_request()
        if stream is None or stream.ended or stream.discards:
            self._http2.give_back(stream_id, size)
            return
        held = self._owner.held
        if held.size + len(data) > held.size_max:
            self._owner.make_room()
            if stream.ended:  # this call held the most itself
                self._http2.give_back(stream_id, size)
                return
        try:
            stream.data_received(data, size)
        except GrpcError as error:
            self._http2.give_back(stream_id, size)
            self.refuse(stream, error)

    def request_ended(self, stream_id: int) -> None:
        stream = self._calls.get(stream_id)
        if stream is not None:
            stream.end_request()

    def stream_reset(self, stream_id: int) -> None:
        stream = self._calls.get(stream_id)
        if stream is not None:
            self._abandon(stream)

    def window_opened(self, stream_id: int) -> None:
        if not stream_id:
            self._pump_blocked()
        elif (stream := self._calls.get(stream_id)) is not None and stream.outbox:
            self.pump(stream)

    # Calls.

    async def _run(self, stream: ServerStream, handler: Callable[[ServerStream], Awaitable[None]]) -> None:
        status, message = GrpcStatus.OK, ""
        try:
            # A task that is cancelled before its first step would run nothing of this function, so `task` is set here.
            if not stream.ended:
                stream.task = asyncio.current_task()
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
                self._leave(ErrorCode.NO_ERROR)

    def refuse(self, stream: ServerStream, error: GrpcError) -> None:
        """End a call that its handler has not ended."""
        self._end(stream, error.status, error.message)
        self._cancel(stream)

    def _expire(self, stream: ServerStream) -> None:
        self.refuse(stream, GrpcError(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed"))

    def _abandon(self, stream: ServerStream) -> None:
        """End a call for which the client has no use any more."""
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
            self._reset(stream, ErrorCode.CANCEL)
            return
        if stream.headers_sent and status is GrpcStatus.OK:
            self._http2.send_block(stream.id, _OK_BLOCK, end_stream=True)
        else:
            trailers = status_trailers(status, message)
            fields = trailers if stream.headers_sent else RESPONSE_HEADERS + trailers
            self._http2.send_fields(stream.id, fields, end_stream=True)
        if not stream.request_ended:
            self._http2.reset(stream.id, ErrorCode.NO_ERROR)
        stream.close()
        self._schedule_flush()

    def _reset(self, stream: ServerStream, code: ErrorCode) -> None:
        self._blocked.pop(stream.id, None)
        self._http2.reset(stream.id, code)
        stream.close()
        self._schedule_flush()

    # What goes out.

    def send_headers(self, stream: ServerStream) -> None:
        self.send_header_block(stream, _RESPONSE_BLOCK)

    def send_header_block(self, stream: ServerStream, block: bytes) -> None:
        stream.headers_sent = True
        self._http2.send_block(stream.id, block)
        self._schedule_flush()

    def pump(self, stream: ServerStream) -> None:
        http2 = self._http2
        while stream.outbox:
            unsent = stream.outbox[0]
            data, start = unsent.data, unsent.sent_size
            while start < len(data) and not self._paused and not self._closed:
                room = http2.window_of(stream.id)
                if room <= 0:
                    break
                piece = data[start : start + room]
                http2.send_data(stream.id, piece)
                start += len(piece)
                self._unflushed_size += len(piece)
                if self._unflushed_size >= PENDING_WRITE_LIMIT:
                    self._flush()
            if stream.ended:
                return  # the connection was closed while we wrote
            unsent.sent_size = start
            if start < len(data):
                if http2.has_window(stream.id):
                    self._blocked[stream.id] = stream
                else:
                    self._blocked.pop(stream.id, None)
                break
            stream.outbox.popleft()
            stream.hold(-unsent.held_size)
            http2.strikes = 0
            if unsent.waiter is not None and not unsent.waiter.done():
                unsent.waiter.set_result(None)
        else:
            self._blocked.pop(stream.id, None)
        self._schedule_flush()

    def make_room(self) -> None:
        self._owner.make_room()

    def _pump_blocked(self) -> None:
        for stream in list(self._blocked.values()):
            if self._paused or self._http2.out_window <= 0:
                break
            # A stream that gets no further goes to the end, so that the others have a turn.
            del self._blocked[stream.id]
            self.pump(stream)

    def give_back(self, stream: ServerStream, size: int) -> None:
        self._http2.give_back(stream.id, size)
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._unflushed_size = 0
        data = self._http2.take_output()
        if not data or self._closed:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > PENDING_WRITE_MAX:
            log.warning("does not read its answers peer=%s", self.peer, extra=_PER_CONNECTION)
            self.abort()


async def _refuse_path(call: Call) -> None:
    raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"no method {call.path} is served here")


async def _tell_what_is_served(error: BadRequest, stream: ServerStream) -> None:
    """Answer a browser, or another program that does not speak gRPC, when it has sent all."""
    await stream.receive()
    status = b"%d" % error.http_status
    fields = [(b":status", status), (b"content-type", b"text/plain; charset=utf-8")]
    stream.carrier.send_header_block(stream, encode_fields(fields))
    await stream.write(f"{error}\n".encode())
    raise GrpcError(GrpcStatus.INTERNAL, str(error))


def _address(peername: object) -> str:
    """Return `ip:port`. A client that reached an IPv6 socket by IPv4 is known by its IPv4 address."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return join(str(peername[0]).removeprefix("::ffff:"), peername[1])
    return str(peername)
