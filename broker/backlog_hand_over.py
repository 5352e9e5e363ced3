"""Leadership goes on from a member that cannot use it: who leads takes sends only when it has dispatched what is
committed, and one that builds its ConsumeQueues anew is as far behind as its whole log.

A vote is given by how long the log is, so such a member wins as easily as any. The others may have dispatched all of
it, yet none says how far it is. So each is tried: one that is no better hands on in its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import PeerId
from dledger.core.output import Role

if TYPE_CHECKING:
    from store.message_store import MessageStore

# Well above what the dispatch lags behind in a healthy member, and below what a sender tries for.
UNSERVING_MS_MAX = 1_000
# Whoever was no better may be so by now.
ASK_AGAIN_MS = 10_000


class BacklogHandOver:
    """Invariant: it asks each other voter once in `ASK_AGAIN_MS` at most. Where all are behind, each has some rest."""

    def __init__(self, store: MessageStore, self_id: PeerId) -> None:
        self._store = store
        self._self_id = self_id
        self._asked_ms: dict[PeerId, int] = {}
        self._since_ms: int | None = None  # that it leads and is behind

    def tick(self, now_ms: int) -> None:
        if not self._is_behind():
            self._since_ms = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        unserving_ms = now_ms - self._since_ms
        if unserving_ms < UNSERVING_MS_MAX:
            return
        store = self._store
        reason = f"it has {store.reput_behind} entries to dispatch before it serves"
        for voter in self._others():
            asked_ms = self._asked_ms.get(voter)
            if asked_ms is not None and now_ms - asked_ms < ASK_AGAIN_MS:
                continue
            if store.replica.transfer_leadership(voter, reason, now_ms) is None:
                self._asked_ms[voter] = now_ms
                return

    def _is_behind(self) -> bool:
        """Else it serves, or waits for what another leader would have to wait for as well: a quorum."""
        store = self._store
        return (
            store.role is Role.LEADER
            and not store.serving
            and store.reput_behind > 0
            and store.replica.transfer_target is None
        )

    def _others(self) -> list[PeerId]:
        """In the order of the ids from this one on, and round: each that hands on tries another one first."""
        own = self._self_id
        others = sorted(voter for voter in self._store.replica.membership.voters if voter != own)
        return [voter for voter in others if voter > own] + [voter for voter in others if voter < own]
