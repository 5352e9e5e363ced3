"""The parts of a member of a replicated log, put together, and what they say of it to whoever asks."""

from collections.abc import Mapping
from random import Random

from dledger.core.candidacy import Candidacy
from dledger.core.disk_fitness import DiskFitness
from dledger.core.durable_index import DurableIndex
from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.core.entry_handler import EntryHandler
from dledger.core.heart_beat_rounds import HeartBeatRounds
from dledger.core.leader_elector import LeaderElector
from dledger.core.leadership_transfer import LeadershipTransfer
from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers, FormedMembership, Membership, Seat
from dledger.core.membership_changes import MembershipChanges
from dledger.core.messages import PeerId
from dledger.core.outbox import Outbox
from dledger.core.output import HardState, LogView, Role
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.core.read_index import ReadIndex
from dledger.entry import Index, Term

_NOTHING_COMMITTED = Index(-1)


class MemberParts:
    """Nothing here changes once it is made: Member does that."""

    def __init__(
        self,
        config: MemberConfig,
        log: LogView,
        hard_state: HardState,
        random: Random,
        now_ms: int,
        *,
        durable_index: Index,
        committed_index: Index = _NOTHING_COMMITTED,
        can_vote: bool = True,
        members: CurrentMembers | None = None,
    ) -> None:
        """`durable_index`: of the log as it was opened; the caller syncs the rest and calls synced().

        `can_vote` False: its group is not formed yet, and nobody is to be given a vote. Without `members` they are
        those of `config`, for good.
        """
        self._config = config
        self._log = log
        # Only what is committed is ever deleted.
        committed_index = max(committed_index, Index(log.ledger_begin_index - 1))
        self._state = state = MemberState(config.self_id, hard_state, committed_index, can_vote)
        self._outbox = outbox = Outbox(state)
        self._durable = DurableIndex(log, durable_index, now_ms)
        if members is None:
            formed = Membership({peer: Seat() for peer in config.peers})
            members = CurrentMembers(config.self_id, b"", FormedMembership(formed))
        self._members = members
        self._elector = LeaderElector(config, members, state, log, outbox, random, now_ms)
        self._rounds = HeartBeatRounds(config, members, state, outbox)
        self._handler = EntryHandler(state, log, self._durable, outbox)
        self._fitness = DiskFitness(config, members, self._durable, self._handler)
        self._checker = QuorumAckChecker(config, members, state, outbox)
        self._dispatchers = {
            peer: EntryDispatcher(config, state, log, outbox, peer) for peer in members.others
        }
        self._transfer = LeadershipTransfer(
            config,
            members,
            state,
            log,
            outbox,
            self._checker,
            self._rounds,
            self._fitness,
            self._dispatchers,
        )
        self._candidacy = Candidacy(
            config,
            members,
            state,
            log,
            self._durable,
            self._elector,
            self._handler,
            self._fitness,
            self._transfer,
        )
        self._reads = ReadIndex(
            config, members, state, outbox, self._rounds, self._fitness, self._transfer, random
        )
        self.changes = MembershipChanges(
            config,
            members,
            state,
            log,
            outbox,
            self._checker,
            self._transfer,
            self._rounds,
            self._durable,
            self._dispatchers,
        )
        self._leading_term: Term | None = None
        self._handled_term = state.curr_term
        if log.ledger_end_term > state.curr_term:
            # The crash came between writing entries of a term and saving the term; no vote in it can have left.
            state.take_term(log.ledger_end_term, None, "term of the last entry")

    # --- what a member is

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def curr_term(self) -> Term:
        return self._state.curr_term

    @property
    def curr_vote_for(self) -> PeerId | None:
        return self._state.curr_vote_for

    @property
    def leader_id(self) -> PeerId | None:
        return self._state.leader_id

    @property
    def committed_index(self) -> Index:
        return self._state.committed_index

    @property
    def durable_index(self) -> Index:
        return self._durable.value

    @property
    def doubted(self) -> bool:
        return self._state.doubted

    @property
    def can_vote(self) -> bool:
        return self._state.can_vote

    @property
    def membership(self) -> Membership:
        return self._members.value

    @property
    def membership_index(self) -> Index:
        """Of the entry that says who the members are; -1 for those of the formation."""
        return self._members.index

    @property
    def is_membership_committed(self) -> bool:
        """As far as this member knows."""
        return self._members.are_committed(self._state.committed_index)

    @property
    def leaving_voters(self) -> Mapping[PeerId, Seat]:
        """Whose vote the last membership entry took, as long as it may not be committed: they are still spoken with."""
        members = self._members
        if members.index <= self._state.committed_index or members.before is None:
            return {}
        return {peer: seat for peer, seat in members.before.voters.items() if peer not in members.voters}

    @property
    def has_seat(self) -> bool:
        """Whether this member is a voter by an entry that it knows to be committed."""
        return self._members.is_voter and self._members.index <= self._state.committed_index

    @property
    def stopped(self) -> bool:
        return self._state.stopped

    @property
    def leader_ready(self) -> bool:
        """Leading, with an entry of the own term committed: all that was ever committed is known to be so."""
        return self._state.leads and self._checker.own_term_committed

    @property
    def transfer_target(self) -> PeerId | None:
        """To whom this leader is handing over; None again when that has ended, one way or the other."""
        return self._transfer.target

    @property
    def peer_watermarks_by_term(self) -> dict[Term, dict[PeerId, Index]]:
        return self._checker.peer_watermarks_by_term

    @property
    def watermarks(self) -> Mapping[PeerId, Index]:
        """Of the voters, as acknowledged to this leader; empty at a follower."""
        return self.peer_watermarks_by_term.get(self.curr_term, {})

    @property
    def uncommitted_size(self) -> int:
        """Bytes that this member appended as a leader and no majority holds yet."""
        return self._checker.uncommitted_size

    @property
    def elections(self) -> Mapping[str, int]:
        """How often this member has asked for votes since it started, and how that ended; pre-votes are not counted."""
        elector = self._elector
        return {
            "begun": elector.elections_begun,
            "won": elector.elections_won,
            "lost": elector.elections_lost,
        }

    @property
    def disk_obstacle(self) -> str | None:
        """Why the own disk is not fit to lead with; None when it is."""
        return self._fitness.obstacle

    @property
    def election_obstacle(self) -> str | None:
        """What a running campaign still lacks, or why there is none, for status pages."""
        return self._candidacy.obstacle
