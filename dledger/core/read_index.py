"""How far a read has to reach that must not be stale (Ongaro's thesis, 6.4).

A leader takes its commit, and then has a majority answer a round of heartbeats that began after the read was asked
for: so nobody led a later term by then, and nothing was acknowledged that this commit does not cover. Of former terms
that is known once an entry of the own term is committed. A member that does not lead asks its leader.

What was asked for is told an index once, or once why there is none. To wait until that much is applied is the
embedder's part.
"""

from collections import deque
from random import Random

import msgspec

from dledger.core.disk_fitness import DiskFitness
from dledger.core.heart_beat_rounds import HeartBeatRounds
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import READ_INDEX_WIRE_VERSION, CurrentMembers
from dledger.core.messages import PeerId, ReadIndexRequest, ReadIndexResponse
from dledger.core.outbox import Outbox
from dledger.core.output import Role
from dledger.core.refusal import HAS_STOPPED, Refusal, RefusalReason
from dledger.entry import Index, Term

_REQUEST_ID_BITS = 62


class _PeerRead(msgspec.Struct, frozen=True):
    """In the place of a closure: a peer that is to be answered."""

    peer: PeerId
    request_id: int


class _LedRead(msgspec.Struct, frozen=True):
    """Of a leader. An answer of a majority to this round, or to a later one, confirms it."""

    asker: object
    read_index: Index
    round: int
    until_ms: int


class _Question(msgspec.Struct):
    """Of a member that does not lead, under way to its leader, for reads that were asked for before it left."""

    request_id: int
    reads: list[tuple[object, int]]  # (closure, until ms), oldest first
    resend_ms: int


class ReadIndex:
    """Invariant: all reads that wait were asked for under the present role, term and leader."""

    def __init__(
        self,
        config: MemberConfig,
        members: CurrentMembers,
        state: MemberState,
        outbox: Outbox,
        rounds: HeartBeatRounds,
        fitness: DiskFitness,
        transfer: LeadershipTransfer,
        random: Random,
    ) -> None:
        self._config = config
        self._members = members
        self._state = state
        self._outbox = outbox
        self._rounds = rounds
        self._fitness = fitness
        self._transfer = transfer
        self._random = random
        self._led: deque[_LedRead] = deque()  # oldest first
        self._question: _Question | None = None
        self._behind_question: list[
            tuple[object, int]
        ] = []  # asked for since it left: its answer is none to them
        self.asked_under: tuple[Role, Term, PeerId | None] | None = None  # None: no read waits, else some may

    # --- asking

    def ask(self, closure: object, now_ms: int) -> None:
        ask = self._ask_as_leader if self._state.leads else self._ask_leader
        refusal = ask(closure, now_ms)
        if refusal is not None:
            self._outbox.complete_read(closure, refusal)

    def on_request(self, request: ReadIndexRequest, now_ms: int) -> None:
        asker = _PeerRead(request.member_id, request.request_id)
        refusal = self._ask_as_leader(asker, now_ms)
        if refusal is not None:
            self._refuse(asker, refusal)

    def _ask_as_leader(self, asker: object, now_ms: int) -> Refusal | None:
        state, members = self._state, self._members
        if (refusal := self._leading_refusal()) is not None:
            return refusal
        if members.quorum == 1 and members.is_voter:
            self._answer(asker, state.committed_index)
            return None
        self._begin_waiting()
        # The newest round may have been answered before this was asked for.
        read = _LedRead(asker, state.committed_index, self._rounds.newest_round + 1, self._until_ms(now_ms))
        self._led.append(read)
        self._begin_round(now_ms)
        return None

    def _leading_refusal(self) -> Refusal | None:
        return self._transfer.leading_refusal()

    def _begin_round(self, now_ms: int) -> None:
        """For all that wait by now, unless some wait for one that is under way: the next one is for the others."""
        led = self._led
        if led and led[0].round > self._rounds.newest_round and not self._fitness.is_stalled:
            self._rounds.begin(now_ms, self._fitness.wants_space)

    def _ask_leader(self, closure: object, now_ms: int) -> Refusal | None:
        leader_id = self._state.leader_id
        if leader_id is None:
            return self._leading_refusal()
        if not self._members.knows_read_index(leader_id):
            return Refusal(
                RefusalReason.MEMBER_OUTDATED,
                f"{leader_id} leads and cannot be asked: when last connected it spoke a wire version below "
                f"{READ_INDEX_WIRE_VERSION}",
            )
        self._begin_waiting()
        read = closure, self._until_ms(now_ms)
        if self._question is None:
            self._send_question([read], now_ms)
        else:
            self._behind_question.append(read)
        return None

    def _send_question(self, reads: list[tuple[object, int]], now_ms: int) -> None:
        request_id = self._random.getrandbits(_REQUEST_ID_BITS)
        self._question = _Question(request_id, reads, now_ms + self._config.heart_beat_interval_ms)
        self._send(request_id)

    def _send(self, request_id: int) -> None:
        state = self._state
        assert state.leader_id is not None, "reads that wait are refused when the leader goes"
        self._outbox.send(state.leader_id, ReadIndexRequest(state.curr_term, state.self_id, request_id))

    # --- answers and time

    def advance(self, now_ms: int) -> None:
        """Of a leader: peers have answered, or other voters count."""
        led = self._led
        if not led:
            return
        quorum_round = self._rounds.quorum_round
        while led and led[0].round <= quorum_round:
            read = led.popleft()
            self._answer(read.asker, read.read_index)
        self._begin_round(now_ms)

    def on_response(self, response: ReadIndexResponse, now_ms: int) -> None:
        question, state = self._question, self._state
        if (
            question is None
            or response.request_id != question.request_id
            or response.member_id != state.leader_id
        ):
            return  # late, or repeated
        for closure, _ in question.reads:
            if response.refusal is None:
                self._answer(closure, response.read_index)
            else:
                text = f"{response.member_id}, asked as the leader of term {state.curr_term}, refuses"
                self._refuse(closure, Refusal(response.refusal, f"{text}: {response.refusal.value}"))
        self._ask_for_the_others(now_ms)

    def _ask_for_the_others(self, now_ms: int) -> None:
        reads, self._behind_question, self._question = self._behind_question, [], None
        if reads:
            self._send_question(reads, now_ms)

    def tick(self, now_ms: int) -> None:
        self.review()
        limit_ms = self._config.read_index_ms_max
        led, question = self._led, self._question
        while led and led[0].until_ms <= now_ms:
            text = f"no majority has answered {self._state.self_id} within {limit_ms} ms"
            self._refuse(led.popleft().asker, Refusal(RefusalReason.NO_ANSWER, text))
        self.advance(now_ms)
        if question is None:
            return
        text = f"{self._state.leader_id}, the leader, has not answered within {limit_ms} ms"
        for reads in (question.reads, self._behind_question):
            while reads and reads[0][1] <= now_ms:
                self._refuse(reads.pop(0)[0], Refusal(RefusalReason.NO_ANSWER, text))
        if not question.reads:
            self._ask_for_the_others(now_ms)
        elif question.resend_ms <= now_ms:
            question.resend_ms = now_ms + self._config.heart_beat_interval_ms
            self._send(question.request_id)

    # --- ends

    def review(self) -> None:
        """After each call, while reads may wait: they do not outlive the leader that they were asked of."""
        if not self._led and self._question is None:
            self.asked_under = None
            return
        state = self._state
        if state.stopped:
            self._refuse_all(HAS_STOPPED)
        elif self.asked_under != (state.role, state.curr_term, state.leader_id):
            text = f"the leader changed meanwhile: in term {state.curr_term} it is {state.leader_id}"
            self._refuse_all(Refusal(RefusalReason.LEADER_CHANGED, text))

    def _refuse_all(self, refusal: Refusal) -> None:
        question = self._question
        askers = [read.asker for read in self._led]
        askers += [closure for closure, _ in (question.reads if question else [])]
        askers += [closure for closure, _ in self._behind_question]
        self._led.clear()
        self._behind_question = []
        self._question = None
        for asker in askers:
            self._refuse(asker, refusal)

    def _refuse(self, asker: object, refusal: Refusal) -> None:
        if isinstance(asker, _PeerRead):
            self._respond(asker, Index(-1), refusal.reason)
        else:
            self._outbox.complete_read(asker, refusal)

    def _answer(self, asker: object, read_index: Index) -> None:
        if isinstance(asker, _PeerRead):
            self._respond(asker, read_index, None)
        else:
            self._outbox.complete_read(asker, read_index)

    def _respond(self, to: _PeerRead, read_index: Index, refusal: RefusalReason | None) -> None:
        state = self._state
        response = ReadIndexResponse(state.curr_term, state.self_id, to.request_id, read_index, refusal)
        self._outbox.send(to.peer, response)

    def _begin_waiting(self) -> None:
        state = self._state
        self.asked_under = state.role, state.curr_term, state.leader_id

    def _until_ms(self, now_ms: int) -> int:
        return now_ms + self._config.read_index_ms_max
