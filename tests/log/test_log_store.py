"""The ledger while nothing goes wrong: positions, reading back, durability, cuts."""

from pathlib import Path

import pytest
from log_steps import FILE_SIZE, append, config, cut, facts, fill, run, sync

from disk.real_disk import RealDisk
from dledger.entry import (
    GENESIS_CHAIN,
    Index,
    is_exact_blank,
    parse_index_units,
    verify_entries,
)
from dledger.log.errors import EntryTooLargeError, LedgerConfigError, PositionMismatchError
from dledger.log.log_store import LogStore


@pytest.fixture
def log(tmp_path: Path) -> LogStore:
    return LogStore.open(RealDisk(), config(directory=f"{tmp_path}/dledger-n0"))


def test_an_empty_ledger_has_no_entry(log: LogStore) -> None:
    assert (log.ledger_begin_index, log.ledger_end_index, log.ledger_end_term) == (0, -1, -1)
    assert (log.term_at(Index(-1)), log.chain_at(Index(-1))) == (-1, GENESIS_CHAIN)
    assert (log.term_at(Index(0)), log.chain_at(Index(-2))) == (None, None)
    assert log.range_from(Index(0), 1000) is None
    assert log.sync_job() is None
    assert log.mark_job(10_000) is None
    assert not log.doubted


def test_the_files_hold_sealed_entries_exact_blanks_and_index_units(log: LogStore, tmp_path: Path) -> None:
    fill(log, 60)
    index, chain, seen = 0, GENESIS_CHAIN, 0
    files = sorted((tmp_path / "dledger-n0/data").iterdir())
    units = b"".join(path.read_bytes() for path in sorted((tmp_path / "dledger-n0/index").iterdir()))
    for unit in parse_index_units(units):
        data = files[unit.pos // FILE_SIZE].read_bytes()
        at = unit.pos % FILE_SIZE
        entry = verify_entries(
            data[at : at + unit.size], first_index=index, first_pos=unit.pos, prev_chain=chain
        )
        assert (unit.index, unit.term) == (index, 1)
        if unit.pos != seen:
            assert is_exact_blank(files[seen // FILE_SIZE].read_bytes()[seen % FILE_SIZE :])
        index, chain, seen = index + 1, entry.chain, unit.pos + unit.size
    assert (index, chain, seen) == (log.ledger_end_index + 1, log.ledger_end_chain, log.ledger_end_pos)
    assert len(files) > 3
    assert all(path.stat().st_size == FILE_SIZE for path in files)


def test_positions_roll_over_to_the_next_file_where_entry_and_blank_do_not_fit(log: LogStore) -> None:
    exactly = FILE_SIZE - 48 - 8
    assert log.reserve([exactly]) == [0]
    assert log.reserve([100, exactly, 1]) == [0, FILE_SIZE, 2 * FILE_SIZE]
    assert log.reserve([1000, 2992, 10]) == [0, 1048, FILE_SIZE]
    assert log.reserve([1000, 2993, 10]) == [0, FILE_SIZE, FILE_SIZE + 3041]
    assert log.reserve([]) == []
    with pytest.raises(EntryTooLargeError, match=str(FILE_SIZE)):
        log.reserve([exactly + 1])
    append(log, [bytes(exactly), bytes(exactly)])
    assert (log.pos_at(Index(0)), log.pos_at(Index(1)), log.ledger_end_pos) == (
        0,
        FILE_SIZE,
        2 * FILE_SIZE - 8,
    )


def test_entries_read_the_same_from_memory_and_from_disk(log: LogStore) -> None:
    for term in (1, 3, 4):
        fill(log, 20, first=20 * term, term=term)
    cold = LogStore.open(RealDisk(), config(directory=log.config.directory, recent_bytes_max=0))
    assert facts(log) == facts(cold)
    for first in range(log.ledger_end_index + 1):
        for size_max in (0, 700, 1 << 20):
            warm_range = log.range_from(Index(first), size_max)
            assert warm_range is not None
            assert warm_range == cold.range_from(Index(first), size_max)
            data = b"".join(log.read_range(warm_range))
            assert data == b"".join(cold.read_range(warm_range))
            assert len(data) == warm_range.size
            verified = verify_entries(
                data,
                first_index=first,
                first_pos=warm_range.pos,
                prev_chain=log.chain_at(Index(first - 1)) or 0,
            )
            assert (verified.last_index, verified.last_term) == (warm_range.last_index, warm_range.last_term)
            assert verified.chain == warm_range.last_chain
            assert warm_range.pos // FILE_SIZE == (warm_range.pos + warm_range.size) // FILE_SIZE
            first_size = log.end_pos_at(Index(first)) - log.pos_at(Index(first))
            assert warm_range.size <= first_size + size_max


def test_batches_cover_every_entry_once_wherever_reading_begins_and_ends(log: LogStore) -> None:
    fill(log, 40)
    everything = [log.read(log.pos_at(Index(i)), 48) for i in range(log.ledger_end_index + 1)]
    for first in (0, 1, 30, 60, log.ledger_end_index):
        for last in range(first, log.ledger_end_index + 1, 7):
            headers = []
            for batch in log.batches_from(Index(first), Index(last), 500):
                assert len(batch.offsets) == batch.last_index - batch.first_index + 1
                assert batch.pos == log.pos_at(batch.first_index)
                assert batch.end_pos == log.end_pos_at(batch.last_index)
                headers += [batch.buffer[at : at + 48] for at in batch.offsets]
            assert headers == everything[first : last + 1]


def test_memory_for_recent_entries_is_bounded(log: LogStore) -> None:
    fill(log, 600)
    assert log.recent.size <= 3000
    assert 0 < len(log.recent) < 50
    assert log.recent.find(log.ledger_end_index) is not None


def test_a_follower_that_appends_pushed_ranges_has_the_same_bytes(log: LogStore, tmp_path: Path) -> None:
    fill(log, 60)
    fill(log, 20, first=60, term=2)
    follower = LogStore.open(RealDisk(), config(directory=f"{tmp_path}/dledger-n1"))
    rounds = 0
    while follower.ledger_end_index < log.ledger_end_index:
        # Every other push is one the follower has in part, as after a lost answer.
        first = max(0, follower.ledger_end_index + 1 - rounds % 3)
        entries = log.range_from(Index(first), 700)
        assert entries is not None
        payload = verify_entries(
            memoryview(b"".join(log.read_range(entries))),
            first_index=first,
            first_pos=entries.pos,
            prev_chain=follower.chain_at(Index(first - 1)) or 0,
        )
        skip = follower.ledger_end_index + 1 - first
        if skip < payload.count:
            batch = follower.append_range(payload, skip)
            assert (batch.first_index, batch.last_index) == (first + skip, entries.last_index)
        rounds += 1
    assert facts(follower) == facts(log)
    for part in ("data", "index"):
        ours = sorted((tmp_path / "dledger-n1" / part).iterdir())
        theirs = sorted((tmp_path / "dledger-n0" / part).iterdir())
        assert [path.name for path in ours] == [path.name for path in theirs]
        assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


def test_pushed_entries_at_another_position_are_refused(log: LogStore, tmp_path: Path) -> None:
    other = LogStore.open(RealDisk(), config(directory=f"{tmp_path}/dledger-n1", data_file_size=512))
    append(log, [bytes(300)])
    append(other, [bytes(300), bytes(300)])
    entries = other.range_from(Index(1), 0)
    assert entries is not None
    payload = verify_entries(
        other.read_range(entries)[0],
        first_index=1,
        first_pos=entries.pos,
        prev_chain=other.chain_at(Index(0)) or 0,
    )
    with pytest.raises(PositionMismatchError, match="data file size"):
        log.append_range(payload, 0)
    assert log.ledger_end_index == 0


def test_durable_moves_by_syncs_alone(log: LogStore) -> None:
    fill(log, 2)
    first = log.sync_job()
    assert first is not None
    fill(log, 2)
    assert (log.durable_index, log.unsynced_size) == (-1, log.ledger_end_pos)
    first.run()
    assert log.sync_done(first) == first.end_index == 2
    sync(log)
    assert (log.durable_index, log.unsynced_size) == (log.ledger_end_index, 0)
    assert log.sync_job() is None


def test_a_sync_that_a_cut_overtakes_proves_only_what_the_cut_left(log: LogStore) -> None:
    fill(log, 6)
    late = log.sync_job()
    assert late is not None
    generation = log.log_generation
    cut(log, 4)
    assert (log.log_generation, late.log_generation) == (generation + 1, generation)
    fill(log, 3, term=2)
    late.run()
    assert log.sync_done(late) == 3
    assert log.unsynced_size == log.ledger_end_pos - log.end_pos_at(Index(3))


def test_a_cut_lowers_what_was_durable(log: LogStore) -> None:
    fill(log, 30)
    sync(log)
    before = facts(log)
    cut(log, 10)
    assert (log.ledger_end_index, log.durable_index) == (9, 9)
    assert facts(log) == before[:11]
    append(log, [b"other"], term=5)
    sync(log)
    assert log.durable_index == 10
    assert facts(log)[:11] == before[:11]
    assert facts(log)[11][1] == 5


@pytest.mark.parametrize("from_index", [0, 1, 17, 30, 58])
def test_nothing_but_zeros_is_left_behind_a_cut(log: LogStore, tmp_path: Path, from_index: int) -> None:
    fill(log, 30)
    end_pos = log.end_pos_at(Index(from_index - 1))
    cut(log, from_index)
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "dledger-n0/data").iterdir()))
    index = b"".join(path.read_bytes() for path in sorted((tmp_path / "dledger-n0/index").iterdir()))
    assert not any(data[end_pos:])
    assert not any(index[from_index * 32 :])
    assert log.ledger_end_pos == end_pos
    fill(log, 30)
    assert log.ledger_end_index == from_index + 59


def test_the_mark_follows_what_is_durable_within_a_second(log: LogStore) -> None:
    fill(log, 1)
    assert log.mark_job(0) is None
    sync(log)
    run(log.mark_job(1000), log.mark_done)  # of the first entry of a file at once
    fill(log, 1)
    sync(log)
    assert log.mark_job(1000) is None
    assert log.mark_job(1999) is None
    run(log.mark_job(2000), log.mark_done)
    assert log.mark_job(9000) is None
    fill(log, 1)
    sync(log)
    job = log.mark_job(9000)
    assert job is not None
    assert log.mark_job(99_000) is None, "one at a time"
    assert job.mark.index == log.ledger_end_index


@pytest.mark.parametrize("mark_first", [False, True])
def test_a_mark_on_its_way_is_not_raised_over_a_cut(log: LogStore, mark_first: bool) -> None:
    fill(log, 9)
    sync(log)
    late = log.mark_job(0)
    assert late is not None
    cut_job = log.begin_cut(Index(5))
    for job in (late, cut_job) if mark_first else (cut_job, late):
        job.run()
    log.mark_done(late)
    log.cut_done(cut_job)
    log.close()
    again = LogStore.open(RealDisk(), log.config)
    assert (again.ledger_end_index, again.doubted) == (4, False)


def test_the_next_files_are_made_ahead_and_used(log: LogStore, tmp_path: Path) -> None:
    made = []
    for number in range(60):
        fill(log, 1, first=number)
        job = log.prepare_job()
        if job is not None:
            assert log.prepare_job() is None
            job.run()
            log.prepare_done(job)
            made += [offset for queue, offset in job.made if queue.directory.endswith("data")]
    assert made == [path * FILE_SIZE for path in range(1, len(made) + 1)]
    assert len(made) > 3
    assert len(list((tmp_path / "dledger-n0/data").iterdir())) == len(made) + 1
    log.close(clean=True)
    last = log.ledger_end_pos // FILE_SIZE
    assert len(list((tmp_path / "dledger-n0/data").iterdir())) == last + 1
    assert facts(LogStore.open(RealDisk(), log.config))


def test_a_file_made_ahead_that_a_cut_has_left_alone_is_removed(log: LogStore, tmp_path: Path) -> None:
    while log.ledger_end_pos < 2 * FILE_SIZE + FILE_SIZE // 2:
        fill(log, 1)
    job = log.prepare_job()
    assert job is not None
    cut(log, 3)
    job.run()
    assert [path.name[-5:] for path in (tmp_path / "dledger-n0/data").iterdir()].count("12288") == 1
    crashed = RealDisk()
    crashed_config = log.config
    log.prepare_done(job)
    assert [path.name for path in (tmp_path / "dledger-n0/data").iterdir()] == ["0" * 20]
    job.run()  # as if the crash had come before prepare_done()
    log.close()
    again = LogStore.open(crashed, crashed_config)
    assert again.ledger_end_index == 2
    assert [path.name for path in (tmp_path / "dledger-n0/data").iterdir()] == ["0" * 20]


def test_another_data_file_size_is_refused_before_anything_is_touched(log: LogStore) -> None:
    fill(log, 3)
    log.close(clean=True)
    with pytest.raises(LedgerConfigError, match=f"{FILE_SIZE} bytes, configured are 8192"):
        LogStore.open(RealDisk(), config(directory=log.config.directory, data_file_size=8192))
    assert LogStore.open(RealDisk(), log.config).ledger_end_index == log.ledger_end_index


@pytest.mark.parametrize("bad", [{"data_file_size": 56}, {"index_file_size": 33}, {"allocate_step": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        config(**bad)
