"""What goes wrong in the replicated log, as classes that a caller can act on."""


class DLedgerError(Exception):
    """Base of all errors of this package."""


class DLedgerConfigError(DLedgerError):
    """A setting is wrong, or differs from what the group or the store was made with. Names it and what is
    allowed.
    """


class LocalProtocolError(DLedgerError):
    """We were about to break the peer protocol ourselves, e.g. with a frame above the limit."""


class RemoteProtocolError(DLedgerError):
    """The peer sent what the protocol does not allow. Its connection is closed; nothing of the frame was
    used.
    """


class FaultyEntryError(DLedgerError):
    """Entries on this member's disk are damaged, and are being repaired from a peer. Others have them."""


class HandshakeRefusedError(DLedgerError):
    """One side will not speak with the other. `reason` is what the other side is told, and both log."""

    def __init__(self, reason: str, *, by_peer: bool = False) -> None:
        super().__init__(f"the peer refuses: {reason}" if by_peer else reason)
        self.reason = reason
        self.by_peer = by_peer
