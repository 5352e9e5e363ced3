"""The members of a group as its log says: the membership entries of a log store, read for the core.

The body of an entry is the embedder's, which alone can take out of it what the core has said.
"""

from collections.abc import Callable, Mapping

import msgspec

from dledger.config import Address, parse_address
from dledger.core.membership import Membership, Seat, pack_membership, unpack_membership
from dledger.core.messages import MembershipBefore, PeerId
from dledger.entry import Index
from dledger.formation import GroupIdentity
from dledger.log.errors import LedgerDamagedError
from dledger.log.log_store import LogStore
from dledger.log.membership_entries import MEMBERSHIP_SIZE_MAX
from dledger.rpc.handshake import DISK_UUID_SIZE
from dledger.runtime import Embedder


class LogMembers:
    """MembershipLog of a replica."""

    def __init__(
        self,
        log_store: LogStore,
        group: GroupIdentity | None,
        addresses: Mapping[PeerId, Address],
        payload_of: Callable[[bytes], bytes],
    ) -> None:
        """`addresses` are those of the conf. As long as the group is not formed it has no members."""
        self._log = log_store
        self._entries = log_store.memberships
        self._payload_of = payload_of
        pairs = group.pairs if group is not None else ()
        self._formed = Membership(
            {peer: Seat(disk, str(addresses[peer]) if peer in addresses else "") for peer, disk in pairs}
        )

    @property
    def version(self) -> int:
        return self._entries.version

    @property
    def membership_index(self) -> Index:
        return self._entries.last_index

    def membership(self) -> Membership:
        """Raises LedgerDamagedError, DiskError."""
        return self._said_by(self._log.membership_up_to(self._log.ledger_end_index))

    def membership_before(self) -> Membership:
        """Raises FaultyEntryError, LedgerDamagedError, DiskError."""
        return self._said_by(self._log.membership_up_to(Index(self._entries.last_index - 1)))

    def _said_by(self, entry: MembershipBefore | None) -> Membership:
        if entry is None:
            return self._formed
        try:
            return unpack_membership(self._payload_of(entry.body))
        except (ValueError, msgspec.DecodeError) as error:
            raise LedgerDamagedError(
                f"entry {entry.index} does not say who the members are: {error}"
            ) from error


def membership_size_fault(embedder: Embedder, membership: Membership) -> str | None:
    """Why the members do not fit into an entry, by the time that all their disks are known."""
    payload = pack_membership(membership.with_all_disks(bytes(DISK_UUID_SIZE)))
    size = embedder.membership_entry(payload).size
    if size <= MEMBERSHIP_SIZE_MAX:
        return None
    return (
        f"the entry that names {len(membership.members)} members would have {size} bytes, allowed are "
        f"{MEMBERSHIP_SIZE_MAX}: remove a member first, or take shorter ids and addresses"
    )


def member_addresses(
    membership: Membership, leaving: Mapping[PeerId, Seat], of_conf: Mapping[PeerId, Address]
) -> dict[PeerId, Address]:
    """Of the members, and of voters that are leaving: what the conf says of one comes before what the log says."""
    seats = {**leaving, **membership.learners, **membership.voters}
    return {
        peer: of_conf.get(peer) or parse_address(seat.address)
        for peer, seat in sorted(seats.items())
        if peer in of_conf or seat.address
    }
