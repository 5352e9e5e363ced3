"""Entries of an earlier history that are back where others were written since: sectors whose last write was lost."""

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, cut, sync
from test_faulty_entries import ranges_of, read_all
from test_log_recovery import INDEX, mark

from dledger.entry import ENTRY_HEADER_SIZE, Index, Pos, Term, blank
from dledger.errors import FaultyEntryError
from dledger.log.log_scrub import LogScrub
from dledger.log.log_store import LogStore
from dledger.log.scrub_job import Place

COMMON = 45  # entries of both histories
STALE_TERMS = (1, 3)  # those in their place have term 2
STALE_END = 50  # behind the last entry of the earlier one


class Ledger:
    """One that has lost writes: `log` is cold, and has `count` entries, those from COMMON on of the second history.

    Of a later term is what a leader wrote for itself alone, before one after it went on with entries of an earlier one.
    """

    def __init__(self, count: int, stale_body_size: int = 90, stale_term: int = 1) -> None:
        self.disk = CrashDisk()
        self.log = LogStore.open(self.disk, config(recent_bytes_max=0))
        for number in range(STALE_END):
            is_common = number < COMMON
            body = b"%03d" % number * (30 if is_common else stale_body_size // 3)
            append(self.log, [body], 1 if is_common else stale_term)
        self.begin_pos = self.log.pos_at(Index(COMMON))
        self.stale_end_pos = self.log.ledger_end_pos
        sync(self.log)
        self.old = self._content()
        cut(self.log, COMMON)
        for number in range(COMMON, count):
            append(self.log, [b"X%02d" % number * 30], term=2)
        sync(self.log)
        mark(self.log)
        self.positions = [self.log.pos_at(Index(index)) for index in range(count)]
        self.bodies = {index: self.log.body_at(Index(index)) for index in range(count)}

    def _content(self) -> dict[str, bytes]:
        return {
            path: bytes(self.disk.content(path))
            for path in self.disk.paths()
            if path.startswith((DATA, INDEX))
        }

    def lose_data(self, end_pos: int) -> None:
        for path, content in self.old.items():
            if path.startswith(DATA):
                first = int(path.rpartition("/")[2])
                start, end = max(self.begin_pos - first, 0), min(end_pos - first, len(content))
                if start < end:
                    self.disk.content(path)[start:end] = content[start:end]

    def lose_units(self) -> None:
        for path, content in self.old.items():
            if path.startswith(INDEX) and path in self.disk.paths():
                self.disk.content(path)[:] = content

    def units(self) -> dict[str, bytes]:
        return {path: content for path, content in self._content().items() if path.startswith(INDEX)}

    def opened(self) -> LogStore:
        self.log.close(clean=True)
        return LogStore.open(self.disk, config(recent_bytes_max=0))

    def assert_ranges_end_where_the_next_entry_begins(self, log: LogStore) -> None:
        for faulty in log.faulty.ranges:
            assert faulty.pos == self.positions[faulty.first_index]
            if faulty.last_index < log.ledger_end_index:
                assert faulty.next_pos == self.positions[faulty.last_index + 1]

    def assert_none_is_served(self, log: LogStore) -> None:
        for index, body in self.bodies.items():
            try:
                assert log.body_at(Index(index)) == body
            except FaultyEntryError:
                continue


def scrub(log: LogStore) -> None:
    walk = LogScrub(log)
    for _ in range(1000):
        if walk.is_over:
            return
        job = walk.next_job(1500)
        assert job is not None
        job.run()
        walk.settle(job)
    raise AssertionError("the walk does not end")


@pytest.fixture(params=STALE_TERMS)
def stale_term(request: pytest.FixtureRequest) -> int:
    term: int = request.param
    return term


@pytest.fixture(params=[(60, 1), (60, 2), (60, 3), (90, 1), (90, 3), (120, 1), (120, 2), (120, 3)])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """Stale entries are smaller than those in their place, as large, or larger. Of the same term is what a leader has
    taken back for want of space.
    """
    return Ledger(80, *request.param)


@pytest.mark.parametrize("first_read", [COMMON - 1, COMMON, COMMON + 1, COMMON + 3, STALE_END, STALE_END + 2])
def test_wherever_a_reader_meets_them_they_are_the_damage_and_not_their_units(
    ledger: Ledger, first_read: int
) -> None:
    log, units = ledger.log, ledger.units()
    ledger.lose_data(ledger.stale_end_pos)
    try:
        for batch in log.batches_from(Index(first_read), log.ledger_end_index, 1000):
            assert batch.first_index <= COMMON or batch.first_index >= STALE_END
    except FaultyEntryError:
        pass
    read_all(log)
    ((first, last),) = ranges_of(log)
    assert first == COMMON
    assert COMMON < last <= STALE_END + 5
    assert ledger.units() == units
    ledger.assert_none_is_served(log)


@pytest.mark.parametrize("found_by", ["read", "scrub", "first of them"])
def test_they_may_fill_several_files(found_by: str, stale_term: int) -> None:
    ledger = Ledger(200, 1500, stale_term)
    assert ledger.stale_end_pos - ledger.begin_pos > FILE_SIZE
    units = ledger.units()
    ledger.lose_data(ledger.stale_end_pos)
    match found_by:
        case "read":
            read_all(ledger.log)
        case "scrub":
            scrub(ledger.log)
        case _:
            with pytest.raises(FaultyEntryError):
                ledger.log.body_at(Index(COMMON))
    ((first, last),) = ranges_of(ledger.log)
    assert first == COMMON
    assert ledger.log.pos_at(Index(last + 2)) >= ledger.stale_end_pos
    assert ledger.units() == units
    ledger.assert_none_is_served(ledger.log)


def test_a_read_that_ends_before_the_last_of_them_is_not_served_either(stale_term: int) -> None:
    ledger = Ledger(80, stale_term=stale_term)
    ledger.lose_data(ledger.stale_end_pos)
    with pytest.raises(FaultyEntryError):
        list(ledger.log.batches_from(Index(COMMON - 3), Index(COMMON + 2), 1000))


def test_the_scrub_finds_all_of_them(ledger: Ledger) -> None:
    units = ledger.units()
    ledger.lose_data(ledger.stale_end_pos)
    scrub(ledger.log)
    ((first, _),) = ranges_of(ledger.log)
    assert first == COMMON
    assert ledger.units() == units
    ledger.assert_none_is_served(ledger.log)


@pytest.mark.parametrize("is_started_anew", [False, True])
def test_behind_zeros_they_are_damage_too(ledger: Ledger, is_started_anew: bool) -> None:
    log = ledger.log
    ledger.lose_data(ledger.stale_end_pos)
    for pos in range(ledger.begin_pos, ledger.begin_pos + ENTRY_HEADER_SIZE):
        size = log.config.data_file_size
        ledger.disk.content(f"{DATA}/{pos - pos % size:020d}")[pos % size] = 0
    if is_started_anew:
        log = ledger.opened()
    with pytest.raises(FaultyEntryError):
        log.body_at(Index(COMMON))
    ledger.assert_ranges_end_where_the_next_entry_begins(log)
    read_all(log)
    ledger.assert_none_is_served(log)
    assert ranges_of(log)[0][0] == COMMON
    ledger.assert_ranges_end_where_the_next_entry_begins(log)


@pytest.mark.parametrize("found_by", ["start", "scrub"])
@pytest.mark.parametrize("are_units_lost", [False, True])
def test_at_the_end_they_are_known_by_what_is_remembered(
    found_by: str, are_units_lost: bool, stale_term: int
) -> None:
    """Without their units nothing but the terms that a process remembers tells them from the right ones; else how many
    they are shows in the repair.
    """
    ledger = Ledger(STALE_END, stale_term=stale_term)
    ledger.lose_data(ledger.stale_end_pos)
    if found_by == "start":
        ledger.log.close(clean=True)
    if are_units_lost:
        ledger.lose_units()
    if found_by == "start":
        log = LogStore.open(ledger.disk, config(recent_bytes_max=0))
        read_all(log)
    else:
        log = ledger.log
        scrub(log)
    last = STALE_END - 1
    is_last_alone = are_units_lost and found_by == "start"
    assert ranges_of(log) == [(last if is_last_alone else COMMON, last)]
    assert (log.ledger_end_index, log.ledger_end_term) == (last, Term(2))


@pytest.mark.parametrize("term", [0, 2])
def test_a_unit_that_tells_of_another_term_by_damage_is_written_anew(term: int) -> None:
    ledger = Ledger(80)
    units = ledger.units()
    path = f"{INDEX}/{0:020d}"
    ledger.disk.content(path)[19 * 32 + 31] = term
    assert ledger.units() != units
    ledger.assert_none_is_served(ledger.log)
    assert ranges_of(ledger.log) == []
    assert ledger.units() == units


def test_a_start_keeps_what_was_found_of_them(stale_term: int) -> None:
    ledger = Ledger(80, stale_term=stale_term)
    ledger.lose_data(ledger.stale_end_pos)
    read_all(ledger.log)
    found = ranges_of(ledger.log)
    again = ledger.opened()
    assert ranges_of(again) == found


def test_who_reads_behind_a_place_is_given_what_lies_before_them(stale_term: int) -> None:
    """What is derived from the log is compared with these entries, and written anew where it is another."""
    ledger = Ledger(80, stale_term=stale_term)
    ledger.lose_data(ledger.stale_end_pos)
    for size_max in (100, 1000, 1 << 20):
        place, fault = ledger.log.begin_place(), None
        while fault is None:
            read = ledger.log.read_behind(place, size_max)
            place, fault = read.behind, read.fault
        assert place.index == COMMON - 1
        assert f"entry {COMMON} at pos {ledger.begin_pos}" in fault


def test_behind_them_what_is_there_is_given_again() -> None:
    ledger = Ledger(80)
    ledger.lose_data(ledger.stale_end_pos)
    pos = Pos(ledger.log.pos_at(Index(STALE_END + 5)))
    place = Place(Index(STALE_END + 4), Term(-1), pos, None, is_proven=False)
    last_index = STALE_END + 4
    while last_index < 79:
        read = ledger.log.read_behind(place, 500)
        assert read.fault is None
        place, last_index = read.behind, read.behind.index


@pytest.mark.parametrize("found_by", ["read", "scrub"])
def test_a_blank_with_which_the_file_ended_in_an_earlier_history_is_damage(found_by: str) -> None:
    ledger = Ledger(200)
    log, size = ledger.log, FILE_SIZE
    index = next(index for index in range(COMMON, 200) if log.pos_at(Index(index + 1)) % size == 0)
    pos = log.pos_at(Index(index))
    start, room = pos - pos % size, size - pos % size
    ledger.disk.content(f"{DATA}/{start:020d}")[pos % size :] = blank(room)
    if found_by == "read":
        read_all(log)
    else:
        scrub(log)
    (faulty,) = log.faulty.ranges
    # What is behind a lost header is proved by one more.
    assert (faulty.first_index, faulty.last_index, faulty.pos) == (index, index + 1, pos)
    ledger.assert_none_is_served(log)


@pytest.mark.parametrize("loss", ["unit", "file"])
def test_where_no_unit_tells_of_an_entry_it_is_given_to_who_reads_behind_a_place(loss: str) -> None:
    ledger = Ledger(80)
    path = f"{INDEX}/{0:020d}"
    if loss == "unit":
        ledger.disk.content(path)[7 * 32 : 8 * 32] = bytes(32)
    else:
        ledger.disk.unlink(path)
    place, last_index = ledger.log.begin_place(), -1
    while last_index < 20:
        read = ledger.log.read_behind(place, 1000)
        assert read.fault is None
        place, last_index = read.behind, read.behind.index
