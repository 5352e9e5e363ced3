"""The ledger while nothing goes wrong: positions, reading back, durability, cuts."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from crash_disk import CrashDisk, broken, no_space

from disk.disk import DiskError, NoSpaceError
from disk.real_disk import RealDisk
from dledger.entry import (
    GENESIS_CHAIN,
    EntryKind,
    Index,
    Term,
    is_exact_blank,
    parse_index_units,
    verify_entries,
)
from dledger.log.config import LogConfig
from dledger.log.errors import EntryTooLargeError, LedgerConfigError, PositionMismatchError
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore

FILE_SIZE = 4096
DATA = "store/dledger-n0/data"


def config(**settings: object) -> LogConfig:
    values: dict[str, object] = {
        "directory": "store/dledger-n0",
        "data_file_size": FILE_SIZE,
        "index_file_size": 640,
        "allocate_step": 1024,
        "recent_bytes_max": 3000,
    }
    return LogConfig(**(values | settings))  # type: ignore[arg-type]


def append(log: LogStore, bodies: Sequence[bytes], term: int = 1) -> None:
    positions = log.reserve([len(body) for body in bodies])
    log.append(bodies, positions, Term(term), EntryKind.MESSAGE)


def fill(log: LogStore, count: int, *, first: int = 0, term: int = 1) -> None:
    for number in range(first, first + count):
        append(
            log, [b"%d-%d " % (number, part) * (number % 17 * 3 + 1) for part in range(number % 3 + 1)], term
        )


def run(job: DiskJob | None, done: Callable[..., object]) -> None:
    assert job is not None
    job.run()
    done(job)


def probe(log: LogStore) -> bool:
    job = log.probe_job()
    try:
        job.run()
    except NoSpaceError as error:
        return log.probe_done(job, error)
    return log.probe_done(job)


def sync(log: LogStore) -> None:
    run(log.sync_job(), log.sync_done)


def cut(log: LogStore, from_index: int) -> None:
    run(log.begin_cut(Index(from_index)), log.cut_done)


def facts(log: LogStore) -> list[tuple[object, ...]]:
    indexes = [Index(index) for index in range(log.ledger_begin_index - 1, log.ledger_end_index + 1)]
    return [
        (index, log.term_at(index), log.chain_at(index))
        + (
            (log.pos_at(index), log.end_pos_at(index), log.first_index_of_term_at(index))
            if index >= log.ledger_begin_index
            else ()
        )
        for index in indexes
    ]


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


def without_space(disk: CrashDisk, operation: str, within: str = "") -> None:
    def fail(seen: str, path: str) -> None:
        if seen == operation and within in path:
            no_space(seen, path)

    disk.fail = fail


def refuse_halfway(disk: CrashDisk, log: LogStore, bodies: Sequence[bytes] = (b"refused",)) -> None:
    """The entries are written, and their units find no space."""
    without_space(disk, "pwrite", "/index/")
    with pytest.raises(NoSpaceError):
        append(log, bodies)
    disk.fail = lambda operation, path: None


@pytest.mark.parametrize("seed", range(60))
def test_a_failed_append_does_not_come_back_in_the_place_of_a_later_one(seed: int) -> None:
    """Both would have the same indexes and the same term, and others have the later one by then."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    sync(log)
    refuse_halfway(disk, log, [b"refused" * 100, b"as well" * 100])
    assert probe(log)
    append(log, [b"taken" * 20, b"too" * 150, b"and this" * 50])
    appended = {index: chain for index, _, chain, *_ in facts(log)}
    again = LogStore.open(disk.crash(Random(seed)), config())
    for index, _, chain, *_ in facts(again):
        assert chain == appended[index]


def test_nothing_is_appended_until_what_a_failed_append_wrote_is_cleared() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    early = log.probe_job()
    early.run()
    refuse_halfway(disk, log)
    assert not log.probe_done(early), "it began before there was anything to clear"
    with pytest.raises(NoSpaceError, match="not cleared"):
        append(log, [b"too early"])
    assert probe(log)
    append(log, [b"taken"])
    assert log.ledger_end_index == 0


@pytest.mark.parametrize("operation", ["pwrite", "allocate"])
def test_a_probe_without_space_approves_nothing(operation: str) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    refuse_halfway(disk, log)
    without_space(disk, operation)
    assert not probe(log)
    disk.fail = lambda operation, path: None
    assert probe(log)


def test_a_probe_whose_sync_finds_no_space_is_final() -> None:
    """The kernel takes the zeros for written from then on: no later sync tells that they are not."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    refuse_halfway(disk, log)
    without_space(disk, "fdatasync")
    with pytest.raises(DiskError) as raised:
        log.probe_job().run()
    assert not isinstance(raised.value, NoSpaceError)


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_append_is_gone_for_good_after_a_clean_stop(seed: int) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    before = facts(log)
    refuse_halfway(disk, log, [b"refused" * 100])
    log.close(clean=True)
    assert facts(LogStore.open(disk.crash(Random(seed)), config())) == before


def test_a_blank_of_which_a_part_was_written_is_cleared() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    append(log, [bytes(3000)])
    end_pos = log.ledger_end_pos

    def fail(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(f"data/{0:020d}"):
            disk.content(path)[end_pos : end_pos + 3] = b"\xff" * 3
            disk.fail = lambda operation, path: None
            no_space(operation, path)

    disk.fail = fail
    with pytest.raises(NoSpaceError):
        append(log, [bytes(2000)])
    assert not any(disk.content(f"{DATA}/{0:020d}")[end_pos:])
    assert probe(log)


def test_an_append_that_found_no_space_before_it_wrote_leaves_nothing_to_clear() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())

    without_space(disk, "allocate")
    with pytest.raises(NoSpaceError):
        append(log, [b"refused"])
    disk.fail = lambda operation, path: None
    append(log, [b"taken"])


def test_a_cut_clears_what_a_failed_append_has_left() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    refuse_halfway(disk, log)
    under_way = log.probe_job()
    cut(log, 5)
    append(log, [b"taken"], term=2)
    under_way.run()
    assert log.probe_done(under_way)
    sync(log)
    after = facts(log)
    log.close()
    assert facts(LogStore.open(disk, config())) == after


@pytest.mark.parametrize("bad", [{"data_file_size": 56}, {"index_file_size": 33}, {"allocate_step": 0}])
def test_impossible_sizes_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        config(**bad)


@pytest.mark.parametrize("operation", ["allocate", "create", "pwrite", "truncate"])
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("failure", [no_space, broken])
def test_an_append_that_fails_leaves_the_log_as_it_was(
    operation: str, after: int, failure: Callable[[str, str], None]
) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    sync(log)
    before, end_pos = facts(log), log.ledger_end_pos
    calls = 0

    def fail(seen: str, path: str) -> None:
        nonlocal calls
        if seen == operation:
            calls += 1
            if calls > after:
                failure(seen, path)

    disk.fail = fail
    bodies = [bytes([number]) * 900 for number in range(1, 9)]  # over three data files
    failed: DiskError | None = None
    try:
        append(log, bodies, term=2)
    except DiskError as error:
        failed = error
    disk.fail = lambda seen, path: None
    if failed is not None:
        assert isinstance(failed, NoSpaceError) == (failed.errno == errno.ENOSPC)
        assert facts(log) == before
        assert log.ledger_end_pos == end_pos
        assert log.reserve([0]) == [end_pos]
        assert probe(log)
        append(log, [b"small"], term=3)
    sync(log)
    after_append = facts(log)
    log.close()
    again = LogStore.open(disk, config())
    assert facts(again) == after_append
    assert not again.doubted, "the failed append left nothing that looks like lost entries"
