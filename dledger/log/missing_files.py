"""Data files below the synced mark that are gone, or shorter than they were; and short ones behind it.

They come back as zeros where bytes are missing. Below the mark that is damage as other damage: the next look at their
edges finds it, notes which entries it hits, and peers give the bytes again. Behind it the log ends there.
"""

import logging
from collections.abc import Iterator

from disk.mapped_file_queue import MappedFileQueue
from dledger.entry import ENTRY_HEADER_SIZE, GENESIS_CHAIN
from dledger.log.quorum_state import LastRun
from dledger.log.synced_mark import SyncedMark

log = logging.getLogger(__name__)


class MissingFiles:
    """Of a queue that is not loaded yet. Raises DiskError."""

    def __init__(self, queue: MappedFileQueue, mark: SyncedMark, last_run: LastRun) -> None:
        """There are none where no file is left at all: then it is the directory that is the wrong one, or was emptied,
        and who did that has to say what is meant. Nor where nothing could prove the first entry once it is repaired.
        """
        self._queue = queue
        self._last_run = last_run
        self._begin = mark.begin_pos - mark.begin_pos % queue.mapped_file_size
        self._end = mark.end_pos if mark.index > mark.before_begin_index else self._begin
        self._lengths = dict(self._find())
        is_begin_known = mark.before_begin_index < 0 or mark.before_begin_chain != GENESIS_CHAIN
        if self._begin in self._lengths and not is_begin_known:
            self._lengths.clear()

    @property
    def hides_what_was_behind(self) -> bool:
        """Whether entries may have gone with them that were acknowledged behind the mark. The last entry that it tells
        of need not be hit: zeros make one whole that ends with zeros.
        """
        return self._last_run is not LastRun.STOPPED_CLEANLY and any(
            offset + self._queue.mapped_file_size > self._end
            and (offset < self._end or self._had_entries(offset, length))
            for offset, length in self._lengths.items()
        )

    def _find(self) -> Iterator[tuple[int, int]]:
        size, listed = self._queue.mapped_file_size, self._queue.list_files()
        if not listed:
            return
        below = range(self._begin, self._end, size)
        yield from ((offset, 0) for offset in below if offset not in listed)
        for offset in listed:
            length = self._queue.length_of(offset)
            # Behind the end an empty one is what a crash leaves of a file that was being made.
            if length < size and (offset in below or (offset >= self._end and length)):
                yield offset, length

    def _had_entries(self, offset: int, length: int) -> bool:
        """Whether a file behind the end may have: one that was made ahead begins with zeros."""
        return length < ENTRY_HEADER_SIZE or any(self._queue.read_listed(offset, ENTRY_HEADER_SIZE))

    def make_anew(self) -> None:
        """Durably, before anything is repaired in them: else a power loss could take a file once more, with all that
        counts as repaired by then.
        """
        for offset, length in self._lengths.items():
            log.error(
                "data file is gone or too short, zeros come in the place of what is missing, for peers to repair "
                "path=%s size=%d of %d",
                self._queue.path_of(offset),
                length,
                self._queue.mapped_file_size,
            )
            self._queue.make_listed(offset)
