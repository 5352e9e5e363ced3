"""What a majority holds: watermarks, the commit of a leader, and the appends that wait for it."""

from collections import deque
from collections.abc import Iterable, Mapping

from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.messages import PeerId
from dledger.core.outbox import Outbox
from dledger.core.output import AppendStatus, Batch
from dledger.entry import Index, Term


def quorum_index(watermarks: Iterable[Index]) -> Index:
    """The highest index that a majority of the members reached."""
    ascending = sorted(watermarks)
    return ascending[(len(ascending) - 1) // 2]


class QuorumAckChecker:
    """Of one leader in one term after the other.

    Invariant: committed_index covers only entries that a majority holds durably, and moves by counting only to entries
    of the leader's own term (Raft, 5.4.2): an older entry on a majority may still be overwritten by another leader.
    Until an entry that adds a voter is committed, by a majority without the new one as well: a member without that
    entry does not ask the new one, which may be the only one that is left to tell.
    """

    def __init__(
        self, config: MemberConfig, members: CurrentMembers, state: MemberState, outbox: Outbox
    ) -> None:
        self._config = config
        self._members = members
        self._state = state
        self._outbox = outbox
        self._term = Term(-1)
        self._watermarks: dict[PeerId, Index] = {}
        self._own_term_first_index: Index | None = None
        # Batches beyond the commit, oldest first: (last index, bytes).
        self._uncommitted: deque[tuple[Index, int]] = deque()
        self.uncommitted_size = 0  # bytes that this leader appended and no majority holds yet
        # Those of them that somebody waits for: (last index, closure, until ms), in the same order.
        self._pending_closure: deque[tuple[Index, object, int]] = deque()

    @property
    def peer_watermarks_by_term(self) -> dict[Term, dict[PeerId, Index]]:
        """Acknowledged index of each member in the term that this one leads; empty when it does not lead."""
        return {self._term: dict(self._watermarks)} if self._watermarks else {}

    @property
    def uncommitted_count(self) -> int:
        return len(self._uncommitted)

    @property
    def own_term_committed(self) -> bool:
        first_index = self._own_term_first_index
        return first_index is not None and self._state.committed_index >= first_index

    @property
    def has_own_term_entry(self) -> bool:
        return self._own_term_first_index is not None

    def start(self, watermarks: Mapping[PeerId, Index]) -> None:
        """A new leader, with a watermark for each voter: its own is what is on its disk, not what is in its log."""
        self._term = self._state.curr_term
        self._watermarks = dict(watermarks)
        self._own_term_first_index = None
        self._uncommitted.clear()
        self.uncommitted_size = 0

    def stop(self) -> None:
        """Leading is over: what is pending may yet be committed by another leader, or never."""
        self._watermarks = {}
        self._own_term_first_index = None
        self._uncommitted.clear()
        self.uncommitted_size = 0
        for _, closure, _ in self._pending_closure:
            self._outbox.complete(closure, AppendStatus.UNKNOWN)
        self._pending_closure.clear()

    def append(self, batch: Batch, closure: object | None, now_ms: int) -> None:
        if self._own_term_first_index is None:
            self._own_term_first_index = batch.first_index
        self._uncommitted.append((batch.last_index, batch.size))
        self.uncommitted_size += batch.size
        if closure is not None:
            self._pending_closure.append((batch.last_index, closure, now_ms + self._config.wait_ack_ms_max))

    def voters_changed(self, watermarks: Mapping[PeerId, Index]) -> None:
        """Other voters count from here on; with one fewer, more may be on a majority."""
        self._watermarks = dict(watermarks)
        self._count()

    def update_watermark(self, voter: PeerId, index: Index) -> None:
        """`index` as the voter said it in this term; lower than before only if it lost what it acknowledged."""
        self._watermarks[voter] = index
        if index > self._state.committed_index:
            self._count()

    def _count(self) -> None:
        majority_index = quorum_index(self._watermarks.values())
        while majority_index > self._state.committed_index:
            change_index = self._members.index
            is_changing = change_index > self._state.committed_index
            index = min(majority_index, self._index_of_before()) if is_changing else majority_index
            if index <= self._state.committed_index or not self._may_commit(index):
                return
            self._commit(index)

    def _index_of_before(self) -> Index:
        """The highest one that a majority reached of those who were voters before the last membership entry and still
        are. One that has come back with another disk elects nobody with an old view, and could hold this up for
        ever: its seat is taken only when the change is committed.
        """
        members, watermarks = self._members, self._watermarks
        if members.before is None:
            return min(watermarks.values())  # whoever they are
        voters = members.before.voters
        reached = [watermarks[voter] for voter in voters if voter in watermarks and voter in members.counted]
        return quorum_index(reached) if reached else Index(-1)

    def _may_commit(self, index: Index) -> bool:
        first_index = self._own_term_first_index
        return first_index is not None and index >= first_index

    def _commit(self, index: Index) -> None:
        self._state.commit(index)
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= index:
            self.uncommitted_size -= uncommitted.popleft()[1]
        pending = self._pending_closure
        complete = self._outbox.complete
        while pending and pending[0][0] <= index:
            complete(pending.popleft()[1], AppendStatus.SUCCESS)

    def tick(self, now_ms: int) -> None:
        pending = self._pending_closure
        while pending and pending[0][2] <= now_ms:
            self._outbox.complete(pending.popleft()[1], AppendStatus.UNKNOWN)
