"""A member as an invariant sees it, made of plain values: a test says what differs."""

from dataclasses import dataclass, field
from typing import Any

from dledger.core.membership import Membership, Seat
from dledger.core.output import Role
from dledger.entry import Index, Pos, Term
from dledger.log.faulty_ranges import FaultyRange

THREE = Membership({peer: Seat(peer.encode()) for peer in ("n0", "n1", "n2")})
FAULTY = FaultyRange(Index(1), Index(2), Pos(51), Pos(155))


@dataclass
class View:
    """A member with a log of (term, chain) and nothing behind it."""

    member_id: str = "n0"
    life: int = 1
    role: Role = Role.FOLLOWER
    curr_term: int = 1
    leader_ready: bool = False
    committed_index: int = 2
    applied_index: int = 2
    is_state_whole: bool = True
    access: Any = None
    durable_index: int = 2
    ledger_begin_index: int = 0
    log: list[tuple[int, int]] = field(default_factory=lambda: [(1, 10), (1, 11), (1, 12)])
    now_us: int = 0
    leader_heard_us: int | None = None
    transfer_target: str | None = None
    told_at: tuple[int, int] | None = None
    durable_pos: int = 300
    unwritten_pos: int | None = None
    has_faults: bool = False
    doubted: bool = False
    faulty_ranges: tuple[FaultyRange, ...] = ()
    tail_lost_behind: int | None = None
    has_forgotten_begin: bool = False
    log_generation: int = 0
    is_cutting: bool = False
    scrub_rounds: int = 0
    damage: tuple[str, ...] = ()
    stored: dict[int, bytes] = field(default_factory=dict)
    damaged_us: int | None = None  # when all that is stored was damaged last
    units: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    membership: Membership = THREE
    logged_membership: Membership = THREE
    membership_index: int = -1

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def disk_uuid(self) -> bytes:
        return self.member_id.encode()

    @property
    def acknowledgeable_index(self) -> int:
        return self.durable_index

    @property
    def ledger_end_index(self) -> Index:
        return Index(len(self.log) - 1)

    def first_unwritten_pos(self):
        return self.unwritten_pos

    def term_at(self, index):
        return Term(self.log[index][0]) if 0 <= index < len(self.log) else None

    def chain_at(self, index):
        return self.log[index][1] if 0 <= index < len(self.log) else None

    def entries(self, first_index, last_index):
        return ()

    def stored_entry(self, index, damaged_since_us):
        if self.damaged_us is not None and self.damaged_us <= damaged_since_us:
            return None
        return self.stored.get(index)

    def unknown_damage(self):
        return self.damage

    def unit(self, topic, queue_id, queue_offset):
        return self.units.get(queue_offset)
