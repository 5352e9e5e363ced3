"""Data files that somebody took away, or left a part of: below the synced mark they are damage, and peers repair it."""

import os
from itertools import product
from pathlib import Path

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, fill, run, sync
from test_faulty_entries import closed_log, open_cold, ranges_of, read_all
from test_log_recovery import INDEX, locate, mark

from disk.real_disk import RealDisk
from dledger.entry import Index
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerDamagedError
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import LastRun


def path_of(number: int) -> str:
    return f"{DATA}/{number * FILE_SIZE:020d}"


def entries_in(log: LogStore, number: int) -> tuple[int, int]:
    inside = [
        index for index in range(log.ledger_end_index + 1) if log.pos_at(Index(index)) // FILE_SIZE == number
    ]
    return inside[0], inside[-1]


def take_away(disk: CrashDisk, number: int, left: int | None) -> None:
    if left is None:
        disk.unlink(path_of(number))
    else:
        del disk.content(path_of(number))[left:]


def sound_facts(log: LogStore, damaged: set[int]) -> dict[int, tuple[object, ...]]:
    indexes = [Index(index) for index in range(log.ledger_end_index + 1) if index not in damaged]
    return {
        index: (log.term_at(index), log.chain_at(index), log.pos_at(index), log.end_pos_at(index))
        for index in indexes
    }


@pytest.mark.parametrize(("number", "left"), list(product((0, 1, -1), (None, 0, 60))))
def test_what_a_missing_or_short_file_held_is_named_and_all_else_is_read(
    number: int, left: int | None
) -> None:
    """And the one entry behind, which nothing proves without the chain of those in front."""
    disk, log = closed_log(60)
    number %= log.ledger_end_pos // FILE_SIZE + 1
    first, last = entries_in(log, number)
    last = min(last + 1, log.ledger_end_index)
    first += 1 if left == 60 and not number else 0  # which is left whole
    damaged = set(range(first, last + 1))
    before = sound_facts(log, damaged)
    take_away(disk, number, left)
    again = open_cold(disk)
    read_all(again)
    assert ranges_of(again) == [(first, last)]
    assert again.ledger_end_index == log.ledger_end_index
    assert len(disk.content(path_of(number))) == FILE_SIZE
    assert sound_facts(again, damaged) == before
    assert ranges_of(open_cold(disk)) == [(first, last)], "it is remembered"


def test_two_missing_files_and_an_index_that_is_gone_as_well() -> None:
    disk, log = closed_log(60)
    assert log.ledger_end_pos > 3 * FILE_SIZE
    last = entries_in(log, 1)[1] + 1
    damaged = set(range(last + 2))  # nor is the one behind them read, as its proof needs the unit of the last
    before = sound_facts(log, damaged)
    for path in [path_of(0), path_of(1), *(name for name in disk.paths() if name.startswith(INDEX))]:
        disk.unlink(path)
    again = open_cold(disk)
    read_all(again)
    assert ranges_of(again) == [(0, last)]
    assert sound_facts(again, damaged) == before


def test_where_no_data_file_is_left_none_is_made() -> None:
    """A directory that was emptied, or is another one, is not taken for damage."""
    disk, _ = closed_log(60)
    names = [name for name in disk.paths() if name.startswith(DATA)]
    for name in names:
        disk.unlink(name)
    with pytest.raises(LedgerDamagedError, match="remove store/dledger-n0 wholly"):
        open_cold(disk)
    assert not any(name.startswith(DATA) for name in disk.paths())


def test_a_file_that_is_too_long_is_of_another_size_and_left_alone() -> None:
    disk, _ = closed_log(60)
    disk.content(path_of(1)).extend(bytes(8))
    with pytest.raises(LedgerDamagedError, match="another file size"):
        open_cold(disk)


def test_a_missing_file_above_the_mark_still_stops_the_member() -> None:
    """What lies behind the gap may be acknowledged, and nobody knows where it belongs."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    sync(log)
    mark(log)
    fill(log, 60, first=5)
    sync(log)
    assert log.ledger_end_pos > 3 * FILE_SIZE
    disk.unlink(path_of(1))
    with pytest.raises(LedgerDamagedError, match="is a file missing"):
        LogStore.open(disk, config())


def test_a_log_whose_last_entry_is_damaged_says_that_more_may_be_gone() -> None:
    for number, expected in ((1, False), (-1, True)):
        disk, log = closed_log(60)
        take_away(disk, number % (log.ledger_end_pos // FILE_SIZE + 1), None)
        again = open_cold(disk)
        assert again.ends_in_damage is expected
    disk, log = closed_log(60)
    assert not open_cold(disk).ends_in_damage


def test_a_file_that_was_cut_short_behind_the_mark_makes_the_member_doubted() -> None:
    """Between two entries nothing is torn, and yet what lay there may have been acknowledged."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 20)
    sync(log)
    mark(log)
    marked = log.ledger_end_index
    fill(log, 2, first=20)
    sync(log)
    end_pos = log.end_pos_at(marked)
    assert end_pos // FILE_SIZE == (log.ledger_end_pos - 1) // FILE_SIZE
    take_away(disk, end_pos // FILE_SIZE, end_pos % FILE_SIZE)
    for _ in range(2):
        again = LogStore.open(disk, config())
        assert again.ledger_end_index == marked
        assert again.doubted


class ImpatientDisk(CrashDisk):
    """Ends whoever reads the same again and again."""

    reads_left = 10_000

    def check(self, operation: str, path: str) -> None:
        self.reads_left -= 1
        assert self.reads_left, "it would go on for ever"
        super().check(operation, path)


@pytest.mark.parametrize("left_of_entry", [0, 30, 60, 100])
def test_a_reader_of_a_file_that_was_cut_short_meanwhile_is_refused(left_of_entry: int) -> None:
    disk = ImpatientDisk()
    log = LogStore.open(disk, config(recent_bytes_max=0))
    for number in range(60):
        append(log, [b"%03d" % number * 50])
    sync(log)
    mark(log)
    _, last_of_file = entries_in(log, 0)
    path, offset = locate(log, 10)
    del disk.content(path)[offset + left_of_entry :]
    with pytest.raises(FaultyEntryError):
        list(log.batches_from(Index(5), Index(15), 1 << 16))
    read_all(log)
    ((first, last),) = ranges_of(log)
    assert first == 10
    assert last in (last_of_file, last_of_file + 1)


@pytest.mark.parametrize("left", [0, 60])
def test_a_file_made_ahead_that_was_cut_short_is_made_whole(left: int) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 20)
    while log.ledger_end_pos % FILE_SIZE < FILE_SIZE * 3 // 4:
        append(log, [bytes(200)])
    sync(log)
    mark(log)
    run(log.prepare_job(), log.prepare_done)
    number = log.ledger_end_pos // FILE_SIZE + 1
    take_away(disk, number, left)
    again = LogStore.open(disk, config())
    assert len(disk.content(path_of(number))) == FILE_SIZE
    assert again.ledger_end_index == log.ledger_end_index
    assert not again.doubted


@pytest.mark.parametrize("left", [20, 60, 1000])
def test_a_short_file_that_begins_behind_the_mark_ends_the_log_and_raises_a_doubt(left: int) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    sync(log)
    mark(log)
    fill(log, 30, first=5)
    sync(log)
    number = log.ledger_end_pos // FILE_SIZE
    assert number
    first, last = entries_in(log, number)
    whole = [
        index for index in range(first, last) if log.end_pos_at(Index(index)) <= number * FILE_SIZE + left
    ]
    take_away(disk, number, left)
    for _ in range(2):
        again = LogStore.open(disk, config())
        assert again.ledger_end_index == (whole[-1] if whole else first - 1)
        assert again.doubted
        assert not again.has_faults


@pytest.mark.parametrize("how", ["space is found ahead", "an append finds it", "an append is cut again"])
def test_a_file_cut_short_behind_the_mark_does_not_get_its_length_back_unseen(
    tmp_path: Path, how: str
) -> None:
    """Else a start would take the zeros for the end of the log, and not know what had been acknowledged there."""
    of_file = config(
        directory=f"{tmp_path}/dledger-n0",
        data_file_size=65536,
        allocate_step=16384,
        recent_bytes_max=1 << 20,
    )
    log = LogStore.open(RealDisk(), of_file)
    while log.ledger_end_pos < 65536 - 26000:
        append(log, [bytes(range(1, 101)) * 10])
    sync(log)
    mark(log)
    marked_pos = log.ledger_end_pos
    append(log, [b"acknowledged" * 500])
    sync(log)
    acknowledged = log.ledger_end_index
    (path,) = Path(of_file.data_directory).iterdir()
    os.truncate(path, marked_pos)
    if how == "space is found ahead":
        run(log.prepare_job(), log.prepare_done)
    else:
        for _ in range(7):
            append(log, [b"later" * 500])
    if how == "an append is cut again":
        run(log.begin_cut(Index(acknowledged + 1)), log.cut_done)
    log.close()
    again = LogStore.open(RealDisk(), of_file, last_run=LastRun.BROKEN_OFF)
    assert again.doubted
    again.close()
