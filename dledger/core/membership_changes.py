"""The leader's side of changes of the members: which may be made now, and those that no operator has to ask for.

One voter comes or goes at a time, and the next change waits until the last one and an entry of the leader's own term
are committed: then any majority of the old voters and any of the new ones meet, whoever else led in between (the
flaw of single-server changes without the second condition: Ongaro to raft-dev, July 2015).

A disk is replaced in three changes of that kind: the voter that came back with another disk becomes a learner, the
learner is brought up, and becomes a voter again. A new member begins with the second one. Each that moved a voter is
followed by an entry that says the same once more: whoever holds that knows, from its log alone, that the change is
committed.
"""

from dledger.core.durable_index import DurableIndex
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.heart_beat_rounds import HeartBeatRounds
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers, Membership, Seat
from dledger.core.messages import PeerId
from dledger.core.outbox import Outbox
from dledger.core.output import LogView
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import Index


class MembershipChanges:
    """Of one leader in one term after the other."""

    def __init__(
        self,
        config: MemberConfig,
        members: CurrentMembers,
        state: MemberState,
        log: LogView,
        outbox: Outbox,
        checker: QuorumAckChecker,
        transfer: LeadershipTransfer,
        heart_beats: HeartBeatRounds,
        durable: DurableIndex,
        dispatchers: dict[PeerId, EntryDispatcher],
    ) -> None:
        self._config = config
        self._members = members
        self._state = state
        self._log = log
        self._outbox = outbox
        self._checker = checker
        self._transfer = transfer
        self._heart_beats = heart_beats
        self._durable = durable
        self._dispatchers = dispatchers
        # Of learners: what they are to hold, and since when (ms). One that takes longer than an election timeout for
        # what was there when it began would hold up the commits as a voter; it goes on to what is there by then.
        self._rounds: dict[PeerId, tuple[Index, int]] = {}

    def start(self) -> None:
        """A new leader, which knows nothing of how far the learners are."""
        self._rounds.clear()

    def follow(self, now_ms: int) -> None:
        """Entries have been appended or cut since: they may have been such that say who the members are."""
        members = self._members
        if not members.refresh():
            return
        dispatchers, leads = self._dispatchers, self._state.leads
        for peer in [peer for peer in dispatchers if peer not in members.others]:
            del dispatchers[peer]
        for peer in members.others:
            if peer not in dispatchers:
                dispatcher = EntryDispatcher(self._config, self._state, self._log, self._outbox, peer)
                dispatchers[peer] = dispatcher
                if leads:
                    dispatcher.start(now_ms)
        if leads:
            self._checker.voters_changed(self.watermarks())

    def show_peer(self, peer: PeerId, disk: bytes, wire_version: int, now_ms: int) -> bool:
        """Returns whether its disk is another one than before."""
        self._members.show_wire_version(peer, wire_version)
        is_another = self._members.show_disk(peer, disk)
        if is_another and self._state.leads and peer in self._dispatchers:
            # What the old one acknowledged says nothing of this one.
            self._rounds.pop(peer, None)
            self._dispatchers[peer].start(now_ms)
            self._checker.voters_changed(self.watermarks())
        return is_another

    def watermarks(self) -> dict[PeerId, Index]:
        """Of each voter, as it acknowledged in this term."""
        return {voter: self._watermark(voter) for voter in self._members.voters}

    def _watermark(self, voter: PeerId) -> Index:
        if voter not in self._members.counted:
            return Index(-1)
        return self._durable.value if voter == self._members.self_id else self._dispatchers[voter].match_index

    def refusal(self) -> Refusal | None:
        """Why the members may not be changed now."""
        if (refusal := self._transfer.leader_refusal()) is not None:
            return refusal
        state, members = self._state, self._members
        if members.index > state.committed_index:
            # The change itself is committed by the time it is said once more, and told as such.
            if members.are_committed(state.committed_index):
                what = "says once more who the members are, and is on no majority yet"
            else:
                what = "changes the members and is not committed yet"
            return Refusal(
                RefusalReason.CHANGE_IN_PROGRESS,
                f"entry {members.index} {what} (committed: {state.committed_index}); changes are made one at a time",
            )
        return None

    def _outdated_refusal(self, after: Membership) -> Refusal | None:
        """Members that do not see the change would elect and count as before. One that is not there any more is not
        counted, whatever it takes itself for.
        """
        outdated = [peer for peer in after.members if self._members.is_outdated(peer)]
        if not outdated:
            return None
        return Refusal(
            RefusalReason.MEMBER_OUTDATED,
            f"{', '.join(outdated)} spoke wire version 1 when last connected, which knows no changes of the members: "
            "upgrade it first, or remove it",
        )

    def add(self, peer: PeerId, address: str) -> Membership | Refusal:
        """A learner, to become a voter by itself."""
        members = self._members
        if (refusal := self.refusal()) is not None:
            return refusal
        if peer in members.value.members:
            role = "voter" if peer in members.voters else "learner"
            return Refusal(RefusalReason.MEMBERS_UNCHANGED, f"{peer} is a {role} of the group already")
        after = members.value.with_learner(peer, Seat(members.disk_of(peer) or b"", address))
        return self._outdated_refusal(after) or after

    def remove(self, peer: PeerId) -> Membership | Refusal:
        members = self._members
        if (refusal := self.refusal()) is not None:
            return refusal
        if peer not in members.value.members:
            names = ", ".join(members.value.members)
            return Refusal(RefusalReason.MEMBERS_UNCHANGED, f"{peer} is no member; the members are {names}")
        if members.voters == (peer,):
            return Refusal(
                RefusalReason.MEMBERS_UNCHANGED,
                f"{peer} is the last voter, without which nobody can lead: add another member first",
            )
        after = members.value.without(peer)
        return self._outdated_refusal(after) or self._majority_refusal(peer, after) or after

    def _majority_refusal(self, peer: PeerId, after: Membership) -> Refusal | None:
        """The change itself is committed by those who are left, and counts before it is: without a majority of them
        that answers and is level there would be no way back. A voter that does not answer takes nothing with it.
        """
        self_id = self._members.self_id
        if peer not in self._members.voters or (peer != self_id and not self._heart_beats.is_live(peer)):
            return None
        away = {voter: why for voter in after.voters if (why := self._why_away(voter))}
        behind = {
            voter: why for voter in after.voters if voter not in away and (why := self._why_behind(voter))
        }
        live = len(after.voters) - len(away)
        ready = live - len(behind)
        if ready >= after.quorum:
            return None
        reasons = ", ".join(f"{voter} {why}" for voter, why in (away | behind).items())
        text = (
            f"without {peer} {ready} of {len(after.voters)} voters would be live and level, {after.quorum} are needed: "
            f"{reasons}"
        )
        if live >= after.quorum:
            return Refusal(RefusalReason.NOT_CAUGHT_UP, f"{text}; {', '.join(behind)} must catch up first")
        return Refusal(
            RefusalReason.NO_LIVE_MAJORITY,
            f"{text}; bring up or remove {', '.join(away)} first",
        )

    def _why_away(self, voter: PeerId) -> str | None:
        """Time alone does not mend it: another disk that stays a voter's is one whose change cannot be made either."""
        if voter == self._members.self_id:
            return None
        if voter not in self._members.counted:
            return "has come back with another disk"
        if not self._heart_beats.is_live(voter):
            return f"has not answered for {self._heart_beats.silent_ms(voter)} ms"
        return None

    def _why_behind(self, voter: PeerId) -> str | None:
        """Of one that is live, and comes to level by itself."""
        if voter == self._members.self_id:
            return None
        dispatcher = self._dispatchers[voter]
        if not dispatcher.has_sent_all:
            return f"holds entries up to {dispatcher.match_index} of {self._log.ledger_end_index}"
        return None

    def due(self, now_ms: int) -> Membership | None:
        """The next change that needs no operator, if one may be made."""
        if self.refusal() is not None:
            return None
        members = self._members
        value = members.value
        if self._outdated_refusal(value) is not None:
            return None
        for peer, seat in sorted(value.voters.items()):
            disk = members.disk_of(peer)
            if peer != members.self_id and disk is not None and disk != seat.disk:
                return value.with_learner(peer, Seat(disk, seat.address))
        for peer in sorted(value.learners):
            disk = members.disk_of(peer)
            # What one that is gone held makes it no voter that could hold up the group with those that are left.
            is_there = disk is not None and self._heart_beats.is_live(peer)
            if disk is not None and is_there and self._has_caught_up(peer, now_ms):
                return value.with_voter(peer, disk)
        return value if self._is_unsettled() else None

    def _is_unsettled(self) -> bool:
        """The last change moved a voter and is committed, which a member that starts does not know: as far as it is
        concerned that takes the old voters as well. It is said once more, and nobody asks for them any more.
        """
        before = self._members.before
        return before is not None and before.voters.keys() != self._members.value.voters.keys()

    def _has_caught_up(self, peer: PeerId, now_ms: int) -> bool:
        match_index, end_index = self._dispatchers[peer].match_index, self._log.ledger_end_index
        goal_index, began_ms = self._rounds.setdefault(peer, (end_index, now_ms))
        if match_index < goal_index:
            return False
        if now_ms - began_ms <= self._config.election_timeout_ms_min:
            return True
        self._rounds[peer] = (end_index, now_ms)
        return False
