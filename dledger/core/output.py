"""The values between the pure core and its caller: what a member is, sees and wants done.

The caller carries out an Output wholly, field by field from top to bottom, before it calls the core again.
"""

from enum import Enum
from typing import Protocol

import msgspec

from dledger.core.membership import Membership
from dledger.core.messages import EntryRange, MembershipBefore, Message, PeerId
from dledger.core.refusal import Refusal
from dledger.entry import Index, Pos, Term, VerifiedRange


class Role(Enum):
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


class HardState(msgspec.Struct, frozen=True):
    """What must survive a crash. `sequence` grows by one with each change; the newest readable one counts."""

    sequence: int
    curr_term: Term
    curr_vote_for: PeerId | None
    doubted: bool


class LogView(Protocol):
    """All that the core sees of the log. Indexes are 0-based; an empty log ends at -1 with term -1 and chain 0.

    Questions about entries raise FaultyEntryError where these are damaged on the disk; of the end all is known.
    """

    @property
    def has_faults(self) -> bool:
        """Some entries are known to be damaged, and not repaired yet."""
        ...

    @property
    def ledger_begin_index(self) -> Index: ...
    @property
    def ledger_begin_pos(self) -> Pos:
        """Where the first entry lies, or will lie."""
        ...

    @property
    def membership_before_begin(self) -> MembershipBefore | None:
        """None: the members at the begin are those with which the group was formed."""
        ...

    @property
    def ledger_end_index(self) -> Index: ...
    @property
    def ledger_end_term(self) -> Term: ...
    @property
    def log_generation(self) -> int:
        """Raised by each cut: results of syncs that began before it are clamped by it."""
        ...

    def term_at(self, index: Index) -> Term | None:
        """-1 for index -1; None outside begin - 1 .. end."""
        ...

    def chain_at(self, index: Index) -> int | None:
        """chain_crc of the entry; 0 for index -1; None outside begin - 1 .. end."""
        ...

    def first_index_of_term_at(self, index: Index) -> Index:
        """First index (>= begin) of the run of entries with the term of the entry at `index`."""
        ...

    def range_from(self, first_index: Index, size_max: int) -> EntryRange | None:
        """At least one whole entry from `first_index` on, at most `size_max` bytes beyond the first entry, in one data
        file; None when there is nothing from there on."""
        ...


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Entries that the leader's caller has just written to its log, in one append."""

    first_index: Index
    last_index: Index
    term: Term
    size: int  # bytes, headers included


class AppendStatus(Enum):
    """How a pending append ended. Only SUCCESS is an acknowledgement; UNKNOWN is a third outcome, not a failure."""

    SUCCESS = "SUCCESS"
    UNKNOWN = "UNKNOWN"  # stepped down, stopped or timed out: a later quorum may still commit it


class Completion(msgspec.Struct, frozen=True):
    """A pending closure that the quorum ack checker lets go; `closure` is what the caller gave to append()."""

    closure: object
    status: AppendStatus


class ReadCompletion(msgspec.Struct, frozen=True):
    """How a read ended that was asked for with `closure`: what is applied up to this index is not stale for it."""

    closure: object
    outcome: Index | Refusal


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Remove all entries from `from_index` on, as the durable steps of design section 4; then call cut_done()."""

    from_index: Index


class BeginAnew(msgspec.Struct, frozen=True, gc=False):
    """Remove all entries; the log begins at `begin_pos`, behind an entry that it does not hold. Durable steps like
    those of a Cut; then call cut_done().
    """

    before_begin_index: Index
    before_begin_term: Term
    before_begin_chain: int
    begin_pos: Pos
    membership: MembershipBefore | None = None


class PushedEntries(msgspec.Struct, frozen=True, gc=False):
    """Append the entries of `payload` except its first `skip`, which the log already holds."""

    payload: VerifiedRange
    skip: int


class Envelope(msgspec.Struct, frozen=True, gc=False):
    to: PeerId
    message: Message


class RoleChange(msgspec.Struct, frozen=True, gc=False):
    role: Role
    term: Term
    leader_id: PeerId | None
    reason: str  # one phrase for the log line


class TransferChange(msgspec.Struct, frozen=True, gc=False):
    """This leader begins to hand over to `target`, or has given that up and leads on (None)."""

    target: PeerId | None
    reason: str  # one phrase for the log line


class RefusedMessage(msgspec.Struct, frozen=True, gc=False):
    """It was not looked at any further, and is not answered."""

    sender: PeerId
    reason: str  # one phrase for the log line


class Output(msgspec.Struct, frozen=True):
    """Work for the caller, top to bottom.

    Messages that presume a term or vote which is not durable yet are held back inside the core until
    hard_state_saved(); acks leave from synced(), never from the step that appended. So everything in `messages` may
    be sent at once, and a leader's APPEND overlaps its own sync.
    """

    hard_state: HardState | None = None  # write in a thread, one at a time; then hard_state_saved(sequence)
    cut: Cut | BeginAnew | None = None
    appends: tuple[PushedEntries, ...] = ()
    messages: tuple[Envelope, ...] = ()
    committed_index: Index | None = None
    completions: tuple[Completion, ...] = ()
    read_completions: tuple[ReadCompletion, ...] = ()
    role_change: RoleChange | None = None
    transfer_change: TransferChange | None = None
    # A new leader asks its caller for the own-term no-op (append() with its batch), which needs bytes only it can make.
    no_op_wanted: bool = False
    # Find out whether the disk takes as much as an append may ask for; then write_failed_no_space(not it does).
    probe_wanted: bool = False
    # A leader that would change the members: append() with an entry that says so, if may_change_members() still holds.
    membership_wanted: Membership | None = None
    refused: RefusedMessage | None = None
    # What must not go on, with its reason: the caller stops the member loudly.
    fatal: str | None = None


NOTHING = Output()
