"""The newest IndexFile of a store of ours: up to what the mark of the IndexFiles counts, all of it is looked at,
whether the broker stopped, runs or crashed. What a flush that is under way has put there besides is no fault.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from derived_store import Stores, cut_out, derived_findings, made_once
from store_group import INDEX_FILE_SHAPE
from test_index_file_findings import SLOTS, IndexedStore

from disk.mapped_file import DescriptorCache
from disk.real_disk import RealDisk
from store.index.index_file_list import IndexFileList
from store.index.index_file_mark import IndexFileMark, IndexFileMarkFile
from store.layout.index_file import (
    HASH_SLOT,
    HASH_SLOT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    entry_offset,
    parse_index_header,
    slot_offset,
)
from verify import replica as replica_module
from verify.findings import Finding, Kind
from verify.replica import open_replica

SHAPE = IndexFileShape(SLOTS, 4 * SLOTS)


@pytest.fixture
def stores(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(made_once(tmp_path_factory), tmp_path)


def newest_file(root: Path) -> Path:
    return max((root / "index").iterdir())


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def read_slot(path: Path, slot: int) -> int:
    [number] = HASH_SLOT.unpack_from(path.read_bytes(), INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot)
    return int(number)


@pytest.mark.parametrize("after", ["a stop", "a crash", "nothing: it runs"])
def test_a_slot_wiped_in_all_replicas_is_found_in_each(
    stores: Stores, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if after == "nothing: it runs":
        monkeypatch.setattr(replica_module, "_is_locked", lambda path: True)
    for root in stores.roots:
        if after == "a crash":
            (root / "abort").touch()
    assert stores.findings() == []
    path = newest_file(stores.roots[0])
    count = parse_index_header(path.read_bytes()).index_count
    key_hash, *_ = INDEX_ENTRY.unpack_from(
        path.read_bytes(), entry_offset(count - 1, INDEX_FILE_SHAPE.slot_count)
    )
    for root in stores.roots:
        change(newest_file(root), slot_offset(key_hash, INDEX_FILE_SHAPE.slot_count), bytes(HASH_SLOT_SIZE))
    slot = key_hash % INDEX_FILE_SHAPE.slot_count
    assert [(one.kind, one.replica, one.sentence) for one in stores.findings()] == [
        (Kind.KEY_INDEX_WRONG, name, f"slot {slot} says entry 0, its newest one is {count - 1}")
        for name in ("n0", "n1", "n2")
    ]


def test_a_mark_that_a_recovery_has_read_from_the_files_leaves_the_last_record_open(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost its mark, so it puts the keys of the last record in the files again, and they may be there already."""
    monkeypatch.setattr(replica_module, "_is_locked", lambda path: True)
    path = newest_file(stores.roots[0])
    header = parse_index_header(path.read_bytes())
    end = header.end_phy_offset
    marks = list(stores.roots[0].glob("dledger-*/pydledger/key-index-mark"))
    (mark_path,) = marks
    mark_path.unlink()
    mark_file = IndexFileMarkFile(RealDisk(), str(mark_path))
    mark_file.write(IndexFileMark(path.name, header, end, end - 1, INDEX_FILE_SHAPE))
    mark_file.close()
    assert stores.findings() == []


def test_a_header_that_is_not_the_remembered_one_is_found_after_a_stop(stores: Stores) -> None:
    path = newest_file(stores.roots[1])
    change(path, 7, bytes([path.read_bytes()[7] ^ 1]))
    [finding] = stores.findings()
    assert (finding.kind, finding.replica) == (Kind.KEY_INDEX_WRONG, "n1")
    assert finding.sentence.startswith("its header is IndexHeader(")


def test_the_newest_file_gone_is_a_missing_file(stores: Stores) -> None:
    path = newest_file(stores.roots[2])
    path.unlink()
    [finding] = stores.findings()
    assert (finding.kind, finding.replica, finding.file) == (Kind.MISSING_FILE, "n2", f"index/{path.name}")


class Flushed:
    """A recorded store whose keys our IndexFiles hold, but for the last ones: these are in the file, and the mark does
    not count them yet.
    """

    def __init__(self, directory: Path) -> None:
        self.root = cut_out("single-4.9.5-clean", directory)
        java_s = IndexedStore(directory / "java", "single-4.9.5-clean")
        keys, times = java_s.keys(), java_s.times()
        shutil.rmtree(self.root / "index")
        own = self.root / "pydledger" / "pydledger"
        own.mkdir(parents=True)
        mark = own / "key-index-mark"
        index = IndexFileList(
            DescriptorCache(RealDisk()), str(self.root / "index"), str(mark), SHAPE, 1 << 15
        )
        index.open(stopped_cleanly=True)
        cut = next(at for at in range(len(keys) // 2, len(keys)) if keys[at][1] != keys[at - 1][1])
        for part in (keys[:cut], keys[cut:]):
            before = mark.read_bytes() if mark.exists() else b""
            index.put(
                [key_hash for key_hash, _ in part],
                [phy_offset for _, phy_offset in part],
                [times[phy_offset] for _, phy_offset in part],
                part[-1][1] + 1,
            )
            job = index.flush(times[keys[0][1]])
            assert job is not None
            job.run()
            index.job_done(job, succeeded=True)
        index.close()
        mark.write_bytes(before)
        (self.root / "abort").touch()
        self.count = cut + 1
        self.end = len(keys) + 1
        self.path = newest_file(self.root)

    def findings(self) -> list[Finding]:
        return derived_findings([open_replica(self.root)])

    def slots(self, wanted: Callable[[int], bool]) -> list[int]:
        """Those that hold entries of such numbers."""
        return [slot for slot in range(SLOTS) if wanted(read_slot(self.path, slot))]


@pytest.fixture
def flushed(tmp_path: Path) -> Flushed:
    return Flushed(tmp_path)


def test_what_a_flush_under_way_has_written_is_no_fault(flushed: Flushed) -> None:
    assert flushed.slots(lambda number: number >= flushed.count), "the flush has come to the slots"
    assert flushed.findings() == []


def test_slots_that_the_flush_under_way_has_not_come_to_are_no_fault(flushed: Flushed) -> None:
    content = flushed.path.read_bytes()
    for slot in flushed.slots(lambda number: number >= flushed.count)[::2]:
        number = read_slot(flushed.path, slot)
        while number >= flushed.count:
            *_, number = INDEX_ENTRY.unpack_from(content, entry_offset(number, SLOTS))
        change(flushed.path, INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot, HASH_SLOT.pack(number))
    assert flushed.findings() == []


def test_a_slot_wiped_beside_a_flush_under_way_is_found(flushed: Flushed) -> None:
    slot = flushed.slots(lambda number: 0 < number < flushed.count)[0]
    number = read_slot(flushed.path, slot)
    change(flushed.path, INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot, bytes(HASH_SLOT_SIZE))
    [finding] = flushed.findings()
    assert finding.sentence == f"slot {slot} says entry 0, its newest one is {number}"


def test_slots_that_no_longer_lead_back_to_what_counts_are_found(flushed: Flushed) -> None:
    size = (flushed.end - flushed.count) * INDEX_ENTRY_SIZE
    change(flushed.path, entry_offset(flushed.count, SLOTS), bytes(size))
    ahead = flushed.slots(lambda number: number >= flushed.count)
    [finding] = flushed.findings()
    assert (finding.kind, finding.count) == (Kind.KEY_INDEX_WRONG, len(ahead))
