"""Data files below the synced mark that are gone, or shorter than they were.

They come back as zeros where bytes are missing. That is damage as other damage: the next look at their edges finds it,
notes which entries it hits, and peers give the bytes again.
"""

import logging
from collections.abc import Iterator

from disk.mapped_file_queue import MappedFileQueue
from dledger.entry import GENESIS_CHAIN
from dledger.log.synced_mark import SyncedMark

log = logging.getLogger(__name__)


class MissingFiles:
    """Of a queue that is not loaded yet. Raises DiskError."""

    def __init__(self, queue: MappedFileQueue, mark: SyncedMark) -> None:
        """There are none where no file is left at all: then it is the directory that is the wrong one, or was emptied,
        and who did that has to say what is meant. Nor where nothing could prove the first entry once it is repaired.
        """
        self._queue = queue
        self._lengths = dict(self._find(mark))
        first = mark.begin_pos - mark.begin_pos % queue.mapped_file_size
        is_begin_known = mark.before_begin_index < 0 or mark.before_begin_chain != GENESIS_CHAIN
        if first in self._lengths and not is_begin_known:
            self._lengths.clear()
        # Damage that reaches the last entry tells of that itself.
        self.hides_what_was_behind = any(
            offset <= mark.end_pos <= offset + length for offset, length in self._lengths.items()
        )

    def _find(self, mark: SyncedMark) -> Iterator[tuple[int, int]]:
        size, listed = self._queue.mapped_file_size, set(self._queue.list_files())
        if not listed or mark.index <= mark.before_begin_index:
            return
        for offset in range(mark.begin_pos - mark.begin_pos % size, mark.end_pos, size):
            length = self._queue.length_of(offset) if offset in listed else 0
            if length < size:
                yield offset, length

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
