"""Handing leadership over: to whom, from when on nothing is appended, when the target is told, and when it is given up
(Ongaro's thesis, 3.10).

The leader takes no appends any more, lets those that it took end, and tells its target to campaign at once. A vote in
which the leader had a part is won within a round trip and two syncs, where a dead leader costs an election timeout.
"""

from collections.abc import Mapping

from dledger.core.disk_fitness import DiskFitness
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.heart_beat_rounds import HeartBeatRounds
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.messages import PeerId, TimeoutNow
from dledger.core.outbox import Outbox
from dledger.core.output import LogView, TransferChange
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.refusal import HAS_STOPPED, Refusal, RefusalReason
from dledger.entry import Index


class LeadershipTransfer:
    """Of one leader in one term after the other.

    Invariant: the target is told only while it holds durably all that is in this log, and all of that is committed. So
    it wins if it asks, and no append ends without its outcome because of the transfer.
    """

    def __init__(
        self,
        config: MemberConfig,
        members: CurrentMembers,
        state: MemberState,
        log: LogView,
        outbox: Outbox,
        checker: QuorumAckChecker,
        rounds: HeartBeatRounds,
        fitness: DiskFitness,
        dispatchers: Mapping[PeerId, EntryDispatcher],
    ) -> None:
        self.target: PeerId | None = None
        self.is_leaving = False  # this member is about to stop: anybody may lead but itself
        self.damage_stays = False  # no follower of this leader can repair what is damaged here
        self._config = config
        self._members = members
        self._state = state
        self._log = log
        self._outbox = outbox
        self._checker = checker
        self._rounds = rounds
        self._fitness = fitness
        self._dispatchers = dispatchers
        self._until_ms = 0
        self._tell_at_ms = 0
        self._prefer_at_ms = 0  # when a preferred leader may be thought of again
        self._retry_ms = 0
        self._give_way_at_ms = 0  # not before that a leader held up by damage gives way again
        self._give_way_pause_ms = config.preferred_leader_retry_ms_min
        # Those that did not take over, and until when (ms) others are asked first.
        self._declined: dict[PeerId, int] = {}

    def start(self, now_ms: int) -> None:
        """A new leader. It is not the preferred one for some reason, which may not be over yet."""
        self.damage_stays = False
        self._declined.clear()
        self._prefer_at_ms = now_ms + self._config.election_timeout_ms_max
        self._retry_ms = self._config.preferred_leader_retry_ms_min

    def stop(self) -> None:
        """Leading is over, whoever leads now."""
        self.target = None

    def leader_refusal(self) -> Refusal | None:
        """Why nothing that only a leader can do may be asked of this member now."""
        if (refusal := self.leading_refusal()) is not None:
            return refusal
        if self.target is not None:
            return Refusal(
                RefusalReason.LEADER_TRANSFERRING,
                f"{self._state.self_id} hands leadership over to {self.target}, for "
                f"{self._config.transfer_timeout_ms} ms at most",
            )
        return None

    def leading_refusal(self) -> Refusal | None:
        """Why this member cannot speak as a leader; one that hands over still can."""
        state = self._state
        if state.stopped:
            return HAS_STOPPED
        if not state.leads:
            return Refusal(
                RefusalReason.NOT_LEADER,
                f"{state.self_id} is {state.role.name} in term {state.curr_term}, the leader is {state.leader_id}",
            )
        if not self._checker.own_term_committed:
            return Refusal(
                RefusalReason.LEADER_NOT_READY,
                f"{state.self_id} leads term {state.curr_term}, in which nothing is committed yet: "
                f"committed {state.committed_index}, end {self._log.ledger_end_index}",
            )
        return None

    def check(self, target: PeerId | None) -> Refusal | None:
        """Why this member cannot hand leadership over to `target`, or to anybody, now."""
        if (refusal := self.leader_refusal()) is not None:
            return refusal
        state = self._state
        voters = [peer for peer in self._dispatchers if peer in self._members.counted]
        others = ", ".join(voters) or "nobody"
        if target is None:
            if self.most_caught_up() is not None:
                return None
            return Refusal(
                RefusalReason.NOT_CAUGHT_UP,
                f"nobody can take leadership over from {state.self_id}: of its followers ({others}) none is connected, "
                "fit and caught up",
            )
        if target == state.self_id:
            return Refusal(RefusalReason.NO_SUCH_MEMBER, f"{target} leads already: {others} can take over")
        dispatcher = self._dispatchers.get(target)
        if dispatcher is None or target not in voters:
            return Refusal(
                RefusalReason.NO_SUCH_MEMBER,
                f"{target} cannot take leadership over from {state.self_id}: {others} can",
            )
        if not self._rounds.is_live(target):
            return Refusal(
                RefusalReason.NOT_CAUGHT_UP,
                f"{target} has not answered for {self._rounds.silent_ms(target)} ms, limit "
                f"{self._config.check_quorum_ms} ms",
            )
        if not self._fitness.is_said_fit(target):
            return Refusal(RefusalReason.NOT_FIT, f"the disk of {target} is full or hangs, as it says")
        if not dispatcher.has_sent_all:
            return Refusal(
                RefusalReason.NOT_CAUGHT_UP,
                f"{target} is not caught up: it holds entries up to {dispatcher.match_index} of "
                f"{self._log.ledger_end_index}",
            )
        return None

    def most_caught_up(self) -> PeerId | None:
        """Who of those that can take over lacks the least; the first of them in the order of the members."""
        able = [peer for peer in self._dispatchers if self.check(peer) is None]
        return max(able, key=lambda peer: self._dispatchers[peer].match_index, default=None)

    def _not_asked_yet(self) -> PeerId | None:
        """As most_caught_up(), of those that have not declined, or else of the first that did: it may be able now."""
        able = [peer for peer in self._dispatchers if self.check(peer) is None]
        return min(
            able,
            key=lambda peer: (self._declined.get(peer, 0), -self._dispatchers[peer].match_index),
            default=None,
        )

    def can_let_go(self) -> bool:
        """Whether somebody could lead who has all that is committed, though not all that is in this log; and nobody is
        being sent the entry behind the commit, which is damaged here.
        """
        committed_index = self._state.committed_index
        next_index = Index(committed_index + 1)
        return (
            self._checker.own_term_committed
            and not any(dispatcher.has_sent(next_index) for dispatcher in self._dispatchers.values())
            and any(
                peer in self._members.counted
                and self._rounds.is_live(peer)
                and self._fitness.is_said_fit(peer)
                and dispatcher.match_index >= committed_index
                for peer, dispatcher in self._dispatchers.items()
            )
        )

    def gives_way_at(self, index: Index, now_ms: int) -> bool:
        """Whether to leave leading to the others: nothing of this term can be committed, for an entry is damaged here,
        and those who have all in front of it are a majority without this member. For what only they know they may still
        not be able to elect one of themselves; so this is done seldom.
        """
        able = [
            peer
            for peer, dispatcher in self._dispatchers.items()
            if peer in self._members.counted
            and self._rounds.is_live(peer)
            and self._fitness.is_said_fit(peer)
            and dispatcher.is_held_up_at(index)
        ]
        if (
            self._checker.own_term_committed
            or len(able) < self._members.quorum
            or now_ms < self._give_way_at_ms
        ):
            return False
        self._give_way_at_ms = now_ms + self._give_way_pause_ms
        self._give_way_pause_ms = min(2 * self._give_way_pause_ms, self._config.preferred_leader_retry_ms_max)
        return True

    def begin(self, target: PeerId, reason: str, now_ms: int) -> None:
        """After check(). No append may follow until `target` is None again."""
        self.target = target
        self._until_ms = now_ms + self._config.transfer_timeout_ms
        self._tell_at_ms = now_ms
        self._outbox.change_transfer(TransferChange(target, reason))

    def leave(self, now_ms: int) -> None:
        """From now on this member does not want to lead: it hands over, and tries that again until it stops."""
        self.is_leaving = True
        target = self._not_asked_yet()
        if target is not None:
            self.begin(target, "this member is about to stop", now_ms)

    def tick(self, now_ms: int) -> None:
        if self.target is not None and now_ms >= self._until_ms:
            self._outbox.change_transfer(
                TransferChange(
                    None, f"{self.target} did not lead after {self._config.transfer_timeout_ms} ms"
                )
            )
            self._declined[self.target] = now_ms + self._config.preferred_leader_retry_ms_min
            self.target = None
            self._prefer_at_ms = now_ms + self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, self._config.preferred_leader_retry_ms_max)
        if self.is_leaving:
            self.leave(now_ms)
        elif (obstacle := self._fitness.obstacle) is not None:
            if (successor := self._successor(now_ms)) is not None:
                self.begin(successor, obstacle, now_ms)
        elif now_ms >= self._prefer_at_ms:
            if self.damage_stays and self._log.has_faults:
                better, reason = self._not_asked_yet(), "entries are damaged here that no follower can give"
            else:
                better, reason = self._preferred(), "it is preferred"
            if better is not None:
                self.begin(better, reason, now_ms)

    def _successor(self, now_ms: int) -> PeerId | None:
        """Who can lead in the place of a leader whose disk takes nothing; None where that would help nobody."""
        able = [
            peer
            for peer in self._dispatchers
            if self.check(peer) is None and self._declined.get(peer, now_ms) <= now_ms
        ]
        able.sort(key=lambda peer: self._dispatchers[peer].match_index, reverse=True)
        return self._fitness.successor(able, now_ms)

    def _preferred(self) -> PeerId | None:
        """The best that can take over, if this member is not as good."""
        for peer in self._config.preferred_leader_ids:
            if peer == self._state.self_id:
                return None
            if self.check(peer) is None:
                return peer
        return None

    def advance(self, now_ms: int) -> None:
        """After whatever may have brought the target, or the commit, to the end of the log."""
        target, state = self.target, self._state
        assert target is not None, "only a transfer that is under way goes on"
        assert state.leads, "stop() ends it with the leadership"
        if now_ms >= self._tell_at_ms and self._holds_all(target):
            self._tell_at_ms = now_ms + self._config.vote_resend_ms
            self._outbox.send(target, TimeoutNow(state.curr_term, state.self_id, self._log.ledger_end_index))

    def _holds_all(self, target: PeerId) -> bool:
        """Durably, and a majority as well."""
        end_index = self._log.ledger_end_index
        return self._state.committed_index == end_index and self._dispatchers[target].match_index == end_index
