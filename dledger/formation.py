"""How a group gets its identity at the first start, and how a member without one learns what it is.

A member is its id and the uuid of its disk: an id alone could come back with an empty disk and vote a
second time. Having seen every peer unformed, each member takes the same (id, disk uuid) pairs; SHA-256 over
them, sorted, is the group uuid. A member that is unformed among formed ones either is in their pairs and
was only late, or is not: then it has lost its disk and what it promised on it, and is doubted
(docs/architecture.md, elections).

A group may be formed of members that have a log already, from Java's DLedger. One without entries among them has
lost its disk as well, before it could show which one it was: it is doubted, too. The others' logs must begin alike:
the chain of Java's entries is reckoned from the first one that is there.

Pure. The caller makes the own disk uuid durable before it shows it to anybody, and a `Formed` before it
votes.
"""

from collections.abc import Collection, Iterable
from hashlib import sha256

import msgspec

from dledger.core.messages import PeerId
from dledger.errors import HandshakeRefusedError

Pairs = tuple[tuple[PeerId, bytes], ...]  # (member id, disk uuid), sorted


class GroupIdentity(msgspec.Struct, frozen=True):
    group_uuid: bytes
    pairs: Pairs  # as the group was formed; a replaced disk does not change them


class Formed(msgspec.Struct, frozen=True):
    """To be stored, with the doubt, before this member takes part."""

    group: GroupIdentity
    doubted: bool


def group_uuid_of(pairs: Iterable[tuple[PeerId, bytes]]) -> bytes:
    """Each part with its length in front: no two sets of pairs have the same bytes."""
    digest = sha256()
    for member_id, disk_uuid in sorted(pairs):
        for part in (member_id.encode(), disk_uuid):
            digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


class Formation:
    """Of one unformed member. Invariant: gives a Formed once, made of what the peers that are there now have shown."""

    def __init__(
        self, self_id: PeerId, members: Iterable[PeerId], disk_uuid: bytes, *, begin_pos: int
    ) -> None:
        """`begin_pos`: of the first entry in the own log, -1 if there never was one."""
        self._self_id = self_id
        self._begin_pos = begin_pos
        self._peers_with_entries: set[PeerId] = set()
        self._members = frozenset(members)
        self._unformed: dict[PeerId, bytes] = {self_id: disk_uuid}
        self._formed = False

    @property
    def missing(self) -> list[PeerId]:
        """Members that are not there, sorted: what a first start waits for."""
        return sorted(self._members.difference(self._unformed))

    def start(self) -> Formed | None:
        """A group of one is formed by itself."""
        return self._form_if_all_seen()

    def peer_seen(
        self,
        peer_id: PeerId,
        disk_uuid: bytes,
        group: GroupIdentity | None,
        *,
        begin_pos: int,
        peers: Collection[PeerId] = (),
    ) -> Formed | None:
        """Identity of a peer that has proved the cluster secret, and where its log begins; `group` is None if it is
        unformed too, and `peers` are then the members of its conf, if it says so.

        Raises HandshakeRefusedError when what it says contradicts itself.
        """
        if self._formed:
            return None
        if begin_pos >= 0:
            self._peers_with_entries.add(peer_id)
        if group is None:
            self._check_conf(peer_id, peers)
            self._check_begin(peer_id, begin_pos)
            # The newest disk counts: a peer that lost its disk before the group was formed is simply a new one.
            self._unformed[peer_id] = disk_uuid
            return self._form_if_all_seen()
        if group_uuid_of(group.pairs) != group.group_uuid:
            raise HandshakeRefusedError(f"the group uuid of {peer_id!r} is not that of its members and disks")
        self._formed = True
        own_pair = (self._self_id, self._unformed[self._self_id])
        return Formed(group, doubted=own_pair not in group.pairs or self._has_lost_entries)

    def peer_lost(self, peer_id: PeerId) -> None:
        """No connection to it any more: it may have been formed since it said that it was not."""
        self._unformed.pop(peer_id, None)
        self._peers_with_entries.discard(peer_id)

    def _check_conf(self, peer_id: PeerId, peers: Collection[PeerId]) -> None:
        """Two that are unformed and know of different members would form two groups, or one without the others: a
        newcomer whose conf names itself and one more, and that one with an empty disk.
        """
        if peers and self._members != set(peers):
            raise HandshakeRefusedError(
                f"neither {self._self_id!r} nor {peer_id!r} is of a group yet, and they name different members: "
                f"{', '.join(sorted(self._members))} here, {', '.join(sorted(peers))} there (dLegerPeers). All who "
                "form a group name the same; one that joins, or has lost its disk, waits for one that is of it"
            )

    def _check_begin(self, peer_id: PeerId, begin_pos: int) -> None:
        if min(begin_pos, self._begin_pos) < 0 or begin_pos == self._begin_pos:
            return
        (first, first_id), (last, last_id) = sorted(((begin_pos, peer_id), (self._begin_pos, self._self_id)))
        raise HandshakeRefusedError(
            f"the log of {first_id!r} begins with data file {first:020d}, that of {last_id!r} with {last:020d}: Java's "
            f"retention had not deleted the same files. Stop {last_id!r}, remove its dledger-{last_id} wholly and "
            "start it again: it gets the log from the others"
        )

    @property
    def _has_lost_entries(self) -> bool:
        return bool(self._peers_with_entries) and self._begin_pos < 0

    def _form_if_all_seen(self) -> Formed | None:
        if self._formed or self._unformed.keys() != self._members:
            return None
        self._formed = True
        pairs = tuple(sorted(self._unformed.items()))
        return Formed(GroupIdentity(group_uuid_of(pairs), pairs), doubted=self._has_lost_entries)
