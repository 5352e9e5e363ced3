"""How far this member's own log is on disk, and whether its disk still gets anything done.

Follows rule 1 of durability: a cut lowers the durable index. What a sync that began before a cut has proved is the
log's to say, which knows what it captured.
"""

from dledger.core.output import LogView
from dledger.entry import Index


class DurableIndex:
    """Invariant: value <= the log's end."""

    __slots__ = ("_log", "_waiting_since_ms", "value")

    def __init__(self, log: LogView, durable_index: Index, now_ms: int) -> None:
        self._log = log
        self.value = durable_index
        self._waiting_since_ms = now_ms if durable_index < log.ledger_end_index else None

    def appended(self, now_ms: int) -> None:
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms

    def append_failed(self) -> None:
        """What appended() was about is not in the log, so no sync will come of it."""
        if self.value >= self._log.ledger_end_index:
            self._waiting_since_ms = None

    def synced(self, end_index: Index, now_ms: int) -> bool:
        """A sync is done, and up to `end_index` the log is durable as it is now. Whether the durable index rose."""
        self._waiting_since_ms = now_ms if end_index < self._log.ledger_end_index else None
        if end_index <= self.value:
            return False
        self.value = end_index
        return True

    def cut(self, from_index: Index) -> None:
        """A cut that is about to be made."""
        self.value = min(self.value, Index(from_index - 1))
        if self.value == from_index - 1:
            self._waiting_since_ms = None

    def begins_behind(self, index: Index) -> None:
        """The log is empty and begins durably behind the entry at `index`."""
        self.value = index
        self._waiting_since_ms = None

    def waiting_ms(self, now_ms: int) -> int:
        """How long work has waited without a sync that completed; 0 when none waits."""
        return now_ms - self._waiting_since_ms if self._waiting_since_ms is not None else 0
