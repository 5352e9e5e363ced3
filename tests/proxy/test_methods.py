"""From calls to service methods and back: what is understood, and how failures are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from fake_call import FakeCall, permit

from mqclient.errors import (
    BrokerResponseError,
    MQClientError,
    NoAnswerError,
    NoMasterError,
    RouteNotFoundError,
    TopicUnknownError,
)
from proxy.grpc.call import Call, CallClosed, GrpcError, GrpcStatus
from proxy.protocol.definition import Code, Status
from proxy.protocol.service import (
    AckMessageRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
)
from proxy.services.methods import REQUEST_SIZE_MAX, server_stream, unary
from proxy.status import StatusError, status
from remoting.codes import ResponseCode
from remoting.errors import RemotingConnectError, RemotingTimeoutError


async def ok(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    return HeartbeatResponse(status=status(Code.OK))


def unary_answer(error: Exception | None = None, client_id: str = "c") -> Status:
    async def method(request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        if error is not None:
            raise error
        return await ok(request, call)

    async def story() -> Status:
        call = FakeCall(HeartbeatRequest(), client_id=client_id)
        await unary(HeartbeatRequest, HeartbeatResponse, method, permit)(call)
        return (await call.next(HeartbeatResponse)).status

    return asyncio.run(story())


def test_an_answer_says_ok() -> None:
    assert unary_answer() == Status(code=Code.OK, message="OK")


@pytest.mark.parametrize("request_class", [AckMessageRequest, SendMessageRequest])
def test_a_request_that_would_fill_the_memory_is_not_parsed(
    request_class: type[AckMessageRequest | SendMessageRequest],
) -> None:
    """130 MiB of empty entries took 5 GiB, and seven seconds in which nobody else was served."""
    name = "entries" if request_class is AckMessageRequest else "messages"
    empty = bytes((request_class.DESCRIPTOR.fields_by_name[name].number << 3 | 2, 0))

    async def method(request: AckMessageRequest | SendMessageRequest, call: Call) -> HeartbeatResponse:
        raise AssertionError("it was parsed")

    async def story() -> None:
        call = FakeCall()
        call.incoming = asyncio.Queue()
        call.incoming.put_nowait(empty * (REQUEST_SIZE_MAX // 2 + 1))
        with pytest.raises(GrpcError, match="over 1048576 bytes") as refused:
            await unary(request_class, HeartbeatResponse, method, permit)(call)
        assert refused.value.status == GrpcStatus.RESOURCE_EXHAUSTED

    asyncio.run(story())


def test_a_client_must_say_who_it_is() -> None:
    told = unary_answer(client_id=" ")
    assert told.code == Code.CLIENT_ID_REQUIRED
    assert "client id cannot be empty" in told.message
    assert unary_answer(client_id="c" * 1024).code == Code.OK
    assert unary_answer(client_id="c" * 1025).code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StatusError(Code.ILLEGAL_TOPIC, "x"), Code.ILLEGAL_TOPIC),
        (TopicUnknownError("x"), Code.TOPIC_NOT_FOUND),
        (RouteNotFoundError("x"), Code.INTERNAL_SERVER_ERROR),
        (NoMasterError("x"), Code.INTERNAL_SERVER_ERROR),
        (BrokerResponseError(ResponseCode.SYSTEM_BUSY, "x", "b:1"), Code.TOO_MANY_REQUESTS),
        (BrokerResponseError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "x", "b:1"), Code.NOT_IMPLEMENTED),
        (
            BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "x", "b:1"),
            Code.CONSUMER_GROUP_NOT_FOUND,
        ),
        (BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, "x", "b:1"), Code.TOPIC_NOT_FOUND),
        (BrokerResponseError(ResponseCode.NO_PERMISSION, "x", "b:1"), Code.FORBIDDEN),
        (BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, "x", "b:1"), Code.INTERNAL_SERVER_ERROR),
        (BrokerResponseError(987654, "x", "b:1"), Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_went_wrong_is_a_status(error: StatusError | MQClientError, code: Code) -> None:
    told = unary_answer(error)
    assert told.code == code
    assert "x" in told.message


def no_answer(cause: Exception) -> NoAnswerError:
    assert isinstance(cause, RemotingTimeoutError | RemotingConnectError)
    error = NoAnswerError(cause)
    error.__cause__ = cause
    return error


def test_a_broker_that_is_late_and_one_that_is_not_there_are_two_things() -> None:
    assert unary_answer(no_answer(RemotingTimeoutError("late"))).code == Code.PROXY_TIMEOUT
    assert unary_answer(no_answer(RemotingConnectError("down"))).code == Code.INTERNAL_SERVER_ERROR


def test_a_mistake_of_ours_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    told = unary_answer(ZeroDivisionError("secret"))
    assert told == Status(
        code=Code.INTERNAL_SERVER_ERROR, message="ZeroDivisionError in the proxy: its log says where"
    )
    assert caplog.records[0].exc_info is not None


def test_bytes_that_are_no_request_are_a_grpc_error() -> None:
    async def story() -> None:
        call = FakeCall(ended=False)
        call.incoming.put_nowait(b"\xff\xff")
        with pytest.raises(GrpcError) as error:
            await unary(HeartbeatRequest, HeartbeatResponse, ok, permit)(call)
        assert error.value.status == GrpcStatus.INVALID_ARGUMENT
        with pytest.raises(GrpcError, match="none came"):
            await unary(HeartbeatRequest, HeartbeatResponse, ok, permit)(FakeCall())

    asyncio.run(story())


class Receives:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.unsent = 0

    async def receive(
        self, request: ReceiveMessageRequest, call: Call
    ) -> AsyncGenerator[ReceiveMessageResponse, None]:
        self.unsent = 3
        try:
            for _ in range(3):
                yield ReceiveMessageResponse(status=status(Code.OK))
                self.unsent -= 1
                if self.error is not None:
                    raise self.error
        finally:
            await asyncio.sleep(0)  # what was not sent is given back to a broker


def test_a_stream_sends_all_or_says_why_not() -> None:
    async def story() -> None:
        call = FakeCall(ReceiveMessageRequest())
        await server_stream(ReceiveMessageRequest, ReceiveMessageResponse, Receives().receive, permit)(call)
        assert call.outgoing.qsize() == 3

        call = FakeCall(ReceiveMessageRequest())
        failing = Receives(StatusError(Code.FORBIDDEN, "no"))
        await server_stream(ReceiveMessageRequest, ReceiveMessageResponse, failing.receive, permit)(call)
        codes = [(await call.next(ReceiveMessageResponse)).status.code for _ in range(2)]
        assert codes == [Code.OK, Code.FORBIDDEN]

        call = FakeCall(ReceiveMessageRequest(), client_id="")
        await server_stream(ReceiveMessageRequest, ReceiveMessageResponse, Receives().receive, permit)(call)
        assert (await call.next(ReceiveMessageResponse)).status.code == Code.CLIENT_ID_REQUIRED

    asyncio.run(story())


def test_a_stream_whose_client_is_gone_ends_at_the_message_that_did_not_leave() -> None:
    async def story() -> None:
        receives = Receives()
        call = FakeCall(ReceiveMessageRequest())
        call.closed = True
        with pytest.raises(CallClosed):
            await server_stream(ReceiveMessageRequest, ReceiveMessageResponse, receives.receive, permit)(call)
        assert receives.unsent == 3

    asyncio.run(story())
