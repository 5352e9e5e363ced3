"""Look-ups that must not miss what anybody acknowledged before they began: each waits until this member has applied
what the group had committed by then, or is told why nobody can tell (docs/protocol/reads.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from dledger.core.refusal import Refusal
from dledger.entry import Index

if TYPE_CHECKING:
    from store.replicated_log import ReplicatedLog

# None: look now. Else why not, which is definite: ask again.
OnReadIndex = Callable[[str | None], None]

# From the question on. Clients wait for 3 s and more.
WAIT_MS_MAX: Final = 2000
# All that wait for one round are answered in one go, which must not take so long that others elect.
WAITING_MAX: Final = 4096


class ReadIndexWaits:
    """Invariant: each look-up is told once."""

    def __init__(self, replica: ReplicatedLog, applied_index: Callable[[], Index | None]) -> None:
        """`applied_index`: None while this member does not have all that the log says."""
        self._replica = replica
        self._applied_index = applied_index
        self._count = 0  # of those that are not told yet
        self._sequence = 0
        # Those that know how far to wait: (index, sequence, until ms, on_done), a heap.
        self._waiting: list[tuple[Index, int, int, OnReadIndex]] = []

    def ask(self, on_done: OnReadIndex, now_ms: int) -> None:
        """Calls `on_done` once, maybe before it returns: with None as soon as what is read here misses nothing that
        anybody acknowledged before this call; else with the reason why that cannot be had.
        """
        if self._count >= WAITING_MAX:
            on_done(
                f"{self._count} look-ups wait for the group's commit, {WAITING_MAX} are allowed: ask again later"
            )
            return
        self._count += 1
        self._replica.read_index(partial(self._told, on_done, now_ms + WAIT_MS_MAX), now_ms)

    def _told(self, on_done: OnReadIndex, until_ms: int, outcome: Index | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._tell(on_done, outcome.text)
            return
        self._sequence += 1
        heapq.heappush(self._waiting, (outcome, self._sequence, until_ms, on_done))
        self.advance()

    def advance(self) -> None:
        """More may be applied."""
        waiting = self._waiting
        if not waiting:
            return
        applied_index = self._applied_index()
        while waiting and applied_index is not None and waiting[0][0] <= applied_index:
            self._tell(heapq.heappop(waiting)[3], None)

    def tick(self, now_ms: int) -> None:
        self.advance()
        late = [item for item in self._waiting if item[2] <= now_ms]
        if not late:
            return
        self._waiting = [item for item in self._waiting if item[2] > now_ms]
        heapq.heapify(self._waiting)
        applied_index = self._applied_index()
        applied = "nothing whole yet" if applied_index is None else applied_index
        for index, _, _, on_done in late:
            self._tell(
                on_done, f"not applied within {WAIT_MS_MAX} ms: wanted is entry {index}, applied is {applied}"
            )

    def stop(self) -> None:
        """Nothing more will be applied."""
        waiting, self._waiting = self._waiting, []
        for _, _, _, on_done in waiting:
            self._tell(on_done, "this member has stopped")

    def _tell(self, on_done: OnReadIndex, refusal: str | None) -> None:
        self._count -= 1
        on_done(refusal)
