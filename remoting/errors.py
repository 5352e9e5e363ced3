"""What can go wrong between two ends of a Remoting connection.

`definite` answers the question that a sender has to ask: was the request surely not carried out?
Wherever the bytes may have left, it is False, and the caller must treat the outcome as unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from remoting.frame.command import RemotingCommand


class RemotingError(Exception):
    """Base of this package's errors."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = False


class RemotingProtocolError(RemotingError):
    """The peer sent bytes that are not the Remoting protocol; the connection cannot be read on.

    `commands` are the whole commands that came before the bad bytes: they are still to be answered.
    """

    definite = True

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.commands: list[RemotingCommand] = []


class RemotingEncodeError(RemotingError):
    """Our own command does not fit into a frame; nothing was sent."""

    definite = True


class RemotingHeaderError(RemotingError):
    """A header field is missing or has a value of another type. `field` is its name on the wire."""

    definite = True

    def __init__(self, header: str, field: str, reason: str) -> None:
        super().__init__(f"{header}: {reason}" if field in reason else f"{header}.{field}: {reason}")
        self.field = field


class RemotingBodyError(RemotingError):
    """A body is not the JSON (or the register-broker form) that its request code calls for."""

    definite = True


class RemotingConnectError(RemotingError):
    """No connection to the address came about, so the request was surely not sent."""

    retriable = True
    definite = True


class RemotingUntrustedError(RemotingConnectError):
    """The peer's certificate is not one that this side trusts. Another try helps once somebody replaces one of them."""


class RemotingTooMuchRequestError(RemotingError):
    """The peer does not read what we sent before; this request was kept back and never written."""

    retriable = True
    definite = True


class RemotingSendError(RemotingError):
    """The connection ended while the request was being written: how much of it left is unknown."""

    retriable = True


class RemotingClosedError(RemotingError):
    """The connection ended after the request was written and before its response came."""

    retriable = True


class RemotingAnswerError(RemotingError):
    """A response came, and its header cannot be read."""

    retriable = True


class RemotingTimeoutError(RemotingError):
    """No response came in time. It may still be carried out; a late response is dropped."""

    retriable = True
