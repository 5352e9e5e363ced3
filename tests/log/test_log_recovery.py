"""What a stop of any kind leaves is recovered: never less than was durable, never an entry that is not sound."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from crash_disk import CrashDisk
from golden_store import DLEDGER_STORE, NODES, unpack_store
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_model import LedgerModel, play
from log_steps import DATA, FILE_SIZE, append, config, cut, facts, fill, run, sync

from disk.disk import DiskError
from disk.real_disk import RealDisk
from disk.slots import SLOT_SIZE
from dledger.entry import Index
from dledger.log.config import LogConfig
from dledger.log.errors import LedgerConfigError
from dledger.log.log_store import LogStore

FAULTY = "store/dledger-n0/pydledger/faulty-ranges"
MARK = "store/dledger-n0/pydledger/synced-mark"
INDEX = "store/dledger-n0/index"


def mark(log: LogStore) -> None:
    run(log.mark_job(0) or log.mark_job(1 << 40), log.mark_done)


def locate(log: LogStore, index: int) -> tuple[str, int]:
    """File and offset of an entry."""
    pos = log.pos_at(Index(index))
    return f"{DATA}/{pos - pos % FILE_SIZE:020d}", pos % FILE_SIZE


def test_an_unclean_stop_of_the_process_loses_nothing_and_raises_no_doubt() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 50)
    before = facts(log)
    again = LogStore.open(disk, config())
    assert facts(again) == before
    assert (again.durable_index, again.doubted) == (log.ledger_end_index, False)


def test_what_reads_back_is_written_and_synced_before_it_counts() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 50)
    before = facts(log)
    LogStore.open(disk, config())
    for seed in range(20):
        after = LogStore.open(disk.crash(Random(seed)), config())
        assert facts(after) == before
        assert not after.doubted


def test_a_clean_stop_needs_no_write_but_the_marks_at_the_next_start() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 50)
    before = facts(log)
    log.close(clean=True)
    writes: list[str] = []
    disk.fail = lambda operation, path: (
        writes.append(path.rpartition("/")[2]) if operation == "pwrite" else None
    )
    assert facts(LogStore.open(disk, config())) == before
    assert set(writes) == {"synced-mark", "begin-mark"}


def test_a_blank_without_an_entry_behind_it_is_taken_back_without_doubt() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    append(log, [bytes(3000)])
    end_pos = log.ledger_end_pos
    writes = 0

    def fail(operation: str, path: str) -> None:
        nonlocal writes
        if operation == "pwrite" and path.startswith(DATA):
            writes += 1
            if writes == 2:
                raise KeyboardInterrupt  # the process dies between the blank and the entry

    disk.fail = fail
    with pytest.raises(KeyboardInterrupt):
        append(log, [bytes(2000)])
    disk.fail = lambda operation, path: None
    assert disk.content(f"{DATA}/{0:020d}")[end_pos : end_pos + 4] == b"\xff\xff\xff\xff"
    again = LogStore.open(disk, config())
    assert (again.ledger_end_index, again.ledger_end_pos, again.doubted) == (0, end_pos, False)
    append(again, [bytes(500)])
    assert again.pos_at(Index(1)) == end_pos


@pytest.mark.parametrize("damaged", [40, 55, 70])
def test_a_torn_tail_above_the_mark_is_cut_and_makes_the_member_doubted(damaged: int) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 20)
    sync(log)
    mark(log)
    fill(log, 30, first=20)
    before = facts(log)
    path, offset = locate(log, damaged)
    disk.content(path)[offset + 50] ^= 1
    again = LogStore.open(disk, config())
    assert facts(again) == before[: damaged + 1]
    assert again.doubted
    end_pos = again.ledger_end_pos
    data = b"".join(bytes(disk.content(name)) for name in disk.paths() if name.startswith(DATA))
    assert not any(data[end_pos:])
    fill(again, 20, first=50)
    assert again.ledger_end_index > damaged + 20


def test_doubt_is_found_again_until_it_is_saved_elsewhere() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    path, offset = locate(log, log.ledger_end_index)
    disk.content(path)[offset + 50] ^= 1
    assert LogStore.open(disk, config()).doubted
    log = LogStore.open(disk, config())
    assert log.doubted, "the tail is cut now, the doubt is not forgotten"
    log.doubt_saved()
    assert not LogStore.open(disk, config()).doubted, "nor where the member is killed before its next mark"


@pytest.mark.parametrize("damage", ["first file", "last file", "all", "units", "zeros", "short"])
def test_the_index_is_rebuilt_from_the_data(damage: str) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 60)
    fill(log, 10, first=60, term=2)
    before = facts(log)
    log.close(clean=True)
    names = [name for name in disk.paths() if name.startswith(INDEX)]
    assert len(names) > 5
    if damage == "units":
        for name in names[:-1]:
            disk.content(name)[9::32] = bytes(b ^ 1 for b in disk.content(name)[9::32])
    elif damage == "zeros":
        disk.content(names[0])[:] = bytes(640)
    elif damage == "short":
        del disk.content(names[-1])[10:]
    else:
        for name in {"first file": names[:1], "last file": names[-1:], "all": names}[damage]:
            disk.unlink(name)
    again = LogStore.open(disk, config())
    assert not again.doubted
    assert facts(again) == before


def test_without_a_mark_everything_is_verified_and_doubted() -> None:
    for unreadable in (False, True):
        disk = CrashDisk()
        log = LogStore.open(disk, config())
        fill(log, 50)
        before = facts(log)
        log.close(clean=True)
        if unreadable:
            disk.content(MARK)[:] = bytes(len(disk.content(MARK)))
        else:
            disk.unlink(MARK)
        again = LogStore.open(disk, config())
        assert facts(again) == before
        assert again.doubted


@pytest.mark.parametrize("name", [MARK, FAULTY], ids=["mark", "faulty ranges"])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_is_named_and_written_anew_by_the_start(
    name: str, slot: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 50)
    path, offset = locate(log, 0)
    log.close(clean=True)
    disk.content(path)[offset + 50] ^= 1
    log = LogStore.open(disk, config())
    end_index = log.ledger_end_index
    log.close(clean=True)
    disk.content(name)[slot * SLOT_SIZE + 30] ^= 1
    caplog.clear()
    log = LogStore.open(disk, config())
    assert f"path={name} slot={slot}" in caplog.text
    assert (log.ledger_end_index, len(log.faulty)) == (end_index, 1)
    caplog.clear()
    LogStore.open(disk, config())
    assert "slot" not in caplog.text


def test_entries_without_crcs_behind_ours_are_refused_and_not_cut() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 10)
    log.close(clean=True)
    last = log.ledger_end_index
    fill_again = LogStore.open(disk, config())
    append(fill_again, [b"by Java"])
    fill_again.close()
    path, offset = locate(fill_again, last + 1)
    disk.content(path)[offset + 36 : offset + 44] = bytes(8)
    with pytest.raises(LedgerConfigError, match="Java"):
        LogStore.open(disk, config())
    assert disk.content(path)[offset + 48 : offset + 55] == b"by Java"


@pytest.mark.slow
def test_a_power_loss_at_any_step_of_a_cut_leaves_the_cut_or_the_whole_log() -> None:
    for step in range(40):
        for seed in range(6):
            disk = CrashDisk()
            log = LogStore.open(disk, config())
            fill(log, 40)
            sync(log)
            mark(log)
            before = facts(log)
            count = 0

            def fail(operation: str, path: str, step: int = step) -> None:
                nonlocal count
                count += 1
                if count > step:
                    raise DiskError(5, "power loss", path)

            job = log.begin_cut(Index(10))
            disk.fail = fail
            try:
                job.run()
            except DiskError:
                finished = False
            else:
                finished = True
            after = LogStore.open(disk.crash(Random(seed)), config())
            assert facts(after) in (before, before[:11])
            if finished:
                assert facts(after) == before[:11]
                assert step > 8, "the cut has steps"
            assert not after.doubted
            fill(after, 3)
        if finished:
            return
    pytest.fail("the cut never finished")


def test_entries_appended_after_a_cut_are_not_taken_by_a_cut_done_twice() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 40)
    sync(log)
    cut(log, 10)
    fill(log, 5, term=2)
    sync(log)
    before = facts(log)
    for seed in range(30):
        assert facts(LogStore.open(disk.crash(Random(seed)), config())) == before


def test_each_flipped_bit_above_the_mark_is_found_and_what_is_before_it_kept() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 4)
    sync(log)
    mark(log)
    marked, mark_pos = log.durable_index, log.ledger_end_pos
    for number in range(6):
        append(log, [b"%d" % number * 5], term=2)
    before, end_pos = facts(log), log.ledger_end_pos
    name = f"{DATA}/{0:020d}"
    whole = bytes(disk.content(name))
    logging.disable()
    try:
        for at in range(mark_pos, end_pos):
            content = disk.content(name)
            content[:] = whole
            content[at] ^= 1 << (at % 8)
            hit = next(index for index in range(marked + 1, marked + 7) if at < log.end_pos_at(Index(index)))
            copy = disk.crash(Random(0))
            copy.content(name)[:] = content
            copy.content(MARK)[:] = disk.content(MARK)
            again = LogStore.open(copy, config())
            assert again.ledger_end_index == hit - 1
            assert facts(again) == before[: hit + 1]
            assert again.doubted
    finally:
        logging.disable(logging.NOTSET)


SMALL = st.lists(st.integers(0, 900), min_size=1, max_size=9)
LARGE = st.lists(st.integers(2500, 4040), min_size=1, max_size=2)
WITHOUT_ARGUMENTS = [
    LedgerModel.begin_sync,
    LedgerModel.end_sync,
    LedgerModel.sync,
    LedgerModel.begin_mark,
    LedgerModel.end_mark,
    LedgerModel.begin_prepare,
    LedgerModel.end_prepare,
    LedgerModel.end_cut,
    LedgerModel.restart_after_failed_write_back,
    LedgerModel.check,
]
SEEDS = st.integers(0, 1 << 30)
STEPS: st.SearchStrategy[tuple[Callable[..., None], tuple[object, ...]]] = st.one_of(
    st.tuples(st.just(LedgerModel.append), st.tuples(SMALL, st.booleans())),
    st.tuples(st.just(LedgerModel.append), st.tuples(LARGE, st.booleans())),
    st.tuples(st.sampled_from(WITHOUT_ARGUMENTS), st.just(())),
    st.tuples(st.just(LedgerModel.begin_cut), st.tuples(st.floats(0, 0.99))),
    st.tuples(st.just(LedgerModel.restart), st.tuples(st.booleans())),
    st.tuples(st.just(LedgerModel.power_loss), st.tuples(SEEDS)),
    st.tuples(
        st.just(LedgerModel.power_loss_during), st.tuples(st.integers(0, 3), st.integers(0, 12), SEEDS)
    ),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(STEPS, max_size=30))
def test_any_history_keeps_what_was_durable_and_nothing_that_was_not_appended(
    steps: list[tuple[Callable[..., None], tuple[object, ...]]],
) -> None:
    logging.disable()
    try:
        model = LedgerModel()
        for step, arguments in steps:
            step(model, *arguments)
        model.power_loss(1)
        model.check()
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_long_histories_keep_it_too_and_meet_every_fault() -> None:
    logging.disable()
    try:
        models = [play(seed) for seed in range(150)]
    finally:
        logging.disable(logging.NOTSET)
    assert sum(model.doubts for model in models) > 100
    assert sum(model.number for model in models) > 5000


@pytest.mark.slow
def test_the_recorded_store_of_javas_broker_opens(tmp_path: Path) -> None:
    root = unpack_store(DLEDGER_STORE, tmp_path)
    for node in NODES:
        directory = root / node / f"dledger-{node}"
        settings_of_java = LogConfig(directory=str(directory), data_file_size=1 << 20)
        log = LogStore.open(RealDisk(), settings_of_java)
        assert (log.ledger_begin_index, log.ledger_end_index, log.ledger_end_term) == (0, 2110, 3)
        assert [log.term_at(Index(i)) for i in (0, 849, 850, 1468, 1469, 2110)] == [1, 1, 2, 2, 3, 3]
        assert [log.first_index_of_term_at(Index(i)) for i in (849, 1468, 2110)] == [0, 850, 1469]
        shown = facts(log)
        log.close(clean=True)
        again = LogStore.open(RealDisk(), settings_of_java)
        assert facts(again) == shown
        again.close()
        shutil.rmtree(directory / "index")
        assert facts(LogStore.open(RealDisk(), settings_of_java)) == shown
