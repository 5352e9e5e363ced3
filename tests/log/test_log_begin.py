"""The beginning of a ledger moves: file by file when old ones are deleted, at once when the log begins anew."""

from contextlib import suppress
from pathlib import Path
from random import Random

import orjson
import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, cut, facts, fill, run, sync
from test_log_recovery import mark

from disk.real_disk import RealDisk
from disk.slots import Slots
from dledger.entry import Index, Pos, Term
from dledger.log.log_store import LogStore

INDEX = "store/dledger-n0/index"


def filled(disk: CrashDisk) -> LogStore:
    log = LogStore.open(disk, config())
    fill(log, 40)
    fill(log, 40, first=40, term=3)
    sync(log)
    mark(log)
    return log


def delete_first_file(log: LogStore) -> None:
    run(log.delete_first_file_job(), log.move_begin_done)


def mark_again(log: LogStore) -> None:
    run(log.mark_job(1 << 41), log.mark_done)


def data_files(disk: CrashDisk) -> list[int]:
    return [int(path[-20:]) for path in disk.paths() if path.startswith(DATA)]


def test_the_oldest_file_goes_and_all_else_stays_also_for_the_next_start() -> None:
    disk = CrashDisk()
    log = filled(disk)
    all_before = facts(log)
    while (last_index := log.first_file_last_index) is not None:
        before = facts(log)
        delete_first_file(log)
        assert log.ledger_begin_index == last_index + 1
        assert log.ledger_begin_pos == log.pos_at(log.ledger_begin_index) == data_files(disk)[0]
        begin = before.index(next(fact for fact in before if fact[0] == last_index))
        expected = [fact[:5] for fact in before[begin:]]  # but for where a run of terms begins
        expected[0] = expected[0][:3]
        assert [fact[:5] for fact in facts(log)] == expected
        again = LogStore.open(disk.crash(Random(last_index)), config())
        assert facts(again) == facts(log)
    assert log.delete_first_file_job() is None
    assert len(all_before) > 60
    assert log.ledger_begin_index > 40
    fill(log, 20, first=80, term=4)
    assert facts(LogStore.open(disk, config())) == facts(log)


def test_index_files_go_with_the_entries_that_they_are_about() -> None:
    disk = CrashDisk()
    log = filled(disk)
    for _ in range(3):
        delete_first_file(log)
    first = min(int(path[-20:]) for path in disk.paths() if path.startswith(INDEX))
    assert first == log.ledger_begin_index * 32 // 640 * 640


def test_nothing_above_the_mark_goes() -> None:
    log = LogStore.open(CrashDisk(), config())
    fill(log, 80)
    sync(log)
    assert log.first_file_last_index is not None
    assert log.delete_first_file_job() is None


@pytest.mark.slow
def test_a_crash_leaves_the_old_begin_or_the_new_one_whole() -> None:
    begins = set()
    for after in range(8):
        for seed in range(12):
            disk = CrashDisk()
            log = filled(disk)
            delete_first_file(log)
            old = facts(log)
            job = log.delete_first_file_job()
            new = facts(log)
            assert job is not None
            crash_after(disk, after)
            with suppress(KeyboardInterrupt):
                job.run()
            again = LogStore.open(disk.crash(Random(seed)), config())
            assert facts(again) in (old, new)
            begins.add(again.ledger_begin_index)
    assert len(begins) == 2


def test_a_cut_during_a_deletion_keeps_the_new_begin() -> None:
    disk = CrashDisk()
    log = filled(disk)
    move = log.delete_first_file_job()
    assert move is not None
    begin = log.ledger_begin_index
    cut(log, 60)
    move.run()
    assert not move.is_done
    log.move_begin_done(move)
    again = LogStore.open(disk.crash(Random(1)), config())
    assert (again.ledger_begin_index, again.ledger_end_index) == (begin, 59)
    assert data_files(disk)[0] == 0, "left for the next deletion, or the next start"
    fill(log, 40, first=60, term=5)
    sync(log)
    mark_again(log)
    delete_first_file(log)
    assert data_files(disk)[0] == log.ledger_begin_pos


def test_a_cut_of_all_entries_leaves_the_begin() -> None:
    disk = CrashDisk()
    log = filled(disk)
    delete_first_file(log)
    begin = log.ledger_begin_index
    cut(log, begin)
    assert (log.ledger_end_index, log.ledger_end_pos) == (begin - 1, log.ledger_begin_pos)
    again = LogStore.open(disk.crash(Random(1)), config())
    assert facts(again) == facts(log)
    fill(again, 10, term=9)
    assert again.term_at(begin) == 9


def test_damage_behind_the_begin_is_still_a_fault() -> None:
    disk = CrashDisk()
    log = filled(disk)
    delete_first_file(log)
    disk.content(f"{DATA}/{log.ledger_begin_pos:020d}")[60] ^= 1
    again = LogStore.open(disk, config())
    begin = log.ledger_begin_index
    assert [(faulty.first_index, faulty.last_index) for faulty in again.faulty] == [(begin, begin)]
    assert (again.ledger_begin_index, again.ledger_end_index) == (begin, log.ledger_end_index)


NEW_BEGIN = (Index(199), Term(7), 0x1234, Pos(40 * FILE_SIZE))


@pytest.mark.parametrize("begin_pos", [40 * FILE_SIZE, 2 * FILE_SIZE, 0], ids=["behind", "within", "before"])
def test_a_log_that_begins_anew_is_empty_behind_an_entry_that_it_does_not_hold(begin_pos: int) -> None:
    disk = CrashDisk()
    log = filled(disk)
    index, term, chain, _ = NEW_BEGIN
    generation = log.log_generation
    run(log.begin_anew(index, term, chain, Pos(begin_pos)), log.cut_done)
    assert log.log_generation > generation
    assert data_files(disk) == []
    for each in (log, LogStore.open(disk.crash(Random(1)), config())):
        assert (each.ledger_begin_index, each.ledger_end_index, each.durable_index) == (200, 199, 199)
        assert (each.term_at(index), each.chain_at(index), each.ledger_end_term) == (term, chain, term)
        assert each.term_at(Index(198)) is None
        assert each.reserve([10]) == [begin_pos]
        append(each, [b"first", b"second"], term=8)
        assert each.pos_at(Index(200)) == begin_pos
        assert (each.term_at(Index(201)), each.end_pos_at(index)) == (8, begin_pos)
    sync(log)
    mark_again(log)
    assert facts(LogStore.open(disk.crash(Random(1)), config())) == facts(log)


def test_a_log_may_begin_anew_while_its_old_files_are_being_unlinked() -> None:
    disk = CrashDisk()
    log = filled(disk)
    move = log.delete_first_file_job()
    assert move is not None

    def begin_anew_meanwhile(operation: str, path: str) -> None:
        if operation == "unlink":
            disk.fail = lambda operation, path: None
            run(log.begin_anew(*NEW_BEGIN), log.cut_done)

    disk.fail = begin_anew_meanwhile
    move.run()
    log.move_begin_done(move)
    assert log.ledger_begin_index == 200
    assert data_files(disk) == []


@pytest.mark.slow
@pytest.mark.parametrize("begin_pos", [40 * FILE_SIZE, 2 * FILE_SIZE])
def test_a_crash_leaves_the_old_log_or_the_one_that_begins_anew(begin_pos: int) -> None:
    outcomes = set()
    for after in range(24):
        for seed in range(6):
            disk = CrashDisk()
            log = filled(disk)
            old = facts(log)
            index, term, chain, _ = NEW_BEGIN
            job = log.begin_anew(index, term, chain, Pos(begin_pos))
            new = facts(log)
            crash_after(disk, after)
            with suppress(KeyboardInterrupt):
                job.run()
            survivor = disk.crash(Random(seed))
            crash_after(survivor, seed)  # and again, while it recovers
            with suppress(KeyboardInterrupt):
                LogStore.open(survivor, config())
            survivor = survivor.crash(Random(seed))
            again = LogStore.open(survivor, config())
            assert facts(again) in (old, new)
            outcomes.add(again.ledger_begin_index)
            fill(again, 30, first=200, term=8)
            sync(again)
            mark(again)
            assert facts(LogStore.open(survivor, config())) == facts(again)
    assert outcomes == {0, 200}


def test_a_sync_from_before_says_nothing_about_a_log_that_began_anew() -> None:
    disk = CrashDisk()
    log = filled(disk)
    fill(log, 10, first=80, term=4)
    old = log.sync_job()
    ahead = log.prepare_job()
    job = log.begin_anew(Index(20), Term(1), 5, Pos(2 * FILE_SIZE))
    if ahead is not None:
        ahead.run()
        log.prepare_done(ahead)
    run(job, log.cut_done)
    run(old, log.sync_done)
    assert log.durable_index == 20
    append(log, [b"new"], term=8)
    assert log.durable_index == 20
    sync(log)
    assert log.durable_index == 21


def test_a_mark_of_before_begins_could_move_is_read() -> None:
    disk = CrashDisk()
    log = filled(disk)
    before = facts(log)
    log.close(clean=True)
    slots = Slots(disk, "store/dledger-n0/pydledger/synced-mark")
    assert slots.payload is not None
    fields = orjson.loads(slots.payload)
    del fields["begin_pos"]
    slots.write(orjson.dumps(fields))
    slots.close()
    again = LogStore.open(disk, config())
    assert facts(again) == before
    delete_first_file(again)
    assert again.ledger_begin_pos == FILE_SIZE


def test_begins_move_on_a_real_disk(tmp_path: Path) -> None:
    settings = config(directory=str(tmp_path / "dledger-n0"))
    log = LogStore.open(RealDisk(), settings)
    fill(log, 80)
    sync(log)
    mark(log)
    delete_first_file(log)
    delete_first_file(log)
    before = facts(log)
    log.close(clean=True)
    again = LogStore.open(RealDisk(), settings)
    assert facts(again) == before
    run(again.begin_anew(*NEW_BEGIN), again.cut_done)
    append(again, [b"x"], term=9)
    sync(again)
    again.close(clean=True)
    assert [path.name for path in sorted((tmp_path / "dledger-n0" / "data").iterdir())] == [
        f"{40 * FILE_SIZE:020d}"
    ]
    last = LogStore.open(RealDisk(), settings)
    assert (last.ledger_begin_index, last.ledger_end_index) == (200, 200)


def crash_after(disk: CrashDisk, count: int) -> None:
    """The process dies at the n-th change from now."""
    left = count

    def fail(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    disk.fail = fail


def test_a_file_made_ahead_of_a_log_that_has_begun_anew_is_removed() -> None:
    """Both were under way when the member ended: the file lies alone behind a gap, and no entry ever was in it."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    while log.ledger_end_pos < 2 * FILE_SIZE + FILE_SIZE * 3 // 4:
        append(log, [bytes(300)])
    sync(log)
    mark(log)
    prepare = log.prepare_job()
    assert prepare is not None
    log.begin_anew(Index(1000), Term(5), 1234, Pos(2 * FILE_SIZE)).run()
    prepare.run()
    assert data_files(disk) == [3 * FILE_SIZE]
    again = LogStore.open(disk, config())
    begin = (again.ledger_begin_index, again.ledger_begin_pos, again.ledger_end_pos)
    assert begin == (1001, 2 * FILE_SIZE, 2 * FILE_SIZE)
    fill(again, 20, first=1001, term=6)
    assert facts(LogStore.open(disk, config())) == facts(again)
