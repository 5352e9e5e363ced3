"""A log in memory for tests of the core: real entry bytes, and an end of what would survive a crash."""

from collections.abc import Sequence

from dledger.core.membership import Membership, unpack_membership
from dledger.core.messages import EntryRange, MembershipBefore
from dledger.core.output import Batch, BeginAnew, Cut
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryKind,
    Index,
    Pos,
    Term,
    VerifiedRange,
    parse_header,
    seal_entries,
    verify_entries,
)


class MemoryLog:
    """A LogView, and the writing side that its caller needs."""

    def __init__(self, terms: Sequence[int] = (), begin_index: int = 0) -> None:
        """One entry per term in `terms`, its index as body; those before `begin_index` are forgotten again."""
        self._entries: list[bytes] = []
        self._terms: list[Term] = []
        self._chains: list[int] = []
        self._positions: list[int] = [0]  # one more than entries
        self.ledger_begin_index = Index(0)
        self.log_generation = 0
        self.version = 0  # of the memberships
        self.has_faults = False
        self.durable_index = Index(-1)
        self.formed = Membership({})  # before the first membership entry
        self._memberships: list[tuple[Index, bytes]] = []
        for index, term in enumerate(terms):
            self.append([b"%d" % index], Term(term))
        self.ledger_begin_index = Index(begin_index)
        self.durable_index = self.ledger_end_index

    @property
    def ledger_end_index(self) -> Index:
        return Index(len(self._entries) - 1)

    @property
    def ledger_end_term(self) -> Term:
        return self._terms[-1] if self._terms else Term(-1)

    @property
    def ledger_begin_pos(self) -> Pos:
        return Pos(self._positions[self.ledger_begin_index])

    @property
    def membership_index(self) -> Index:
        return self._memberships[-1][0] if self._memberships else Index(-1)

    def membership(self) -> Membership:
        return unpack_membership(self._memberships[-1][1]) if self._memberships else self.formed

    def membership_before(self) -> Membership:
        return unpack_membership(self._memberships[-2][1]) if self._memberships[1:] else self.formed

    @property
    def membership_before_begin(self) -> MembershipBefore | None:
        before = [known for known in self._memberships if known[0] < self.ledger_begin_index]
        return MembershipBefore(*before[-1]) if before else None

    def term_at(self, index: Index) -> Term | None:
        if not self.ledger_begin_index - 1 <= index <= self.ledger_end_index:
            return None
        return self._terms[index] if index >= 0 else Term(-1)

    def chain_at(self, index: Index) -> int | None:
        if not self.ledger_begin_index - 1 <= index <= self.ledger_end_index:
            return None
        return self._chains[index] if index >= 0 else GENESIS_CHAIN

    def first_index_of_term_at(self, index: Index) -> Index:
        term = self._terms[index]
        while index > self.ledger_begin_index and self._terms[index - 1] == term:
            index = Index(index - 1)
        return index

    def range_from(self, first_index: Index, size_max: int) -> EntryRange | None:
        if not self.ledger_begin_index <= first_index <= self.ledger_end_index:
            return None
        last = first_index
        pos, positions = self._positions[first_index], self._positions
        limit = positions[first_index + 1] + size_max
        while last < self.ledger_end_index and positions[last + 2] <= limit:
            last = Index(last + 1)
        return EntryRange(
            first_index, last, Pos(pos), positions[last + 1] - pos, self._terms[last], self._chains[last]
        )

    def entry(self, index: int) -> bytes:
        return self._entries[index]

    def payload(self, entries: EntryRange) -> VerifiedRange:
        """As the follower's caller would have it: from the bytes alone."""
        previous = Index(entries.first_index - 1)
        prev_chain, prev_term = self.chain_at(previous), self.term_at(previous)
        assert prev_chain is not None
        assert prev_term is not None
        return verify_entries(
            b"".join(self._entries[entries.first_index : entries.last_index + 1]),
            first_index=entries.first_index,
            first_pos=entries.pos,
            prev_chain=prev_chain,
            prev_term=prev_term,
        )

    def append(self, bodies: Sequence[bytes], term: Term, kind: EntryKind = EntryKind.MESSAGE) -> Batch:
        first_index = Index(len(self._entries))
        start = self._positions[-1]
        for body in bodies:
            prev_chain = self._chains[-1] if self._chains else GENESIS_CHAIN
            buffers, _ = seal_entries(
                [body], [self._positions[-1]], len(self._entries), term, kind, prev_chain
            )
            self._add(b"".join(buffers))
        return Batch(first_index, self.ledger_end_index, term, self._positions[-1] - start)

    def append_range(self, payload: VerifiedRange, skip: int) -> None:
        assert payload.first_index + skip == len(self._entries), "entries follow the end"
        assert skip < payload.count, "an entry is left"
        ends = [*payload.offsets[1:], payload.size]
        for start, end in list(zip(payload.offsets, ends, strict=True))[skip:]:
            header = parse_header(payload.buffer, start)
            assert header.pos == self._positions[-1], "the same position"
            self._add(bytes(payload.buffer[start:end]))

    def carry_out(self, cut: Cut | BeginAnew) -> None:
        if isinstance(cut, Cut):
            self.cut(cut.from_index)
        else:
            self.begin_anew(cut)

    def begin_anew(self, begin: BeginAnew) -> None:
        """At once, as cut()."""
        count = begin.before_begin_index + 1
        self.log_generation += 1
        self._entries = [b""] * count
        self._terms = [begin.before_begin_term] * count
        self._chains = [begin.before_begin_chain] * count
        self._positions = [begin.begin_pos] * (count + 1)
        self.ledger_begin_index = Index(count)
        self.durable_index = begin.before_begin_index
        before = begin.membership
        self._memberships = [] if before is None else [(before.index, before.body)]
        self.version += 1

    def cut(self, from_index: int) -> None:
        """At once; the generation rises as with a real cut."""
        assert from_index >= self.ledger_begin_index, "a cut within the log"
        assert from_index <= self.ledger_end_index, "a cut within the log"
        self.log_generation += 1
        self._drop_from(from_index)
        self.durable_index = min(self.durable_index, self.ledger_end_index)

    def lose_unsynced(self, keep: int = 0) -> None:
        """Power loss: what is behind durable_index is gone but for its first `keep` entries."""
        self._drop_from(min(self.durable_index + 1 + keep, len(self._entries)))
        self.log_generation = 0

    def lose_durable(self, count: int) -> None:
        """What no sync can lose: the last `count` entries, as if they had never been written."""
        self._drop_from(len(self._entries) - count)
        self.durable_index = min(self.durable_index, self.ledger_end_index)

    def _add(self, entry: bytes) -> None:
        header = parse_header(entry)
        assert header.size == len(entry) >= ENTRY_HEADER_SIZE
        if header.kind == EntryKind.MEMBERSHIP:
            self._memberships.append((header.index, entry[ENTRY_HEADER_SIZE:]))
            self.version += 1
        self._entries.append(entry)
        self._terms.append(header.term)
        self._chains.append(header.chain_crc)
        self._positions.append(self._positions[-1] + len(entry))

    def _drop_from(self, from_index: int) -> None:
        self._memberships = [known for known in self._memberships if known[0] < from_index]
        self.version += 1
        del self._entries[from_index:]
        del self._terms[from_index:]
        del self._chains[from_index:]
        del self._positions[from_index + 1 :]
