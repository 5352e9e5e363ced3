"""Leader election of one member: pre-votes, votes, and when to ask for them, without sockets, disk or clock.

Decides when this member campaigns, what it answers to a candidate, and when its own round is won or lost. What a
leader does to stay one is in heart_beat_rounds.py; what makes a term durable before it is spoken of, in outbox.py.

A campaign has two rounds (Ongaro's thesis, 9.6): the pre-vote asks who would vote, with nothing changed anywhere, so
a member that cannot win disturbs nobody; the vote takes a new term. A member that hears a live leader refuses both,
in whatever term they are asked: else one member that hears less than the others could depose a leader that works.
"""

from random import Random

import msgspec

from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.messages import PeerId, VoteRequest, VoteResponse, VoteResult
from dledger.core.outbox import Outbox
from dledger.core.output import LogView, Role
from dledger.core.tally import RoundOutcome, tally
from dledger.entry import Index, Term


class Campaign(msgspec.Struct):
    pre_vote: bool
    leadership_transfer: bool
    term: Term  # asked for
    until_ms: int
    resend_ms: int
    answers: dict[PeerId, VoteResponse] = {}
    seatless: set[PeerId] = set()  # who answered from another disk than their seat's


class LeaderElector:
    """Invariant: a vote is counted only for the very round that asked for it."""

    def __init__(
        self,
        config: MemberConfig,
        members: CurrentMembers,
        state: MemberState,
        log: LogView,
        outbox: Outbox,
        random: Random,
        now_ms: int,
    ) -> None:
        self._config = config
        self._members = members
        self._state = state
        self._log = log
        self._outbox = outbox
        self._random = random
        self.elections_begun = 0  # pre-votes are not counted
        self.elections_won = 0
        self._campaign: Campaign | None = None
        self._lost: Campaign | None = None  # the newest round that ended without a winner, for status
        # Not waited for in a round that is lost without them.
        self._unreachable: frozenset[PeerId] = frozenset()
        # Evidence against the known leader: its connection to this member closed and it was not heard since.
        self._leader_closed = False
        self._contact_ms = now_ms
        self._timeout_ms = self._draw_timeout()
        # Nobody can be deposed by a pre-vote, so a member that starts need not wait to hear whether there is a leader.
        self._campaign_at_ms = now_ms + self._draw_jitter()
        self._ticked_ms = now_ms

    @property
    def elections_lost(self) -> int:
        is_open = self._campaign is not None and not self._campaign.pre_vote
        return self.elections_begun - self.elections_won - is_open

    # --- evidence about the leader

    def hear_leader(self, leader_id: PeerId, now_ms: int) -> None:
        """Anything said by the leader of the current term."""
        state = self._state
        self._contact_ms = now_ms
        self._campaign_at_ms = now_ms + self._timeout_ms
        self._leader_closed = False
        if state.leader_id != leader_id or state.role is not Role.FOLLOWER:
            self._campaign = None
            self._timeout_ms = self._draw_timeout()
            state.become_follower(leader_id, f"heard the leader {leader_id}")

    def has_live_leader(self, now_ms: int) -> bool:
        state = self._state
        if state.leads:
            return True
        return (
            state.leader_id is not None
            and not self._leader_closed
            and now_ms - self._contact_ms < self._config.election_timeout_ms_min
        )

    def peer_connected(self, peer: PeerId, now_ms: int) -> None:
        self._unreachable -= {peer}
        campaign = self._campaign
        if campaign is not None and peer not in campaign.answers and peer in self._asked():
            self._request_vote(peer, campaign)

    def peer_disconnected(self, peer: PeerId, now_ms: int) -> None:
        state = self._state
        self._unreachable |= {peer}
        # Without a leader, the candidate that has our vote: it will not lead any more.
        if state.role is Role.FOLLOWER and peer == (state.leader_id or state.curr_vote_for):
            self._leader_closed = True
            self._campaign_at_ms = min(self._campaign_at_ms, now_ms + self._draw_jitter())
        if self._campaign is not None:
            self._decide(now_ms)

    def leaderless_ms(self, now_ms: int) -> int:
        """How long this member has heard no leader, and was none."""
        return now_ms - self._contact_ms

    # --- the own campaign

    @property
    def due_ms(self) -> int:
        """When tick() is to come at the latest: for a campaign, and before its absence looks like a standstill."""
        campaign = self._campaign
        next_ms = self._campaign_at_ms if campaign is None else min(campaign.until_ms, campaign.resend_ms)
        watch_ms = self._ticked_ms + self._config.heart_beat_interval_ms * 3 // 2
        # What has been due for a while waits for something else than time.
        return min(next_ms, watch_ms) if next_ms > self._ticked_ms else watch_ms

    def tick(self, now_ms: int, may_campaign: bool) -> None:
        """`may_campaign`: this member can vote, and its log and disk are in a state to lead on."""
        state = self._state
        if now_ms - self._ticked_ms > 2 * self._config.heart_beat_interval_ms:
            # This process stood still, not the leader: what it said meanwhile is read before it is called silent.
            self._campaign_at_ms = max(self._campaign_at_ms, now_ms + self._draw_repeat())
        self._ticked_ms = now_ms
        if state.leads:
            return
        campaign = self._campaign
        if campaign is not None:
            if now_ms >= campaign.until_ms:
                self._lose_round(now_ms)
            elif now_ms >= campaign.resend_ms:
                campaign.resend_ms = now_ms + self._config.vote_resend_ms
                self._request_votes(campaign)
        elif may_campaign and now_ms >= self._campaign_at_ms:
            self.ask_pre_vote(now_ms)

    def ask_pre_vote(self, now_ms: int) -> None:
        state = self._state
        silent = (
            "its connection closed" if self._leader_closed else f"silent for {now_ms - self._contact_ms} ms"
        )
        state.become_candidate(
            f"leader {state.leader_id}: {silent}" if state.leader_id else "no leader known"
        )
        campaign = self._start_round(
            pre_vote=True,
            term=Term(state.curr_term + 1),
            until_ms=now_ms + self._config.pre_vote_round_ms,
            now_ms=now_ms,
        )
        self._count(campaign, self._own_grant(campaign))
        self._decide(now_ms)

    def take_over(self, now_ms: int) -> None:
        """The leader hands over to this member: it takes no appends and waits, so no pre-vote asks for one."""
        reason = f"{self._state.leader_id} hands over"
        self._state.become_candidate(reason)
        self._ask_vote(now_ms, reason, leadership_transfer=True)

    def _ask_vote(self, now_ms: int, reason: str, *, leadership_transfer: bool = False) -> None:
        state = self._state
        term = Term(state.curr_term + 1)
        state.take_term(term, state.self_id, reason)
        self.elections_begun += 1
        # The own grant counts when it is on disk: hard_state_saved().
        self._start_round(
            pre_vote=False,
            leadership_transfer=leadership_transfer,
            term=term,
            until_ms=now_ms + self._draw_timeout(),
            now_ms=now_ms,
        )

    def hard_state_saved(self, now_ms: int) -> None:
        campaign, state = self._campaign, self._state
        if (
            campaign is not None
            and not campaign.pre_vote
            and state.self_id not in campaign.answers
            and state.saved_sequence >= state.vote_sequence
        ):
            self._count(campaign, self._own_grant(campaign))
            self._decide(now_ms)

    def on_vote_response(self, response: VoteResponse, now_ms: int) -> None:
        # Whatever it answers: it can be asked. The connection that closed may have been the one by which it asks us.
        self._unreachable -= {response.voter_id}
        campaign, voter_id = self._campaign, response.voter_id
        if campaign is None or self._is_stale(response, campaign) or voter_id not in self._asked():
            return
        self._count(campaign, response)
        self._decide(now_ms)

    def _count(self, campaign: Campaign, response: VoteResponse) -> None:
        campaign.answers[response.voter_id] = response
        if response.voter_id in self._members.counted:
            campaign.seatless.discard(response.voter_id)
        else:
            campaign.seatless.add(response.voter_id)

    @staticmethod
    def _is_stale(response: VoteResponse, campaign: Campaign) -> bool:
        # A late answer to an earlier round must not count for this one; a pre-vote never counts as a vote.
        return response.request_term != campaign.term or response.pre_vote != campaign.pre_vote

    def _decide(self, now_ms: int) -> None:
        campaign = self._campaign
        assert campaign is not None, "a round is decided while it runs"
        outcome = tally(
            campaign.answers,
            self._members.voters,
            self._unreachable,
            (self._log.ledger_end_term, self._log.ledger_end_index),
            witnesses=self._witnesses(),
            seatless=campaign.seatless,
        )
        match outcome:
            case RoundOutcome.WON:
                self._campaign = None
                if campaign.pre_vote:
                    self._ask_vote(now_ms, f"won the pre-vote of term {campaign.term}")
                else:
                    self.elections_won += 1
                    self._state.become_leader(f"won the vote of term {campaign.term}")
            case RoundOutcome.LOST:
                self._lose_round(now_ms)
            case RoundOutcome.OPEN:
                pass

    def _asked(self) -> tuple[PeerId, ...]:
        """The voters, and those whose vote the last membership entry took, as long as it may not be committed."""
        return self._witnesses() or self._members.voters

    def _witnesses(self) -> tuple[PeerId, ...] | None:
        """Who together know all that was ever committed; None where damage hides who they are. An entry that takes a
        vote counts before it is committed: as long as it may not be, a majority of the old voters may have gone on
        without it.
        """
        members = self._members
        if members.index <= self._state.committed_index:
            return members.voters
        return tuple(sorted({*members.voters, *members.before.voters})) if members.before else None

    def _lose_round(self, now_ms: int) -> None:
        self._lost, self._campaign = self._campaign, None
        # One that the others may have taken out long ago asks them seldom.
        pause_ms = self._draw_repeat() if self._members.is_voter else self._draw_timeout()
        self._campaign_at_ms = now_ms + pause_ms

    def _start_round(
        self, *, pre_vote: bool, term: Term, until_ms: int, now_ms: int, leadership_transfer: bool = False
    ) -> Campaign:
        resend_ms = now_ms + self._config.vote_resend_ms
        campaign = Campaign(pre_vote, leadership_transfer, term, until_ms, resend_ms)
        self._campaign = campaign
        self._request_votes(campaign)
        return campaign

    def _request_votes(self, campaign: Campaign) -> None:
        for peer in self._asked():
            if peer not in campaign.answers and peer != self._state.self_id:
                self._request_vote(peer, campaign)

    def _request_vote(self, peer: PeerId, campaign: Campaign) -> None:
        log = self._log
        request = VoteRequest(
            campaign.term,
            self._state.self_id,
            log.ledger_end_term,
            log.ledger_end_index,
            campaign.pre_vote,
            campaign.leadership_transfer,
        )
        if campaign.pre_vote:
            self._outbox.send(peer, request)
        else:
            self._outbox.send_vote(peer, request)

    def _own_grant(self, campaign: Campaign) -> VoteResponse:
        return self._answer(campaign.term, campaign.pre_vote, VoteResult.ACCEPT)

    # --- votes for others

    def on_vote_request(self, request: VoteRequest, now_ms: int, may_vote: bool) -> None:
        """`may_vote`: this member's votes can be read after a restart, and what its log says is durable (rule 5)."""
        result = self._refusal_of_any_term(request, now_ms, may_vote)
        if result is None:
            if request.term > self._state.curr_term and not request.pre_vote:
                self.take_term(
                    request.term,
                    f"{request.candidate_id} asks for votes{', handed over to' if request.leadership_transfer else ''}",
                    now_ms,
                )
            result = self._judge(request)
        response = self._answer(request.term, request.pre_vote, result)
        if result is VoteResult.ACCEPT and not request.pre_vote:
            if self._state.curr_vote_for != request.candidate_id:
                self._state.vote(request.candidate_id)
                self._follow(now_ms, f"voted for {request.candidate_id}", self._draw_timeout())
            self._outbox.send_vote(request.candidate_id, response)
        else:
            if result is VoteResult.ACCEPT:
                # It was first: give it the time of a round, or both win their pre-votes and share the votes.
                self._campaign_at_ms = max(self._campaign_at_ms, now_ms + self._draw_repeat())
            self._outbox.send(request.candidate_id, response)

    def _refusal_of_any_term(self, request: VoteRequest, now_ms: int, may_vote: bool) -> VoteResult | None:
        """Refusals that leave the own term as it is, however high the asked one."""
        state = self._state
        if not self._may_be_voter(request):
            return VoteResult.REJECT_UNKNOWN_LEADER
        if not may_vote:
            return VoteResult.REJECT_CANNOT_VOTE
        if request.term < state.curr_term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        # A leader that asks for votes has stopped leading, and one that hands over is about to.
        if (
            request.candidate_id != state.leader_id
            and not request.leadership_transfer
            and self.has_live_leader(now_ms)
        ):
            return VoteResult.REJECT_ALREADY_HAS_LEADER
        return None

    def _may_be_voter(self, request: VoteRequest) -> bool:
        """One that is no voter here may be one by an entry that its log holds beyond ours, and may be needed to lead:
        its entry may already count with those who have it.
        """
        candidate_id, log = request.candidate_id, self._log
        if candidate_id in self._members.voters:
            return candidate_id != self._state.self_id
        return (request.ledger_end_term, request.ledger_end_index) > (
            log.ledger_end_term,
            log.ledger_end_index,
        )

    def _judge(self, request: VoteRequest) -> VoteResult:
        state = self._state
        if request.term == state.curr_term:
            if state.leader_id is not None and state.leader_id != request.candidate_id:
                return VoteResult.REJECT_ALREADY_HAS_LEADER
            if state.curr_vote_for not in (None, request.candidate_id):
                return VoteResult.REJECT_ALREADY_VOTED
        end_term, end_index = self._counted_end()
        if request.ledger_end_term < end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == end_term and request.ledger_end_index < end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        return VoteResult.ACCEPT

    def _answer(self, request_term: Term, pre_vote: bool, result: VoteResult) -> VoteResponse:
        state = self._state
        end_term, end_index = self._counted_end()
        return VoteResponse(
            state.curr_term, request_term, state.self_id, pre_vote, result, end_term, end_index, state.doubted
        )

    def _counted_end(self) -> tuple[Term, Index]:
        """Of this log, as far as it counts in the votes for others."""
        return self._state.let_go_behind or (self._log.ledger_end_term, self._log.ledger_end_index)

    # --- giving up a role

    def take_term(self, term: Term, reason: str, now_ms: int) -> None:
        """A higher term was heard; whatever this member was in the old one is over."""
        # One that was campaigning asks again soon: an answer told it the term, not a leader.
        campaigning = self._state.role is Role.CANDIDATE
        if self._state.leads:
            self._contact_ms = now_ms
        self._state.take_term(term, None, reason)
        self._follow(now_ms, reason, self._draw_repeat() if campaigning else self._draw_timeout())

    def step_down(self, reason: str, now_ms: int) -> None:
        """In the same term, when leading has no ground any more."""
        if self._state.leads:
            self._contact_ms = now_ms
        self._follow(now_ms, reason, self._draw_timeout())

    def _follow(self, now_ms: int, reason: str, campaign_in_ms: int) -> None:
        self._campaign = None
        self._campaign_at_ms = now_ms + campaign_in_ms
        self._state.become_follower(None, reason)

    def obstacle(self) -> str | None:
        """Why this member's campaign is not won yet, for status pages; None when it does not campaign."""
        campaign = self._campaign or self._lost
        if campaign is None or self._state.role is not Role.CANDIDATE:
            return None
        missing = ", ".join(
            f"{peer} (not connected)" if peer in self._unreachable else peer
            for peer in self._asked()
            if peer not in campaign.answers
        )
        answers = ", ".join(
            f"{answer.voter_id} {answer.vote_result.name}{self._reservation(answer, campaign)}"
            for answer in campaign.answers.values()
        )
        kind = "pre-vote" if campaign.pre_vote else "vote"
        return f"{kind} of term {campaign.term}: {answers or 'no answers'}; not answered: {missing or 'none'}"

    @staticmethod
    def _reservation(answer: VoteResponse, campaign: Campaign) -> str:
        if answer.voter_id in campaign.seatless:
            return " (another disk)"
        return " (doubted)" if answer.doubted else ""

    def _draw_timeout(self) -> int:
        return self._random.randint(
            self._config.election_timeout_ms_min, self._config.election_timeout_ms_max
        )

    def _draw_jitter(self) -> int:
        return self._random.randint(0, self._config.closed_connection_jitter_ms_max)

    def _draw_repeat(self) -> int:
        return self._random.randint(self._config.repeat_round_ms_min, self._config.repeat_round_ms_max)
