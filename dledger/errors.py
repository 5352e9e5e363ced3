"""What goes wrong in the replicated log, as classes that a caller can act on.

Three attributes say what to do: `response_code` is DLedger's number for it, `retriable` tells that the same
call may succeed later, `definite` that surely nothing was done (an unknown outcome is never definite).
"""

from typing import ClassVar

from dledger.rpc.response_code import ResponseCode


class DLedgerError(Exception):
    """Base of all errors of this package."""

    response_code: ClassVar[ResponseCode] = ResponseCode.INTERNAL_ERROR
    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = False


class DLedgerConfigError(DLedgerError):
    """A setting is wrong, or differs from what the group or the store was made with. Names it and what is
    allowed.
    """

    response_code = ResponseCode.UNEXPECTED_ARGUMENT
    definite = True


class LocalProtocolError(DLedgerError):
    """We were about to break the peer protocol ourselves, e.g. with a frame above the limit."""

    definite = True


class RemoteProtocolError(DLedgerError):
    """The peer sent what the protocol does not allow. Its connection is closed; nothing of the frame was
    used.
    """

    response_code = ResponseCode.UNEXPECTED_ARGUMENT
    definite = True


class FaultyEntryError(DLedgerError):
    """Entries on this member's disk are damaged, and are being repaired from a peer. Others have them."""

    response_code = ResponseCode.DISK_ERROR
    retriable = True
    definite = True


class HandshakeRefusedError(DLedgerError):
    """One side will not speak with the other. `reason` is what the other side is told, and both log."""

    response_code = ResponseCode.UNEXPECTED_MEMBER
    definite = True

    def __init__(self, reason: str, *, by_peer: bool = False) -> None:
        super().__init__(f"the peer refuses: {reason}" if by_peer else reason)
        self.reason = reason
        self.by_peer = by_peer
