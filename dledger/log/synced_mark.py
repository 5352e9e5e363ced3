"""The synced mark: how far the ledger was surely on disk, remembered apart from the ledger.

Below it damage is a fault to be repaired from peers; above it damage is what a crash leaves, and is cut. The mark lags
behind what is durable by at most 64 MiB or a second, so it costs next to nothing and bounds what recovery reads.
"""

import logging
from collections.abc import Callable

import msgspec

from disk.disk import Disk, NoSpaceError
from disk.slots import read_or_drop_slots
from dledger.entry import Index, Pos, Term
from dledger.log.begin_mark import BeginMark, BeginMarkFile

log = logging.getLogger(__name__)

MARK_FILE_NAME = "synced-mark"


class CutRecord(msgspec.Struct, frozen=True):
    """A cut under way: bytes [from_pos, old_end) of the data, and all later files, are to be gone."""

    from_pos: Pos
    old_end: Pos


class SyncedMark(BeginMark, frozen=True):
    """Entries up to `index` are on disk; the next entry lies at `end_pos` or at the start of the file behind it."""

    index: Index
    term: Term
    end_pos: Pos  # behind the entry
    chain_crc: int
    cut: CutRecord | None = None
    # A torn tail was found, and the quorum state may not say so yet. A tail once cut would not be found again.
    doubted: bool = False

    @property
    def told_index(self) -> Index:
        """It tells of each membership entry up to there."""
        return max(self.index, self.before_begin_membership_index)


def before_first_entry(begin: BeginMark, *, doubted: bool) -> SyncedMark:
    """Of the same log, nothing of which is known to be durable: all of it is to be proved anew."""
    return SyncedMark(
        begin.before_begin_index,
        begin.before_begin_term,
        begin.begin_pos,
        begin.before_begin_chain,
        data_file_size=begin.data_file_size,
        before_begin_index=begin.before_begin_index,
        before_begin_term=begin.before_begin_term,
        before_begin_chain=begin.before_begin_chain,
        begin_pos=begin.begin_pos,
        before_begin_membership_index=begin.before_begin_membership_index,
        before_begin_membership=begin.before_begin_membership,
        doubted=doubted,
    )


class SyncedMarkFile:
    """Two slots on disk. Written by one job at a time; the simulator and recovery read it.

    What it says of the begin and of the members `begin` has in a file of its own, on disk before the mark is; but see
    write_unless(). In between the two differ, by a cut too. A start goes by the mark, and by `begin` if there is none.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raises nothing for an unreadable file: `unreadable` then says why, and there is no mark."""
        self.mark: SyncedMark | None = None
        # Recovery goes without a lost one, and what it finds is what the new file begins with.
        self.slots, self.unreadable = read_or_drop_slots(
            disk,
            f"{directory}/{MARK_FILE_NAME}",
            "synced mark is lost, the whole log is verified and the member doubted",
        )
        self.begin = BeginMarkFile(disk, directory)
        if self.slots.payload is not None:
            self.mark = unpack_mark(self.slots.payload)

    def write(self, mark: SyncedMark) -> None:
        """Blocks on a sync. Raises DiskError."""
        self.write_unless(lambda: False, mark)

    def write_unless(
        self, cancelled: Callable[[], bool], mark: SyncedMark, *, needs_begin: bool = False
    ) -> bool:
        """Writes unless cancelled() when it is this writer's turn. Whether it has written. `needs_begin`: want of space
        for the begin mark is an error. Only what raises the mark waits for space: starts, cuts and what is to free some
        do not; the next mark that is raised makes good for it. A start that finds no mark before that is refused, or
        knows less.
        """
        with self.slots.lock:
            if cancelled():
                return False
            self._keep_begin(mark, is_needed=needs_begin)
            self.slots.write_locked(_pack(mark))
            return True

    def make_durable(self, mark: SyncedMark) -> None:
        """`mark` is the one that was read: it, and a cut that it says is done, must not turn into the one before it.
        Blocks on syncs. Raises DiskError.
        """
        self._keep_begin(mark, is_needed=False)
        self.slots.make_durable()
        self.slots.sync_copy()

    def _keep_begin(self, mark: SyncedMark, *, is_needed: bool) -> None:
        try:
            self.begin.keep(mark)
        except NoSpaceError as error:
            log.warning("no space for the begin mark, which is written again with the next mark: %s", error)
            if is_needed:
                raise

    def close(self) -> None:
        self.slots.close()
        self.begin.close()


def _pack(mark: SyncedMark) -> bytes:
    return msgspec.json.encode(mark)


def unpack_mark(payload: bytes) -> SyncedMark:
    """Of a slot's payload. Fields of a later release are passed over, so that its store can be given back."""
    return msgspec.json.decode(payload, type=SyncedMark)
