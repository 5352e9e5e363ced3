"""What the store asks of the log under it: fulfilled by dledger's Replica with its LogStore, whose entries have heads,
or with a PlainLog (plain_log.py), whose entries are records and nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dledger.core.member import Member
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus, Batch
from dledger.core.refusal import Refusal
from dledger.entry import EntryKind, Index, Pos, Term
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.range_read import RangeRead
from dledger.log.recent_batches import RecentBatch
from dledger.log.scrub_job import Place
from dledger.repairer import Repairer
from dledger.rpc.requests import GetRequest, GetResponse
from dledger.scrubber import Scrubber

OnAppended = Callable[[AppendStatus], None]
OnReadIndex = Callable[[Index | Refusal], None]


class Ledger(Protocol):
    """The log as it lies here, committed or not."""

    @property
    def head_size(self) -> int:
        """Bytes of an entry in front of its body; 0 in a plain CommitLog."""
        ...

    @property
    def ledger_begin_index(self) -> Index: ...
    @property
    def ledger_begin_pos(self) -> Pos:
        """Where the first entry lies, or will lie."""
        ...

    @property
    def durable_begin_pos(self) -> Pos:
        """As ledger_begin_pos, after a power loss: what is derived from entries before it need not be kept."""
        ...

    @property
    def first_file_last_index(self) -> Index | None:
        """The last entry of the oldest data file, None if the log ends in that file."""
        ...

    @property
    def ledger_end_index(self) -> Index: ...
    @property
    def ledger_end_pos(self) -> Pos: ...

    def chain_at(self, index: Index) -> int | None:
        """None outside begin - 1 .. end."""
        ...

    def term_at(self, index: Index) -> Term | None:
        """-1 before the first entry ever; None outside begin - 1 .. end."""
        ...

    def pos_at(self, index: Index) -> Pos:
        """Where the entry begins. The index must lie within begin .. end."""
        ...

    def first_index_at(self, pos: int) -> Index:
        """The first entry that begins at `pos` or behind; the one behind the last if none does. Where `pos` lies in
        damage, one of the damaged entries or the one behind them.
        """
        ...

    def faulty_at(self, pos: int) -> FaultyRange | None:
        """The damage in which the byte at `pos` is known to lie."""
        ...

    def body_size_at(self, pos: int) -> int | None:
        """Of the entry at `pos`, None if by its looks none begins there. Raises FaultyEntryError."""
        ...

    def end_pos_at(self, index: Index) -> Pos:
        """Position behind the entry. The index must lie within begin .. end."""
        ...

    def read(self, pos: int, size: int) -> bytes:
        """Bytes within one data file, not proved. Raises FaultyEntryError."""
        ...

    def read_bodies(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """For each (position, size): of the entry whose body begins there and has this size; empty if there is none.
        The positions ascend. Raises FaultyEntryError.
        """
        ...

    def begin_place(self) -> Place:
        """Before the first entry."""
        ...

    def read_behind(self, place: Place, size_max: int) -> RangeRead:
        """Some entries behind `place`, about `size_max` bytes, each proved. In any thread. Raises DiskError."""
        ...

    def kinds_of(self, batch: RecentBatch) -> Sequence[int]:
        """An EntryKind for each entry, unless a newer version wrote it."""
        ...

    def batches_from(self, index: Index, last_index: Index, size_max: int) -> Iterable[RecentBatch]:
        """All entries from `index` to `last_index`, read by about `size_max` bytes where they are not in memory. Raises
        FaultyEntryError where it comes to damage.
        """
        ...


class ReplicatedLog(Protocol):
    applied_index: Index  # the store's, for the replica's status

    @property
    def member(self) -> Member:
        """What this member is in its group, and who else is."""
        ...

    @property
    def log(self) -> Ledger: ...
    @property
    def scrubber(self) -> Scrubber:
        """It reads what the log keeps, and what is added to it."""
        ...

    @property
    def repairer(self) -> Repairer:
        """It has damaged entries repaired from peers."""
        ...

    @property
    def group_uuid(self) -> bytes | None:
        """None as long as the group is not formed."""
        ...

    def committed_entries(self, request: GetRequest, size_max: int) -> tuple[GetResponse, list[bytes]]:
        """Of a log whose entries have heads, for readers that are no members. Raises DiskError."""
        ...

    @property
    def wait_ack_ms_max(self) -> int:
        """After so long an append that no majority holds ends as unknown."""
        ...

    def append(
        self,
        body_sizes: Sequence[int],
        fill: Callable[[Sequence[Pos]], Sequence[bytes]],
        kind: EntryKind,
        on_done: OnAppended | None,
        now_ms: int,
        *,
        head_kind: EntryKind | None = None,
    ) -> Batch | Refusal:
        """Appends entries, all or none. `fill` gives their bodies, which have these sizes, for the positions that they
        get. `on_done` is called once, later, unless this refuses or raises. `head_kind`: of the first entry, where it
        differs from that of the others. Raises what `fill` raises, and DiskError; the log is unchanged then.
        """
        ...

    def read_index(self, on_done: OnReadIndex, now_ms: int) -> None:
        """How far must be applied for a read that begins now, so as not to be stale; or why nobody can tell. `on_done`
        is called once, maybe within.
        """
        ...

    def members_without(self, feature: str) -> Sequence[PeerId]:
        """The other members that have not told this one that they know it."""
        ...

    def set_low_space(self, reason: str | None) -> None:
        """Why messages are refused for want of space: then a leader had better give way. None when they are not."""
        ...

    def transfer_leadership(self, target: PeerId | None, reason: str, now_ms: int) -> Refusal | None:
        """Begins to hand over to `target`, else to the member that lacks least. How it ends shows in who leads."""
        ...

    def add_member(self, peer: PeerId, address: str, on_done: OnAppended, now_ms: int) -> Refusal | None: ...

    def remove_member(self, peer: PeerId, on_done: OnAppended, now_ms: int) -> Refusal | None: ...

    def delete_first_file(self, now_ms: int) -> bool:
        """Deletes the oldest data file. Whether that has begun: one goes at a time."""
        ...
