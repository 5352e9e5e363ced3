"""The follower's side of replication: what is pushed here, what of it is held, and what is acknowledged.

Decides which pushed entries fit behind what the log holds, what conflicts and must be cut, how far the leader's commit
covers this log, and what may be said to be durable. The bytes were verified before they come here; writing, cutting
and syncing them is the caller's.
"""

from dledger.core.durable_index import DurableIndex
from dledger.core.member_state import MemberState
from dledger.core.messages import APPEND, PeerId, PushRequest, PushResponse, PushResult, PushType
from dledger.core.outbox import Outbox
from dledger.core.output import BeginAnew, Cut, LogView, PushedEntries
from dledger.entry import Index, Pos, Term, VerifiedRange, parse_header

_NO_TERM = Term(-1)
_NO_INDEX = Index(-1)
# Their answers tell the leader what this member really holds.
_COMPARING = (PushType.COMPARE, PushType.INSTALL_BEGIN)
_SAYING_COMMIT = (PushType.APPEND, PushType.COMMIT)


class EntryHandler:
    """Of one follower in one term after the other.

    Invariants: entries up to matched_index are those of the leader of the current term, proven by index, term and
    chain; nothing up to it or to committed_index is ever cut; only what is matched and durable is acknowledged.
    """

    def __init__(self, state: MemberState, log: LogView, durable: DurableIndex, outbox: Outbox) -> None:
        self._state = state
        self._log = log
        self._durable = durable
        self._outbox = outbox
        self.is_cutting = False
        self._begins_behind: Index | None = None  # what is being cut is all, to begin behind this entry
        self.has_no_space = False
        self.start_term()

    def start_term(self) -> None:
        """What was matched with the leader of another term says nothing about this one's."""
        self._matched_index = Index(-1)
        self._acked_index = Index(-1)
        self._sequence = 0  # the newest push seen: acknowledgements carry it
        self._leader_committed_index = Index(-1)
        self._waiting: PushRequest | None = None  # the newest push that came during a cut
        # See holds_all_acknowledged().
        self._compared_sequence: int | None = None
        self._awaits_compare = False  # else it would never be compared, and the doubt of a damaged cut stay
        self._committed_after_compare = Index(-1)

    def on_push(self, request: PushRequest, now_ms: int) -> None:
        """A push by the leader of the current term."""
        self._sequence = max(self._sequence, request.sequence)
        self._hear_commit(request)
        if self.is_cutting:
            # Answered when the cut is done; of several, the newest is all the leader waits for.
            self._waiting = request
            return
        if request.push_type is PushType.COMMIT:
            self.learn_commit(self._leader_committed_index)
            return  # no answer: the next heartbeat says it again
        if self._awaits_compare and request.push_type not in _COMPARING:
            self._refuse(request)
            return
        if not self._holds_previous(request):
            if request.begin_pos is not None:
                self._begin_anew(request, request.begin_pos)
            else:
                self._refuse(request)
            return
        self._matched_index = max(self._matched_index, request.previous_index)
        self.learn_commit(self._leader_committed_index)
        if request.push_type is APPEND and request.payload is not None and request.payload.count:
            self._append(request, request.payload, now_ms)
        elif request.push_type is PushType.TRUNCATE and self._next_conflicts(request):
            self._cut(Index(request.previous_index + 1), request)
        else:
            if request.push_type in _COMPARING and self._compared_sequence is None:
                self._compared_sequence = request.sequence
                self._awaits_compare = False
            self._answer(request.push_type, request.sequence, PushResult.SUCCESS)

    def _holds_previous(self, request: PushRequest) -> bool:
        log, index = self._log, request.previous_index
        return log.term_at(index) == request.previous_term and log.chain_at(index) == request.previous_chain

    def _next_conflicts(self, request: PushRequest) -> bool:
        """Whether the entry behind `previous_index` is another than the leader's. Without an entry of the leader's to
        compare with nothing is cut: a late TRUNCATE would take entries that the leader has pushed since."""
        index = request.previous_index + 1
        if request.next_term is None or index > self._log.ledger_end_index:
            return False
        log = self._log
        return (
            log.term_at(Index(index)) != request.next_term or log.chain_at(Index(index)) != request.next_chain
        )

    def _append(self, request: PushRequest, payload: VerifiedRange, now_ms: int) -> None:
        first_index = payload.first_index
        held_last_index = min(self._log.ledger_end_index, payload.last_index)
        if held_last_index >= first_index and not self._holds(payload, held_last_index):
            # One that is held proves all before it, by the chain; so the first that is not is where they part.
            conflict_index = next(
                Index(index)
                for index in range(first_index, held_last_index + 1)
                if not self._holds(payload, Index(index))
            )
            self._cut(conflict_index, request)
        elif held_last_index == payload.last_index:
            self._matched_index = max(self._matched_index, payload.last_index)
            self._answer(APPEND, request.sequence, PushResult.SUCCESS)
        elif payload.first_pos != self._log.ledger_begin_pos and first_index == 0:
            # The first entry of all lies behind what a plain broker stored there, before there was a group.
            self._begin_behind(request, request.previous_index, payload.first_pos)
        elif self.has_no_space:
            self._answer(APPEND, request.sequence, PushResult.DISK_FULL)
        else:
            # Acknowledged by acknowledge(), once it is durable.
            self._outbox.append_pushed(PushedEntries(payload, held_last_index - first_index + 1))
            self._durable.appended(now_ms)
            self._matched_index = payload.last_index

    def _holds(self, payload: VerifiedRange, index: Index) -> bool:
        """Whether the log holds the very entry that was pushed for `index`."""
        log, row = self._log, index - payload.first_index
        if log.term_at(index) != payload.terms[row]:
            return False
        return log.chain_at(index) == parse_header(payload.buffer, payload.offsets[row]).chain_crc

    def _cut(self, from_index: Index, request: PushRequest) -> None:
        if not self._may_cut(from_index):
            self._outbox.fail(
                f"leader {request.leader_id} of term {request.term} pushed another entry {from_index}, but entries up "
                f"to {self._state.committed_index} are committed and up to {self._matched_index} were matched with it"
            )
            return
        self.is_cutting = True
        self._waiting = request
        self._durable.cut(from_index)
        self._outbox.cut(Cut(from_index))

    def cut_damaged(self, from_index: Index) -> None:
        """Entries from there on are damaged, and the leader's history parts from this log's in front of the damage, in
        it, or right behind it. From there on the group has never committed any; of damaged ones in front of that nobody
        can tell here, and the leader has what counts. All are cut, so that the leader can go on behind them, and this
        member is doubted before: it may have acknowledged some.

        To be asked for again until it is done. Nothing happens to what is known to be committed, or is the leader's.
        """
        state = self._state
        if self.is_cutting or not self._may_cut(from_index) or from_index > self._log.ledger_end_index:
            return
        if not state.doubted:
            state.begin_doubt()
        elif state.saved_sequence >= state.doubt_sequence:
            self.is_cutting = True
            # What the leader says before it has compared anew does not cover what this member is about to lose.
            self._compared_sequence = None
            self._committed_after_compare = Index(-1)
            self._awaits_compare = True
            self._durable.cut(from_index)
            self._outbox.cut(Cut(from_index))

    def _may_cut(self, from_index: Index) -> bool:
        return from_index > self._state.committed_index and from_index > self._matched_index

    def _begin_anew(self, request: PushRequest, begin_pos: Pos) -> None:
        """The leader's log begins behind an entry that this one does not hold.

        Nothing that counts is lost by beginning there as well. The leader deletes only what is committed, so all that
        it holds up to there is; what this log has instead is part of that, or was never committed and never will be.
        Hence no doubt, and a commit at once: from here on this member knows, as the end of its log, an entry that
        every later leader must hold too.
        """
        index = request.previous_index
        if index <= self._state.committed_index:
            if self._log.term_at(index) is None:
                self._refuse(request)  # late: this log has gone on, and deleted the entry since
            else:
                self._outbox.fail(
                    f"leader {request.leader_id} of term {request.term} begins behind another entry {index} than the "
                    "one that is committed here"
                )
            return
        self._state.commit(index)
        self._begin_behind(request, index, begin_pos)

    def _begin_behind(self, request: PushRequest, index: Index, begin_pos: Pos) -> None:
        self.is_cutting = True
        self._waiting = request
        self._begins_behind = index
        self._durable.cut(Index(index + 1))
        self._outbox.cut(
            BeginAnew(
                index,
                request.previous_term,
                request.previous_chain,
                begin_pos,
                request.begin_membership,
            )
        )

    def cut_done(self, now_ms: int) -> None:
        self.is_cutting = False
        if self._begins_behind is not None:
            self._durable.begins_behind(self._begins_behind)
            self._begins_behind = None
        request, self._waiting = self._waiting, None
        # A leader that is not known any more asks again: its late request for the vote was granted meanwhile, say.
        if request is not None and request.leader_id == self._state.leader_id:
            self.on_push(request, now_ms)

    def set_no_space(self, has_no_space: bool) -> None:
        """What could not be written was never matched."""
        self.has_no_space = has_no_space
        if has_no_space and self._matched_index > self._log.ledger_end_index:
            self._durable.append_failed()
            self._matched_index = self._log.ledger_end_index
            self._answer(APPEND, self._sequence, PushResult.DISK_FULL)

    # --- commit

    def _hear_commit(self, request: PushRequest) -> None:
        committed_index = request.committed_index
        self._leader_committed_index = max(self._leader_committed_index, committed_index)
        if (
            self._compared_sequence is not None
            and request.sequence > self._compared_sequence
            and request.push_type in _SAYING_COMMIT
        ):
            self._committed_after_compare = max(self._committed_after_compare, committed_index)

    def learn_commit(self, leader_committed_index: Index) -> None:
        """Before the entries of the same push are appended, so that it never runs ahead of what the log holds."""
        self._leader_committed_index = max(self._leader_committed_index, leader_committed_index)
        committed_index = min(self._leader_committed_index, self._matched_index, self._log.ledger_end_index)
        if committed_index > self._state.committed_index:
            self._state.commit(committed_index)

    def holds_all_acknowledged(self) -> bool:
        """Whether a doubted member is as good as if it had lost nothing.

        What it once acknowledged and lost matters as far as a leader counted it. From its first answer in this term on
        the leader of this term knows what it really holds; so all that was ever counted is covered by a commit that
        the leader said after that, if it is of the leader's own term. Durable here up to there is enough.
        """
        index = self._committed_after_compare
        return (
            index >= 0
            and index <= min(self._durable.value, self._matched_index)
            and self._log.term_at(index) == self._state.curr_term
        )

    # --- answers

    def acknowledge(self, leader_id: PeerId | None) -> None:
        """After a sync: the only way in which entries are acknowledged that were not there before."""
        self.learn_commit(self._leader_committed_index)
        ackable_index = self._ackable_index()
        if leader_id is not None and ackable_index > self._acked_index:
            self._answer(APPEND, self._sequence, PushResult.SUCCESS, leader_id=leader_id)

    def _ackable_index(self) -> Index:
        return min(self._durable.value, self._matched_index)

    def _refuse(self, request: PushRequest) -> None:
        """Says what is held instead, so that the leader need not go back entry by entry."""
        log = self._log
        at = min(request.previous_index, log.ledger_end_index)
        term = log.term_at(at)
        if term is None or at < log.ledger_begin_index:
            self._answer(request.push_type, request.sequence, PushResult.INCONSISTENT_STATE)
            return
        self._answer(
            request.push_type,
            request.sequence,
            PushResult.INCONSISTENT_STATE,
            conflict_term=term,
            conflict_index=log.first_index_of_term_at(at),
        )

    def _answer(
        self,
        push_type: PushType,
        sequence: int,
        result: PushResult,
        *,
        leader_id: PeerId | None = None,
        conflict_term: Term = _NO_TERM,
        conflict_index: Index = _NO_INDEX,
    ) -> None:
        state, log = self._state, self._log
        self._acked_index = ackable_index = self._ackable_index()
        state.acknowledged(ackable_index)
        to = leader_id if leader_id is not None else state.leader_id
        assert to is not None, "a push names its leader"
        self._outbox.send(
            to,
            PushResponse(
                push_type,
                state.curr_term,
                state.self_id,
                sequence,
                result,
                ackable_index,
                log.ledger_begin_index,
                log.ledger_end_index,
                conflict_term,
                conflict_index,
            ),
        )
