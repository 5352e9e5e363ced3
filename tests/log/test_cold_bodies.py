"""Bodies of a pull that are no longer in memory: each is proved, and one read of the index has the units of many."""

from collections import Counter
from collections.abc import Callable

import pytest
from crash_disk import CrashDisk, CrashFile
from log_steps import DATA, config, fill
from test_faulty_entries import closed_log, open_cold, ranges_of
from test_log_recovery import INDEX, locate
from test_stale_entries import COMMON, Ledger

from dledger.entry import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Index
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore

Place = tuple[int, int]
INDEX_FILE_SIZE = 640  # of config()


def places_of(log: LogStore, step: int = 1) -> list[Place]:
    places = []
    for index in map(Index, range(0, log.ledger_end_index + 1, step)):
        pos = log.pos_at(index) + ENTRY_HEADER_SIZE
        places.append((pos, log.end_pos_at(index) - pos))
    return places


def bodies_of(log: LogStore, step: int = 1) -> list[bytes]:
    return [log.body_at(Index(index)) for index in range(0, log.ledger_end_index + 1, step)]


def unit_byte(disk: CrashDisk, index: int) -> Callable[[], int]:
    """Flips a bit in the unit of an entry; what is returned reads that byte."""
    offset = index * INDEX_UNIT_SIZE
    content = disk.content(f"{INDEX}/{offset - offset % INDEX_FILE_SIZE:020d}")
    at = offset % INDEX_FILE_SIZE + 9
    content[at] ^= 1
    return lambda: content[at]


@pytest.mark.parametrize("step", [1, 8, 40])
def test_each_entry_is_read_once_and_the_units_of_a_file_once(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    disk, log = closed_log()
    cold = open_cold(disk)
    places, bodies = places_of(log, step), bodies_of(log, step)
    reads: Counter[str] = Counter()
    pread = CrashFile.pread

    def counted(file: CrashFile, size: int, offset: int) -> bytes:
        reads["data" if file.path.startswith(DATA) else file.path] += 1
        return pread(file, size, offset)

    monkeypatch.setattr(CrashFile, "pread", counted)
    assert cold.read_bodies(places) == bodies
    assert reads.pop("data") == len(places)
    assert set(reads.values()) == {1}


def test_bodies_in_memory_follow_those_on_disk() -> None:
    log = LogStore.open(CrashDisk(), config())
    fill(log, 50)
    places = places_of(log)
    is_recent = [log.recent.find_by_pos(pos) is not None for pos, _ in places]
    assert is_recent == sorted(is_recent)
    assert len(set(is_recent)) == 2
    assert log.read_bodies(places) == bodies_of(log)
    assert log.read_bodies([]) == []


def test_a_place_without_a_body_is_empty_and_hides_no_other() -> None:
    disk, log = closed_log()
    cold = open_cold(disk)
    places, bodies = places_of(log), bodies_of(log)
    (pos, size), (other_pos, other_size) = places[20:22]
    places[20:22] = (pos + 1, size), (other_pos, other_size - 1)
    bodies[20:22] = b"", b""
    assert cold.read_bodies([(-40, 30), *places, (log.ledger_end_pos + 9000, 30)]) == [b"", *bodies, b""]
    assert ranges_of(cold) == []


def test_damaged_units_are_right_when_the_bodies_have_been_read() -> None:
    disk, log = closed_log()
    cold = open_cold(disk)
    units = [unit_byte(disk, index) for index in (7, 8, 30)]
    damaged = [unit() for unit in units]
    assert cold.read_bodies(places_of(log)) == bodies_of(log)
    assert [unit() ^ 1 for unit in units] == damaged
    assert ranges_of(cold) == []


@pytest.mark.parametrize("byte", [2, 45, 60])
def test_a_damaged_entry_is_refused_and_those_beside_it_are_given(byte: int) -> None:
    disk, log = closed_log()
    cold = open_cold(disk)
    places, bodies = places_of(log), bodies_of(log)
    path, offset = locate(log, 7)
    disk.content(path)[offset + byte] ^= 1
    for _ in range(2):
        with pytest.raises(FaultyEntryError, match=r"entries 7\.\."):
            cold.read_bodies(places)
        (_, last), *_ = ranges_of(cold)
        assert cold.read_bodies(places[:7] + places[last + 1 :]) == bodies[:7] + bodies[last + 1 :]


@pytest.mark.parametrize("stale_term", [1, 3])
def test_an_entry_of_an_earlier_history_in_a_place_of_the_same_size_is_refused(stale_term: int) -> None:
    ledger = Ledger(80, 90, stale_term)
    places = places_of(ledger.log)
    ledger.lose_data(ledger.positions[COMMON + 1])
    with pytest.raises(FaultyEntryError):
        ledger.log.read_bodies(places)
    assert ledger.log.read_bodies(places[:COMMON]) == [ledger.bodies[index] for index in range(COMMON)]
