"""What members say to each other, as values. The bytes of these are dledger/rpc's business.

Every message names the sender's term. `PushRequest` follows DLedger's push types; the raw entry bytes of an APPEND
are not in the value: outgoing, `entries` names a range of the log that the caller reads and sends as it lies on disk;
incoming, `payload` is a range the caller has already verified (dledger.entry.verify_entries).

They are msgspec structs because some twenty are made for each batch: a frozen dataclass of twelve fields takes 2 us to
make, a struct 0.1 us.
"""

from enum import Enum, IntEnum
from typing import Final

import msgspec

from dledger.core.refusal import RefusalReason
from dledger.entry import Index, Pos, Term, VerifiedRange

PeerId = str  # "n0"

_NO_TERM = Term(-1)
_NO_INDEX = Index(-1)


class VoteResult(Enum):
    """Answers to a vote request. Names are DLedger's where it has one."""

    ACCEPT = "ACCEPT"
    REJECT_EXPIRED_VOTE_TERM = "REJECT_EXPIRED_VOTE_TERM"
    REJECT_ALREADY_VOTED = "REJECT_ALREADY_VOTED"
    REJECT_ALREADY_HAS_LEADER = "REJECT_ALREADY_HAS_LEADER"
    REJECT_EXPIRED_LEDGER_TERM = "REJECT_EXPIRED_LEDGER_TERM"
    REJECT_SMALL_LEDGER_END_INDEX = "REJECT_SMALL_LEDGER_END_INDEX"
    REJECT_UNKNOWN_LEADER = "REJECT_UNKNOWN_LEADER"
    # Not now: what the voter has read back is not synced yet, or it knows of no group. It promises nothing by that.
    REJECT_CANNOT_VOTE = "REJECT_CANNOT_VOTE"


class VoteRequest(msgspec.Struct, frozen=True, gc=False):
    term: Term  # the term to be led; a PreVote asks for it without anybody taking it
    candidate_id: PeerId
    ledger_end_term: Term
    ledger_end_index: Index
    pre_vote: bool
    # The leader itself asked for it: voters that hear the leader do not refuse for that.
    leadership_transfer: bool = False


class VoteResponse(msgspec.Struct, frozen=True, gc=False):
    term: Term  # the voter's own term
    request_term: Term  # of the request answered: late answers to an earlier round are told apart by it
    voter_id: PeerId
    pre_vote: bool
    vote_result: VoteResult
    # Last valid entry of the voter and its doubt (design section 5): a doubted grant alone makes no majority.
    ledger_end_term: Term
    ledger_end_index: Index
    doubted: bool


NO_ROUND = 0  # the first of each term is 1


class HeartBeatRequest(msgspec.Struct, frozen=True, gc=False):
    term: Term
    leader_id: PeerId
    committed_index: Index
    round: int  # grows by one per heartbeat of this leader in this term; check quorum counts answers to it
    asks_for_space: bool = False  # the leader's disk takes no writes: is_disk_fit is to be said with proof


class HeartBeatResponse(msgspec.Struct, frozen=True, gc=False):
    term: Term
    member_id: PeerId
    round: int  # of the request; NO_ROUND for one of an earlier term, which is answered to tell of this one
    ledger_end_index: Index
    is_disk_fit: bool = True  # to lead with: it has space and finishes syncs


class MembershipBefore(msgspec.Struct, frozen=True, gc=False):
    """The membership entry whose members count at a log's begin: the last one before it or, where the log no longer
    says which that was, a later one that is committed.
    """

    index: Index
    body: bytes  # of the entry


class LedgerBegin(msgspec.Struct, frozen=True, gc=False):
    """Where a member's log begins, and of the entry in front what is left: that one was committed before it went."""

    before_index: Index
    before_term: Term
    before_chain: int
    pos: Pos
    membership: MembershipBefore | None = None  # None: the members are those of the formation


class PushType(IntEnum):
    COMPARE = 1
    TRUNCATE = 2
    APPEND = 3
    COMMIT = 4
    # In the place of DLedger's INSTALL_SNAPSHOT: the state is in the log, so none travels apart.
    INSTALL_BEGIN = 5


# Asked for several times with each push: Python 3.11 takes long to look up a member of an Enum by its name.
APPEND: Final = PushType.APPEND


class EntryRange(msgspec.Struct, frozen=True, gc=False):
    """Whole entries that lie one behind the other in one data file."""

    first_index: Index
    last_index: Index
    pos: Pos
    size: int  # bytes
    last_term: Term
    last_chain: int


class PushRequest(msgspec.Struct, frozen=True, gc=False):
    """COMPARE: do you hold `previous_*`? TRUNCATE: cut what conflicts behind `previous_index`.
    APPEND: `entries` / `payload` follow `previous_*`. COMMIT: only `committed_index` matters.
    INSTALL_BEGIN: this log begins, at `begin_pos`, behind `previous_*`; start there unless you hold that entry.
    `begin_membership` goes with it, None as long as the members are those of the formation.

    `next_term` and `next_chain` (TRUNCATE) describe the leader's entry at previous_index + 1, or are None when the
    leader has none: a member cuts only what differs from it, never entries that match.
    """

    push_type: PushType
    term: Term
    leader_id: PeerId
    previous_index: Index
    previous_term: Term
    previous_chain: int
    committed_index: Index
    sequence: int  # per peer and term, in answers again: a late answer is told apart
    entries: EntryRange | None = None
    payload: VerifiedRange | None = None
    next_term: Term | None = None
    next_chain: int | None = None
    begin_pos: Pos | None = None
    begin_membership: MembershipBefore | None = None


class PushResult(Enum):
    SUCCESS = "SUCCESS"
    INCONSISTENT_STATE = "INCONSISTENT_STATE"  # previous_* is not held; see begin/end/conflict hints
    EXPIRED_TERM = "EXPIRED_TERM"
    DISK_FULL = "DISK_FULL"


class PushResponse(msgspec.Struct, frozen=True, gc=False):
    """`durable_index` = min(durable, matched with this leader in this term): the only value that counts as an ack."""

    push_type: PushType
    term: Term
    member_id: PeerId
    sequence: int
    push_result: PushResult
    durable_index: Index  # -1: nothing acknowledged
    ledger_begin_index: Index
    ledger_end_index: Index
    # Fast back-up: the member's term at previous_index (or at its end) and the first index it holds of that term.
    conflict_term: Term = _NO_TERM
    conflict_index: Index = _NO_INDEX


class TimeoutNow(msgspec.Struct, frozen=True, gc=False):
    """The leader hands over: campaign at once, unless your log does not end at `ledger_end_index`. Then this came late:
    the leader has given the transfer up and goes on.
    """

    term: Term
    leader_id: PeerId
    ledger_end_index: Index


class ReadIndexRequest(msgspec.Struct, frozen=True, gc=False):
    """A member that does not lead asks its leader how far a read that begins now has to reach."""

    term: Term
    member_id: PeerId
    request_id: int  # drawn, so that no answer to another life of this member is taken for one to this


class ReadIndexResponse(msgspec.Struct, frozen=True, gc=False):
    term: Term
    member_id: PeerId
    request_id: int
    read_index: Index = _NO_INDEX
    refusal: RefusalReason | None = None


Message = (
    VoteRequest
    | VoteResponse
    | HeartBeatRequest
    | HeartBeatResponse
    | PushRequest
    | PushResponse
    | TimeoutNow
    | ReadIndexRequest
    | ReadIndexResponse
)
