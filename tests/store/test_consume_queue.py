"""One ConsumeQueue and the store of all of them: memory and files together hold what was put, however it is flushed."""

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disk.disk import DiskError
from disk.mapped_file import DescriptorCache
from disk.real_disk import RealDisk
from store.dispatch_request import DispatchRequest
from store.java.consume_queue_ends import consume_queue_ends
from store.layout.consume_queue_unit import CQ_UNIT, FILLER
from store.queues.consume_queue_store import ConsumeQueueStore
from store.store_config import StoreConfig

FILE_UNITS = 10


def open_store(directory: Path, cache_units: int = 0, file_units: int = FILE_UNITS) -> ConsumeQueueStore:
    config = StoreConfig(
        store_path_root_dir=str(directory),
        ledger_directory="",
        store_host=bytes(8),
        mapped_file_size_consume_queue=20 * file_units,
        consume_queue_cache_size=20 * cache_units,
    )
    return ConsumeQueueStore(DescriptorCache(RealDisk(), 4), config)


def unit(number: int) -> tuple[int, int, int]:
    return 1000 + 100 * number, 95, -number


def request(first: int, count: int, topic: bytes = b"T", queue_id: int = 0) -> DispatchRequest:
    made = DispatchRequest(topic, queue_id, first, 0)
    made.units = [CQ_UNIT.pack(*unit(number)) for number in range(first, first + count)]
    made.tags_codes = [unit(number)[2] for number in range(first, first + count)]
    return made


def flush(store: ConsumeQueueStore) -> None:
    queues = store.dirty()
    while (job := store.flush_job(queues)) is not None:
        job.run()
        store.flush_done(job, succeeded=True)


def all_units(store: ConsumeQueueStore, topic: bytes = b"T") -> list[tuple[int, int, int] | None]:
    queue = store.find(topic, 0)
    assert queue is not None
    return [queue.unit(offset) for offset in range(queue.min_offset, queue.max_offset)]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    steps=st.lists(st.one_of(st.integers(1, 25), st.just("flush"), st.just("reopen")), max_size=14),
    first=st.sampled_from([0, 0, 7, 10, 23]),
    span=st.integers(1, 40),
)
def test_any_range_reads_as_it_was_put(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str], first: int, span: int
) -> None:
    directory = tmp_path_factory.mktemp("queue")
    store = open_store(directory)
    store.put([request(first, 1)])
    end = first + 1
    for step in steps:
        if isinstance(step, int):
            store.put([request(end, step)])
            end += step
        elif step == "flush":
            flush(store)
        else:
            flush(store)
            rows = store.rows()
            store.close()
            store = open_store(directory)
            assert store.restore(rows) is None
    queue = store.find(b"T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (first, end)
    for offset in range(first, end):
        found = list(CQ_UNIT.iter_unpack(queue.units(offset, span)))
        assert found == [unit(number) for number in range(offset, min(offset + span, end))]
    store.close()


def test_a_queue_that_begins_above_0_has_fillers_from_its_file_s_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(23, 2)])
    flush(store)
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    assert path.name == f"{20 * 20:020d}"
    data = path.read_bytes()
    assert data[: 3 * 20] == FILLER * 3
    assert data[3 * 20 : 5 * 20] == request(23, 2).units[0] + request(23, 2).units[1]
    assert data[5 * 20 :] == bytes(5 * 20)


def test_a_gap_is_filled_so_that_offsets_stay_right_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    with caplog.at_level(logging.ERROR):
        store.put([request(0, 2), request(4, 1)])
    assert "expected=2 found=4" in caplog.text
    assert all_units(store) == [unit(0), unit(1), (0, 0x7FFFFFFF, 0), (0, 0x7FFFFFFF, 0), unit(4)]


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 5), request(1, 2), request(3, 4)])
    assert all_units(store) == [unit(number) for number in range(7)]


@pytest.mark.parametrize("are_files_gone", [True, False])
@pytest.mark.parametrize("is_restored", [True, False])
def test_a_deleted_topic_that_rocketmq_made_again_begins_at_0(
    tmp_path: Path, are_files_gone: bool, is_restored: bool
) -> None:
    """It finds no file of the queue, and gives offsets from 0 on."""
    store = open_store(tmp_path)
    store.put([request(0, 15)])
    flush(store)
    (queue,) = store.let_go(b"T")
    if are_files_gone:
        assert queue.delete_files_if_empty()
    if is_restored:
        rows = store.rows()
        store.close()
        store = open_store(tmp_path)
        assert store.restore(rows) is None
    store.put([request(0, 2), request(2, 1)])
    flush(store)
    assert all_units(store) == [unit(number) for number in range(3)]
    rows = store.rows()
    assert rows == [(b"T", 0, 0, 3)]
    store.close()
    store = open_store(tmp_path)
    assert store.restore(rows) is None
    assert all_units(store) == [unit(number) for number in range(3)]


def test_memory_keeps_the_newest_units_within_the_cache_size(tmp_path: Path) -> None:
    store = open_store(tmp_path, cache_units=100)
    store.put([request(0, 500)])
    flush(store)
    queue = store.find(b"T", 0)
    assert queue is not None
    assert queue.unflushed_count == 0
    queue.files.delete_from(0)
    assert len(queue.units(400, 100)) == 100 * CQ_UNIT.size, "they are in memory"
    assert queue.units(399, 1) == b"", "not this one"


def test_a_failed_flush_changes_nothing_and_the_next_one_makes_up_for_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 15)])
    flush(store)
    store.put([request(15, 30)])
    job = store.flush_job(store.dirty())
    assert job is not None
    (tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}").mkdir()  # where a file is to be
    with pytest.raises(DiskError):
        job.run()
    store.flush_done(job, succeeded=False)
    queue = store.find(b"T", 0)
    assert queue is not None
    assert queue.flushed_unit == 15
    (tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}").rmdir()
    flush(store)
    rows = store.rows()
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.restore(rows) is None
    assert all_units(reopened) == [unit(number) for number in range(45)]


def test_a_file_left_by_an_earlier_life_of_a_queue_is_wiped(tmp_path: Path) -> None:
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(b"\xff" * 20 * FILE_UNITS)
    store = open_store(tmp_path)
    store.put([request(0, 2)])
    flush(store)
    assert (directory / f"{0:020d}").read_bytes()[40:] == bytes(20 * FILE_UNITS - 40)


@pytest.mark.parametrize("begin", [12, 20, 28, 30, 45])
def test_a_queue_of_which_none_was_left_begins_anew_wherever_its_last_file_lies(
    tmp_path: Path, begin: int
) -> None:
    """What lay between that file and the begin was never flushed, and is gone from the log."""
    store = open_store(tmp_path)
    store.put([request(0, 15)])
    flush(store)
    store.close()
    again = open_store(tmp_path)
    assert again.restore([(b"T", 0, begin, begin)]) is None
    again.put([request(begin, 7)])
    flush(again)
    assert all_units(again) == [unit(number) for number in range(begin, begin + 7)]
    rows = again.rows()
    again.close()
    assert open_store(tmp_path).restore(rows) is None


def test_restoring_removes_files_of_queues_that_the_checkpoint_does_not_know(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 2), request(0, 3, b"U")])
    flush(store)
    rows = [row for row in store.rows() if row[0] == b"T"]
    store.close()
    reopened = open_store(tmp_path)
    assert reopened.restore(rows) is None
    assert list((tmp_path / "consumequeue" / "U" / "0").iterdir()) == []
    assert all_units(reopened) == [unit(0), unit(1)]


def test_what_is_no_directory_is_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 2)])
    flush(store)
    rows = store.rows()
    store.close()
    foreign = [tmp_path / "consumequeue" / ".DS_Store", tmp_path / "consumequeue" / "T" / "1"]
    for path in foreign:
        path.write_bytes(b"hello")
    reopened = open_store(tmp_path)
    assert reopened.restore(rows) is None
    assert all_units(reopened) == [unit(0), unit(1)]
    assert list(consume_queue_ends(RealDisk(), str(tmp_path))) == [(b"T", 0, 2)]
    reopened.delete_all()
    assert [path.read_bytes() for path in foreign] == [b"hello", b"hello"]


@pytest.mark.parametrize("min_phy_offset", [0, 1000, 1095, 1400, 2400, 2495, 9999])
def test_the_minimum_offset_is_the_first_unit_that_points_into_the_log(
    tmp_path: Path, min_phy_offset: int
) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 15)])
    flush(store)
    queue = store.find(b"T", 0)
    assert queue is not None
    queue.correct_min_offset(min_phy_offset)
    expected = [number for number in range(15) if unit(number)[0] >= min_phy_offset]
    assert queue.min_offset == (expected[0] if expected else 15)


FAR = 5 << 32  # what is left of a physical offset there without its high bytes is small


@pytest.mark.parametrize("sector", range(1, 9))
@pytest.mark.parametrize("lost", [bytes(4096), bytes(range(256)) * 16, b"\xff" * 4096], ids=["0", "any", "f"])
def test_a_block_that_was_lost_has_no_messages_taken_for_deleted(
    tmp_path: Path, sector: int, lost: bytes
) -> None:
    store = open_store(tmp_path, file_units=2000)
    made = DispatchRequest(b"T", 0, 0, 0)
    made.units = [CQ_UNIT.pack(FAR + 1000 * number, 900, 0) for number in range(2000)]
    made.tags_codes = [0] * 2000
    store.put([made])
    flush(store)
    queue = store.find(b"T", 0)
    assert queue is not None
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    sound = path.read_bytes()
    path.write_bytes(sound[: sector * 4096] + lost + sound[sector * 4096 + 4096 :])
    for begin in range(1, 1900, 7):
        queue.begin_with(0)
        queue.correct_min_offset(FAR + 1000 * begin)
        assert queue.min_offset <= begin
    path.write_bytes(sound)
    queue.correct_min_offset(FAR + 1000 * begin)
    assert queue.min_offset == begin


def test_a_flip_that_keeps_units_in_order_has_no_message_taken_for_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path, file_units=200)
    store.put([request(0, 100)])  # more than are kept in memory
    flush(store)
    queue = store.find(b"T", 0)
    assert queue is not None
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(4 * 20)
        file.write(CQ_UNIT.pack(unit(4)[0] - 2, *unit(4)[1:]))
    queue.correct_min_offset(unit(4)[0])
    assert queue.min_offset == 0


def test_fillers_between_do_not_keep_what_is_gone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(3, 4), request(9, 4)])
    queue = store.find(b"T", 0)
    assert queue is not None
    queue.correct_min_offset(unit(11)[0])
    assert queue.min_offset == 11


def test_a_topic_that_names_no_directory_is_kept_inside_all_the_same(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put([request(0, 2, b"../../evil"), request(0, 1, b"..")])
    flush(store)
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == sorted(
        [b"../../evil".hex(), b"..".hex()]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["consumequeue"]
    assert all_units(store, b"../../evil") == [unit(0), unit(1)]


@pytest.mark.slow
def test_more_queues_than_descriptors_or_one_job_take_are_all_flushed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(150):
        store.put([request(0, 2, b"T%d" % number)])
    flush(store)
    assert len(store.dirty()) == 0
    for number in range(150):
        store.put([request(2, 12, b"T%d" % number)])
    flush(store)
    assert all_units(store, b"T7") == [unit(number) for number in range(14)]
    rows = store.rows()
    store.close()
    assert open_store(tmp_path).restore(rows) is None


def test_what_lies_behind_the_end_is_taken_away_without_taking_space(tmp_path: Path) -> None:
    """Of a start on a full disk."""
    store = open_store(tmp_path, file_units=50_000)
    store.put([request(0, 10)])
    flush(store)
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    space = path.stat().st_blocks
    assert open_store(tmp_path, file_units=50_000).restore([(b"T", 0, 0, 4)]) is None
    assert path.stat().st_blocks == space
    assert not any(path.read_bytes()[4 * 20 :])
