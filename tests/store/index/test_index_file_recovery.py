"""What a start makes of IndexFiles that Java wrote, and of those that cannot be right."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, expected, store_files
from index_file_model import (
    DIRECTORY,
    KEYS_PER_FLUSH,
    MARK,
    START_MS,
    IndexedLog,
    Key,
    Message,
    files_of,
    found_by,
    java_files,
    keys_of,
    open_index,
    put_messages,
    run_job,
    sim_disk,
)
from msgspec.structs import replace

from disk.disk import Disk, DiskError
from disk.mapped_file import DescriptorCache
from disk.real_disk import RealDisk
from disk.slots import SLOT_SIZE
from simulator.world.sim_disk import SimDisk
from store.index.index_file import delete_index_files
from store.index.index_file_list import IndexFileList
from store.index.index_file_mark import IndexFileMark, IndexFileMarkFile
from store.layout.index_file import (
    EMPTY_INDEX_HEADER,
    HASH_SLOT,
    INDEX_ENTRY,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    entry_offset,
    index_key,
    index_key_hash,
    parse_index_header,
    slot_offset,
)

JAVA_SHAPE = IndexFileShape(5000, 20_000)
SHAPE = IndexFileShape(7, 50)
STORES = ["single-5.5.0-clean", "single-4.9.5-clean", f"{DLEDGER_STORE}.broker-view"]


def write_file(disk: Disk, name: str, content: bytes | bytearray) -> None:
    disk.make_directory(DIRECTORY)
    file = disk.open(f"{DIRECTORY}/{name}", create=True)
    file.truncate(0)
    file.pwrite(content, 0)
    file.fdatasync()


def change_file(disk: Disk, number: int, change: Callable[[bytearray], None]) -> None:
    name = disk.list_directory(DIRECTORY)[number]
    content = bytearray(disk.read_file(f"{DIRECTORY}/{name}"))
    change(content)
    write_file(disk, name, content)


def keys_in(content: bytes | bytearray, shape: IndexFileShape) -> list[Key]:
    header = parse_index_header(content)
    keys = []
    for number in range(1, header.index_count):
        at = entry_offset(number, shape.slot_count)
        key_hash, phy_offset, seconds, _ = INDEX_ENTRY.unpack_from(content, at)
        keys.append((key_hash, phy_offset, header.begin_timestamp + 1000 * seconds))
    return keys


def java_store(view: str) -> tuple[SimDisk, bytes]:
    """The recorded store's one IndexFile."""
    directory = "n0/index" if view.startswith(DLEDGER_STORE) else "index"
    files = store_files(view.removesuffix(".broker-view"))
    [(path, content)] = [item for item in files.items() if item[0].rpartition("/")[0] == directory]
    disk = sim_disk()
    write_file(disk, path.rpartition("/")[2], content)
    return disk, content


@pytest.mark.parametrize("view", STORES)
def test_java_s_file_is_taken_over_and_answers_as_java_did(view: str) -> None:
    disk, content = java_store(view)
    index = open_index(disk, JAVA_SHAPE)
    header = parse_index_header(content)
    assert index.covered_pos == index.end_phy_offset == header.end_phy_offset
    assert index.end_timestamp == header.end_timestamp
    for line in expected(view)["query_key"]:
        found = found_by(index, index_key_hash(index_key(line["topic"], line["key"])))
        assert sorted(found[: line["maxNum"]]) == line["commitLogOffsets"]


@pytest.mark.parametrize("view", STORES)
def test_java_s_file_is_continued_as_java_would(view: str) -> None:
    disk, content = java_store(view)
    index = open_index(disk, JAVA_SHAPE)
    header = parse_index_header(content)
    keys = keys_in(content, JAVA_SHAPE)
    of_last = tuple(key_hash for key_hash, phy_offset, _ in keys if phy_offset == header.end_phy_offset)
    new = [
        Message(
            header.end_phy_offset + 500 * number, header.end_timestamp + 3000 * number, (key_hash, number)
        )
        for number, (key_hash, _, _) in enumerate(keys[:200], 1)
    ]
    # The caller begins with the last message that Java indexed, whose keys are there.
    put_messages(index, [Message(header.end_phy_offset, header.end_timestamp, of_last), *new])
    assert index.pending_count == 400
    run_job(index, index.flush(START_MS))
    [ours] = files_of(disk, JAVA_SHAPE)
    times = [(key_hash, phy_offset, START_MS) for key_hash, phy_offset, _ in keys]
    [as_java] = java_files([*times, *keys_of(new)], JAVA_SHAPE)
    found, wanted = parse_index_header(ours), parse_index_header(as_java)
    assert replace(found, begin_timestamp=START_MS) == wanted
    slots_end = JAVA_SHAPE.slots_end
    assert ours[INDEX_HEADER_SIZE:slots_end] == as_java[INDEX_HEADER_SIZE:slots_end]
    kept = entry_offset(header.index_count, JAVA_SHAPE.slot_count)
    assert ours[slots_end:kept] == content[slots_end:kept]
    for message in new:
        assert found_by(index, message.key_hashes[0])[0] >= message.phy_offset


@pytest.mark.parametrize("power_loss", [True, False])
def test_what_was_taken_over_survives_a_crash_at_once(power_loss: bool) -> None:
    disk, content = java_store(STORES[0])
    open_index(disk, JAVA_SHAPE)
    disk.sync_directory(DIRECTORY)  # it is copied there before the broker starts
    if power_loss:
        disk.power_loss()
    index = open_index(disk, JAVA_SHAPE, stopped_cleanly=False)
    assert index.end_phy_offset == parse_index_header(content).end_phy_offset


def test_files_of_a_broker_that_was_killed_are_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    disk, _ = java_store(STORES[0])
    index = open_index(disk, JAVA_SHAPE, stopped_cleanly=False)
    assert (index.covered_pos, index.end_phy_offset, disk.list_directory(DIRECTORY)) == (0, 0, [])
    assert "did not stop cleanly" in caplog.text


@pytest.mark.parametrize("header", [EMPTY_INDEX_HEADER.pack(), bytes(INDEX_HEADER_SIZE)])
def test_a_file_that_java_made_ahead_is_no_fault(header: bytes, caplog: pytest.LogCaptureFixture) -> None:
    disk, content = java_store(STORES[0])
    write_file(disk, "29991231235959999", header.ljust(JAVA_SHAPE.file_size, b"\0"))
    index = open_index(disk, JAVA_SHAPE)
    assert index.covered_pos == index.end_phy_offset == parse_index_header(content).end_phy_offset
    assert (len(disk.list_directory(DIRECTORY)), caplog.text) == (1, "")


def three_files(seed: int = 1) -> IndexedLog:
    log = IndexedLog(SHAPE, seed)
    # Two keys each, 49 entries in a file: messages are split between files.
    log.append(*[[number % 9, 100 + number] for number in range(60)])
    log.feed(60)
    assert log.flush()
    assert len(files_of(log.disk, SHAPE)) == 3
    log.index.close()
    return log


def rebuilt(log: IndexedLog, *, stopped_cleanly: bool) -> None:
    """Opens the index, feeds it from where it says, and compares."""
    log.index = open_index(log.disk, SHAPE, stopped_cleanly=stopped_cleanly)
    log.feed(60)
    log.check_queries()
    assert log.flush()
    log.check_queries()


def set_header(**changed: int) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[:INDEX_HEADER_SIZE] = replace(parse_index_header(content), **changed).pack()

    return change


def cut_short(content: bytearray) -> None:
    del content[-1:]


def zero_entries(content: bytearray) -> None:
    content[SHAPE.slots_end :] = bytes(len(content) - SHAPE.slots_end)


def empty(content: bytearray) -> None:
    content.clear()


DAMAGES = {
    "too short": (cut_short, "expected 1068 for maxHashSlotNum=7 and maxIndexNum=50"),
    "empty": (empty, "it is 0 bytes long"),
    "too many entries": (set_header(index_count=51), "its header counts 50 entries, expected 1 to 49"),
    "no entries": (set_header(index_count=1), "its header counts 0 entries"),
    "too many slots": (set_header(hash_slot_count=8), "8 slots are in use"),
    "another end": (set_header(end_phy_offset=47), "its header says 47"),
    "another begin": (set_header(begin_phy_offset=0), "its header "),
    "no entries where they were": (zero_entries, "points at physical offset 0"),
}


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_cannot_be_right_goes_with_all_newer_ones(
    name: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    change, text = DAMAGES[name]
    log = three_files()
    change_file(log.disk, number, change)
    if name in ("no entries", "empty") and number == 2:
        text = ""  # nothing to warn of: Java makes files ahead
    if name in ("too many slots", "another end", "another begin") and number == 2:
        text = "remembered is IndexHeader"
    caplog.clear()
    log.index = open_index(log.disk, SHAPE)
    assert len(log.disk.list_directory(DIRECTORY)) == number
    assert text in caplog.text
    log.index.close()
    rebuilt(log, stopped_cleanly=True)


@pytest.mark.parametrize("operations", range(14))
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("power_loss", [False, True])
def test_files_that_a_start_refused_are_never_believed_again(
    number: int, operations: int, power_loss: bool
) -> None:
    for seed in range(8):
        log = three_files(seed)
        change_file(log.disk, number, set_header(hash_slot_count=8))
        start = partial(open_index, log.disk, SHAPE, stopped_cleanly=False)
        log.cut_off(operations, start, power_loss=power_loss)
        start().close()  # a start and a clean stop, with nothing new in the log
        log.disk.power_loss()
        rebuilt(log, stopped_cleanly=True)


@pytest.mark.parametrize("operations", range(14))
@pytest.mark.parametrize("keeps_on", [False, True])
@pytest.mark.parametrize("power_loss", [False, True])
def test_an_index_that_begins_anew_is_all_there_or_not_at_all(
    operations: int, keeps_on: bool, power_loss: bool
) -> None:
    for seed in range(8):
        log = three_files(seed)
        log.index = open_index(log.disk, SHAPE)
        log.index.begin_anew()
        if keeps_on:
            log.feed(40)
        log.crash(operations, power_loss=power_loss)
        log.check_queries()
        log.index.close()
        log.disk.power_loss()
        rebuilt(log, stopped_cleanly=True)


@pytest.mark.parametrize("field", ["begin_timestamp", "end_timestamp"])
def test_a_damaged_time_in_the_newest_header_is_not_taken_for_another_broker_s(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = three_files()
    change_file(log.disk, 2, set_header(**{field: 1}))
    log.index = open_index(log.disk, SHAPE)
    assert f"{field}=1" in caplog.text
    assert len(log.disk.list_directory(DIRECTORY)) == 2
    log.index.close()
    rebuilt(log, stopped_cleanly=True)


def test_a_damaged_slot_of_the_mark_is_named_and_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    log = three_files()
    whole = log.disk.read_file(MARK)
    for at in (30, SLOT_SIZE + 30):
        file = log.disk.open(MARK)
        file.pwrite(bytes([whole[at] ^ 1]), at)
        caplog.clear()
        open_index(log.disk, SHAPE).close()
        assert f"path={MARK} slot={at // SLOT_SIZE}" in caplog.text
        caplog.clear()
        open_index(log.disk, SHAPE).close()
        assert caplog.text == ""


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_file_is_built_again_by_reading_the_log_again(number: int) -> None:
    log = three_files()
    [*names] = log.disk.list_directory(DIRECTORY)
    log.disk.unlink(f"{DIRECTORY}/{names[number]}")
    if number == 2:
        rebuilt(log, stopped_cleanly=False)
    else:
        # Its messages look like those that have expired: nobody is told, and nothing else is lost.
        log.index = open_index(log.disk, SHAPE, stopped_cleanly=False)
        assert len(found_by(log.index, 4)) >= 2


def test_slots_that_lead_nowhere_after_a_crash_have_the_file_built_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = three_files()

    def change(content: bytearray) -> None:
        HASH_SLOT.pack_into(content, slot_offset(3, SHAPE.slot_count), 47)
        INDEX_ENTRY.pack_into(content, entry_offset(23, SHAPE.slot_count), 1, 6048, 0, 0)

    change_file(log.disk, 2, change)
    rebuilt(log, stopped_cleanly=False)
    assert "the chain of slot 3 does not lead back from entry 47" in caplog.text


def test_a_slot_that_points_ahead_counts_as_empty() -> None:
    log = three_files()
    change_file(log.disk, 2, lambda content: HASH_SLOT.pack_into(content, slot_offset(3, 7), 23))
    log.index = open_index(log.disk, SHAPE)
    log.append([3], [3])
    log.feed(2)
    assert log.flush()
    content = files_of(log.disk, SHAPE)[2]
    entries = [INDEX_ENTRY.unpack_from(content, entry_offset(number, 7)) for number in (23, 24)]
    assert [previous for _, _, _, previous in entries] == [0, 23]


def test_a_lost_mark_costs_nothing_after_a_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    log = three_files()
    log.disk.open(MARK).pwrite(bytes(8192), 0)
    log.index = open_index(log.disk, SHAPE)
    assert log.index.covered_pos == log.messages[-1].phy_offset
    log.feed(1)
    assert log.index.pending_count == 0
    log.check_files()
    log.check_queries()
    assert "mark of the IndexFiles is lost" in caplog.text


def test_a_lost_mark_costs_all_files_after_a_crash() -> None:
    log = three_files()
    log.disk.unlink(MARK)
    log.index = open_index(log.disk, SHAPE, stopped_cleanly=False)
    assert (log.index.covered_pos, log.disk.list_directory(DIRECTORY)) == (0, [])
    log.index.close()
    rebuilt(log, stopped_cleanly=True)


def as_java_leaves_it(log: IndexedLog, first: int, end: int) -> None:
    """A broker of Java's ran and stopped: our mark says nothing of what it wrote."""
    log.append(*[[number % 9, 100 + number] for number in range(first, end)])
    names = log.disk.list_directory(DIRECTORY)
    contents = java_files(keys_of(log.messages), SHAPE)
    names += [f"2999123123595900{number}" for number in range(len(contents) - len(names))]
    for name, content in zip(names, contents, strict=True):
        write_file(log.disk, name, content)


@pytest.mark.parametrize("end", [62, 100])
def test_what_java_wrote_after_us_is_taken_over(end: int) -> None:
    log = three_files()
    as_java_leaves_it(log, 60, end)
    log.index = open_index(log.disk, SHAPE)
    assert log.index.covered_pos == log.messages[-1].phy_offset
    log.append([4, 5], [4])
    log.feed(9)
    assert log.flush()
    log.check_files()
    log.check_queries()


@pytest.mark.parametrize("end", [62, 100])
def test_what_java_wrote_after_us_and_was_killed_is_led_back_to_our_mark(end: int) -> None:
    log = three_files()
    as_java_leaves_it(log, 60, end)
    log.index = open_index(log.disk, SHAPE, stopped_cleanly=False)
    assert log.index.covered_pos == log.messages[59].phy_offset + 1
    log.feed(100)
    assert log.flush()
    log.check_files()
    log.check_queries()


def test_slots_are_led_back_without_filling_the_holes_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = IndexFileShape(1_000_000, 1000)
    mark_path = str(tmp_path / "mark")

    def opened(*, stopped_cleanly: bool) -> IndexFileList:
        index = IndexFileList(
            DescriptorCache(RealDisk()), str(tmp_path / "index"), mark_path, shape, KEYS_PER_FLUSH
        )
        index.open(stopped_cleanly=stopped_cleanly)
        return index

    def fail(mark_file: IndexFileMarkFile, mark: IndexFileMark) -> None:
        raise DiskError(errno.EIO, "no mark", mark_path)

    index = opened(stopped_cleanly=True)
    put_messages(index, [Message(48, START_MS, (1, 2, 400_000))])
    assert run_job(index, index.flush(START_MS))
    put_messages(index, [Message(148, START_MS, (1, 200_000, 400_000, 600_000))])
    with monkeypatch.context() as patched:
        patched.setattr(IndexFileMarkFile, "write", fail)
        assert not run_job(index, index.flush(START_MS))
    [path] = (tmp_path / "index").iterdir()
    blocks = path.stat().st_blocks
    index = opened(stopped_cleanly=False)
    assert path.stat().st_blocks == blocks
    assert [found_by(index, key_hash) for key_hash in (1, 200_000, 400_000)] == [[48], [], [48]]


def test_another_shape_in_the_conf_has_all_files_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    log = three_files()
    log.shape = IndexFileShape(9, 50)
    index: IndexFileList = open_index(log.disk, log.shape)
    assert (index.covered_pos, log.disk.list_directory(DIRECTORY)) == (0, [])
    said = "IndexFiles have maxHashSlotNum=7 maxIndexNum=50, the conf says 9 and 50: all are built anew"
    assert said in caplog.text


def test_another_shape_of_the_same_size_has_all_files_built_anew_too() -> None:
    log = three_files()
    log.shape = IndexFileShape(12, 49)
    assert log.shape.file_size == SHAPE.file_size
    log.index = open_index(log.disk, log.shape, stopped_cleanly=False)
    assert (log.index.covered_pos, log.disk.list_directory(DIRECTORY)) == (0, [])
    log.feed(100)
    assert log.flush()
    log.check_files()
    log.check_queries()


def test_java_s_files_of_another_shape_are_built_anew(caplog: pytest.LogCaptureFixture) -> None:
    log = three_files()
    as_java_leaves_it(log, 60, 62)
    index: IndexFileList = open_index(log.disk, IndexFileShape(9, 50))
    assert (index.covered_pos, log.disk.list_directory(DIRECTORY)) == (0, [])
    assert "were others configured before?" in caplog.text


def test_what_an_attempt_before_unlinked_and_no_more_is_gone_for_good() -> None:
    for seed in range(8):
        disk = three_files(seed).disk
        for name in disk.list_directory(DIRECTORY):
            disk.unlink(f"{DIRECTORY}/{name}")
        delete_index_files(disk, DIRECTORY, [])
        disk.power_loss()
        assert disk.list_directory(DIRECTORY) == []


def test_files_of_other_names_are_left_alone() -> None:
    log = three_files()
    write_file(log.disk, "20231114221320000.bak", b"mine")
    log.index = open_index(log.disk, SHAPE, stopped_cleanly=False)
    log.index.begin_anew()
    assert log.flush()
    assert log.disk.list_directory(DIRECTORY) == ["20231114221320000.bak"]
