"""The synced mark: how far the ledger was surely on disk, remembered apart from the ledger.

Below it damage is a fault to be repaired from peers; above it damage is what a crash leaves, and is cut. The mark lags
behind what is durable by at most 64 MiB or a second, so it costs next to nothing and bounds what recovery reads.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import orjson

from disk.disk import Disk
from dledger.entry import GENESIS_CHAIN, Index, Pos, Term
from dledger.log.told_members import ToldMembers, ToldMembersFile, read_slots

_NO_INDEX = Index(-1)
_NO_TERM = Term(-1)
_NO_POS = Pos(0)

MARK_FILE_NAME = "synced-mark"


@dataclass(frozen=True, slots=True)
class CutRecord:
    """A cut under way: bytes [from_pos, old_end) of the data, and all later files, are to be gone."""

    from_pos: Pos
    old_end: Pos


@dataclass(frozen=True, slots=True)
class SyncedMark(ToldMembers):
    """Entries up to `index` are on disk; the next entry lies at `end_pos` or at the start of the file behind it."""

    index: Index
    term: Term
    end_pos: Pos  # behind the entry
    chain_crc: int
    data_file_size: int  # a group constant: positions mean nothing without it
    # What lies before the first entry: kept here because retention deletes the entry that says so.
    before_begin_index: Index = _NO_INDEX
    before_begin_term: Term = _NO_TERM
    before_begin_chain: int = GENESIS_CHAIN
    # Where the first entry lies, or will lie; files before it are gone, or are to be.
    begin_pos: Pos = _NO_POS
    cut: CutRecord | None = None
    # A torn tail was found, and the quorum state may not say so yet. A tail once cut would not be found again.
    doubted: bool = False

    @property
    def told_index(self) -> Index:
        """It tells of each membership entry up to there."""
        return max(self.index, self.before_begin_membership_index)


def before_first_entry(mark: SyncedMark) -> SyncedMark:
    """The same log, of which nothing is known to be durable: all of it is to be proved anew."""
    return replace(
        mark,
        index=mark.before_begin_index,
        term=mark.before_begin_term,
        end_pos=mark.begin_pos,
        chain_crc=mark.before_begin_chain,
        membership_indexes=(),
        last_membership_index=mark.before_begin_membership_index,
        last_membership=mark.before_begin_membership,
    )


class SyncedMarkFile:
    """Two slots on disk. Written by one job at a time; the simulator and recovery read it.

    Invariant: what the mark on disk says of the members, or something newer, `members` has on disk as well.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raises nothing for an unreadable file: `unreadable` then says why, and there is no mark."""
        self.mark: SyncedMark | None = None
        # Recovery goes without a lost one, and what it finds is what the new file begins with.
        self.slots, self.unreadable = read_slots(
            disk,
            f"{directory}/{MARK_FILE_NAME}",
            "synced mark is lost, the whole log is verified and the member doubted",
        )
        self.members = ToldMembersFile(disk, directory)
        if self.slots.payload is not None:
            self.mark = unpack_mark(self.slots.payload)

    def write(self, mark: SyncedMark) -> None:
        """Blocks on a sync. Raises DiskError."""
        self.write_unless(lambda: False, mark)

    def write_unless(self, cancelled: Callable[[], bool], mark: SyncedMark) -> bool:
        """Writes unless cancelled() when it is this writer's turn. Whether it has written."""
        with self.slots.lock:
            if cancelled():
                return False
            self.members.keep(mark)
            self.slots.write_locked(_pack(mark))
            return True

    def make_durable(self) -> None:
        """Of the mark that was read: it, and a cut that it says is done, must not turn into the one before it. Blocks
        on syncs. Raises DiskError.
        """
        assert self.mark is not None
        self.members.keep(self.mark)
        self.slots.make_durable()
        self.slots.sync_copy()

    def close(self) -> None:
        self.slots.close()
        self.members.close()


def _pack(mark: SyncedMark) -> bytes:
    return orjson.dumps(asdict(mark))


def unpack_mark(payload: bytes) -> SyncedMark:
    """Of a slot's payload."""
    fields = orjson.loads(payload)
    cut = fields.pop("cut")
    indexes = tuple(fields.pop("membership_indexes", ()))
    return SyncedMark(**fields, membership_indexes=indexes, cut=CutRecord(**cut) if cut is not None else None)
