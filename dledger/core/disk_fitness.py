"""Whether a member's disk is fit to lead with: its own, and those of its peers as they say it themselves.

Decides whether a leader should give way, and to whom; leadership_transfer.py knows how. What is found out about the
disk is the caller's.
"""

from collections.abc import Iterable

from dledger.core.durable_index import DurableIndex
from dledger.core.entry_handler import EntryHandler
from dledger.core.member_config import MemberConfig
from dledger.core.membership import CurrentMembers
from dledger.core.messages import HeartBeatResponse, PeerId

# How long a successful probe stands for the space on a disk. A successor is found within two heartbeats.
_PROOF_MS = 3000


class DiskFitness:
    """A leader whose disk takes nothing goes only where that helps: if a majority has just proved that theirs do. Else
    nothing could be committed, so it stays. It refuses writes, but readers and votes need no space, and terms would
    rise for nothing. Proof is a write: a disk is full without a word until then.
    """

    __slots__ = (
        "_config",
        "_durable",
        "_handler",
        "_heard",
        "_is_asked",
        "_is_probing",
        "_members",
        "_proven_ms",
        "_unasked_round",
        "is_stalled",
        "low_space",
        "obstacle",
    )

    def __init__(
        self, config: MemberConfig, members: CurrentMembers, durable: DurableIndex, handler: EntryHandler
    ) -> None:
        self.is_stalled = False  # the own disk finishes no sync
        self.obstacle: str | None = None  # why the own disk is not fit, as look() found it
        self.low_space: str | None = (
            None  # why the caller takes no more writes, although there is some space left
        )
        self._config = config
        self._members = members
        self._durable = durable
        self._handler = handler
        self._is_asked = False
        self._is_probing = False
        self._proven_ms: int | None = None  # when a probe has found space
        self._heard: dict[PeerId, tuple[bool, int]] = {}  # whether fit, and when that was said, in ms
        self._unasked_round = 0  # answers to heartbeats up to this one prove nothing

    def look(self, now_ms: int, heart_beat_round: int) -> None:
        """`heart_beat_round`: the newest one sent."""
        wanted_space = self.wants_space
        stalled_ms = self._durable.waiting_ms(now_ms)
        limit_ms = self._config.stalled_sync_ms
        self.is_stalled = stalled_ms >= limit_ms
        if self.is_stalled:
            self.obstacle = f"the own disk hangs: no sync completed for {stalled_ms} ms, limit {limit_ms} ms"
        elif self._handler.has_no_space:
            self.obstacle = "no space on the own disk"
        else:
            self.obstacle = self.low_space
        if self.wants_space and not wanted_space:
            self._unasked_round = heart_beat_round
            self._heard.clear()

    @property
    def wants_space(self) -> bool:
        """Whether a leader is to ask its peers for some."""
        return self.obstacle is not None and not self.is_stalled

    def is_fit(self, now_ms: int, *, with_proof: bool) -> bool:
        return self.obstacle is None and (not with_proof or self._is_proven(now_ms))

    def is_proof_due(self, now_ms: int, *, is_asked: bool) -> bool:
        """Whether to probe now, since the leader asks; then probed() is awaited. Of each heartbeat: disks of one size
        fill at one time, so what was found before it began to ask proves nothing.
        """
        if is_asked and not self._is_asked:
            self._proven_ms = None
        self._is_asked = is_asked
        if not is_asked or self.obstacle is not None or self._is_probing or self._is_proven(now_ms):
            return False
        self._is_probing = True
        return True

    def probed(self, now_ms: int, *, found_space: bool) -> None:
        self._is_probing = False
        self._proven_ms = now_ms if found_space else None

    def _is_proven(self, now_ms: int) -> bool:
        return self._proven_ms is not None and now_ms - self._proven_ms < _PROOF_MS

    def start_leading(self, heart_beat_round: int) -> None:
        """What was said to others, or in another term, is no answer to this leader."""
        self._unasked_round = heart_beat_round
        self._heard.clear()

    def hear(self, response: HeartBeatResponse, now_ms: int) -> None:
        if self.wants_space and response.round <= self._unasked_round:
            return
        self._heard[response.member_id] = response.is_disk_fit, now_ms

    def forget(self, peer: PeerId) -> None:
        """It has another disk than the one that it spoke of."""
        self._heard.pop(peer, None)

    def is_said_fit(self, peer: PeerId) -> bool:
        """By that peer's last heartbeat answer; one that has said nothing yet may be."""
        return self._heard.get(peer, (True, 0))[0]

    def successor(self, peers: Iterable[PeerId], now_ms: int) -> PeerId | None:
        """The first of `peers` that is fit, if a majority is without this member, as they have said of late."""
        fit = {
            peer
            for peer, (is_fit, heard_ms) in self._heard.items()
            if is_fit
            and peer in self._members.counted
            and now_ms - heard_ms < self._config.election_timeout_ms_min
        }
        if len(fit) < self._members.quorum:
            return None
        return next((peer for peer in peers if peer in fit), None)
