"""What happens to a member, as its operator sees it: a line in the log for each change, and counts.

It decides nothing and is told of everything by the replica, after the fact: a vote is noted when it leaves, which is
when it is durable.
"""

import logging

from dledger.core.membership import Membership
from dledger.core.messages import PeerId, VoteResponse, VoteResult
from dledger.core.output import BeginAnew, Cut, HardState, RefusedMessage, Role, RoleChange, TransferChange
from dledger.entry import Index, Term
from dledger.figures import Figures

log = logging.getLogger(__name__)


class MemberJournal:
    """Invariant: a line says what has changed, so nothing that repeats itself fills the disk: a campaign without a
    winner asks the same question, and gets the same answers, many times in a second.
    """

    def __init__(self, self_id: PeerId, hard_state: HardState) -> None:
        self._self_id = self_id
        self._role = Role.FOLLOWER
        self._term = hard_state.curr_term
        self._leader_id: PeerId | None = None
        self._doubted = hard_state.doubted
        # What was last said to each candidate, and by each voter.
        self._said: dict[PeerId, tuple[Term, bool, VoteResult]] = {}
        self._heard: dict[PeerId, tuple[Term, bool, VoteResult]] = {}
        self._leader_changes = 0
        self._has_space = True
        self._membership: Membership | None = None
        self._membership_index = Index(-1)
        self._impossible = ""
        self._refused: set[PeerId] = set()  # whose messages were told of
        self._step_downs = 0
        self._entries_cut = 0
        self._transfers_begun = 0
        self._transfers_given_up = 0

    def role_changed(self, change: RoleChange) -> None:
        role, term, leader_id = self._role, self._term, self._leader_id
        self._role, self._term, self._leader_id = change.role, change.term, change.leader_id
        if change.leader_id is not None and (change.term, change.leader_id) != (term, leader_id):
            self._leader_changes += 1
        level = logging.INFO
        if role is Role.LEADER:
            self._step_downs += 1
            level = logging.WARNING
        log.log(
            level,
            "%s role changed from=%s term=%d leader=%s reason=%s",
            *(str(self), role.value, term, change.leader_id, change.reason),
        )

    def transfer_changed(self, change: TransferChange) -> None:
        if change.target is not None:
            self._transfers_begun += 1
            log.info("%s hands over to=%s reason=%s", str(self), change.target, change.reason)
        else:
            self._transfers_given_up += 1
            log.warning("%s leads on, no longer hands over reason=%s", str(self), change.reason)

    def refused(self, message: RefusedMessage) -> None:
        if message.sender not in self._refused:
            self._refused.add(message.sender)
            log.warning(
                "%s message refused reason=%s. If the other members are in that term, see mq store set-term --help",
                str(self),
                message.reason,
            )

    def vote_said(self, candidate_id: PeerId, response: VoteResponse) -> None:
        """This member's answer leaves."""
        if self._is_new(self._said, candidate_id, response):
            self._vote_line(response, "to", candidate_id)

    def vote_heard(self, response: VoteResponse) -> None:
        """What a voter answers this member's campaign."""
        if self._is_new(self._heard, response.voter_id, response):
            self._vote_line(response, "by", response.voter_id)

    @staticmethod
    def _is_new(
        known: dict[PeerId, tuple[Term, bool, VoteResult]], peer: PeerId, response: VoteResponse
    ) -> bool:
        answer = (response.request_term, response.pre_vote, response.vote_result)
        is_new = known.get(peer) != answer
        known[peer] = answer
        return is_new

    def _vote_line(self, response: VoteResponse, preposition: str, peer: PeerId) -> None:
        is_granted = response.vote_result is VoteResult.ACCEPT
        log.info(
            "%s %s %s %s=%s for_term=%d%s voter_term=%d voter_end=%d/%d%s",
            str(self),
            "pre-vote" if response.pre_vote else "vote",
            "granted" if is_granted else "refused",
            *(preposition, peer, response.request_term),
            "" if is_granted else f" reason={response.vote_result.name}",
            *(response.term, response.ledger_end_term, response.ledger_end_index),
            " doubted" if response.doubted else "",
        )

    def hard_state_changed(self, hard_state: HardState) -> None:
        """On its way to the disk, or there already."""
        if self._doubted and not hard_state.doubted:
            log.info("%s doubted no more: it holds all that a majority ever acknowledged", str(self))
        self._doubted = hard_state.doubted

    def members_are(self, membership: Membership, index: Index) -> None:
        """Now, by the membership entry `index`, -1 for those with which the group was formed."""
        before, before_index = self._membership, self._membership_index
        is_formed = bool(membership.voters)
        if not is_formed or (index == before_index and (membership is before or membership == before)):
            return
        self._membership, self._membership_index = membership, index
        peers = sorted({*membership.members, *(before.members if before is not None else ())})
        log.info(
            "%s members voters=%s learners=%s by_entry=%d%s%s",
            *(
                str(self),
                ",".join(sorted(membership.voters)),
                ",".join(sorted(membership.learners)) or "-",
                index,
            ),
            ""
            if before is None
            else f" before={before_index}" + (" (taken back)" if index < before_index else ""),
            "" if before is None else "".join(_change_of(peer, before, membership) for peer in peers),
        )

    def change_impossible(self, reason: str) -> None:
        """A change that the leader itself wants, and wants again and again: it has its line once."""
        if reason != self._impossible:
            self._impossible = reason
            log.error("%s members not changed reason=%s", self, reason)

    def space_changed(self, has_space: bool, cause: object) -> None:
        """On the disk; it is looked for again and again."""
        if has_space and not self._has_space:
            log.info("%s space on the disk again, writes are taken", self)
        elif not has_space and self._has_space:
            log.error("%s no space on the disk, writes are refused cause=%s", self, cause)
        self._has_space = has_space

    def cut_begins(self, cut: Cut | BeginAnew, begin_index: Index, end_index: Index) -> None:
        """Of a follower: what its leader holds is what counts. `begin_index` and `end_index` as they are before it."""
        if isinstance(cut, Cut):
            self._entries_cut += end_index - cut.from_index + 1
            log.warning(
                "%s entries are cut from=%d end=%d leader=%s reason=the leader holds others there",
                *(str(self), cut.from_index, end_index, self._leader_id),
            )
        else:
            log.warning(
                "%s log begins anew behind=%d/%d pos=%d begin=%d end=%d leader=%s reason=the leader's log begins "
                "there, and what is here does not lead up to it",
                *(str(self), cut.before_begin_term, cut.before_begin_index, cut.begin_pos),
                *(begin_index, end_index, self._leader_id),
            )

    def __str__(self) -> str:
        """The prefix of log lines."""
        return f"[{self._self_id}][{self._role.value}][term={self._term}]"

    def figures(self) -> Figures:
        return {
            "leader_changes_total": self._leader_changes,
            "step_downs_total": self._step_downs,
            "entries_cut_total": self._entries_cut,
            "transfers_begun_total": self._transfers_begun,
            "transfers_given_up_total": self._transfers_given_up,
        }


def _change_of(peer: PeerId, before: Membership, after: Membership) -> str:
    """What has become of one member, empty if nothing has."""
    was, now = _seat_name(peer, before), _seat_name(peer, after)
    if was != now:
        return f" {peer}: {was} -> {now}"
    seats = [(members.voters | members.learners)[peer] for members in (before, after)]
    return f" {peer}: {now} with another disk" if seats[0].disk != seats[1].disk else ""


def _seat_name(peer: PeerId, membership: Membership) -> str:
    if peer in membership.voters:
        return "voter"
    return "learner" if peer in membership.learners else "no member"
