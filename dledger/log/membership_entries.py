"""Where the membership entries of a ledger lie: who the members are must be known without reading all of it.

What they say is the embedder's; here they are indexes and bodies. The synced mark has the indexes of the newest ones,
and whole the one before those and, if there is room for both, the last one: retention takes entries, and a disk may
damage them, and neither must take from a member who its peers are.

A mark is one slot, so the older ones are let go. That costs nothing: a leader says who the members are only when what
was said before is committed, so the last entry alone can be cut. Retention and a log that begins anew ask which one
counted at an older place. Where that one was let go, a newer one stands in for it, which is committed: a member that
knows of newer members than its entries say can elect nobody whom these would not, for a majority of them holds more
entries than it does. (An older one could not stand in: those whom it names may be gone.)
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, Final

from dledger.core.messages import MembershipBefore
from dledger.entry import EntryKind, Index, VerifiedRange
from dledger.log.begin_mark import BeginMark

# Of the body of an entry, in bytes: the mark must take the one before the begin whatever else it says.
MEMBERSHIP_SIZE_MAX: Final = 1500
# In a mark, both together in hexadecimal digits. Where they are more, the last one is read from the ledger.
_BODIES_SIZE_MAX: Final = 2 * MEMBERSHIP_SIZE_MAX
# Indexes listed: what fits twice beside the bodies.
LISTED_COUNT_MAX: Final = 16


class MembershipEntries:
    """Invariant: indexes rise, lie within the ledger, and behind that of `before_begin`. `version` is another one after
    each change.
    """

    def __init__(self, mark: BeginMark | None) -> None:
        """As a mark tells them."""
        # What counts before the first one listed. Its entry may lie behind the begin, and behind the end.
        self.before_begin: MembershipBefore | None = None
        self._indexes: list[Index] = []
        self._bodies: dict[Index, bytes] = {}  # as far as they were seen in this run
        self.version = 0
        self.last_index = Index(-1)  # of the last one, also of one before the begin; -1: there never was one
        if mark is None:
            return
        if mark.before_begin_membership_index >= 0:
            self.before_begin = MembershipBefore(
                mark.before_begin_membership_index, bytes.fromhex(mark.before_begin_membership)
            )
        self._indexes += mark.membership_indexes
        if mark.last_membership and mark.last_membership_index in self._indexes:
            self._bodies[mark.last_membership_index] = bytes.fromhex(mark.last_membership)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        if self._indexes:
            self.last_index = self._indexes[-1]
        else:
            self.last_index = self.before_begin.index if self.before_begin is not None else Index(-1)

    def first_behind(self, index: Index) -> Index | None:
        """The first one behind `index`; where older ones were let go, one that may have been the first."""
        if self.before_begin is not None and self.before_begin.index > index:
            return Index(index + 1)
        number = bisect_right(self._indexes, index)
        return self._indexes[number] if number < len(self._indexes) else None

    def up_to(self, index: Index, body_at: Callable[[Index], bytes]) -> MembershipBefore | None:
        """The last one that is not behind `index`, or the first one that is known; `body_at` reads from the ledger."""
        number = bisect_right(self._indexes, index) - 1
        if number < 0:
            return self.before_begin
        found = self._indexes[number]
        if found not in self._bodies:
            self._bodies[found] = body_at(found)
        return MembershipBefore(found, self._bodies[found])

    def known_up_to(self, index: Index) -> MembershipBefore | None:
        """As up_to(), of what a mark has whole."""
        number = bisect_right(self._indexes, index) - 1
        for found in (self._indexes[number], self._indexes[-1]) if number >= 0 else ():
            if found in self._bodies:
                return MembershipBefore(found, self._bodies[found])
        return self.before_begin

    def add(self, index: Index, body: bytes) -> None:
        """It is appended."""
        if self.before_begin is not None and index <= self.before_begin.index:
            return
        self._indexes.append(index)
        self._bodies[index] = body
        self._changed()
        if len(self._indexes) > LISTED_COUNT_MAX:
            self._let_go(len(self._indexes) - LISTED_COUNT_MAX)

    def _let_go(self, count: int) -> None:
        """At least so many, the oldest; of the last of them, which is not the last one of all, the body is known."""
        for index in self._indexes[count - 1 : -1]:
            if index in self._bodies:
                self.begin_behind(index, MembershipBefore(index, self._bodies[index]))
                return

    def add_range(self, payload: VerifiedRange, skip: int, head_size: int) -> None:
        """Those among verified entries but the first `skip`; `head_size`: bytes in front of a body."""
        for number, kind in enumerate(payload.kinds):
            if kind == EntryKind.MEMBERSHIP and number >= skip:
                ends = [*payload.offsets[1:], payload.size]
                body = memoryview(payload.buffer)[payload.offsets[number] + head_size : ends[number]]
                self.add(Index(payload.first_index + number), bytes(body))

    def cut_from(self, index: int) -> None:
        self._keep(slice(bisect_left(self._indexes, index)))

    def begin_behind(self, index: Index, membership: MembershipBefore | None) -> None:
        self.before_begin = membership
        self._keep(slice(bisect_right(self._indexes, index), None))

    def _keep(self, kept: slice) -> None:
        self._indexes = self._indexes[kept]
        self._bodies = {index: self._bodies[index] for index in self._indexes if index in self._bodies}
        self._changed()

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
