"""Leadership goes on from a member that cannot use it: a leader takes sends only when it has dispatched what is
committed, and one that builds its ConsumeQueues anew is as far behind as its whole log.

A vote is given by how long the log is, so such a member wins as easily as any. The others may have dispatched all of
it, yet none says how far it is. So each is tried: one that is no better hands on in its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dledger.core.messages import PeerId
from dledger.core.output import Role

if TYPE_CHECKING:
    from store.message_store import MessageStore

# How long it looks how fast it goes; well above what the dispatch lags behind in a healthy member.
UNSERVING_MS_MAX = 1_000
# A member that will serve so soon leads on: the next one may be no better.
REST_MS_MAX = 3_000
# A member that was no better may be so by now, and one that was better may have had to give leadership back.
ASK_AGAIN_MS = 3_000


class _Unserving(msgspec.Struct, frozen=True):
    since_ms: int
    behind: int  # entries, then


class BacklogHandOver:
    """Invariant: it asks each other voter once in `ASK_AGAIN_MS` at most."""

    def __init__(self, store: MessageStore, self_id: PeerId) -> None:
        self._store = store
        self._self_id = self_id
        self._asked_ms: dict[PeerId, int] = {}
        self._unserving: _Unserving | None = None

    def tick(self, now_ms: int) -> None:
        if not self._is_behind():
            self._unserving = None
            return
        store = self._store
        behind = store.reads.reput_behind
        if self._unserving is None:
            self._unserving = _Unserving(now_ms, behind)
        if self._serves_soon(behind, now_ms - self._unserving.since_ms):
            return
        reason = f"it has {behind} entries to dispatch before it serves"
        for voter in self._others():
            asked_ms = self._asked_ms.get(voter)
            if asked_ms is not None and now_ms - asked_ms < ASK_AGAIN_MS:
                continue
            if store.replica.transfer_leadership(voter, reason, now_ms) is None:
                self._asked_ms[voter] = now_ms
                return

    def _is_behind(self) -> bool:
        """Else it serves, or waits for what another leader would have to wait for as well: a quorum, or the state that
        it brings into the log behind Java's entries, which nobody has and not everybody can give.
        """
        store = self._store
        return (
            store.role is Role.LEADER
            and not store.serving
            and store.reads.reput_behind > 0
            and store.reads.is_state_whole
            and store.replica.member.transfer_target is None
        )

    def _serves_soon(self, behind: int, unserving_ms: int) -> bool:
        """By how much it has dispatched since; perhaps, as long as that is too short to tell."""
        assert self._unserving is not None, "that is what it is asked for"
        dispatched = self._unserving.behind - behind
        is_fast = dispatched > 0 and behind * unserving_ms <= REST_MS_MAX * dispatched
        return unserving_ms < UNSERVING_MS_MAX or is_fast

    def _others(self) -> list[PeerId]:
        """In the order of the ids from this one on, and round: each that hands on tries another one first."""
        own = self._self_id
        others = sorted(voter for voter in self._store.replica.member.membership.voters if voter != own)
        return [voter for voter in others if voter > own] + [voter for voter in others if voter < own]
