"""The scrub over a ledger: each kind of damage below the synced mark is found, and nothing else is."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from log_steps import FILE_SIZE, append, config, cut, fill, run, sync
from msgspec.structs import astuple
from test_log_recovery import mark

from disk.real_disk import RealDisk
from dledger.entry import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Index
from dledger.log.log_scrub import LogScrub
from dledger.log.log_store import LogStore
from dledger.log.scrub_walk import Finding

INDEX_FILE_SIZE = 640


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogStore]:
    log = LogStore.open(RealDisk(), config(directory=f"{tmp_path}/dledger-n0"))
    fill(log, 60)
    sync_and_mark(log)
    yield log
    log.close()


def sync_and_mark(log: LogStore) -> None:
    sync(log)
    mark(log)


def scrub(log: LogStore, *, size_max: int = 1500) -> list[Finding]:
    """A whole round."""
    walk = LogScrub(log)
    findings = []
    for _ in range(10_000):
        if walk.is_over:
            return findings
        job = walk.next_job(size_max)
        assert job is not None
        job.run()
        findings += walk.settle(job)
    raise AssertionError(f"the walk does not end: {walk}")


def path_of(log: LogStore, kind: str, offset: int) -> tuple[Path, int]:
    """The file with a byte of a queue, and where it lies in it."""
    size = FILE_SIZE if kind == "data" else INDEX_FILE_SIZE
    start = offset - offset % size
    return Path(log.config.directory) / kind / f"{start:020d}", offset - start


def overwrite(log: LogStore, kind: str, offset: int, data: bytes) -> None:
    path, at = path_of(log, kind, offset)
    content = bytearray(path.read_bytes())
    assert content[at : at + len(data)] != data, "the damage shows"
    content[at : at + len(data)] = data
    with path.open("r+b") as file:
        file.write(content)


def flip(log: LogStore, kind: str, offset: int) -> None:
    path, at = path_of(log, kind, offset)
    overwrite(log, kind, offset, bytes([path.read_bytes()[at] ^ 4]))


def last_of_first_file(log: LogStore) -> Index:
    """A blank is behind it."""
    return next(
        index for index in map(Index, range(60)) if log.end_pos_at(index) != log.pos_at(Index(index + 1))
    )


def content_of(log: LogStore) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(log.config.directory).rglob("*") if path.is_file()}


@pytest.mark.parametrize("size_max", [1, 100, 1500, 1 << 20])
def test_a_sound_ledger_is_read_whole_and_nothing_is_found(log: LogStore, size_max: int) -> None:
    walk, size = LogScrub(log), 0
    while not walk.is_over:
        job = walk.next_job(size_max)
        assert job is not None
        job.run()
        size += job.size
        assert walk.settle(job) == []
    assert size >= log.ledger_end_pos


@pytest.mark.parametrize("index", [0, 1, 40, -1])
@pytest.mark.parametrize("byte", [0, 5, 9, 17, 27, 33, 37, 42, 46, 48])
def test_a_flipped_bit_anywhere_in_an_entry_names_that_entry_alone(
    log: LogStore, index: int, byte: int
) -> None:
    index %= log.ledger_end_index + 1
    flip(log, "data", log.pos_at(Index(index)) + byte)
    (finding,) = scrub(log)
    assert finding.where.startswith(f"entries {index}..{index} ")
    assert not finding.is_mended
    (faulty,) = log.faulty
    assert faulty.first_index == index
    # Where its chain field alone is damaged, the log cannot tell it from the next entry's.
    assert faulty.last_index in (index, index + 1)
    scrub(log)
    assert log.faults_found == 1, "what is known is not looked at again"


def test_damage_across_entries_is_one_range_and_what_lies_behind_is_read_too(log: LogStore) -> None:
    first, last = log.pos_at(Index(10)) + 5, log.pos_at(Index(14)) + 5
    overwrite(log, "data", first, bytes(last - first))
    flip(log, "data", log.pos_at(Index(50)) + 60)
    findings = scrub(log, size_max=1 << 20)
    assert [finding.where.split(" pos")[0] for finding in findings] == ["entries 10..14", "entries 50..50"]


def test_a_whole_file_of_zeros_is_one_range_up_to_the_next_file(log: LogStore) -> None:
    positions = [log.pos_at(Index(index)) for index in range(log.ledger_end_index + 1)]
    lost = [index for index, pos in enumerate(positions) if FILE_SIZE <= pos < 2 * FILE_SIZE]
    overwrite(log, "data", FILE_SIZE, bytes(FILE_SIZE))
    (finding,) = scrub(log, size_max=1 << 20)
    assert finding.where.startswith(f"entries {lost[0]}..{lost[-1]} ")


@pytest.mark.parametrize("byte", [0, 3, 5, 11, 14, 20, 31])
def test_a_damaged_unit_is_written_anew_from_the_entries(log: LogStore, byte: int) -> None:
    before = content_of(log)
    flip(log, "index", 30 * INDEX_UNIT_SIZE + byte)
    (finding,) = scrub(log)
    assert (finding.kind, finding.is_mended) == ("index", True)
    assert content_of(log) == before
    assert scrub(log) == []


def test_units_of_a_whole_index_file_come_back(log: LogStore) -> None:
    before = content_of(log)
    overwrite(log, "index", INDEX_FILE_SIZE, bytes(INDEX_FILE_SIZE))
    assert all(finding.kind == "index" and finding.is_mended for finding in scrub(log))
    assert content_of(log) == before


def test_entry_and_unit_damaged_together_cost_no_other_entry(log: LogStore) -> None:
    flip(log, "data", log.pos_at(Index(20)) + ENTRY_HEADER_SIZE)
    flip(log, "index", 20 * INDEX_UNIT_SIZE)
    flip(log, "index", 21 * INDEX_UNIT_SIZE + 6)
    entry, unit = scrub(log, size_max=1 << 20)
    assert entry.where.startswith("entries 20..20 ")
    assert (unit.where, unit.is_mended) == ("units 21..21", True)


@pytest.mark.parametrize("index", [20, 58])
@pytest.mark.parametrize("byte", [0, 6, 15])
def test_a_unit_behind_damage_that_stays_is_written_anew(log: LogStore, index: int, byte: int) -> None:
    flip(log, "data", log.pos_at(Index(index)) + ENTRY_HEADER_SIZE)
    (finding,) = scrub(log, size_max=1 << 20)
    assert finding.where.startswith(f"entries {index}..{index} ")
    before = content_of(log)
    flip(log, "index", (index + 1) * INDEX_UNIT_SIZE + byte)
    known, unit = scrub(log, size_max=1 << 20)
    assert known.where == finding.where
    assert (unit.where, unit.is_mended) == (f"units {index + 1}..{index + 1}", True)
    assert content_of(log) == before


@pytest.mark.parametrize("at", [0, 5, 8, -1])
def test_a_damaged_blank_is_made_exact_again(log: LogStore, at: int) -> None:
    before = content_of(log)
    last = last_of_first_file(log)
    flip(log, "data", log.end_pos_at(last) + at if at >= 0 else FILE_SIZE - 1)
    (finding,) = scrub(log)
    assert finding.where.startswith("blank ")
    assert finding.is_mended
    assert content_of(log) == before


@pytest.mark.parametrize("at", [0, 5, 8, -1])
@pytest.mark.parametrize("byte", [0, ENTRY_HEADER_SIZE])
def test_a_blank_behind_a_damaged_entry_is_no_more_passed_over_than_the_entry(
    log: LogStore, byte: int, at: int
) -> None:
    last = last_of_first_file(log)
    entry_pos, end_pos = log.pos_at(last), log.end_pos_at(last)
    flip(log, "data", entry_pos + byte)
    before = content_of(log)
    flip(log, "data", end_pos + at if at >= 0 else FILE_SIZE - 1)
    entry, *blank = scrub(log, size_max=1 << 20)
    assert entry.where.startswith(f"entries {last}..{last} ")
    if byte == ENTRY_HEADER_SIZE:
        assert [(finding.where.split(" size")[0], finding.is_mended) for finding in blank] == [
            (f"blank pos={end_pos}", True)
        ]
        assert content_of(log) == before
    else:  # no header proves that it belongs there
        assert blank == []
        assert log.faulty_at(end_pos)


@pytest.mark.parametrize("at", [0, 5, 8, -1])
def test_a_blank_in_front_of_an_entry_that_is_known_to_be_damaged_is_a_part_of_that_damage(
    log: LogStore, at: int
) -> None:
    last = last_of_first_file(log)
    flip(log, "data", FILE_SIZE)
    (entry,) = scrub(log, size_max=1 << 20)
    assert entry.where.startswith(f"entries {last + 1}..{last + 1} ")
    blank_pos = log.end_pos_at(last)
    flip(log, "data", blank_pos + at if at >= 0 else FILE_SIZE - 1)
    assert not [finding for finding in scrub(log, size_max=1 << 20) if finding.is_mended]
    assert log.faulty_at(blank_pos)


def test_a_stale_entry_in_the_place_of_another_is_found(log: LogStore) -> None:
    """Sound in itself and behind the right one, of an earlier term: what comes behind does not follow from it."""
    data = bytearray(log.read(log.pos_at(Index(30)), log.end_pos_at(Index(30)) - log.pos_at(Index(30))))
    before = log.pos_at(Index(30))
    cut(log, 30)
    fill(log, 30, first=30, term=2)
    sync_and_mark(log)
    overwrite(log, "data", before, bytes(data))
    (finding,) = scrub(log, size_max=1 << 20)
    assert "entries 30..31" in finding.where
    (faulty,) = log.faulty
    assert (faulty.first_index, faulty.pos) == (30, before)


def test_what_lies_above_the_mark_is_not_looked_at(log: LogStore) -> None:
    append(log, [b"not synced yet" * 3])
    flip(log, "data", log.pos_at(log.ledger_end_index) + 50)
    assert scrub(log) == []


def test_a_cut_while_a_step_runs_is_no_fault(log: LogStore) -> None:
    walk = LogScrub(log)
    job = walk.next_job(1 << 20)
    assert job is not None
    cut(log, 3)
    job.run()
    assert job.faults, "what it read was cut"
    assert walk.settle(job) == []
    fill(log, 60, first=3, term=2)
    sync_and_mark(log)
    assert scrub(log) == []


def test_nothing_is_read_while_a_cut_is_under_way(log: LogStore) -> None:
    walk = LogScrub(log)
    job = log.begin_cut(Index(5))
    assert walk.next_job(1500) is None
    job.run()
    log.cut_done(job)
    assert walk.next_job(1500) is not None


def test_files_deleted_while_a_step_runs_are_no_fault(log: LogStore) -> None:
    walk = LogScrub(log)
    steps = [walk.next_job(1500), walk.next_job(1500)]
    move = log.delete_first_file_job()
    assert move is not None
    move.run()
    for job in steps:
        assert job is not None
        job.run()
        assert job.missing is not None
        assert walk.settle(job) == []
    log.move_begin_done(move)
    assert scrub(log) == []
    assert log.ledger_begin_index > 0


def test_a_file_that_is_deleted_when_all_but_its_blank_is_read_is_no_fault(log: LogStore) -> None:
    last_index = log.first_file_last_index
    assert last_index is not None
    walk = LogScrub(log)
    while walk._place.index < last_index:
        job = walk.next_job(1)
        assert job is not None
        job.run()
        assert walk.settle(job) == []
    assert walk._place.end_pos == log.end_pos_at(last_index)
    run(log.delete_first_file_job(), log.move_begin_done)
    while not walk.is_over:
        job = walk.next_job(1500)
        assert job is not None
        job.run()
        assert walk.settle(job) == []


def test_a_file_that_somebody_has_taken_away_is_told_and_ends_the_round(log: LogStore) -> None:
    path, _ = path_of(log, "data", FILE_SIZE)
    path.unlink()
    (finding,) = scrub(log)
    assert finding.where == str(path)


def test_a_fault_that_a_second_reading_does_not_find_is_none(log: LogStore) -> None:
    walk = LogScrub(log)
    before = content_of(log)
    flip(log, "data", 60)
    job = walk.next_job(1500)
    assert job is not None
    job.run()
    assert job.faults
    assert walk.settle(job) == []
    for path, content in before.items():
        Path(path).write_bytes(content)
    assert scrub(log) == []
    while not walk.is_over:
        job = walk.next_job(1500)
        assert job is not None
        job.run()
        assert walk.settle(job) == []


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_damaged_the_round_ends_and_names_it(log: LogStore, seed: int) -> None:
    random = Random(seed)
    damaged = set()
    units = (log.ledger_end_index + 1) * INDEX_UNIT_SIZE
    bounds = [(index, log.pos_at(Index(index)), log.end_pos_at(Index(index))) for index in range(60)]
    for _ in range(random.randint(1, 6)):
        if random.random() < 0.4:
            flip(log, "index", random.randrange(units))
            continue
        index, pos, end_pos = random.choice(bounds)
        flip(log, "data", random.randrange(pos, end_pos))
        damaged.add(index)
    named: set[int] = set()
    for finding in scrub(log, size_max=random.choice((200, 4000))):
        if finding.where.startswith("entries"):
            first, last = finding.where.split(" ")[1].split("..")
            named.update(range(int(first), int(last) + 1))
    assert damaged <= named
    assert len(named) <= 3 * len(damaged)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_in_a_log_that_grows_is_cut_and_begins_later(log: LogStore, seed: int) -> None:
    """Each step is made, run and settled at different times, as in a thread of its own."""
    random = Random(seed)
    walk, job, has_run, rounds = LogScrub(log), None, False, 0
    for now_ms in range(2_000_000, 2_000_000 + 300 * 1_500, 1_500):
        match random.choice(("fill", "mark", "cut", "delete", "scrub", "scrub", "scrub")):
            case "fill":
                fill(log, random.randint(1, 8), first=random.randrange(50), term=log.ledger_end_term)
                sync(log)
            case "mark":
                mark_job = log.mark_job(now_ms)
                if mark_job is not None:
                    run(mark_job, log.mark_done)
            case "cut" if log.ledger_end_index > log.ledger_begin_index:
                back = random.randint(0, min(10, log.ledger_end_index - log.ledger_begin_index - 1))
                cut(log, log.ledger_end_index - back)
                fill(log, 1, first=random.randrange(50), term=log.ledger_end_term + 1)
                sync(log)
            case "delete":
                move = log.delete_first_file_job()
                if move is not None:
                    run(move, log.move_begin_done)
            case "scrub" if job is None:
                if walk.is_over:
                    rounds += 1
                    walk.begin_round()
                else:
                    job, has_run = walk.next_job(random.choice((300, 3_000))), False
            case "scrub":
                assert job is not None
                if has_run:
                    assert walk.settle(job) == []
                    job = None
                else:
                    job.run()
                    has_run = True
    assert rounds > 0
    assert not log.has_faults


@pytest.mark.parametrize("number", [0, 1])
def test_an_index_file_that_is_gone_comes_back_and_hides_no_damage_behind_it(
    log: LogStore, number: int
) -> None:
    path = Path(log.config.directory) / "index" / f"{number * INDEX_FILE_SIZE:020d}"
    before = path.read_bytes()
    path.unlink()
    flip(log, "data", log.pos_at(Index(55)) + 50)
    findings = scrub(log)
    assert ("index", str(path), "the file is gone", True) in [astuple(finding) for finding in findings]
    assert path.read_bytes() == before
    assert [(faulty.first_index, faulty.last_index) for faulty in log.faulty] == [(55, 55)]
    assert {finding.kind for finding in scrub(log)} <= {"log"}, "what is known as damaged"
