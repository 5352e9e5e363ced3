"""What a member is: role, term, vote, known leader, commit, and how much of that is on disk.

The one place that changes any of these. It decides nothing; the rules are in leader_elector.py (votes, terms),
entry_handler.py and quorum_ack_checker.py (commit).
"""

from collections.abc import Mapping
from types import MappingProxyType

from dledger.core.messages import PeerId
from dledger.core.output import HardState, Role
from dledger.entry import Index, Term

# All role changes there are, each with its cause; docs/protocol/election.md is drawn from this table.
ROLE_TRANSITIONS: Mapping[Role, Mapping[Role, str]] = MappingProxyType(
    {
        Role.FOLLOWER: MappingProxyType(
            {Role.CANDIDATE: "no leader, asks for pre-votes, then for votes; or its leader hands over"}
        ),
        Role.CANDIDATE: MappingProxyType(
            {
                Role.LEADER: "a majority voted for it",
                Role.FOLLOWER: "a leader or a higher term was heard, or the vote given to another",
            }
        ),
        Role.LEADER: MappingProxyType(
            {
                Role.FOLLOWER: "a higher term was heard, the quorum was lost, what only it has is damaged, or "
                "the member stops"
            }
        ),
    }
)


class MemberState:
    """Invariants: curr_term and committed_index never decrease; one vote per term; a HardState has a higher sequence
    than any before it, and at most one is being written."""

    __slots__ = (
        "_sequence",
        "_writing",
        "can_vote",
        "committed_index",
        "curr_term",
        "curr_vote_for",
        "doubt_sequence",
        "doubted",
        "leader_id",
        "leads",
        "let_go_behind",
        "push_sequences",
        "reason",
        "role",
        "saved_sequence",
        "self_id",
        "stopped",
        "term_sequence",
        "vote_sequence",
    )

    def __init__(
        self, self_id: PeerId, hard_state: HardState, committed_index: Index, can_vote: bool
    ) -> None:
        self.self_id = self_id
        self.role = Role.FOLLOWER
        self.leads = False  # its role is that of the leader
        self.leader_id: PeerId | None = None
        self.curr_term = hard_state.curr_term
        self.curr_vote_for = hard_state.curr_vote_for
        self.doubted = hard_state.doubted
        self.committed_index = committed_index
        self.can_vote = can_vote
        self.stopped = False
        # Of a leader that let go of what only it had and cannot give: entries behind this one count no longer in votes,
        # as if they had been cut, until one of them is acknowledged to a leader or this member leads again.
        self.let_go_behind: tuple[Term, Index] | None = None
        # Of the newest push to each peer in this term, also to one that is no member at the moment and may come back.
        self.push_sequences: dict[PeerId, int] = {}
        self.reason = "started"  # of the last change of role, term or leader
        self.saved_sequence = hard_state.sequence
        # What a message presumes is on disk once saved_sequence has reached these.
        self.term_sequence = hard_state.sequence
        self.vote_sequence = hard_state.sequence
        self.doubt_sequence = hard_state.sequence
        self._sequence = hard_state.sequence
        self._writing = False

    def take_term(self, term: Term, vote_for: PeerId | None, reason: str) -> None:
        """A higher term. A member that was leader or candidate of the old one is a follower without a leader."""
        assert term > self.curr_term, "terms only rise"
        self.curr_term = term
        self.curr_vote_for = vote_for
        self.push_sequences.clear()
        self._sequence += 1
        self.term_sequence = self.vote_sequence = self._sequence
        if self.role is not Role.FOLLOWER and vote_for != self.self_id:
            self._change_role(Role.FOLLOWER)
        self.leader_id = None
        self.reason = reason

    def vote(self, candidate_id: PeerId) -> None:
        assert self.curr_vote_for is None, "a vote is given once in a term"
        self.curr_vote_for = candidate_id
        self._sequence += 1
        self.vote_sequence = self._sequence

    def become_follower(self, leader_id: PeerId | None, reason: str) -> None:
        if self.role is not Role.FOLLOWER:
            self._change_role(Role.FOLLOWER)
        self.leader_id = leader_id
        self.reason = reason

    def become_candidate(self, reason: str) -> None:
        if self.role is not Role.CANDIDATE:
            self._change_role(Role.CANDIDATE)
        self.leader_id = None
        self.reason = reason

    def become_leader(self, reason: str) -> None:
        self._change_role(Role.LEADER)
        self.leader_id = self.self_id
        self.let_go_behind = None
        self.reason = reason

    def let_go_of_uncommitted(self) -> None:
        """By a leader that has committed an entry of its own term: all behind its commit it appended itself, and nobody
        but itself could have committed that. Not durable: after a restart all counts again, which is as safe.
        """
        assert self.leads, "others do not know what is committed"
        self.let_go_behind = self.curr_term, self.committed_index

    def acknowledged(self, index: Index) -> None:
        """To a leader, which may count it."""
        if self.let_go_behind is not None and index > self.let_go_behind[1]:
            self.let_go_behind = None

    def begin_doubt(self) -> None:
        """It is about to lose what it may have acknowledged."""
        self.doubted = True
        self._sequence += 1
        self.doubt_sequence = self._sequence

    def end_doubt(self) -> None:
        self.doubted = False
        self._sequence += 1

    def commit(self, index: Index) -> None:
        assert index > self.committed_index, "a commit is never taken back"
        self.committed_index = index

    def next_hard_state(self) -> HardState | None:
        """The newest state if it is not on disk and none is being written; states between are never written."""
        if self._writing or self._sequence == self.saved_sequence:
            return None
        self._writing = True
        return HardState(self._sequence, self.curr_term, self.curr_vote_for, self.doubted)

    def hard_state_saved(self, sequence: int) -> None:
        assert sequence <= self._sequence, "only what was handed out can have been saved"
        self._writing = False
        self.saved_sequence = max(self.saved_sequence, sequence)

    def _change_role(self, role: Role) -> None:
        assert role in ROLE_TRANSITIONS[self.role], f"{self.role.name} never becomes {role.name}"
        self.role = role
        self.leads = role is Role.LEADER
