"""The Status of an answer: the one place where errors become codes of the v2 API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqclient.errors import (
    BrokerResponseError,
    MQClientError,
    NoAnswerError,
    TopicUnknownError,
)
from proxy.protocol.definition import Code, Status
from remoting.codes import ResponseCode
from remoting.errors import RemotingTimeoutError

# By the codes of brokers. All others become INTERNAL_SERVER_ERROR.
_CODES: Final[Mapping[int, Code]] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
}


class StatusError(Exception):
    """Ends a call with this status in its answer."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{Code.Name(code)}: {message}")
        self.code = code
        self.message = message


def status(code: Code, message: str = "") -> Status:
    """Make a Status. Clients show its message; without one it is the code's name, as with RocketMQ."""
    return Status(code=code, message=message or Code.Name(code))


def status_of(error: StatusError | MQClientError) -> Status:
    """Make the Status that tells a client of an error of a service or a broker."""
    match error:
        case StatusError():
            return status(error.code, error.message)
        case TopicUnknownError():
            return status(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {error}")
        case BrokerResponseError():
            return status(_CODES.get(error.code, Code.INTERNAL_SERVER_ERROR), str(error))
        case NoAnswerError() if isinstance(error.__cause__, RemotingTimeoutError):
            return status(Code.PROXY_TIMEOUT, str(error))
    return status(Code.INTERNAL_SERVER_ERROR, str(error))
