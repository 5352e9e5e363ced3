"""The leader's side of replication to one peer: find where its log agrees, then keep it supplied.

    COMPARE   asks whether the peer holds our entry at compare_index; goes back, by the peer's hints, until it does
    TRUNCATE  has the peer cut what conflicts behind that entry, before megabytes are sent that would not fit
    APPEND    pipelines ranges of the log within a byte window; when commits move and nothing carries them, a COMMIT
    INSTALL_BEGIN  has a peer that ends before our first entry, or parts from our log before it, start there

Each state has its way forward without the peer's help: an unanswered question is asked again after resend_ms, and so is
COMPARE when nothing was acknowledged for so long. A closed connection, a refusal or a full disk leads back to COMPARE.
"""

from collections import deque

from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.messages import (
    APPEND,
    EntryRange,
    MembershipBefore,
    PeerId,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
)
from dledger.core.outbox import Outbox
from dledger.core.output import LogView
from dledger.entry import Index, Pos, Term


class EntryDispatcher:
    """Of one peer, in one term of this leader after the other.

    Invariants: in APPEND all entries before write_index were sent or compared since the last COMPARE; match_index is
    what the peer acknowledged in this term.
    """

    __slots__ = (
        "_base_sequence",
        "_compare_index",
        "_config",
        "_in_flight",
        "_in_flight_size",
        "_log",
        "_outbox",
        "_peer_id",
        "_previous_chain",
        "_previous_term",
        "_progress_ms",
        "_resend_at_ms",
        "_state",
        "_told_committed_index",
        "match_index",
        "push_type",
        "write_index",
    )

    def __init__(
        self, config: MemberConfig, state: MemberState, log: LogView, outbox: Outbox, peer_id: PeerId
    ) -> None:
        self._config = config
        self._state = state
        self._log = log
        self._outbox = outbox
        self._peer_id = peer_id
        self._in_flight: deque[tuple[Index, int]] = deque()  # (last index, bytes), oldest first
        self._reset()

    def _reset(self) -> None:
        self.push_type = PushType.COMPARE
        self.match_index = Index(-1)
        self._base_sequence = self._sequence + 1  # nothing is awaited yet
        self._compare_index = Index(-1)
        self.write_index = Index(0)  # the next entry to be sent in APPEND
        self._previous_term = Term(-1)
        self._previous_chain = 0
        self._told_committed_index = Index(-1)
        self._progress_ms = 0
        self._resend_at_ms = 0
        self._in_flight.clear()
        self._in_flight_size = 0

    @property
    def _sequence(self) -> int:
        """Of the newest push. Another dispatcher of this peer goes on from there, or answers to this one's would count
        for it.
        """
        return self._state.push_sequences.get(self._peer_id, 0)

    @property
    def has_sent_all(self) -> bool:
        """Both logs agree, and what the peer has not acknowledged is on its way: a push window at most."""
        return self.push_type is APPEND and self.write_index > self._log.ledger_end_index

    def has_sent(self, index: Index) -> bool:
        """It is on its way, or there: both logs agree up to it, if nothing was lost."""
        return self.push_type is APPEND and self.write_index > index

    def is_held_up_at(self, index: Index) -> bool:
        """The peer has all in front of the entry, and that is not on its way."""
        return 0 <= self.match_index == index - 1 and not self.has_sent(index)

    def start(self, now_ms: int) -> None:
        """A new leader supposes that the peer holds all of its log."""
        self._reset()
        self._compare(self._log.ledger_end_index, now_ms)

    def peer_connected(self, now_ms: int) -> None:
        self._compare(self._log.ledger_end_index, now_ms)

    def peer_disconnected(self, now_ms: int) -> None:
        """What was on its way is lost. COMPARE goes on at its own pace, for nobody may tell that the peer is back."""
        self._compare_later(now_ms)

    def damage_met(self, now_ms: int) -> None:
        """What was to be sent is damaged on this leader's disk: the peer waits until it is repaired."""
        self._compare_later(now_ms)

    # --- asking

    def _compare(self, index: Index, now_ms: int) -> None:
        log = self._log
        index = min(index, log.ledger_end_index)
        index = max(index, Index(log.ledger_begin_index - 1))
        self._ask(PushType.COMPARE, index, now_ms)

    def _compare_later(self, now_ms: int) -> None:
        self._enter(PushType.COMPARE)
        self._compare_index = self._log.ledger_end_index
        self._base_sequence = self._sequence + 1  # nothing is awaited any more
        self._resend_at_ms = now_ms + self._config.resend_ms

    def _truncate(self, index: Index, now_ms: int) -> None:
        self._ask(PushType.TRUNCATE, index, now_ms)

    def _install_begin(self, now_ms: int) -> None:
        self._ask(PushType.INSTALL_BEGIN, Index(self._log.ledger_begin_index - 1), now_ms)

    def _ask(self, push_type: PushType, index: Index, now_ms: int) -> None:
        self._enter(push_type)
        self._compare_index = index
        self._resend_at_ms = now_ms + self._config.resend_ms
        self._send_question(push_type, index)

    def _enter(self, push_type: PushType) -> None:
        self.push_type = push_type
        self._in_flight.clear()
        self._in_flight_size = 0

    def _send_question(self, push_type: PushType, index: Index) -> None:
        log = self._log
        term, chain = log.term_at(index), log.chain_at(index)
        assert term is not None, "a question is about an entry that this leader holds"
        assert chain is not None, "an entry has a chain"
        next_term = next_chain = None
        if push_type is PushType.TRUNCATE:
            next_term, next_chain = log.term_at(Index(index + 1)), log.chain_at(Index(index + 1))
        begin_pos = begin_membership = None
        if push_type is PushType.INSTALL_BEGIN:
            begin_pos, begin_membership = log.ledger_begin_pos, log.membership_before_begin
        self._send(
            push_type,
            index,
            term,
            chain,
            next_term=next_term,
            next_chain=next_chain,
            begin_pos=begin_pos,
            begin_membership=begin_membership,
        )
        self._base_sequence = self._sequence

    def _send(
        self,
        push_type: PushType,
        previous_index: Index,
        previous_term: Term,
        previous_chain: int,
        *,
        entries: EntryRange | None = None,
        next_term: Term | None = None,
        next_chain: int | None = None,
        begin_pos: Pos | None = None,
        begin_membership: MembershipBefore | None = None,
    ) -> None:
        state = self._state
        sequence = state.push_sequences[self._peer_id] = state.push_sequences.get(self._peer_id, 0) + 1
        self._told_committed_index = state.committed_index
        self._outbox.send(
            self._peer_id,
            PushRequest(
                push_type,
                state.curr_term,
                state.self_id,
                previous_index,
                previous_term,
                previous_chain,
                state.committed_index,
                sequence,
                entries,
                None,
                next_term,
                next_chain,
                begin_pos,
                begin_membership,
            ),
        )

    # --- sending entries

    def pump(self, now_ms: int) -> None:
        """Send what is there, as far as the window allows."""
        if self.push_type is not APPEND:
            return
        log, config, in_flight = self._log, self._config, self._in_flight
        end_index = log.ledger_end_index
        # Any range of entries that are not large goes over the window's edge: to look it up costs milliseconds.
        size_max = config.push_window_size + 2 * config.push_size_max
        while self.write_index <= end_index and self._in_flight_size < config.push_window_size:
            entries = log.range_from(self.write_index, config.push_size_max)
            if entries is None:
                # They were deleted here before they were sent.
                self._compare(Index(self.write_index - 1), now_ms)
                return
            if in_flight and self._in_flight_size + entries.size > size_max:
                return  # heartbeats wait behind what is on its way: a large entry goes alone
            if not in_flight:
                self._progress_ms = now_ms
            self._send(
                APPEND,
                Index(self.write_index - 1),
                self._previous_term,
                self._previous_chain,
                entries=entries,
            )
            in_flight.append((entries.last_index, entries.size))
            self._in_flight_size += entries.size
            self.write_index = Index(entries.last_index + 1)
            self._previous_term = entries.last_term
            self._previous_chain = entries.last_chain

    def tick(self, now_ms: int) -> None:
        if self.push_type is APPEND:
            if self.match_index < self.write_index - 1:
                if now_ms - self._progress_ms >= self._config.resend_ms:
                    self._compare(Index(self.write_index - 1), now_ms)
                    return
            else:
                self._progress_ms = now_ms
            if self._told_committed_index < self._state.committed_index:
                self._send(
                    PushType.COMMIT, Index(self.write_index - 1), self._previous_term, self._previous_chain
                )
        elif now_ms >= self._resend_at_ms:
            self._compare(self._compare_index, now_ms)

    # --- answers

    def on_response(self, response: PushResponse, now_ms: int) -> bool:
        """An answer of this term. Whether match_index changed; the caller counts it."""
        if self._is_stale(response):
            return False
        changed = self._hear_acknowledged(response, now_ms)
        match response.push_result:
            case PushResult.SUCCESS:
                if response.push_type is not APPEND and response.sequence == self._base_sequence:
                    self._on_agreed(response, now_ms)
            case PushResult.INCONSISTENT_STATE:
                self._on_inconsistent(response, now_ms)
            case PushResult.EXPIRED_TERM:
                pass  # it has the higher term that made this leader step down before it came here
            case PushResult.DISK_FULL:
                self._compare_later(now_ms)
        return changed

    def _is_stale(self, response: PushResponse) -> bool:
        # An answer to what was asked before the last COMPARE or TRUNCATE must not count for what was asked since.
        return not self._base_sequence <= response.sequence <= self._sequence

    def _hear_acknowledged(self, response: PushResponse, now_ms: int) -> bool:
        match_index = self.match_index
        if response.ledger_end_index < match_index:
            # It lost what it had acknowledged (a wiped disk): it must not be counted for it any longer.
            self.match_index = min(response.durable_index, response.ledger_end_index)
            return True
        durable_index = min(response.durable_index, self._log.ledger_end_index)
        # Also what was acknowledged before it was sent again: it must not fill the window for ever.
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= durable_index:
            self._in_flight_size -= in_flight.popleft()[1]
        if durable_index <= match_index:
            return False
        self.match_index = durable_index
        self._progress_ms = now_ms
        return True

    def _on_agreed(self, response: PushResponse, now_ms: int) -> None:
        """The peer holds our entry at compare_index, and after a TRUNCATE nothing that conflicts behind it."""
        index = self._compare_index
        log = self._log
        if index < log.ledger_begin_index - 1:
            self._compare(index, now_ms)  # deleted here since it was asked about
            return
        if self.push_type is PushType.COMPARE and index < min(
            response.ledger_end_index, log.ledger_end_index
        ):
            self._truncate(index, now_ms)
            return
        term, chain = log.term_at(index), log.chain_at(index)
        assert term is not None, "a leader never cuts its log"
        assert chain is not None, "a leader never cuts its log"
        self._enter(APPEND)
        self.write_index = Index(index + 1)
        self._previous_term, self._previous_chain = term, chain
        self._progress_ms = now_ms
        # What it was told before it answered does not end its doubt: without entries to push, tick() says it again.
        self._told_committed_index = Index(-1)

    def _on_inconsistent(self, response: PushResponse, now_ms: int) -> None:
        index, log = self._compare_index, self._log
        # What the peer has deleted it had committed; so has this leader, or it would not lead.
        peer_index = min(Index(response.ledger_begin_index - 1), log.ledger_end_index)
        if self.push_type is PushType.COMPARE:
            if index < peer_index:
                self._compare(peer_index, now_ms)
            elif index < log.ledger_begin_index:
                self._install_begin(now_ms)
            elif (next_index := self._index_before_conflict(response)) < index:
                self._compare(next_index, now_ms)
            else:
                self._compare_later(now_ms)  # the peer contradicts itself
        elif self.push_type is PushType.INSTALL_BEGIN:
            self._compare_later(now_ms)
        else:
            self._compare(response.ledger_end_index, now_ms)

    def _index_before_conflict(self, response: PushResponse) -> Index:
        """Where the peer may agree, after it did not at compare_index. Its hint: from conflict_index on to there, or to
        its end if that comes first, it holds entries of conflict_term."""
        log, index = self._log, self._compare_index
        conflict_term, conflict_index = response.conflict_term, response.conflict_index
        if conflict_index < 0:
            return min(response.ledger_end_index, Index(index - 1))
        if response.ledger_end_index < index:
            index = response.ledger_end_index  # not compared yet
            if log.term_at(index) == conflict_term:
                return index
        elif log.term_at(index) == conflict_term:
            return Index(conflict_index - 1)  # same term, another chain: the whole run is suspect
        # Our last entry of that term or an earlier one; what lies behind it the peer cannot hold.
        while index >= log.ledger_begin_index:
            term = log.term_at(index)
            if term is None or term <= conflict_term:
                break
            index = Index(log.first_index_of_term_at(index) - 1)
        if index >= conflict_index and log.term_at(index) == conflict_term:
            return index
        return min(index, Index(conflict_index - 1))
