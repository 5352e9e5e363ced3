"""Where the membership entries of a ledger lie: who the members are must be known without reading all of it.

What they say is the embedder's; here they are indexes and bodies. The synced mark has the indexes of those in it,
and whole the last one and the one that counts at the begin: retention takes entries, and a disk may damage them, and
neither must take from a member who its peers are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from dledger.core.messages import MembershipBefore
from dledger.entry import ENTRY_HEADER_SIZE, EntryKind, Index, VerifiedRange
from dledger.log.synced_mark import SyncedMark

# In a mark, both together in hexadecimal digits: it is one slot. A longer one is read from the ledger.
_BODIES_SIZE_MAX = 2400


def membership_indexes_in(first_index: int, kinds: Sequence[int]) -> list[Index]:
    """Of entries with these kinds, one behind the other from `first_index` on."""
    return [Index(index) for index, kind in enumerate(kinds, first_index) if kind == EntryKind.MEMBERSHIP]


class MembershipEntries:
    """Invariant: indexes rise, and lie within the ledger."""

    def __init__(self, mark: SyncedMark) -> None:
        """`mark` is at the end of the ledger."""
        self.before_begin: MembershipBefore | None = None
        if mark.before_begin_membership_index >= 0:
            self.before_begin = MembershipBefore(
                mark.before_begin_membership_index, bytes.fromhex(mark.before_begin_membership)
            )
        self._indexes = list(mark.membership_indexes)
        self._bodies: dict[Index, bytes] = {}  # as far as they were seen in this run
        if mark.last_membership and mark.last_membership_index in self._indexes:
            self._bodies[mark.last_membership_index] = bytes.fromhex(mark.last_membership)

    @property
    def last_index(self) -> Index:
        if self._indexes:
            return self._indexes[-1]
        return self.before_begin.index if self.before_begin is not None else Index(-1)

    def up_to(self, index: Index, body_at: Callable[[Index], bytes]) -> MembershipBefore | None:
        """The last one that is not behind `index`; `body_at` reads one from the ledger."""
        number = bisect_right(self._indexes, index) - 1
        if number < 0:
            return self.before_begin
        found = self._indexes[number]
        if found not in self._bodies:
            self._bodies[found] = body_at(found)
        return MembershipBefore(found, self._bodies[found])

    def add(self, index: Index, body: bytes) -> None:
        """It is appended."""
        self._indexes.append(index)
        self._bodies[index] = body

    def add_range(self, payload: VerifiedRange, skip: int) -> None:
        """Those among verified entries but the first `skip`."""
        for index in membership_indexes_in(payload.first_index, payload.kinds):
            number = index - payload.first_index
            if number >= skip:
                ends = [*payload.offsets[1:], payload.size]
                body = memoryview(payload.buffer)[payload.offsets[number] + ENTRY_HEADER_SIZE : ends[number]]
                self.add(index, bytes(body))

    def cut_from(self, index: int) -> None:
        self._keep(slice(bisect_left(self._indexes, index)))

    def begin_behind(self, index: Index, membership: MembershipBefore | None) -> None:
        self.before_begin = membership
        self._keep(slice(bisect_right(self._indexes, index), None))

    def _keep(self, kept: slice) -> None:
        self._indexes = self._indexes[kept]
        self._bodies = {index: self._bodies[index] for index in self._indexes if index in self._bodies}

    def as_marked(self, mark_index: Index) -> dict[str, Any]:
        """The fields of a mark at `mark_index`."""
        indexes = tuple(self._indexes[: bisect_right(self._indexes, mark_index)])
        before = self.before_begin
        before_body = before.body.hex() if before is not None else ""
        last_body = self._bodies.get(indexes[-1], b"").hex() if indexes else ""
        if len(before_body) + len(last_body) > _BODIES_SIZE_MAX:
            last_body = ""
        return {
            "before_begin_membership_index": before.index if before is not None else Index(-1),
            "before_begin_membership": before_body,
            "membership_indexes": indexes,
            "last_membership_index": indexes[-1] if last_body else Index(-1),
            "last_membership": last_body,
        }
