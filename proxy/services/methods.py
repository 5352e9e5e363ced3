"""Makes handlers of calls out of service methods, which know requests and responses but neither bytes nor streams.

A failure of the business is an answer with a status, as clients expect it; a gRPC error is for calls that cannot be
understood at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from mqclient.errors import MQClientError
from proxy.access import username_of
from proxy.grpc.call import Call, CallClosed, GrpcError, GrpcStatus, Handler
from proxy.messages.request_size import is_larger_besides_bodies
from proxy.protocol.definition import Code
from proxy.protocol.service import SendMessageRequest
from proxy.status import StatusError, status, status_of

log = logging.getLogger(__name__)

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
CLIENT_ID: Final = "x-mq-client-id"
CLIENT_ID_LENGTH_MAX: Final = 1024
MESSAGES_MAX: Final = 1024  # of one call: all are handled at once
REQUEST_SIZE_MAX: Final = (
    1024 * 1024
)  # bytes, without the bodies of messages: parsed, they may take twenty times as much
READ_SECONDS: Final = 60.0  # so long a client may take to read what it is answered

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

# Whether the client may do that. Raises StatusError.
Check = Callable[[RequestT, Call], Awaitable[None]]


def client_id_of(call: Call) -> str:
    """Return the client's id, behind the name of its user if it has one: so nobody ends, or takes over, what another
    user's client has here. Raises StatusError if the id is missing, or too long to be kept.
    """
    client_id = call.metadata.get(CLIENT_ID, "")
    if not client_id.strip():
        raise StatusError(Code.CLIENT_ID_REQUIRED, f"client id cannot be empty: send the header {CLIENT_ID}")
    if len(client_id) > CLIENT_ID_LENGTH_MAX:
        message = f"client id has {len(client_id)} characters, {CLIENT_ID_LENGTH_MAX} are allowed"
        raise StatusError(Code.BAD_REQUEST, message)
    username = username_of(call)
    return f"{username}/{client_id}" if username else client_id


def check_count(count: int, what: str) -> None:
    """Raises StatusError where one call is about too many messages."""
    if count > MESSAGES_MAX:
        message = f"{count} {what} in one call, at most {MESSAGES_MAX} are taken: send them in parts"
        raise StatusError(Code.PAYLOAD_TOO_LARGE, message)


def unary(
    request_class: type[RequestT],
    response_class: Callable[..., ResponseT],
    method: Callable[[RequestT, Call], Awaitable[ResponseT]],
    check: Check[RequestT],
) -> Handler:
    """A handler that answers one request. `response_class` has a field `status`."""

    async def handle(call: Call) -> None:
        request = await _request(request_class, call)
        try:
            await check(request, call)
            client_id_of(call)
            response = await method(request, call)
        except Exception as error:  # noqa: BLE001 (_refused logs what is unexpected)
            response = _refused(response_class, call, error)
        await call.send(response.SerializeToString())

    return handle


def server_stream(
    request_class: type[RequestT],
    response_class: Callable[..., ResponseT],
    method: Callable[[RequestT, Call], AsyncGenerator[ResponseT, None]],
    check: Check[RequestT],
) -> Handler:
    """A handler that answers one request with several messages. When the client is gone, or does not read, `method` is
    closed at the `yield` whose message did not leave."""

    async def handle(call: Call) -> None:
        request = await _request(request_class, call)
        try:
            await check(request, call)
            client_id_of(call)
            async with aclosing(method(request, call)) as responses, asyncio.timeout(None) as reading:
                async for response in responses:
                    if reading.when() is None:
                        await check(request, call)  # the client may have waited for long
                        reading.reschedule(asyncio.get_running_loop().time() + READ_SECONDS)
                    await call.send(response.SerializeToString())
        except CallClosed:
            raise
        except TimeoutError:
            message = f"the answer was not read within {READ_SECONDS:g} s"
            raise GrpcError(GrpcStatus.DEADLINE_EXCEEDED, message) from None
        except Exception as error:  # noqa: BLE001 (_refused logs what is unexpected)
            await call.send(_refused(response_class, call, error).SerializeToString())

    return handle


async def _request(request_class: type[RequestT], call: Call) -> RequestT:
    payload = await call.receive()
    if payload is None:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{call.path} needs a request message, and none came")
    if len(payload) > REQUEST_SIZE_MAX and (
        request_class is not SendMessageRequest or is_larger_besides_bodies(payload, REQUEST_SIZE_MAX)
    ):
        besides = "" if request_class is not SendMessageRequest else " besides the bodies of its messages"
        raise GrpcError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"the request has over {REQUEST_SIZE_MAX} bytes{besides}: send it in parts",
        )
    return parsed(request_class, payload)


def parsed(message_class: type[RequestT], payload: bytes) -> RequestT:
    """Raises GrpcError for bytes that are no such message."""
    try:
        return message_class.FromString(payload)
    except DecodeError:
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT, f"{len(payload)} bytes are no {message_class.__name__}"
        ) from None


def _refused(response_class: Callable[..., ResponseT], call: Call, error: Exception) -> ResponseT:
    if isinstance(error, StatusError | MQClientError):
        log.debug("refused method=%s peer=%s reason=%s", call.path, call.peer, error)
        return response_class(status=status_of(error))
    log.error("failed method=%s peer=%s", call.path, call.peer, exc_info=error)
    return response_class(
        status=status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__} in the proxy: its log says where")
    )
