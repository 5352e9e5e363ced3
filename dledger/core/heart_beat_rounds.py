"""What a leader does to stay one: heartbeats in rounds, and the check that a majority still answers them."""

from collections import deque

from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.messages import HeartBeatRequest, HeartBeatResponse, PeerId
from dledger.core.outbox import Outbox


class HeartBeatRounds:
    """Of one leader in one term after the other.

    Contact with a peer dates from when the round that it answered was sent, not from when the answer came: an answer
    that lay in a buffer for a second says nothing about the second.
    """

    def __init__(
        self, config: MemberConfig, members: CurrentMembers, state: MemberState, outbox: Outbox
    ) -> None:
        self._config = config
        self._members = members
        self._state = state
        self._outbox = outbox
        self._round = 0
        self._answered: dict[PeerId, int] = {}
        self._sent: deque[tuple[int, int]] = deque()  # (round, ms), oldest first
        self._next_ms = 0

    @property
    def newest_round(self) -> int:
        return self._round

    def start(self, now_ms: int) -> None:
        """A new leader: its votes were answers to round 0."""
        self._round = 0
        self._answered = {}
        self._sent = deque([(0, now_ms)])
        self._next_ms = now_ms
        self.tick(now_ms, is_stalled=False)

    def tick(self, now_ms: int, is_stalled: bool, asks_for_space: bool = False) -> None:
        """A leader whose disk hangs falls silent, so that others can lead: heartbeats alone keep nobody's data."""
        if now_ms < self._next_ms or is_stalled:
            return
        self._next_ms = now_ms + self._config.heart_beat_interval_ms
        self._round += 1
        self._sent.append((self._round, now_ms))
        state = self._state
        request = HeartBeatRequest(
            state.curr_term, state.self_id, state.committed_index, self._round, asks_for_space
        )
        for peer in self._members.others:
            self._outbox.send(peer, request)

    def on_response(self, response: HeartBeatResponse) -> None:
        answered, peer = self._answered, response.member_id
        answered[peer] = max(answered.get(peer, 0), min(response.round, self._round))

    def silent_ms(self, peer: PeerId) -> int:
        """Of one peer, to the length of a heartbeat."""
        return (self._round - self._answered.get(peer, 0)) * self._config.heart_beat_interval_ms

    def quorum_silent_ms(self, now_ms: int) -> int:
        """Since when no majority, this leader among it, has answered."""
        members, self_id = self._members, self._state.self_id
        if members.quorum == 1 and members.is_voter:
            return 0  # a group of one hears itself, however late its ticks come
        rounds = sorted(
            self._round
            if voter == self_id
            else self._answered.get(voter, 0)
            if members.counts(voter)
            else 0  # another disk sits there, whose answers are nobody's
            for voter in members.voters
        )
        quorum_round = rounds[-members.quorum]
        sent = self._sent
        while sent[0][0] < quorum_round:
            sent.popleft()
        return now_ms - sent[0][1]
