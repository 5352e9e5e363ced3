"""A query of the IndexFiles under way: newest messages first, in steps as long as the caller likes."""

from collections.abc import Iterator, Sequence
from typing import Final

from store.index.index_file import IndexFile

# Of one step: each entry is a read of its own, and one hash may have millions of them.
ENTRIES_PER_STEP: Final = 2048
_MS_PER_S: Final = 1000


class IndexFileQuery:
    """Gives each physical offset once. Other keys may have the same hash, and files know times by the second only: look
    at the message. It may lie before the log's begin. Goes on over flushes and deletions between two steps.
    """

    def __init__(
        self,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        in_memory: Sequence[int],
        index_files: Sequence[IndexFile],
    ) -> None:
        """`in_memory`: what is found there. Both newest first."""
        self.is_done = False
        self._key_hash = key_hash
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._in_memory = in_memory
        self._index_files = index_files
        self._walk = self._offsets()

    def next_offsets(self, limit: int, entries_max: int = ENTRIES_PER_STEP) -> list[int]:
        """Up to `limit` more; fewer, or none, when `entries_max` entries have been read or `is_done`. Raises DiskError;
        then nothing more comes."""
        found: list[int] = []
        for _ in range(entries_max):
            if len(found) == limit:
                return found
            try:
                offset = next(self._walk)
            except StopIteration:
                self.is_done = True
                break
            if offset is not None:
                found.append(offset)
        return found

    def _offsets(self) -> Iterator[int | None]:
        """None stands for an entry that is not wanted."""
        # What was in memory may have come into a file meanwhile; and a message may have two keys of one hash.
        last: int | None = None
        for offset in self._in_memory:
            yield offset if offset != last else None
            last = offset
        for index_file in self._index_files:
            if index_file.is_deleted or index_file.header.end_timestamp < self._begin_ms:
                return
            if index_file.header.begin_timestamp > self._end_ms:
                continue
            for found in self._offsets_of(index_file):
                if found is None or (last is not None and found >= last):
                    yield None
                else:
                    last = found
                    yield found

    def _offsets_of(self, index_file: IndexFile) -> Iterator[int | None]:
        header = index_file.header
        for entry in index_file.chain(self._key_hash):
            earliest_ms = header.begin_timestamp + entry.time_diff * _MS_PER_S
            latest_ms = earliest_ms + _MS_PER_S - 1
            if entry.phy_offset == header.begin_phy_offset:
                # Java counts the first entry's seconds from the file before.
                earliest_ms = latest_ms = header.begin_timestamp
            if latest_ms < self._begin_ms:
                return
            is_wanted = entry.key_hash == self._key_hash and earliest_ms <= self._end_ms
            yield entry.phy_offset if is_wanted else None
