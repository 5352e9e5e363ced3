"""Entries of an earlier history that are back between damaged ones: nothing sound is overwritten, nothing of before is
served, and each range that is named lies within the log.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, cut, sync
from test_faulty_entries import open_cold, ranges_of, read_all
from test_log_recovery import INDEX, mark
from test_log_repair import ask
from test_stale_entries import scrub

from dledger.entry import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Index
from dledger.errors import FaultyEntryError
from dledger.log.data_files import DataFiles
from dledger.log.log_repair import NotLinkedError
from dledger.log.log_store import LogStore

UNITS_SIZE = 640  # of an index file


class Histories:
    """A log that was cut once: `before` is what the files held then. Sizes are those of bodies."""

    def __init__(
        self,
        common: list[int],
        before: list[int],
        own: list[int],
        *,
        terms: tuple[int, int] = (1, 1),
        remembers_terms: bool = False,
    ) -> None:
        """`terms`: of the entries before and of its own. `remembers_terms`: the process that has appended them goes on,
        else a new one has started.
        """
        self.disk, self.remembers_terms = CrashDisk(), remembers_terms
        log = LogStore.open(self.disk, config(recent_bytes_max=0))
        for size in common:
            append(log, [b"c" * size])
        for size in before:
            append(log, [b"b" * size], terms[0])
        sync(log)
        self.before = self.files()
        cut(log, len(common))
        for size in own:
            append(log, [b"o" * size], terms[1])
        if remembers_terms:
            sync(log)
            mark(log)
        else:
            log.close(clean=True)
        self.truth = self.files()
        self.log = log if remembers_terms else open_cold(self.disk)
        self.common_count, self.count = len(common), len(common) + len(own)
        self.positions = [self.log.pos_at(Index(index)) for index in range(self.count)]
        self.ends = [self.log.end_pos_at(Index(index)) for index in range(self.count)]
        self.bodies = [self.log.body_at(Index(index)) for index in range(self.count)]

    def files(self) -> dict[str, bytes]:
        return {p: bytes(self.disk.content(p)) for p in self.disk.paths() if p.startswith((DATA, INDEX))}

    def _lose(self, directory: str, size: int, begin: int, end: int) -> None:
        """What was written between these bytes since the cut."""
        for at in range(begin, end):
            path, offset = f"{directory}/{at - at % size:020d}", at % size
            if path in self.truth:
                old = self.before.get(path, b"")
                self.disk.content(path)[offset] = old[offset] if offset < len(old) else 0

    def lose_data(self, begin: int, end: int) -> None:
        self._lose(DATA, FILE_SIZE, begin, end)

    def lose_units(self, first: int, last: int) -> None:
        self._lose(INDEX, UNITS_SIZE, first * INDEX_UNIT_SIZE, (last + 1) * INDEX_UNIT_SIZE)

    def flip(self, pos: int) -> None:
        self.disk.content(f"{DATA}/{pos - pos % FILE_SIZE:020d}")[pos % FILE_SIZE] ^= 1

    def zero_units(self, first: int, last: int) -> None:
        for at in range(first * INDEX_UNIT_SIZE, (last + 1) * INDEX_UNIT_SIZE):
            self.disk.content(f"{INDEX}/{at - at % UNITS_SIZE:020d}")[at % UNITS_SIZE] = 0

    def is_sound(self, index: int) -> bool:
        pos, size = self.positions[index], self.ends[index] - self.positions[index]
        path, offset = f"{DATA}/{pos - pos % FILE_SIZE:020d}", pos % FILE_SIZE
        return self.disk.content(path)[offset : offset + size] == self.truth[path][offset : offset + size]

    def assert_none_is_served(self) -> None:
        for index, body in enumerate(self.bodies):
            try:
                assert self.log.body_at(Index(index)) == body
            except FaultyEntryError:
                continue

    def assert_named(self) -> None:
        named = {i for first, last in ranges_of(self.log) for i in range(first, last + 1)}
        assert {index for index in range(self.count) if not self.is_sound(index)} <= named
        for faulty in self.log.faulty:
            assert faulty.pos < faulty.next_pos <= self.ends[-1]
            if faulty.last_index < self.count - 1:
                assert (
                    self.ends[faulty.last_index] <= faulty.next_pos <= self.positions[faulty.last_index + 1]
                )


def test_an_entry_of_before_with_another_index_proves_nothing_where_its_size_is_the_right_one() -> None:
    """Of entries 2 and 3 of before, that of a later file follows: what lies between was no blank."""
    case = Histories([2800, 700], [2800, 20, 2800], [20, 20, 2800, 20, 20, 20, 2800])
    case.lose_data(case.positions[4], case.ends[5])
    case.lose_data(case.positions[8], case.ends[8])
    assert case.is_sound(6)
    with pytest.raises(FaultyEntryError):
        case.log.body_at(Index(8))
    read_all(case.log)
    assert case.is_sound(6)
    assert case.is_sound(7)
    case.assert_named()


def test_a_blank_of_before_is_not_written_over_sound_entries() -> None:
    case = Histories([2800, 700], [2800], [20, 20, 2800, 20])
    case.flip(case.positions[2])
    case.lose_data(case.positions[4], case.ends[4])
    read_all(case.log)
    assert case.is_sound(3)
    case.assert_none_is_served()
    case.assert_named()


def test_what_follows_from_one_of_before_behind_damage_is_of_before_although_its_unit_is_lost() -> None:
    case = Histories([50, 50, 50], [52, 14, 21], [52, 7, 14, 21, 7, 50, 50])
    case.lose_data(case.positions[4], case.positions[4] + 2 * ENTRY_HEADER_SIZE + 14 + 21)
    case.zero_units(5, 7)
    read_all(case.log)
    case.assert_none_is_served()
    case.assert_named()


def test_where_the_log_ends_in_a_file_a_blank_of_before_is_none() -> None:
    case = Histories([2800, 700], [2800], [20, 20])
    case.lose_data(case.positions[2], FILE_SIZE)
    case.lose_units(2, 3)
    read_all(case.log)
    assert ranges_of(case.log) == [(2, 3)]
    case.assert_named()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_one_that_is_too_long_for_the_log_is_of_before(is_damaged: bool) -> None:
    case = Histories([50, 50], [900, 50], [20, 20, 20])
    case.lose_data(case.positions[2], FILE_SIZE)
    case.lose_units(2, 4)
    if is_damaged:
        case.flip(case.positions[2] + 60)
    read_all(case.log)
    assert ranges_of(case.log) == [(2, 4)]
    case.assert_named()


def test_units_of_before_name_no_sound_entries() -> None:
    case = Histories([2800, 700], [20, 20], [2800, 20, 2800, 20])
    case.lose_units(2, 3)
    case.zero_units(4, 4)
    scrub(case.log)
    assert ranges_of(case.log) == []
    case.assert_none_is_served()


def reopen(case: Histories) -> None:
    case.log.close(clean=True)
    case.log = open_cold(case.disk)


def look(case: Histories) -> None:
    read_all(case.log)


def look_and_scrub(case: Histories) -> None:
    scrub(case.log)
    read_all(case.log)


@pytest.mark.parametrize("look_at", [look, look_and_scrub, reopen])
@pytest.mark.parametrize("last_unit", [2, 3, 17])
@pytest.mark.parametrize("in_front", [2, 3])
def test_what_ends_a_file_is_no_blank_where_one_of_before_begins_the_next_with_its_unit(
    in_front: int, last_unit: int, look_at: Callable[[Histories], None]
) -> None:
    """The entries at the end of the first file are not touched by any fault, and the next file's first is linked."""
    case = Histories([2800, 700], [2800], [20] * in_front + [2800, 20, 20, 20, 20, 300])
    first_of_next = 2 + in_front
    case.lose_data(case.positions[first_of_next], case.ends[first_of_next])
    case.lose_units(2, last_unit)
    sound = [index for index in range(case.count) if case.is_sound(index)]
    look_at(case)
    assert [index for index in range(case.count) if case.is_sound(index)] == sound
    scrub(case.log)
    case.assert_none_is_served()
    case.assert_named()


@pytest.mark.parametrize("look_at", [look, look_and_scrub, reopen])
def test_nor_is_it_one_where_what_is_in_front_of_it_is_of_before_as_well(
    look_at: Callable[[Histories], None],
) -> None:
    """Four short entries of before stand in the place of a longer one, so what goes on behind has lower indexes."""
    case = Histories([700, 700], [20] * 4 + [2800], [300, 900, 900, 20, 2800] + [20] * 5)
    case.lose_data(case.positions[2], case.positions[2] + 4 * (ENTRY_HEADER_SIZE + 20))
    case.lose_data(FILE_SIZE, FILE_SIZE + ENTRY_HEADER_SIZE + 2800)
    case.lose_units(2, 6)
    sound = [index for index in range(case.count) if case.is_sound(index)]
    look_at(case)
    assert [index for index in range(case.count) if case.is_sound(index)] == sound


@pytest.mark.parametrize("look_at", [look, look_and_scrub, reopen])
def test_nor_where_the_header_in_front_of_it_is_of_before_and_entries_lie_in_its_body(
    look_at: Callable[[Histories], None],
) -> None:
    case = Histories([1500], [1500, 1500], [50, 700, 0, 700, 1500])
    case.lose_data(case.positions[1], case.ends[1])
    case.lose_data(case.positions[5], case.ends[5])
    case.lose_units(0, 5)
    sound = [index for index in range(case.count) if case.is_sound(index)]
    look_at(case)
    assert [index for index in range(case.count) if case.is_sound(index)] == sound
    case.assert_none_is_served()


@pytest.mark.parametrize("is_unit_of_before", [False, True])
@pytest.mark.parametrize("is_of_before", [False, True])
def test_what_goes_on_behind_a_damaged_header_is_no_blank_either(
    is_of_before: bool, is_unit_of_before: bool
) -> None:
    case = Histories([2800, 700], [2800], [20, 20, 20, 2800, 20])
    if is_of_before:
        case.lose_data(case.positions[2], case.ends[2])
    else:
        case.flip(case.positions[2])
    case.lose_data(case.positions[5], case.ends[5])
    (case.lose_units if is_unit_of_before else case.zero_units)(2, 2)
    read_all(case.log)
    assert case.is_sound(3)
    assert case.is_sound(4)
    case.assert_none_is_served()
    case.assert_named()


@pytest.mark.parametrize("count", [200, 400])
def test_a_long_stretch_of_before_with_its_units_is_read_as_often_as_a_short_one(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process remembers the terms. Behind the first file there lie so many of before."""
    size = 65536
    disk = CrashDisk()
    log = LogStore.open(disk, config(recent_bytes_max=0, data_file_size=size, allocate_step=size))
    append(log, [b"c" * 100] * 5)
    for _ in range(size // 200 + count):
        append(log, [b"b" * 150])
    sync(log)
    before = {path: bytes(disk.content(path)) for path in disk.paths() if path.startswith((DATA, INDEX))}
    cut(log, 5)
    for _ in range(3 * size // 200):
        append(log, [b"o" * 157], 2)
    sync(log)
    for path, content in before.items():
        kept = len(content.rstrip(b"\0"))
        disk.content(path)[:kept] = content[:kept]
    read = 0
    read_data = DataFiles.read

    def counting_read(self: DataFiles, pos: int, size: int) -> bytes:
        nonlocal read
        read += size
        return read_data(self, pos, size)

    monkeypatch.setattr(DataFiles, "read", counting_read)
    log.fault_found(6, 7)
    assert ranges_of(log)
    assert read < 20 * size


@pytest.mark.parametrize("offset", [30, 100])
def test_a_peer_that_gives_no_more_than_what_is_in_front_proves_no_blank(offset: int) -> None:
    def histories() -> Histories:
        return Histories([2800, 700], [2800, 20, 20, 20], [20, 20, 2600, 20, 20, 20, 20, 300])

    case, peer = histories(), histories().log
    case.flip(case.positions[1] + offset)
    case.lose_data(FILE_SIZE, FILE_SIZE + 4 * ENTRY_HEADER_SIZE + 2860)
    case.lose_units(2, 5)
    read_all(case.log)
    before = case.files()
    repair = case.log.range_repair(case.log.faulty.ranges[0])
    response, entries = ask(peer, 1, 1)
    with suppress(NotLinkedError):
        assert repair.take(response.first_pos, entries) is None
    assert not repair.goes_on_here()
    assert case.files() == before


@pytest.mark.parametrize("look_at", [look_and_scrub, reopen])
def test_where_what_follows_leads_to_the_end_a_blank_is_rebuilt_over_what_was_left_there(
    look_at: Callable[[Histories], None],
) -> None:
    case = Histories([2800, 500], [40, 40, 20, 40], [700, 20, 20, 20])
    blank = case.ends[1], FILE_SIZE
    assert case.positions[2] == FILE_SIZE
    case.lose_data(*blank)
    assert any(case.disk.content(f"{DATA}/{0:020d}")[blank[0] + 8 :])
    look_at(case)
    assert ranges_of(case.log) == []
    assert case.files()[f"{DATA}/{0:020d}"] == case.truth[f"{DATA}/{0:020d}"]
