"""One gRPC call as its handler sees it: request messages in, response messages out, a status at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum


class GrpcStatus(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends the call with a status other than OK when a handler raises it. The client reads the message."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(f"{status.name}: {message}")
        self.status = status
        self.message = message


class CallClosed(Exception):
    """The call has ended, so nothing can be sent or received any more."""


class Call(ABC):
    """One call, for its handler.

    `metadata` has lower-case names. A field that came several times is one text with commas between the values.
    A value whose name ends in `-bin` is the base64 text that the client sent.
    `deadline` is a time of the event loop's clock; None: the client waits for ever.
    """

    __slots__ = ("deadline", "metadata", "path", "peer")

    def __init__(self, path: str, metadata: Mapping[str, str], peer: str, deadline: float | None) -> None:
        self.path = path
        self.metadata = metadata
        self.peer = peer
        self.deadline = deadline

    @abstractmethod
    async def receive(self) -> bytes | None:
        """Wait for the next request message. Returns None after the last one. One task at a time may wait."""

    @abstractmethod
    def send_headers(self) -> None:
        """Send the response headers at once. Without this call they leave with the first message."""

    @abstractmethod
    async def send(self, payload: bytes) -> None:
        """Send a response message; wait while the client does not read. Raises CallClosed.

        Several tasks may send on one call: their messages leave whole, in the order of the calls.
        """


Handler = Callable[[Call], Awaitable[None]]
