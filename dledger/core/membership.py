"""Who belongs to a group: voters, who elect and whose disks count, and learners, who are brought up to be voters.

The members are a function of the log: those of its last membership entry, committed or not, and before the first one
those with which the group was formed. Hence a change counts as soon as its entry is appended and is taken back when
the entry is cut (Ongaro's thesis, 4.1), with nothing to be kept in step.

A seat is held by a disk, not by a name: a member that comes back with another disk has forgotten what it voted for and
acknowledged, and what it says counts for nobody until the log has given it a seat of its own.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from dledger.core.messages import PeerId
from dledger.entry import Index
from dledger.errors import FaultyEntryError

# The lowest wire version whose members go by the membership entries of their logs.
MEMBERSHIP_WIRE_VERSION: Final = 2
READ_INDEX_WIRE_VERSION: Final = 3


class Seat(msgspec.Struct, frozen=True):
    disk: bytes = b""  # uuid of the member's disk; empty for a learner of which it is not known
    address: str = ""  # host:port; opaque to the core


class Membership(msgspec.Struct, frozen=True):
    """A member is a voter or a learner, never both. Walks go in the order of the ids."""

    voters: dict[PeerId, Seat]
    learners: dict[PeerId, Seat] = {}

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def members(self) -> tuple[PeerId, ...]:
        return tuple(sorted({*self.voters, *self.learners}))

    def with_learner(self, peer: PeerId, seat: Seat) -> "Membership":
        """A voter becomes one as well: with another disk it has to be brought up first."""
        return Membership(_without(self.voters, peer), {**self.learners, peer: seat})

    def with_voter(self, peer: PeerId, disk: bytes) -> "Membership":
        """A learner that has caught up, by the disk on which it has."""
        seat = replace(self.learners[peer], disk=disk)
        return Membership({**self.voters, peer: seat}, _without(self.learners, peer))

    def with_all_disks(self, disk: bytes) -> "Membership":
        """As it will be when each disk is known: `disk` in the place of those that are not."""
        voters, learners = (
            {peer: seat if seat.disk else replace(seat, disk=disk) for peer, seat in seats.items()}
            for seats in (self.voters, self.learners)
        )
        return Membership(voters, learners)

    def without(self, peer: PeerId) -> "Membership":
        return Membership(_without(self.voters, peer), _without(self.learners, peer))


def _without(seats: Mapping[PeerId, Seat], peer: PeerId) -> dict[PeerId, Seat]:
    return {other: seat for other, seat in seats.items() if other != peer}


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Membership).decode


def pack_membership(membership: Membership) -> bytes:
    """As it is said in an entry."""
    return _encode(membership)


def unpack_membership(payload: bytes) -> Membership:
    """Raises msgspec.DecodeError."""
    return _decode(payload)


class MembershipLog(Protocol):
    """What the core sees of the membership entries of a log."""

    @property
    def version(self) -> int:
        """Another one after each change of them. The index alone does not tell: a log that was cut, or began anew, may
        have another entry there.
        """
        ...

    @property
    def membership_index(self) -> Index:
        """Of the last membership entry, also of one before the log's begin; -1 if there never was one."""
        ...

    def membership(self) -> Membership:
        """What that entry says."""
        ...

    def membership_before(self) -> Membership:
        """What counted up to that entry. Raises FaultyEntryError."""
        ...


class FormedMembership:
    """Of a group whose members never change."""

    membership_index = Index(-1)
    version = 0

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def membership(self) -> Membership:
        return self._membership

    def membership_before(self) -> Membership:
        return self._membership


class CurrentMembers:
    """The members as one member sees them, with the disks and the wire versions that its peers have shown. `counted`
    are those whose votes and acknowledgements are a voter's, this one among them if it `is_voter`.

    Invariant: after refresh() it is what the log says.
    """

    __slots__ = (
        "_before",
        "_disks",
        "_formed_alone",
        "_log",
        "_own_disk",
        "_version",
        "_wire_versions",
        "counted",
        "index",
        "is_voter",
        "others",
        "quorum",
        "self_id",
        "value",
        "voters",
    )

    def __init__(
        self, self_id: PeerId, own_disk: bytes, log: MembershipLog, *, formed_alone: bool = False
    ) -> None:
        """`formed_alone`: the group's identity is of this member with this disk, and of nobody else."""
        self.self_id = self_id
        self._own_disk = own_disk
        self._formed_alone = formed_alone
        self._log = log
        self._disks: dict[PeerId, bytes] = {}
        self._wire_versions: dict[PeerId, int] = {}
        self._read()

    def _read(self) -> None:
        value = self._log.membership()
        self._before: Membership | None = None  # not asked for yet, or damaged
        self.index, self._version = self._log.membership_index, self._log.version
        self.value = value
        self.voters = tuple(sorted(value.voters))
        self.others = tuple(peer for peer in value.members if peer != self.self_id)
        self.quorum = value.quorum
        self._count()

    def _count(self) -> None:
        self.counted = frozenset(peer for peer in self.value.voters if self._counts(peer))
        self.is_voter = self.self_id in self.counted

    def refresh(self) -> bool:
        """Whether the log has another last membership entry since."""
        if self._log.version == self._version:
            return False
        before = self.index, self.value
        self._read()
        return (self.index, self.value) != before

    @property
    def was_voter(self) -> bool:
        """Whether this member itself had a seat, with the disk that it has, up to the last membership entry; False
        where that is damaged.
        """
        return self.before is not None and self._has_seat(self.before)

    @property
    def before(self) -> Membership | None:
        """Up to the last membership entry; None as long as damage hides it."""
        if self._before is None:
            with suppress(FaultyEntryError):
                self._before = self._log.membership_before()
        return self._before

    def are_committed(self, committed_index: Index) -> bool:
        """Whether the members are known to be. An entry that says the same ones once more changes nothing, and is there
        because they are.
        """
        return self.index <= committed_index or self.before == self.value

    def _has_seat(self, membership: Membership) -> bool:
        """The only voter there is, which has lost its vote and formed the group anew by itself, has its seat with the
        disk that it is now: nobody else is of that group, could give it the seat, or take it.
        """
        seat = membership.voters.get(self.self_id)
        is_alone = self._formed_alone and len(membership.voters) == 1
        return seat is not None and (seat.disk == self._own_disk or is_alone)

    def _counts(self, voter: PeerId) -> bool:
        """Nothing is heard of a peer but over a connection on which it has shown its disk."""
        if voter == self.self_id:
            return self._has_seat(self.value)
        disk = self.value.voters[voter].disk
        return self._disks.get(voter, disk) == disk

    def disk_of(self, peer: PeerId) -> bytes | None:
        """As it was shown last, None if it never was."""
        return self._disks.get(peer)

    def show_wire_version(self, peer: PeerId, wire_version: int) -> None:
        """It counts until the peer shows another, also while it is away: it may come back as it was."""
        self._wire_versions[peer] = wire_version

    def is_outdated(self, peer: PeerId) -> bool:
        """Whether a peer goes by the members of its conf, whatever the log says."""
        return self._wire_versions.get(peer, MEMBERSHIP_WIRE_VERSION) < MEMBERSHIP_WIRE_VERSION

    def knows_read_index(self, peer: PeerId) -> bool:
        """Whether a peer, if it leads, can be asked how far a read has to reach."""
        return self._wire_versions.get(peer, READ_INDEX_WIRE_VERSION) >= READ_INDEX_WIRE_VERSION

    def show_disk(self, peer: PeerId, disk: bytes) -> bool:
        """Whether it is another one than was shown before."""
        before = self._disks.get(peer)
        self._disks[peer] = disk
        self._count()
        return before not in (None, disk)
