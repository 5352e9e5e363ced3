"""Damage to what was durable: found by recovery or by a read, kept, named, refused; index and blanks are made right."""

from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, cut, facts, fill, run, sync
from msgspec.structs import replace
from test_log_recovery import INDEX, locate, mark

from dledger.entry import GENESIS_CHAIN, INDEX_UNIT_SIZE, EntryKind, Index, IndexUnit, Pos
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerDamagedError
from dledger.log.faulty_ranges import RANGES_MAX, FaultyRange, FaultyRanges, FaultyRangesFile
from dledger.log.log_store import LogStore
from dledger.log.synced_mark import SyncedMarkFile

INDEX_FILE_SIZE = 640  # of config()
FAULTY = "store/dledger-n0/pydledger/faulty-ranges"


def closed_log(count: int = 50) -> tuple[CrashDisk, LogStore]:
    """A disk with a log that was closed cleanly, and the log as it was."""
    disk = CrashDisk()
    log = LogStore.open(disk, config(recent_bytes_max=1 << 20))
    fill(log, count)
    log.close(clean=True)
    return disk, log


def open_cold(disk: CrashDisk) -> LogStore:
    return LogStore.open(disk, config(recent_bytes_max=0))


def read_all(log: LogStore) -> None:
    """As reput and dispatchers do, over what is sound."""
    index = log.ledger_begin_index
    while index <= log.ledger_end_index:
        try:
            for batch in log.batches_from(index, log.ledger_end_index, 2000):
                index = Index(batch.last_index + 1)
        except FaultyEntryError:
            index = Index(index + 1)


def ranges_of(log: LogStore) -> list[tuple[int, int]]:
    return [(faulty.first_index, faulty.last_index) for faulty in log.faulty]


def data(disk: CrashDisk) -> dict[str, bytes]:
    return {name: bytes(disk.content(name)) for name in disk.paths() if name.startswith(DATA)}


@pytest.mark.parametrize("where", ["mark", "first", "file end", "file start"])
def test_damage_below_the_mark_is_named_at_the_start_and_nothing_is_cut(where: str) -> None:
    disk, log = closed_log()
    second = next(i for i in range(200) if log.pos_at(Index(i)) >= FILE_SIZE)
    hit = {"mark": log.ledger_end_index, "first": 0, "file end": second - 1, "file start": second}[where]
    path, offset = locate(log, hit)
    disk.content(path)[offset + 50] ^= 1
    image = data(disk)
    again = open_cold(disk)
    assert ranges_of(again) == [(hit, hit)]
    assert (again.ledger_end_index, again.ledger_end_chain) == (log.ledger_end_index, log.ledger_end_chain)
    assert not again.doubted
    assert data(disk) == image
    assert ranges_of(open_cold(disk)) == [(hit, hit)], "it is remembered"


@pytest.mark.parametrize("in_front", [0, 7])
def test_the_last_entry_is_sound_behind_damage_if_it_is_the_one_that_is_remembered(in_front: int) -> None:
    """No other one follows from it, and what it follows from is lost."""
    disk, log = closed_log()
    last = log.ledger_end_index
    first = 0 if not in_front else last - in_front
    start, end = log.pos_at(Index(first)), log.end_pos_at(Index(last - 1))
    for pos in range(start, end):
        disk.content(f"{DATA}/{pos - pos % FILE_SIZE:020d}")[pos % FILE_SIZE] = 0
    again = open_cold(disk)
    read_all(again)
    assert ranges_of(again) == [(first, last - 1)]
    assert again.chain_at(last) == log.ledger_end_chain


@pytest.mark.parametrize("seed", range(3))
def test_wherever_a_bit_flips_the_entry_that_it_hits_is_named_and_no_other_is_refused(seed: int) -> None:
    disk, log = closed_log()
    before = facts(log)
    bodies = [log.read_range(log.range_from(Index(i), 0)) for i in range(log.ledger_end_index + 1)]  # type: ignore[arg-type]
    whole = data(disk)
    random = Random(seed)
    for _ in range(40):
        for name, content in whole.items():
            disk.content(name)[:] = content
        if FAULTY in disk.paths():
            disk.unlink(FAULTY)
        hit = random.randrange(log.ledger_end_index + 1)
        pos = random.randrange(log.pos_at(Index(hit)), log.end_pos_at(Index(hit)))
        disk.content(f"{DATA}/{pos - pos % FILE_SIZE:020d}")[pos % FILE_SIZE] ^= 1 << random.randrange(8)
        again = open_cold(disk)
        read_all(again)
        ((first, last),) = ranges_of(again)
        # A header that is hit leaves it open whether the one behind is sound.
        assert (first, last) in ((hit, hit), (hit, hit + 1)), pos
        for index, body in enumerate(bodies):
            if first <= index <= last:
                with pytest.raises(FaultyEntryError):
                    again.range_from(Index(index), 0)
            else:
                entries = again.range_from(Index(index), 0)
                assert entries is not None
                assert again.read_range(entries) == body
                if index != last + 1:
                    assert (index, again.term_at(Index(index)), again.chain_at(Index(index))) == before[
                        index + 1
                    ][:3]


def test_several_damaged_places_are_several_ranges() -> None:
    disk, log = closed_log()
    for hit in (3, 20, 21, 60):
        path, offset = locate(log, hit)
        disk.content(path)[offset + 50] ^= 1
    again = open_cold(disk)
    read_all(again)
    assert ranges_of(again) == [(3, 3), (20, 21), (60, 60)]
    assert again.faults_found >= 3


def test_a_zeroed_block_is_one_range_up_to_the_next_sound_entry() -> None:
    disk, log = closed_log()
    first, last = 10, 25
    start, end = log.pos_at(Index(first)) + 20, log.end_pos_at(Index(last)) - 3
    for pos in range(start, end):
        disk.content(f"{DATA}/{pos - pos % FILE_SIZE:020d}")[pos % FILE_SIZE] = 0
    again = open_cold(disk)
    read_all(again)
    ((first_found, last_found),) = ranges_of(again)
    assert first_found == first
    assert last_found in (last, last + 1)


def test_a_file_of_zeros_is_one_range() -> None:
    disk, log = closed_log()
    disk.content(f"{DATA}/{FILE_SIZE:020d}")[:] = bytes(FILE_SIZE)
    again = open_cold(disk)
    inside = [i for i in range(log.ledger_end_index) if FILE_SIZE <= log.pos_at(Index(i)) < 2 * FILE_SIZE]
    ((first, last),) = ranges_of(again)
    assert first == inside[0]
    assert last in (inside[-1], inside[-1] + 1)
    assert again.ledger_end_index == log.ledger_end_index


def test_a_damaged_blank_is_written_anew_for_the_entries_say_what_it_must_be() -> None:
    disk, log = closed_log()
    image = data(disk)
    second = next(i for i in range(200) if log.pos_at(Index(i)) >= FILE_SIZE)
    for pos in (log.end_pos_at(Index(second - 1)), FILE_SIZE - 1):
        disk.content(f"{DATA}/{0:020d}")[pos] ^= 1
        again = open_cold(disk)
        assert ranges_of(again) == []
        assert data(disk) == image


@pytest.mark.parametrize("field", range(32))
def test_an_index_unit_that_contradicts_a_sound_entry_is_right_after_the_first_read(field: int) -> None:
    disk, log = closed_log()
    before = facts(log)
    name = next(name for name in disk.paths() if name.startswith(INDEX))
    image = bytes(disk.content(name))
    disk.content(name)[5 * 32 + field] ^= 1
    again = open_cold(disk)
    assert facts(again) == before
    read_all(again)
    assert ranges_of(again) == []
    # Its padding says nothing, and nobody reads it.
    assert bytes(disk.content(name)) == image


@pytest.mark.parametrize("first", [3, 5])  # in front of the unit that is damaged, and that one
@pytest.mark.parametrize("bit", [0x08, 0x80])
@pytest.mark.parametrize("field", range(32))
def test_entries_of_a_cold_batch_begin_where_they_are_and_not_where_a_damaged_unit_says(
    field: int, bit: int, first: int
) -> None:
    disk, log = closed_log()
    name = next(name for name in disk.paths() if name.startswith(INDEX))
    disk.content(name)[5 * 32 + field] ^= bit
    again = open_cold(disk)
    for batch in again.batches_from(Index(first), Index(12), 2000):
        for index in range(batch.first_index, batch.last_index + 1):
            assert batch.pos + batch.offset_of(index) == log.pos_at(Index(index))


@pytest.mark.parametrize("bit", range(256))
def test_a_range_ends_with_its_data_file_whatever_a_damaged_unit_says(bit: int) -> None:
    disk, log = closed_log()
    second = next(Index(i) for i in range(200) if log.pos_at(Index(i)) >= FILE_SIZE)
    index_files = [disk.content(name) for name in sorted(disk.paths()) if name.startswith(INDEX)]
    number, offset = divmod((second + 2) * 32, len(index_files[0]))
    index_files[number][offset + bit // 8] ^= 1 << bit % 8
    again = open_cold(disk)
    entries = again.range_from(Index(3), 1 << 20)
    assert entries is not None
    assert entries.last_index == second - 1
    again.read_range(entries)


def test_damage_found_by_a_read_is_noted_by_a_job() -> None:
    disk, log = closed_log()
    again = open_cold(disk)
    assert again.note_faults_job() is None
    path, offset = locate(log, 12)
    disk.content(path)[offset + 49] ^= 4
    entries = again.range_from(Index(10), 4000)
    assert entries is not None
    with pytest.raises(FaultyEntryError, match=r"12\.\.12.*repaired from a peer"):
        again.read_range(entries)
    run(again.note_faults_job(), again.faults_noted)
    assert again.note_faults_job() is None
    assert [faulty.first_index for faulty in FaultyRangesFile(disk, "store/dledger-n0/pydledger").ranges] == [
        12
    ]
    assert again.range_from(Index(10), 4000).last_index == 11  # type: ignore[union-attr]


def test_a_backup_put_back_ends_the_damage_at_the_next_start() -> None:
    disk, log = closed_log()
    path, offset = locate(log, 0)
    disk.content(path)[offset + 50] ^= 1
    assert ranges_of(open_cold(disk)) == [(0, 0)]
    disk.content(path)[offset + 50] ^= 1
    assert ranges_of(open_cold(disk)) == []


def test_what_is_cut_or_deleted_is_no_damage_any_more() -> None:
    disk, log = closed_log()
    for hit in (2, 40, 80):
        path, offset = locate(log, hit)
        disk.content(path)[offset + 50] ^= 1
    again = open_cold(disk)
    read_all(again)
    assert ranges_of(again) == [(2, 2), (40, 40), (80, 80)]
    cut(again, 60)
    assert ranges_of(again) == [(2, 2), (40, 40)]
    run(again.delete_first_file_job(), again.move_begin_done)
    assert ranges_of(again) == [(40, 40)]


def test_a_body_is_read_by_its_position_and_size_or_refused() -> None:
    disk, log = closed_log()
    again = open_cold(disk)
    pos, end_pos = log.pos_at(Index(7)), log.end_pos_at(Index(7))
    size = end_pos - pos - 48
    body = again.read_body(pos + 48, size)
    assert len(body) == size
    assert again.read_body(pos + 49, size) == b"", "no entry's body begins there"
    assert again.body_size_at(pos) == size
    for at in (60, 2, 45):
        path, offset = locate(log, 7)
        disk.content(path)[offset + at] ^= 1
        fresh = open_cold(disk)
        with pytest.raises(FaultyEntryError):
            fresh.read_body(pos + 48, size)
        with pytest.raises(FaultyEntryError):
            fresh.body_size_at(pos)
        disk.content(path)[offset + at] ^= 1
        disk.unlink(FAULTY) if FAULTY in disk.paths() else None


def test_where_a_damaged_entry_lies_the_index_still_says() -> None:
    disk, log = closed_log()
    path, offset = locate(log, 7)
    disk.content(path)[offset + 60] ^= 1
    again = open_cold(disk)
    read_all(again)
    with pytest.raises(FaultyEntryError):
        again.pos_at(Index(7))
    assert [again.likely_pos_at(Index(index)) for index in (6, 7, 8)] == [
        log.pos_at(Index(i)) for i in (6, 7, 8)
    ]


@pytest.mark.parametrize("unit", [b"\0" * 32, b"\x7f" * 32], ids=["zeros", "far behind"])
@pytest.mark.parametrize("beside", [(0,), (-1, 0, 1), (-3, 2)])
def test_units_of_damaged_entries_mislead_nobody_who_looks_for_a_position(
    beside: tuple[int, ...], unit: bytes
) -> None:
    """The way to an entry, by halves, leads over the one in the middle first."""
    disk, log = closed_log()
    middle = (log.ledger_end_index + 1) // 2
    hits = {middle + distance for distance in beside}
    for hit in hits:
        path, offset = locate(log, hit)
        disk.content(path)[offset : offset + 60] = bytes(60)
        offset = hit * INDEX_UNIT_SIZE % INDEX_FILE_SIZE
        units = disk.content(f"{INDEX}/{hit * INDEX_UNIT_SIZE - offset:020d}")
        units[offset : offset + INDEX_UNIT_SIZE] = unit
    again = open_cold(disk)
    for index in range(log.ledger_end_index):
        pos = log.pos_at(Index(index))
        found = again.first_index_at(pos)
        damage = again.faulty_at(pos)
        if damage is not None:
            # Nothing proves the entry behind one that is damaged in its header.
            assert {index, index - 1} & hits
            assert damage.first_index <= index <= damage.last_index
        else:
            assert index not in hits
            assert found == index
            assert index + 1 in hits or again.first_index_at(pos + 1) == index + 1
    assert again.first_index_at(log.ledger_end_pos) == log.ledger_end_index + 1


def test_a_log_that_grows_behind_damage_goes_on() -> None:
    disk, log = closed_log()
    path, offset = locate(log, log.ledger_end_index)
    disk.content(path)[offset + 50] ^= 1
    again = open_cold(disk)
    hit = log.ledger_end_index
    assert ranges_of(again) == [(hit, hit)]
    append(again, [b"behind it"])
    sync(again)
    mark(again)
    third = open_cold(disk)
    assert ranges_of(third) == [(hit, hit)]
    assert third.ledger_end_index == hit + 1
    assert third.chain_at(Index(hit + 1)) == again.ledger_end_chain


def test_a_range_ends_with_the_log_and_begins_no_earlier_not_by_the_blank_in_front_of_it() -> None:
    known = FaultyRange(Index(4), Index(9), Pos(90), Pos(1000))  # file ends at 100, 200, ...
    for begin, end, left in (
        ((0, 0), (20, 2000), known),
        ((4, 100), (20, 2000), FaultyRange(Index(4), Index(9), Pos(100), Pos(1000))),
        ((6, 300), (7, 420), FaultyRange(Index(6), Index(7), Pos(300), Pos(420))),
        ((10, 1000), (20, 2000), None),
        ((0, 0), (3, 90), None),
    ):
        ranges = FaultyRanges((known,))
        ranges.keep_within(Index(begin[0]), Pos(begin[1]), Index(end[0]), Pos(end[1]))
        assert ranges.ranges == ((left,) if left else ())


def test_ranges_that_touch_become_one_and_too_many_come_together_where_they_are_closest() -> None:
    ranges = FaultyRanges()

    def add(first: int, last: int) -> None:
        ranges.add(FaultyRange(Index(first), Index(last), Pos(first * 100), Pos(last * 100 + 100)))

    add(10, 12)
    add(30, 30)
    add(13, 14)
    assert [(faulty.first_index, faulty.last_index) for faulty in ranges] == [(10, 14), (30, 30)]
    add(14, 30)
    assert [(faulty.first_index, faulty.last_index) for faulty in ranges] == [(10, 30)]
    for number in range(RANGES_MAX):
        add(1000 + 10 * number, 1000 + 10 * number)
    assert len(ranges) == RANGES_MAX
    assert ranges.first_within(1000, 1010) is not None
    assert ranges.first_within(31, 999) is None


def test_a_file_of_known_damage_that_is_unreadable_is_as_good_as_none() -> None:
    disk, log = closed_log()
    path, offset = locate(log, 0)
    disk.content(path)[offset + 50] ^= 1
    open_cold(disk)
    disk.content(FAULTY)[:] = bytes(len(disk.content(FAULTY)))
    assert ranges_of(open_cold(disk)) == [(0, 0)]


def test_damage_in_a_run_of_terms_hides_only_where_it_begins() -> None:
    disk, _ = closed_log()
    log = open_cold(disk)
    log.append([b"one more"], log.reserve([8]), log.ledger_end_term, EntryKind.MESSAGE)
    before = log.ledger_end_index - 1
    disk.content(f"{DATA}/{log.pos_at(Index(before)) // FILE_SIZE * FILE_SIZE:020d}")[
        log.pos_at(Index(before)) % FILE_SIZE + 50
    ] ^= 1
    log.fault_found(before, before)
    assert ranges_of(log) == [(before, before)]
    index = log.ledger_end_index
    assert log.first_index_of_term_at(index) <= index


def test_an_index_that_has_no_unit_keeps_nobody_from_looking_for_a_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its file is gone, say. What is found then is a guess, which whoever reads there proves."""
    log = open_cold(closed_log()[0])

    def no_unit(index: int) -> IndexUnit:
        raise LedgerDamagedError(f"no sound unit for entry {index}")

    monkeypatch.setattr(log._index, "unit", no_unit)
    assert log.first_index_at(log.ledger_end_pos // 2) <= log.ledger_end_index + 1


@pytest.mark.parametrize("byte", [0, 8])
@pytest.mark.parametrize("is_started_anew", [False, True])
def test_the_unit_of_a_first_entry_that_nothing_leads_to_is_written_anew(
    byte: int, is_started_anew: bool
) -> None:
    """RocketMQ's retention has taken what was before, and nobody remembers the chain."""
    disk = CrashDisk()
    log = LogStore.open(disk, config(recent_bytes_max=0))
    fill(log, 150)
    sync(log)
    mark(log)
    run(log.delete_first_file_job(), log.move_begin_done)
    log.close(clean=False)
    marks = SyncedMarkFile(disk, config().own_directory)
    assert marks.mark is not None
    marks.write(replace(marks.mark, before_begin_chain=GENESIS_CHAIN))
    log = open_cold(disk)
    offset = log.ledger_begin_index * INDEX_UNIT_SIZE
    path = f"{INDEX}/{offset - offset % INDEX_FILE_SIZE:020d}"
    right = bytes(disk.content(path))
    disk.content(path)[offset % INDEX_FILE_SIZE + byte] ^= 1
    if is_started_anew:
        log.close(clean=False)
        log = open_cold(disk)
    read_all(log)
    assert ranges_of(log) == []
    assert bytes(disk.content(path)) == right
