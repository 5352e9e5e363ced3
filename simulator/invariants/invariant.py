"""What every invariant looks at, and how it says that it is broken."""

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

from dledger.core.membership import Membership
from dledger.core.output import Role
from dledger.entry import GENESIS_CHAIN, Index, Term
from dledger.log.faulty_ranges import FaultyRange

if TYPE_CHECKING:
    from simulator.harness.access_log import AccessRows, Question
    from simulator.harness.oracle import Oracle


class AccessView(Protocol):
    """What one life of a member knows of users and policies."""

    @property
    def count(self) -> int:
        """Of changes that its table has taken."""
        ...

    def rows(self) -> "AccessRows": ...

    def admits(self, question: "Question") -> bool:
        """By the broker's own check."""
        ...


class MemberView(Protocol):
    """One life of a member between two of its steps."""

    @property
    def member_id(self) -> str: ...
    @property
    def life(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def curr_term(self) -> Term: ...
    @property
    def leader_ready(self) -> bool: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def disk_uuid(self) -> bytes: ...
    @property
    def membership(self) -> Membership:
        """Who the members are for the member itself."""
        ...

    @property
    def logged_membership(self) -> Membership:
        """Who they are by the last membership entry of its log."""
        ...

    @property
    def membership_index(self) -> Index:
        """Of that entry."""
        ...

    @property
    def acknowledgeable_index(self) -> Index:
        """How far its log is as durable as an acknowledgement asks for."""
        ...

    @property
    def committed_index(self) -> Index: ...
    @property
    def applied_index(self) -> Index:
        """Of reput: readers see what is in entries up to there."""
        ...

    @property
    def is_state_whole(self) -> bool:
        """Whether its tables have all that the log says up to there."""
        ...

    @property
    def access(self) -> AccessView: ...
    @property
    def durable_index(self) -> Index: ...
    @property
    def ledger_begin_index(self) -> Index: ...
    @property
    def ledger_end_index(self) -> Index: ...
    @property
    def has_faults(self) -> bool:
        """It knows of damaged entries on its disk."""
        ...

    @property
    def doubted(self) -> bool:
        """Whether it may have lost what it acknowledged, so that its vote alone makes no majority."""
        ...

    @property
    def faulty_ranges(self) -> tuple[FaultyRange, ...]:
        """The entries that it knows to be damaged."""
        ...

    @property
    def tail_lost_behind(self) -> Index | None:
        """The last entry that its mark told of as it started, if the end of that entry's file was lost, or one behind.
        Of its first look only.
        """
        ...

    @property
    def has_forgotten_begin(self) -> bool:
        """A fault has left nothing on its disk that tells what lay in front of its first entry, and no start since has
        found that again.
        """
        ...

    @property
    def log_generation(self) -> int:
        """How often this life has cut its log."""
        ...

    @property
    def is_cutting(self) -> bool:
        """What its log is in memory is not yet so on disk."""
        ...

    @property
    def scrub_rounds(self) -> int:
        """Complete ones of this life."""
        ...

    @property
    def now_us(self) -> int:
        """Of the simulator, whatever clocks say."""
        ...

    @property
    def leader_heard_us(self) -> int | None:
        """When this member last heard the leader of its term; None if it did not, or lost the connection since."""
        ...

    @property
    def transfer_target(self) -> str | None:
        """To whom this leader is handing over."""
        ...

    @property
    def told_at(self) -> tuple[Index, Index] | None:
        """Commit and end of the log when this member last told another one to campaign."""
        ...

    @property
    def durable_pos(self) -> int:
        """Byte position in the log up to which the member takes it for durable."""
        ...

    def first_unwritten_pos(self) -> int | None:
        """Of the log, the first byte of an entry that a failed sync has left in the page cache alone."""
        ...

    def term_at(self, index: Index) -> Term | None: ...

    def chain_at(self, index: Index) -> int | None: ...

    def entries(self, first_index: Index, last_index: Index) -> Iterable[bytes]:
        """Each entry, header included; what is damaged there as it was before. Fewer where it is nowhere."""
        ...

    def stored_entry(self, index: Index, damaged_since_us: int) -> bytes | None:
        """As it lies on the disk but for damage done since then, proved by nobody; None where that is nowhere."""
        ...

    def unknown_damage(self) -> Iterable[Hashable]:
        """Damage in its log and index that shows, each of its own, and that it does not know of."""
        ...

    def unit(self, topic: bytes, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) that the ConsumeQueue has there."""
        ...


def is_forgotten(member: MemberView, index: Index) -> bool:
    """Whether it lies in front of the log, and the member does not claim to know what it was, nor has it to."""
    is_in_front = index == member.ledger_begin_index - 1
    is_unknown = (member.term_at(index), member.chain_at(index)) == (-1, GENESIS_CHAIN)
    return is_in_front and member.has_forgotten_begin and is_unknown


def has_found_begin(member: MemberView) -> bool:
    """Whether nothing lies in front of the log, or the member knows what it was."""
    in_front = Index(member.ledger_begin_index - 1)
    return in_front < 0 or member.chain_at(in_front) != GENESIS_CHAIN


class Invariant(Protocol):
    """One object per run; it may remember what it has seen."""

    @property
    def name(self) -> str: ...

    def check(self, member: MemberView, oracle: "Oracle") -> str | None:
        """After a step that changed `member`; the oracle has heard of its commits. Returns what is wrong."""
        ...


class ViolationError(Exception):
    """An invariant is broken, or the group makes no progress although nothing hinders it."""

    def __init__(self, name: str, text: str, *, is_liveness: bool = False) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text
        self.is_liveness = is_liveness
