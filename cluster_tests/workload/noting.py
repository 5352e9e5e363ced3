"""What clients of a fault run write down, and when: each process has one of these, over its own history file."""

import threading
import time
from typing import Any

from faults.history import HistoryWriter, Record


class Notes:
    """Times are taken here, so that within a file they never fall. Several threads may note."""

    def __init__(self, writer: HistoryWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()

    def note(self, kind: type[Record], **fields: Any) -> int:
        """Returns the time of the record, ns."""
        with self._lock:
            at_ns = time.monotonic_ns()
            self._writer.note(kind(at_ns=at_ns, **fields))
        return at_ns
