"""One member of a replicated log: the façade over the parts of the pure core, which member_parts.py puts together.

Messages, time, finished disk work and appends in; one Output out. Nothing here reads a clock, rolls dice that were not
given, or knows sockets, files and threads: given the same calls, two members return the same Outputs. The server and
the simulator drive the same class.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.member_parts import MemberParts
from dledger.core.messages import (
    NO_ROUND,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerId,
    PushRequest,
    PushResponse,
    PushResult,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.core.output import NOTHING, Batch, Output, ReadCompletion, Role
from dledger.core.refusal import HAS_STOPPED, Refusal, RefusalReason
from dledger.core.term_bounds import sender, term_fault
from dledger.entry import Index
from dledger.errors import FaultyEntryError


class Member(MemberParts):
    """The caller carries out each Output before the next call, and makes all calls in one thread; results of work in
    other threads come back by synced(), hard_state_saved() and cut_done().
    """

    # --- messages and time

    def step(self, message: Message, now_ms: int) -> Output:
        state = self._state
        if state.stopped:
            return NOTHING
        if (fault := term_fault(message, state.curr_term)) is not None:
            self._outbox.refuse(sender(message), fault)
            return self._take(now_ms)
        self.changes.follow(now_ms)
        # A pre-vote changes no term; a vote request does if it is not refused for other reasons (leader_elector.py).
        if message.term > state.curr_term and type(message) is not VoteRequest:
            self._elector.take_term(message.term, "heard a higher term", now_ms)
        match message:
            case PushResponse():
                self._on_push_response(message, now_ms)
            case PushRequest():
                self._on_push_request(message, now_ms)
            case HeartBeatRequest():
                self._on_heart_beat(message, now_ms)
            case HeartBeatResponse():
                if message.term == state.curr_term and self._state.leads and self._rounds.is_answer(message):
                    self._rounds.on_response(message)
                    self._fitness.hear(message, now_ms)
                    self._reads.advance(now_ms)
            case VoteRequest():
                self._elector.on_vote_request(message, now_ms, self._candidacy.may_vote())
            case VoteResponse():
                self._elector.on_vote_response(message, now_ms)
            case TimeoutNow():
                self._on_timeout_now(message, now_ms)
            case ReadIndexRequest():
                self._reads.on_request(message, now_ms)
            case ReadIndexResponse():
                self._reads.on_response(message, now_ms)
            case _:
                assert_never(message)
        return self._take(now_ms)

    @property
    def due_ms(self) -> int:
        """When tick() is to come at the latest while the group rests (tick_pace.py)."""
        return self._rounds.due_ms if self._state.leads else self._elector.due_ms

    def tick(self, now_ms: int) -> Output:
        """Every 10 ms while anything moves."""
        state = self._state
        if state.stopped:
            return NOTHING
        self.changes.follow(now_ms)
        self._fitness.look(now_ms, self._rounds.newest_round)
        if self._state.leads:
            silent_ms = self._rounds.quorum_silent_ms(now_ms)
            if silent_ms > self._config.check_quorum_ms:
                reason = f"no majority answered for {silent_ms} ms, limit {self._config.check_quorum_ms} ms"
                cause = f"{self._fitness.obstacle}; " if self._fitness.is_stalled else ""
                self._elector.step_down(cause + reason, now_ms)
            else:
                self._rounds.tick(now_ms, self._fitness.is_stalled, self._fitness.wants_space)
                for dispatcher in self._dispatchers.values():
                    self._drive(dispatcher, dispatcher.tick, now_ms)
                self._checker.tick(now_ms)
                self._transfer.tick(now_ms)
                self._change_members(now_ms)
        self._reads.tick(now_ms)
        self._elector.tick(now_ms, self._candidacy.may_campaign(now_ms))
        return self._take(now_ms)

    def peer_connected(self, peer: PeerId, now_ms: int) -> Output:
        if self._state.stopped:
            return NOTHING
        self._elector.peer_connected(peer, now_ms)
        if self._state.leads and (dispatcher := self._dispatchers.get(peer)) is not None:
            self._drive(dispatcher, dispatcher.peer_connected, now_ms)
        return self._take(now_ms)

    def peer_disconnected(self, peer: PeerId, now_ms: int) -> Output:
        if self._state.stopped:
            return NOTHING
        self._elector.peer_disconnected(peer, now_ms)
        if self._state.leads and peer in self._dispatchers:
            self._dispatchers[peer].peer_disconnected(now_ms)
        return self._take(now_ms)

    def _on_push_response(self, response: PushResponse, now_ms: int) -> None:
        state = self._state
        if response.term != state.curr_term or not state.leads:
            return
        dispatcher = self._dispatchers.get(response.member_id)
        if dispatcher is None:
            return
        match_index = dispatcher.match_index
        try:
            dispatcher.on_response(response, now_ms)
        except FaultyEntryError:
            dispatcher.damage_met(now_ms)
        if dispatcher.match_index != match_index and response.member_id in self._members.counted:
            self._checker.update_watermark(response.member_id, dispatcher.match_index)
        if dispatcher.write_index <= self._log.ledger_end_index:
            self._drive(dispatcher, dispatcher.pump, now_ms)

    @staticmethod
    def _drive(dispatcher: EntryDispatcher, step: Callable[[int], object], now_ms: int) -> None:
        """A step of a dispatcher. Damage in what one peer needs is no matter of the others."""
        try:
            step(now_ms)
        except FaultyEntryError:
            dispatcher.damage_met(now_ms)

    def _on_push_request(self, request: PushRequest, now_ms: int) -> None:
        if request.term < self._state.curr_term:
            self._refuse_expired(request)
        elif self._is_led_by(request.leader_id, now_ms):
            try:  # noqa: SIM105 - suppress() costs as much as a push's checks
                self._handler.on_push(request, now_ms)
            except FaultyEntryError:
                pass  # damage hides what the answer must say: the leader asks again, by then it is repaired

    def _on_timeout_now(self, message: TimeoutNow, now_ms: int) -> None:
        if (
            message.term == self._state.curr_term
            and self._is_led_by(message.leader_id, now_ms)
            and message.ledger_end_index == self._log.ledger_end_index
            and self._candidacy.may_campaign(now_ms)
        ):
            self._elector.take_over(now_ms)

    def _on_heart_beat(self, request: HeartBeatRequest, now_ms: int) -> None:
        state = self._state
        if request.term == state.curr_term:
            if not self._is_led_by(request.leader_id, now_ms):
                return
            self._handler.learn_commit(request.committed_index)
            answered_round = request.round
        else:
            # Of an earlier term, and its leader may lead this one by now: its rounds of then are none of now.
            answered_round = NO_ROUND
        if self._fitness.is_proof_due(now_ms, is_asked=request.asks_for_space):
            self._outbox.want_probe()
        self._outbox.send(
            request.leader_id,
            HeartBeatResponse(
                state.curr_term,
                state.self_id,
                answered_round,
                self._log.ledger_end_index,
                self._fitness.is_fit(now_ms, with_proof=request.asks_for_space),
            ),
        )

    def _is_led_by(self, leader_id: PeerId, now_ms: int) -> bool:
        """Take the sender of a leader's message of the current term as its leader."""
        state = self._state
        if state.leader_id not in (None, leader_id):
            self._outbox.fail(f"{leader_id} and {state.leader_id} both lead term {state.curr_term}")
            if state.leads:
                self._elector.step_down("another leader in its term", now_ms)
            return False
        self._elector.hear_leader(leader_id, now_ms)
        if self._handled_term != state.curr_term:
            self._enter_term()
        return True

    def _refuse_expired(self, request: PushRequest) -> None:
        """Tells a deposed leader of the term that deposed it."""
        log, state = self._log, self._state
        self._outbox.send(
            request.leader_id,
            PushResponse(
                request.push_type,
                state.curr_term,
                state.self_id,
                request.sequence,
                PushResult.EXPIRED_TERM,
                Index(-1),
                log.ledger_begin_index,
                log.ledger_end_index,
            ),
        )

    # --- appending

    def check_append(self, size: int, count: int) -> Refusal | None:
        """Why `count` entries of `size` bytes together, headers included, may not be appended now. A refusal names
        cause, value and limit, and is definite.
        """
        if (refusal := self._transfer.leader_refusal()) is not None:
            return refusal
        state, config, checker = self._state, self._config, self._checker
        if self._handler.has_no_space:
            return Refusal(
                RefusalReason.DISK_FULL, f"no space for {size} bytes on the disk of {state.self_id}"
            )
        # One that is larger than all that may wait is taken when nothing does, or it would be refused for ever.
        if checker.uncommitted_size and checker.uncommitted_size + size > config.pending_size_max:
            return Refusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_size} bytes wait for a majority, {size} more in {count} entries are above the "
                f"limit of {config.pending_size_max}",
            )
        if checker.uncommitted_count >= config.pending_count_max:
            return Refusal(
                RefusalReason.LEADER_PENDING_FULL,
                f"{checker.uncommitted_count} appends wait for a majority, limit {config.pending_count_max}",
            )
        return None

    def append(
        self, batch: Batch, closure: object | None, now_ms: int, durable_index: Index | None = None
    ) -> Output:
        """`batch` is in the log already. `closure` comes back in a Completion; the no-op of a new leader has none.
        `durable_index`: up to where the log counts as durable without a sync.
        """
        state = self._state
        assert state.leads, "check_append() says who may append"
        assert batch.term == state.curr_term, "a leader appends entries of its own term"
        self.changes.follow(now_ms)
        self._durable.appended(now_ms)
        self._checker.append(batch, closure, now_ms)
        # At an older one, what waits for a sync has waited since before.
        if durable_index is not None and durable_index > self._durable.value:
            self._durable.synced(durable_index, now_ms)
            if self._members.is_voter:
                self._checker.update_watermark(state.self_id, durable_index)
        for dispatcher in self._dispatchers.values():
            try:
                dispatcher.pump(now_ms)
            except FaultyEntryError:
                dispatcher.damage_met(now_ms)
        return self._take(now_ms)

    def write_failed_no_space(self, no_space: bool, now_ms: int) -> Output:
        """True: nothing of an append, or of a probe, could be written for want of space. False: a probe found some.

        Until then appends and pushes are refused and this member does not campaign; it votes and reads on, and gives
        way to a peer that has space.
        """
        if self._state.stopped:
            return NOTHING
        self._handler.set_no_space(no_space)
        self._fitness.probed(now_ms, found_space=not no_space)
        if no_space and self._state.leads and not self._checker.has_own_term_entry:
            self._elector.step_down("no space for the no-op of its term", now_ms)
        return self._take(now_ms)

    def set_low_space(self, reason: str | None) -> None:
        """Why the caller takes no more writes, None when it does: from the next tick on this member gives way to a
        peer that takes some.
        """
        self._fitness.low_space = reason

    # --- reads

    def read_index(self, closure: object, now_ms: int) -> Output:
        """Asks how far this member must have applied for a read that begins now, not to miss what anybody acknowledged
        before. `closure` comes back once, in a ReadCompletion of this or a later Output.
        """
        if self._state.stopped:
            return Output(read_completions=(ReadCompletion(closure, HAS_STOPPED),))
        self._reads.ask(closure, now_ms)
        return self._take(now_ms)

    # --- handing leadership over

    def check_transfer(self, target: PeerId | None) -> Refusal | None:
        """Whether leadership can go now to `target`, or to anybody: it lacks a push window at most."""
        return self._transfer.check(target)

    def most_caught_up(self) -> PeerId | None:
        """The member that leadership goes to with the shortest pause; None if there is none now."""
        return self._transfer.most_caught_up()

    def transfer_leadership(self, target: PeerId, reason: str, now_ms: int) -> Output:
        """After check_transfer(). Appends are refused until another leads, or until `transfer_timeout_ms` are over."""
        assert self.check_transfer(target) is None, "check_transfer() says to whom leadership can go"
        self._transfer.begin(target, reason, now_ms)
        return self._take(now_ms)

    def damage_stays(self) -> None:
        """Entries are damaged here that no follower can give: as long as that is so, anybody else is to lead. One that
        follows can begin its log behind them.
        """
        self._transfer.damage_stays = True

    def nobody_has(self, first_index: Index, last_index: Index, now_ms: int) -> Output:
        """These entries are damaged here, and no peer that is connected has them. If the next one to be committed is
        among them, this leader commits nothing any more. Nobody else has appended what lies behind its commit, so it
        was never committed: the leader lets go of that, and of leading, and whoever leads next has it cut here.

        One that has committed nothing of its term does not know that, and lets go of nothing; but it commits nothing
        either, wherever behind its commit they lie. It leaves leading to the others, if they may elect one.
        """
        state, transfer = self._state, self._transfer
        next_index = state.committed_index + 1
        if state.stopped or not self._state.leads or last_index < next_index:
            return NOTHING
        if first_index <= next_index and transfer.can_let_go():
            state.let_go_of_uncommitted()
            self._elector.step_down(f"entry {next_index} is damaged here, and nobody else has it", now_ms)
        elif transfer.gives_way_at(Index(max(first_index, next_index)), now_ms):
            reason = f"nothing behind entry {first_index} can be committed: it is damaged here, and nobody else has it"
            self._elector.step_down(reason, now_ms)
        return self._take(now_ms)

    def leave(self, now_ms: int) -> Output:
        """This member is about to stop: it hands over if it leads, and campaigns no more. It votes and acknowledges."""
        if self._state.stopped:
            return NOTHING
        self._transfer.leave(now_ms)
        return self._take(now_ms)

    # --- members

    def peer_shown(self, peer: PeerId, disk: bytes, wire_version: int, now_ms: int) -> Output:
        """A peer has proved which disk it has, and said what it speaks with us; before peer_connected()."""
        if self._state.stopped:
            return NOTHING
        if self.changes.show_peer(peer, disk, wire_version, now_ms):
            self._rounds.forget(peer)
            self._fitness.forget(peer)
        return self._take(now_ms)

    def _change_members(self, now_ms: int) -> None:
        members = self._members
        if not members.is_voter and members.index <= self._state.committed_index:
            self._elector.step_down(f"entry {members.index} took its vote", now_ms)
        elif not self._handler.has_no_space and (wanted := self.changes.due(now_ms)) is not None:
            self._outbox.want_membership(wanted)

    # --- finished disk work

    def synced(self, end_index: Index, now_ms: int) -> Output:
        """A sync is done, and up to `end_index` the log is durable as it is now: without what was cut meanwhile."""
        state = self._state
        if state.stopped or not self._durable.synced(end_index, now_ms):
            return NOTHING
        if self._state.leads:
            if self._members.is_voter:
                self._checker.update_watermark(state.self_id, self._durable.value)
        elif state.leader_id is not None:
            self._handler.acknowledge(state.leader_id)
        return self._take(now_ms)

    def hard_state_saved(self, sequence: int, now_ms: int) -> Output:
        self._state.hard_state_saved(sequence)
        if self._state.stopped:
            return NOTHING
        self._outbox.release_held()
        self._elector.hard_state_saved(now_ms)
        return self._take(now_ms)

    def cut_done(self, now_ms: int) -> Output:
        if self._state.stopped:
            return NOTHING
        with suppress(FaultyEntryError):
            self._handler.cut_done(now_ms)
        return self._take(now_ms)

    # --- the rest of a life

    def stop(self, now_ms: int) -> Output:
        """Pending appends end as unknown; every later call returns NOTHING."""
        if self._state.stopped:
            return NOTHING
        if self._state.role is not Role.FOLLOWER:
            self._elector.step_down("stopped", now_ms)
        self._state.stopped = True
        return self._take(now_ms)

    def cut_damaged(self, from_index: Index, leader_id: PeerId, now_ms: int) -> Output:
        """See EntryHandler.cut_damaged(). `leader_id`: with whose history the log parts there; if another leads by now,
        nothing happens.
        """
        state = self._state
        if state.stopped or state.role is not Role.FOLLOWER or state.leader_id != leader_id:
            return NOTHING
        self._handler.cut_damaged(from_index)
        return self._take(now_ms)

    # --- after each call

    def _take(self, now_ms: int) -> Output:
        state = self._state
        if self._handled_term != state.curr_term:
            self._enter_term()
        if state.leads:
            if self._leading_term is None:
                self._start_leading(now_ms)
            elif self._transfer.target is not None:
                self._transfer.advance(now_ms)
        elif self._leading_term is not None:
            self._leading_term = None
            self._checker.stop()
            self._transfer.stop()
        if self._reads.asked_under is not None:
            self._reads.review()
        if state.doubted and self._doubt_is_over():
            state.end_doubt()
        return self._outbox.take()

    def _enter_term(self) -> None:
        self._handled_term = self._state.curr_term
        self._handler.start_term()

    def _start_leading(self, now_ms: int) -> None:
        self._leading_term = self._state.curr_term
        self._rounds.start(now_ms)
        self._transfer.start(now_ms)
        self._fitness.start_leading(self._rounds.newest_round)
        for dispatcher in self._dispatchers.values():
            self._drive(dispatcher, dispatcher.start, now_ms)
        self._checker.start(self.changes.watermarks())
        self.changes.start()
        self._outbox.want_no_op()

    def _doubt_is_over(self) -> bool:
        if self._state.leads:
            return self._checker.own_term_committed and self._durable.value >= self._state.committed_index
        try:
            return self._handler.holds_all_acknowledged()
        except FaultyEntryError:
            return False
