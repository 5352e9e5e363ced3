"""What can be wrong with a ledger on disk. Each text names file and index, and says what to do."""

from dledger.errors import DLedgerError


def what_to_do(directory: str) -> str:
    """The way out for a member that has lost what was durable; `directory` is its `dledger-<id>`."""
    return f"Restore it, or remove {directory} wholly and let the member start anew from its peers"


class LedgerError(DLedgerError):
    """Base of the errors of this room. Errors of the disk itself pass through as disk.DiskError."""


class LedgerDamagedError(LedgerError):
    """What was durable is not readable any more. Nothing is cut: the entries may be committed, and peers have them."""


class LedgerConfigError(LedgerError):
    """The directory was made with other settings than the ones given now."""


class EntryTooLargeError(LedgerError):
    """The entry does not fit into an empty data file. Nothing was appended."""


class PositionMismatchError(LedgerError):
    """Pushed entries do not lie where this ledger ends: the members' data files would differ. Nothing was appended."""
