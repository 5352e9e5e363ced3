"""How long a worker waits for what may pass by itself."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Final

from pyspark_dledger.wire.read_errors import ReadTimeoutError

_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0


class NotNowError(Exception):
    """What may pass by itself."""


class Patience:
    """Ends when nothing has come for a time. Each pause is longer than the one before it."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self.refresh()

    def refresh(self) -> None:
        """Something has come."""
        self._deadline = monotonic() + self._timeout_s
        self._pause_s = _PAUSE_S

    def pause(self, what: str, error: Exception) -> None:
        """Returns when it is time to try again. Raises ReadTimeoutError: for so long there was no `what`."""
        if monotonic() + self._pause_s > self._deadline:
            raise ReadTimeoutError(f"{what} for {self._timeout_s:g} s: {error}") from error
        sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)
