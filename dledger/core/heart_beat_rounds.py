"""What a leader does to stay one: heartbeats in rounds, and the check that a majority still answers them."""

from collections import deque
from collections.abc import Mapping

from dledger.core.member_config import MemberConfig
from dledger.core.member_state import MemberState
from dledger.core.membership import CurrentMembers
from dledger.core.messages import NO_ROUND, HeartBeatRequest, HeartBeatResponse, PeerId
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
        self._round = NO_ROUND
        self._answered: dict[PeerId, int] = {}
        self._heard_ms: dict[PeerId, int] = {}  # when the newest round that a peer answered was sent
        # When each of the newest rounds was sent, oldest first. They are not evenly spaced: reads begin some.
        self._sent_ms: deque[int] = deque()
        self._started_ms = 0
        self._next_ms = 0

    @property
    def newest_round(self) -> int:
        return self._round

    @property
    def due_ms(self) -> int:
        """When tick() begins the next one."""
        return self._next_ms

    @property
    def quorum_round(self) -> int:
        """The newest one that a majority, this leader among it, has answered."""
        return self._of_majority(self._round, self._answered, NO_ROUND)

    def _of_majority(self, own: int, heard: Mapping[PeerId, int], floor: int) -> int:
        """The highest that a majority of the voters has reached: this one `own`, others what was `heard` of them. Where
        another disk sits than the voter's its answers are nobody's.
        """
        members, self_id = self._members, self._state.self_id
        reached = sorted(
            (own if voter == self_id else heard.get(voter, floor)) if voter in members.counted else floor
            for voter in members.voters
        )
        return reached[-members.quorum]

    def start(self, now_ms: int) -> None:
        """A new leader: its votes were answers to round NO_ROUND."""
        self._round = NO_ROUND
        self._answered = {}
        self._heard_ms = {}
        self._sent_ms = deque([now_ms])
        self._started_ms = self._next_ms = now_ms
        self.tick(now_ms, is_stalled=False)

    def tick(self, now_ms: int, is_stalled: bool, asks_for_space: bool = False) -> None:
        """A leader whose disk hangs falls silent, so that others can lead: heartbeats alone keep nobody's data."""
        if now_ms >= self._next_ms and not is_stalled:
            self.begin(now_ms, asks_for_space)

    def begin(self, now_ms: int, asks_for_space: bool) -> None:
        """The next round, due or not."""
        self._next_ms = now_ms + self._config.heart_beat_interval_ms
        self._round += 1
        sent_ms = self._sent_ms
        # A peer that answers an older one has been silent for too long in any case.
        while sent_ms and now_ms - sent_ms[0] > self._config.check_quorum_ms:
            sent_ms.popleft()
        sent_ms.append(now_ms)
        state = self._state
        request = HeartBeatRequest(
            state.curr_term, state.self_id, state.committed_index, self._round, asks_for_space
        )
        for peer in self._members.others:
            self._outbox.send(peer, request)

    def forget(self, peer: PeerId) -> None:
        """Another one has its name now, which has answered nothing."""
        self._answered.pop(peer, None)
        self._heard_ms.pop(peer, None)

    def is_answer(self, response: HeartBeatResponse) -> bool:
        """Whether one of this term is to a heartbeat of it. Peers of earlier releases name a round that has not
        begun yet; that is none.
        """
        return NO_ROUND < response.round <= self._round

    def on_response(self, response: HeartBeatResponse) -> None:
        """For is_answer()."""
        peer, answered = response.member_id, response.round
        if answered <= self._answered.get(peer, NO_ROUND):
            return
        self._answered[peer] = answered
        age = self._round - answered
        if age < len(self._sent_ms):
            self._heard_ms[peer] = self._sent_ms[-1 - age]

    def silent_ms(self, peer: PeerId) -> int:
        """Of one peer, to the length of a heartbeat."""
        return self._sent_ms[-1] - self._heard_ms.get(peer, self._started_ms)

    def is_live(self, peer: PeerId) -> bool:
        """Whether a peer has answered of late."""
        return self.silent_ms(peer) <= self._config.check_quorum_ms

    def quorum_silent_ms(self, now_ms: int) -> int:
        """Since when no majority, this leader among it, has answered."""
        if self._members.quorum == 1 and self._members.is_voter:
            return 0  # a group of one hears itself, however late its ticks come
        return now_ms - self._of_majority(self._sent_ms[-1], self._heard_ms, self._started_ms)
