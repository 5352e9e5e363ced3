"""IndexFiles as the store uses them: put, query, flush, roll, delete, and clean starts."""

import pytest
from index_file_model import (
    DIRECTORY,
    FOREVER,
    KEYS_PER_FLUSH,
    START_MS,
    FailingDisk,
    IndexedLog,
    Message,
    drained,
    files_of,
    found_by,
    java_files,
    keys_of,
    open_index,
    put_messages,
    run_job,
    sim_disk,
)

from disk.disk import Disk
from simulator.world.sim_disk import CrashPointReached, SimDisk
from store.errors import StoreConfigError
from store.index.index_file import utc_file_name
from store.index.index_file_list import IndexFileList
from store.layout.index_file import IndexFileShape, index_key, index_key_hash, walk_chain

SHAPE = IndexFileShape(7, 50)
ORDER = index_key_hash(index_key("Orders", "o-1"))


def messages(*key_hashes: int, first: int = 0, step_ms: int = 1000) -> list[Message]:
    """One key each, a second apart."""
    return [
        Message(48 + 100 * number, START_MS + step_ms * number, (key_hash,))
        for number, key_hash in enumerate(key_hashes, first)
    ]


@pytest.fixture
def disk() -> SimDisk:
    return sim_disk()


@pytest.fixture
def index(disk: SimDisk) -> IndexFileList:
    return open_index(disk, SHAPE)


def reopened(index: IndexFileList, disk: Disk) -> IndexFileList:
    index.close()
    return open_index(disk, SHAPE)


def test_an_empty_index_finds_nothing_and_makes_no_file(disk: SimDisk, index: IndexFileList) -> None:
    assert found_by(index, ORDER) == []
    assert index.flush(START_MS) is None
    assert index.delete_before(FOREVER) is None
    assert (index.covered_pos, index.end_phy_offset, index.end_timestamp) == (0, 0, 0)
    assert (disk.list_directory(DIRECTORY), disk.list_directory("store")) == ([], [])


def test_a_key_is_found_from_its_put_on_newest_message_first(index: IndexFileList) -> None:
    put_messages(index, messages(ORDER, 5, ORDER))
    assert found_by(index, ORDER) == [248, 48]
    job = index.flush(START_MS)
    assert job is not None
    assert found_by(index, ORDER) == [248, 48]
    job.run()
    assert found_by(index, ORDER) == [248, 48]
    put_messages(index, messages(ORDER, first=3))
    assert found_by(index, ORDER) == [348, 248, 48]
    index.job_done(job, succeeded=True)
    assert found_by(index, ORDER) == [348, 248, 48]
    assert run_job(index, index.flush(START_MS))
    assert (index.pending_count, found_by(index, ORDER)) == (0, [348, 248, 48])


def test_what_was_flushed_is_there_after_a_start(disk: SimDisk, index: IndexFileList) -> None:
    put_messages(index, messages(ORDER, 5, ORDER))
    run_job(index, index.flush(START_MS))
    put_messages(index, messages(ORDER, first=3))
    index = reopened(index, disk)
    assert (index.covered_pos, found_by(index, ORDER)) == (249, [248, 48])
    assert (index.end_phy_offset, index.end_timestamp) == (248, START_MS + 2000)


def test_keys_that_are_put_again_are_left_alone(disk: SimDisk, index: IndexFileList) -> None:
    given = messages(ORDER, 5, ORDER)
    put_messages(index, given[:2])
    put_messages(index, given)
    put_messages(index, given)
    run_job(index, index.flush(START_MS))
    put_messages(index, given[:1])
    assert (index.pending_count, index.covered_pos, found_by(index, ORDER)) == (0, 249, [248, 48])
    index = reopened(index, disk)
    put_messages(index, given)
    assert index.pending_count == 0


def test_a_log_without_keys_is_covered_all_the_same(disk: SimDisk, index: IndexFileList) -> None:
    index.put([], [], [], 4096)
    assert (index.covered_pos, index.flushed_pos) == (4096, 0)
    assert run_job(index, index.flush(START_MS))
    assert index.flush(START_MS) is None
    for stopped_cleanly in (True, False):
        again = open_index(disk, SHAPE, stopped_cleanly=stopped_cleanly)
        assert (again.covered_pos, again.flushed_pos) == (4096, 4096)
    assert disk.list_directory(DIRECTORY) == []


def test_a_message_with_two_keys_of_one_hash_is_found_once(index: IndexFileList) -> None:
    put_messages(index, [Message(48, START_MS, (ORDER, ORDER)), Message(148, START_MS, (ORDER, 3, ORDER))])
    assert found_by(index, ORDER) == [148, 48]
    run_job(index, index.flush(START_MS))
    assert found_by(index, ORDER) == [148, 48]


def test_the_window_of_a_query_is_exact_in_memory_and_by_the_second_in_files(index: IndexFileList) -> None:
    put_messages(index, messages(ORDER, ORDER, ORDER, ORDER, step_ms=1500))
    assert found_by(index, ORDER, START_MS + 1500, START_MS + 3000) == [248, 148]
    assert found_by(index, ORDER, START_MS + 1501, START_MS + 2999) == []
    run_job(index, index.flush(START_MS))
    assert found_by(index, ORDER, START_MS + 1500, START_MS + 3000) == [248, 148]
    # 1500 ms may be anything from 1000 to 1999: the message says.
    assert found_by(index, ORDER, START_MS + 1501, START_MS + 2999) == [148]
    assert found_by(index, ORDER, START_MS + 2000, START_MS + 2999) == []


def test_a_full_file_is_followed_by_a_new_one_and_a_batch_may_be_split(
    disk: SimDisk, index: IndexFileList
) -> None:
    given = messages(*[number % 9 for number in range(120)])
    put_messages(index, given[:30])
    run_job(index, index.flush(START_MS))
    put_messages(index, given[30:])
    run_job(index, index.flush(START_MS + 7))
    names = disk.list_directory(DIRECTORY)
    assert names == ["20231114221320000", "20231114221320007", "20231114221320008"]
    assert files_of(disk, SHAPE) == java_files(keys_of(given), SHAPE)
    put_messages(index, messages(4, first=120))
    index = reopened(index, disk)
    for key_hash in range(9):
        expected = [message.phy_offset for message in reversed(given) if message.key_hashes == (key_hash,)]
        assert found_by(index, key_hash) == expected


def test_files_are_read_by_the_chains_of_their_layout(disk: SimDisk, index: IndexFileList) -> None:
    given = messages(*[number % 9 for number in range(40)])
    put_messages(index, given)
    run_job(index, index.flush(START_MS))
    [content] = files_of(disk, SHAPE)
    for key_hash in range(9):
        chain = [entry.phy_offset for entry in walk_chain(content, key_hash, SHAPE.slot_count)]
        assert chain == found_by(index, key_hash)


def test_a_new_file_sorts_behind_the_others_though_the_clock_was_set_back(
    disk: SimDisk, index: IndexFileList
) -> None:
    for number in range(3):
        put_messages(index, messages(*range(49), first=49 * number))
        run_job(index, index.flush(START_MS - 3_600_000 * number))
    assert disk.list_directory(DIRECTORY) == ["20231114221320000", "20231114221320001", "20231114221320002"]
    index = reopened(index, disk)
    assert found_by(index, 0) == [48 + 9800, 48 + 4900, 48]


def test_file_names_are_times_down_to_the_millisecond() -> None:
    assert utc_file_name(START_MS + 45) == "20231114221320045"


def test_a_flush_is_due_when_it_pays_and_more_keys_wait_for_it(index: IndexFileList) -> None:
    index.put(range(KEYS_PER_FLUSH - 1), range(KEYS_PER_FLUSH - 1), range(KEYS_PER_FLUSH - 1), 1)
    assert (index.is_flush_due, index.is_full) == (False, False)
    index.put([7], [KEYS_PER_FLUSH], [1], 2)
    assert (index.is_flush_due, index.is_full) == (True, True)
    assert index.flush(START_MS) is not None
    assert (index.is_flush_due, index.is_full, index.pending_count) == (False, False, 0)
    assert index.flush(START_MS) is None


@pytest.mark.parametrize("good_syncs", range(5))
def test_a_flush_that_failed_is_done_again_with_what_came_meanwhile(
    disk: FailingDisk, index: IndexFileList, good_syncs: int
) -> None:
    given = messages(*[number % 9 for number in range(100)])
    put_messages(index, given[:20])
    run_job(index, index.flush(START_MS))
    put_messages(index, given[20:60])
    job = index.flush(START_MS)
    put_messages(index, given[60:])
    disk.good_syncs = good_syncs
    assert not run_job(index, job)
    assert (index.pending_count, index.flushed_pos) == (80, given[19].phy_offset + 1)
    expected = [message.phy_offset for message in reversed(given) if message.key_hashes == (4,)]
    assert found_by(index, 4) == expected
    assert run_job(index, index.flush(START_MS + 500))
    assert found_by(index, 4) == expected
    disk.power_loss()
    assert files_of(disk, SHAPE) == java_files(keys_of(given), SHAPE)


def test_a_query_goes_on_over_flushes_and_deletions(index: IndexFileList) -> None:
    given = messages(*[3] * 120)
    for first in (0, 49, 98):
        put_messages(index, given[first : first + 49])
        run_job(index, index.flush(START_MS))
    put_messages(index, messages(*[3] * 5, first=120))
    expected = [48 + 100 * number for number in range(124, -1, -1)]
    query = index.query(3, 0, FOREVER)
    found = query.next_offsets(3)
    run_job(index, index.flush(START_MS))
    found += query.next_offsets(40)
    put_messages(index, messages(3, first=125))
    run_job(index, index.flush(START_MS))
    delete = index.delete_before(given[98].phy_offset)
    found += query.next_offsets(10)
    assert (found, query.is_done) == (expected[:53], False)
    assert run_job(index, delete)
    # The files that it was to read are gone, and so are the messages, soon.
    assert (drained(query), query.is_done) == ([], True)
    assert found_by(index, 3) == [48 + 100 * 125, *expected[:27]]


def test_a_long_chain_is_read_in_steps_of_so_many_entries(disk: SimDisk) -> None:
    shape = IndexFileShape(1, 4000)
    index = open_index(disk, shape)
    put_messages(index, messages(5, *[6] * 3000))
    run_job(index, index.flush(START_MS))
    query = index.query(5, 0, FOREVER)
    steps = 0
    found: list[int] = []
    while not query.is_done:
        found += query.next_offsets(64, 500)
        steps += 1
    assert (found, steps) == ([48], 7)


def test_files_wholly_before_the_log_go_but_not_the_newest(disk: SimDisk, index: IndexFileList) -> None:
    given = messages(*[3] * 120)
    put_messages(index, given)
    run_job(index, index.flush(START_MS))
    names = disk.list_directory(DIRECTORY)
    assert index.delete_before(given[48].phy_offset) is None
    job = index.delete_before(given[48].phy_offset + 1)
    assert index.flush(START_MS) is None
    assert index.delete_before(FOREVER) is None
    assert run_job(index, job)
    assert disk.list_directory(DIRECTORY) == names[1:]
    assert run_job(index, index.delete_before(FOREVER))
    assert disk.list_directory(DIRECTORY) == names[2:]
    assert index.delete_before(FOREVER) is None
    index = reopened(index, disk)
    assert found_by(index, 3) == [message.phy_offset for message in reversed(given[98:])]


def test_a_deletion_that_failed_half_way_is_done_again(disk: SimDisk, index: IndexFileList) -> None:
    put_messages(index, messages(*[3] * 160))
    run_job(index, index.flush(START_MS))
    names = disk.list_directory(DIRECTORY)
    job = index.delete_before(FOREVER)
    assert job is not None
    disk.crash_after = 1  # stands for a disk that refuses the second file
    with pytest.raises(CrashPointReached):
        job.run()
    disk.crash_after = None
    index.job_done(job, succeeded=False)
    assert disk.list_directory(DIRECTORY) == names[1:]
    assert len(found_by(index, 3)) == 160 - 49
    disk.unlink(f"{DIRECTORY}/{names[1]}")  # by hand
    assert run_job(index, index.delete_before(FOREVER))
    assert disk.list_directory(DIRECTORY) == names[-1:]
    assert (len(found_by(index, 3)), index.delete_before(FOREVER)) == (160 - 3 * 49, None)


def test_when_the_log_begins_anew_nothing_of_before_is_left(disk: SimDisk, index: IndexFileList) -> None:
    put_messages(index, messages(*[3] * 120))
    run_job(index, index.flush(START_MS))
    put_messages(index, messages(3, first=120))
    query = index.query(3, 0, FOREVER)
    assert len(query.next_offsets(4)) == 4
    index.begin_anew()
    assert (drained(query), found_by(index, 3), index.pending_count) == ([], [], 0)
    assert (index.covered_pos, index.flushed_pos, index.is_flush_due) == (0, 0, True)
    run_job(index, index.flush(START_MS))
    assert (disk.list_directory(DIRECTORY), index.is_flush_due) == ([], False)
    put_messages(index, messages(3))
    run_job(index, index.flush(START_MS))
    assert found_by(open_index(disk, SHAPE, stopped_cleanly=False), 3) == [48]


@pytest.mark.parametrize("keys", [60, 3000])
@pytest.mark.slow
def test_a_large_slot_table_is_swept_in_runs(keys: int) -> None:
    # 400 kB of slots: a page at a time for few keys, four runs for many.
    log = IndexedLog(IndexFileShape(100_000, 20_000), seed=keys)
    for _ in range(3):
        log.append(*[[log.random.randrange(1 << 31)] for _ in range(keys)])
        log.append([0], [99_999], [199_999], [0x7FFFFFFF], [0])
        log.feed(keys + 5)
        assert log.flush()
        log.check_files()
    log.append(*[[log.random.randrange(1 << 31)] for _ in range(keys)])
    log.feed(keys)
    log.crash(12, power_loss=True)
    assert found_by(log.index, 0)[-1] == log.messages[keys].phy_offset
    log.feed(keys)
    log.reopen()
    log.check_files()


@pytest.mark.parametrize(
    ("slot_count", "index_count_max", "text"),
    [
        (0, 50, "at least 1 slot"),
        (1, 1, "at least 1 slot and 2 numbers"),
        (5_000_000, 120_000_000, "2420000040 bytes"),
    ],
)
def test_a_shape_that_no_file_can_have_is_refused(slot_count: int, index_count_max: int, text: str) -> None:
    with pytest.raises(StoreConfigError, match=text):
        IndexFileShape(slot_count, index_count_max)
