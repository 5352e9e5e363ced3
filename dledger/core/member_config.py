"""Settings of the pure core of one member. Who reads them from a file is above."""

import msgspec

from dledger.core.messages import PeerId
from dledger.errors import DLedgerConfigError


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes. Raises DLedgerConfigError for what cannot be."""

    self_id: PeerId
    peers: tuple[PeerId, ...]  # this one among them: the voters, until the log says who they are

    heart_beat_interval_ms: int = 150
    # Silence of the leader that makes a follower ask for pre-votes, drawn anew for each leader. The lower bound is
    # also how long a member that heard a leader refuses to vote against it.
    election_timeout_ms_min: int = 1000
    election_timeout_ms_max: int = 1600
    # A closed connection to the leader is evidence at once; the jitter keeps two followers from asking together.
    closed_connection_jitter_ms_max: int = 40
    # A lost round costs nothing but two messages, so the next one follows soon.
    repeat_round_ms_min: int = 30
    repeat_round_ms_max: int = 90
    pre_vote_round_ms: int = 300
    # Unanswered requests of a round are said again: a link may have come up behind our back.
    vote_resend_ms: int = 150
    # A leader that a majority has not answered for so long steps down: not later than others may elect.
    check_quorum_ms: int = 1000
    # A read that must not be stale waits so long for a majority to confirm its leader, which has lost it by then.
    read_index_ms_max: int = 1000
    # A leader that hands over takes no appends; after so long it has them again.
    transfer_timeout_ms: int = 1000
    # Who is to lead if it can, the best first. A leader that is not hands over when one of them is level.
    preferred_leader_ids: tuple[PeerId, ...] = ()
    # After a transfer that failed, doubled each time: each costs the clients `transfer_timeout_ms`.
    preferred_leader_retry_ms_min: int = 10_000
    preferred_leader_retry_ms_max: int = 300_000
    # No sync completed for so long while work waits: the disk hangs, and a leader that cannot count itself goes.
    stalled_sync_ms: int = 5000

    # A member with damaged entries, or one that its log takes out, leaves it to the others to lead, until nobody has
    # led for so long: a repair needs no leader and takes seconds, and what this member cannot give to others, or will
    # not be, is no reason to have no leader at all.
    last_resort_patience_ms: int = 10_000

    push_size_max: int = 1 << 20  # entries in one APPEND
    push_window_size: int = 8 << 20  # entries on their way to one follower, not acknowledged
    # No progress for so long: compare again. DLedger's maxPushTimeOutMs.
    resend_ms: int = 1000
    pending_size_max: int = 64 << 20  # appended and not committed; beyond it appends are refused
    pending_count_max: int = 10_000  # batches, DLedger's maxPendingRequestsNum
    wait_ack_ms_max: int = 2500  # DLedger's maxWaitAckTimeMs: then a pending append ends as unknown

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            raise DLedgerConfigError(f"self id {self.self_id!r} is not among the peers {self.peers}")
        if len(set(self.peers)) != len(self.peers):
            raise DLedgerConfigError(f"a peer is named twice in {self.peers}")
        if strangers := [peer for peer in self.preferred_leader_ids if peer not in self.peers]:
            raise DLedgerConfigError(
                f"preferred leader {strangers[0]!r} (preferredLeaderId) is not among the peers {self.peers}"
            )
        if (
            not 2 * self.heart_beat_interval_ms
            <= self.election_timeout_ms_min
            <= self.election_timeout_ms_max
        ):
            raise DLedgerConfigError(
                f"election timeout {self.election_timeout_ms_min}..{self.election_timeout_ms_max} ms with a heart "
                f"beat each {self.heart_beat_interval_ms} ms; allowed is at least two beats"
            )
        if not 0 < self.push_size_max <= self.push_window_size:
            raise DLedgerConfigError(
                f"pushes of {self.push_size_max} bytes, window {self.push_window_size}; allowed is 1 to the window"
            )
