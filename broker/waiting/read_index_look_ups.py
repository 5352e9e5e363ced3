"""Look-ups whose staleness does harm, behind a read index (pyDLedgerReadIndexEnable; docs/protocol/reads.md).

A leader that is cut off may not know for a second that another one acknowledges. Told an older end of a queue, a
consumer that begins there reads what it was to skip, and one that looks for its offset begins at the wrong place; what
a pull misses in that second comes with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.answers import AnyRequest
from remoting.codes import ResponseCode

if TYPE_CHECKING:
    from store.message_store import MessageStore


class ReadIndexLookUps:
    def __init__(self, store: MessageStore, clock: Callable[[], int], *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._store = store
        self._clock = clock

    def handle(self, request: AnyRequest, handle_now: Callable[[int], None], now_ms: int) -> None:
        """Calls `handle_now(now_ms)` once this member has applied all that was committed when the request came."""
        if not self.is_enabled:
            handle_now(now_ms)
            return

        def on_done(refusal: str | None) -> None:
            if refusal is None:
                handle_now(self._clock())
            else:
                request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, f"nothing was looked up: {refusal}")

        self._store.read_index_waits.ask(on_done, now_ms)
