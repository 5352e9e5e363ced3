"""A log of messages with keys, IndexFiles that are fed from it, and what Java would have written for the same keys."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from disk.disk import Disk, DiskError
from disk.mapped_file import DescriptorCache
from simulator.world.disk_nodes import FileNode, Node
from simulator.world.sim_disk import CrashPointReached, SimDisk
from store.index.index_file_flush import IndexFileFlushJob
from store.index.index_file_list import IndexFileJob, IndexFileList
from store.index.index_file_query import IndexFileQuery
from store.layout.index_file import (
    EMPTY_INDEX_HEADER,
    HASH_SLOT,
    INDEX_ENTRY,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    entry_offset,
    parse_index_header,
    slot_offset,
    time_diff,
)

START_MS = 1_700_000_000_000
DIRECTORY = "store/index"
MARK = "store/dledger-n0/pydledger/key-index-mark"
FOREVER = 1 << 60
Key = tuple[int, int, int]  # hash, physical offset, store timestamp


@dataclass(frozen=True)
class Message:
    phy_offset: int
    store_timestamp: int
    key_hashes: tuple[int, ...]


class FailingDisk(SimDisk):
    """After so many good syncs of files one fails."""

    good_syncs: int | None = None

    def sync(self, node: Node, path: str) -> None:
        if self.good_syncs is not None and isinstance(node, FileNode) and node.pending:
            if self.good_syncs == 0:
                self.failing_syncs, self.good_syncs = 1, None
            else:
                self.good_syncs -= 1
        super().sync(node, path)


def sim_disk(seed: int = 0) -> FailingDisk:
    return FailingDisk(Random(seed), lambda: 0, lambda: 0)


KEYS_PER_FLUSH = 1000  # due by itself in no test but its own


def open_index(
    disk: Disk, shape: IndexFileShape, *, stopped_cleanly: bool = True, directory: str = DIRECTORY
) -> IndexFileList:
    index = IndexFileList(DescriptorCache(disk, open_max=2), directory, MARK, shape, KEYS_PER_FLUSH)
    index.open(stopped_cleanly=stopped_cleanly)
    return index


def run_job(index: IndexFileList, job: IndexFileJob | None) -> bool:
    """As the store's flusher has it. Whether it succeeded."""
    assert job is not None
    try:
        job.run()
    except DiskError:
        index.job_done(job, succeeded=False)
        return False
    index.job_done(job, succeeded=True)
    return True


def found_by(index: IndexFileList, key_hash: int, begin_ms: int = 0, end_ms: int = FOREVER) -> list[int]:
    return drained(index.query(key_hash, begin_ms, end_ms))


def drained(query: IndexFileQuery, limit: int = 3, entries_max: int = 5) -> list[int]:
    found: list[int] = []
    while not query.is_done:
        part = query.next_offsets(limit, entries_max)
        assert len(part) <= limit
        found += part
    return found


def put_messages(index: IndexFileList, messages: Sequence[Message]) -> None:
    keys = keys_of(messages)
    index.put(
        [key_hash for key_hash, _, _ in keys],
        [phy_offset for _, phy_offset, _ in keys],
        [timestamp for _, _, timestamp in keys],
        messages[-1].phy_offset + 1,
    )


def keys_of(messages: Sequence[Message]) -> list[Key]:
    return [
        (key_hash, message.phy_offset, message.store_timestamp)
        for message in messages
        for key_hash in message.key_hashes
    ]


def java_files(keys: Sequence[Key], shape: IndexFileShape) -> list[bytearray]:
    """One key after the other, as RocketMQ puts them."""
    files: list[bytearray] = []
    header = EMPTY_INDEX_HEADER
    for key_hash, phy_offset, timestamp in keys:
        if not files or header.index_count >= shape.index_count_max:
            files.append(bytearray(shape.file_size))
            header = IndexHeader(timestamp, 0, phy_offset, 0, 0, 1)
        content, number = files[-1], header.index_count
        at = slot_offset(key_hash, shape.slot_count)
        [previous] = HASH_SLOT.unpack_from(content, at)
        diff = time_diff(timestamp, header.begin_timestamp)
        at_entry = entry_offset(number, shape.slot_count)
        INDEX_ENTRY.pack_into(content, at_entry, key_hash, phy_offset, diff, previous)
        HASH_SLOT.pack_into(content, at, number)
        header = IndexHeader(
            header.begin_timestamp,
            timestamp,
            header.begin_phy_offset,
            phy_offset,
            header.hash_slot_count + (previous == 0),
            number + 1,
        )
        content[:INDEX_HEADER_SIZE] = header.pack()
    return files


def files_of(disk: Disk, shape: IndexFileShape, directory: str = DIRECTORY) -> list[bytes]:
    """Contents, oldest first, without what lies behind the entries that count."""
    contents = []
    for name in disk.list_directory(directory):
        content = disk.read_file(f"{directory}/{name}")
        assert len(content) == shape.file_size
        end = entry_offset(parse_index_header(content).index_count, shape.slot_count)
        contents.append(content[:end].ljust(shape.file_size, b"\0"))
    return contents


class IndexedLog:
    """The log is kept, as Raft keeps it; the index may crash and lose what it has not flushed."""

    def __init__(self, shape: IndexFileShape, seed: int) -> None:
        self.shape = shape
        self.random = Random(seed)
        self.disk = sim_disk(seed)
        self.messages: list[Message] = []
        self.deleted_before = 0
        # A crash within make_directory may leave a directory of which a power loss knows nothing; nobody sees to that.
        self.disk.make_directory(MARK.rpartition("/")[0])
        self.disk.make_directory(DIRECTORY)
        self.index = open_index(self.disk, shape)

    def append(self, *key_hashes: Sequence[int]) -> None:
        for hashes in key_hashes:
            number = len(self.messages)
            before = self.messages[-1].store_timestamp if self.messages else START_MS
            message = Message(48 + 100 * number, before + self.random.randrange(1500), tuple(hashes))
            self.messages.append(message)

    def feed(self, count: int) -> None:
        """The next messages, or some that the index has already."""
        first = next((n for n, m in enumerate(self.messages) if m.phy_offset >= self.index.covered_pos), None)
        if first is not None:
            put_messages(self.index, self.messages[max(0, first - self.random.randrange(2)) : first + count])

    def flush(self) -> bool:
        job = self._flush_job()
        return job is None or run_job(self.index, job)

    def fail(self, good_syncs: int) -> None:
        """A flush during which more keys come, and one of whose syncs fails."""
        job = self._flush_job()
        self.feed(good_syncs + 1)
        self.disk.good_syncs = good_syncs
        if job is not None:
            run_job(self.index, job)
        self.disk.good_syncs = None
        self.disk.failing_syncs = 0

    def crash(self, operations: int, *, power_loss: bool) -> None:
        """So many disk operations after a flush has begun; and once more while the index is opened again."""
        flushed_pos = self.index.flushed_pos
        job = self._flush_job()
        self.cut_off(operations, job.run if job is not None else lambda: None, power_loss=power_loss)
        self.cut_off(
            operations,
            lambda: open_index(self.disk, self.shape, stopped_cleanly=False),
            power_loss=power_loss,
        )
        self.index = open_index(self.disk, self.shape, stopped_cleanly=False)
        assert self.index.covered_pos >= flushed_pos, "what was flushed is never built anew"

    def reopen(self) -> None:
        """A clean stop, and a start."""
        assert self.flush()
        self.index.close()
        self.index = open_index(self.disk, self.shape)

    def delete(self, share: float) -> None:
        if self.messages:
            bound = self.messages[int(share * (len(self.messages) - 1))].phy_offset
            job = self.index.delete_before(bound)
            if job is not None:
                run_job(self.index, job)
                self.deleted_before = max(self.deleted_before, bound)

    def check_queries(self) -> None:
        known = [message for message in self.messages if message.phy_offset < self.index.covered_pos]
        times = {message.phy_offset: message.store_timestamp for message in known}
        for key_hash in {key_hash for message in self.messages for key_hash in message.key_hashes} | {99}:
            expected = [message.phy_offset for message in reversed(known) if key_hash in message.key_hashes]
            for begin_ms, end_ms in self._windows():
                in_window = [offset for offset in expected if begin_ms <= times[offset] <= end_ms]
                found = found_by(self.index, key_hash, begin_ms, end_ms)
                assert found == sorted(set(found), reverse=True)
                # What a file says by the second is judged by the message's own time.
                judged = [offset for offset in found if begin_ms <= times[offset] <= end_ms]
                kept = [offset for offset in in_window if offset >= self.deleted_before]
                assert [offset for offset in judged if offset >= self.deleted_before] == kept
                assert set(found) <= set(expected)

    def check_files(self) -> None:
        """After a flush: byte for byte what Java would have, but for files that were deleted.

        A power loss may bring some of those back, for nobody waits until their names are gone from the disk.
        """
        known = [message for message in self.messages if message.phy_offset < self.index.covered_pos]
        expected = java_files(keys_of(known), self.shape)
        wanted = [
            content
            for content in expected
            if parse_index_header(content).end_phy_offset >= self.deleted_before
        ]
        found = files_of(self.disk, self.shape)
        assert found[len(found) - len(wanted) :] == wanted
        others = iter(expected)
        assert all(content in others for content in found), "in their order, each once"

    def _flush_job(self) -> IndexFileFlushJob | None:
        return self.index.flush(START_MS + self.random.randrange(100))

    def _windows(self) -> Iterator[tuple[int, int]]:
        yield 0, FOREVER
        times = [message.store_timestamp for message in self.messages] or [START_MS]
        for _ in range(3):
            begin_ms, end_ms = sorted(self.random.choice(times) + self.random.randrange(-1, 2) for _ in "be")
            yield begin_ms, end_ms

    def cut_off(self, operations: int, code: Callable[[], object], *, power_loss: bool) -> None:
        self.disk.crash_after = operations
        with contextlib.suppress(CrashPointReached, DiskError):
            code()
        self.disk.crash_after = None
        self.disk.failing_syncs = 0
        if power_loss:
            self.disk.power_loss()
        else:
            self.disk.process_crash()
