"""The scrub of a running member's IndexFiles: whatever is damaged in them, the index is built anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember, scrub
from test_index_service import assert_all_found, put

from store.layout.index_file import (
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    entry_offset,
    slot_offset,
)

# 13 would not tell hashes that differ by 13 from each other; a power of two does not tell most flips.
SHAPE = IndexFileShape(16, 100)
COUNT = 250
_TIME_OFFSET, _LINK_OFFSET = 15, 16  # in an entry


@pytest.fixture
def group(tmp_path: Path) -> Iterator[StoreGroup]:
    made = StoreGroup(tmp_path, index_file_shape=SHAPE, index_keys_per_flush=20)
    made.start()
    put(made, range(COUNT))
    member = made.lead()
    made.run_until(lambda: member.store.index.behind == 0 and not member.store.is_busy)
    yield made
    for member in list(made.members.values()):
        member.crash()


def index_files(group: StoreGroup) -> list[Path]:
    return sorted((group.root() / "index").iterdir())


def flip(path: Path, offset: int, bit: int) -> None:
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes([content[offset] ^ bit]))


def scrub_and_rebuild(group: StoreGroup, member: StoreMember) -> int:
    """The faults of a round that has the index built anew."""
    before = list(member.store.index.index_files)
    faults = scrub(member).faults
    group.run_until(lambda: all(index_file.is_deleted for index_file in before))
    group.run_until(lambda: member.store.index.behind == 0 and not member.store.is_busy)
    return faults


def test_a_sound_index_is_left_alone_in_whatever_state_it_is(group: StoreGroup) -> None:
    member = group.lead()
    before = index_files(group)
    for _ in range(3):
        assert scrub(member).faults == 0
        put(group, range(7))
    assert index_files(group)[: len(before)] == before
    member.stop()
    group.start()
    assert scrub(group.lead()).faults == 0


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize("file_number", [0, 3], ids=["oldest", "middle"])
def test_a_flip_in_any_byte_of_an_entry_of_a_full_file_has_the_index_built_anew(
    group: StoreGroup, file_number: int, bit: int
) -> None:
    member = group.lead()
    for at in range(INDEX_ENTRY_SIZE):
        assert scrub(member).faults == 0, "a round that takes the sums"
        path = index_files(group)[file_number]
        flip(path, entry_offset(7, SHAPE.slot_count) + at, bit)
        assert scrub_and_rebuild(group, member) >= 1, f"byte {at}"
    assert scrub(member).faults == 0
    assert_all_found(group, member, range(COUNT))


def test_a_flip_in_the_links_of_the_file_that_grows_has_the_index_built_anew(group: StoreGroup) -> None:
    member = group.lead()
    for at in range(_LINK_OFFSET, INDEX_ENTRY_SIZE):
        flip(index_files(group)[-1], entry_offset(7, SHAPE.slot_count) + at, 0x01)
        assert scrub_and_rebuild(group, member) >= 1, f"byte {at}"
    assert_all_found(group, member, range(COUNT))


@pytest.mark.parametrize("ends", ["stop", "crash"])
def test_what_became_of_a_full_file_while_its_member_was_down_is_found(group: StoreGroup, ends: str) -> None:
    member = group.lead()
    assert scrub(member).faults == 0
    group.run_for(61_000)  # a checkpoint
    put(group, range(COUNT, COUNT + 1))
    member.stop() if ends == "stop" else member.crash()
    flip(index_files(group)[1], entry_offset(7, SHAPE.slot_count) + _TIME_OFFSET, 0x01)
    group.start()
    member = group.lead()
    assert scrub_and_rebuild(group, member) >= 1
    assert_all_found(group, member, range(COUNT + 1))


@pytest.mark.parametrize(
    "offset", [*range(0, INDEX_HEADER_SIZE, 5), *range(slot_offset(5, 16), slot_offset(6, 16))]
)
def test_a_flip_in_header_and_slots_has_the_index_built_anew(group: StoreGroup, offset: int) -> None:
    member = group.lead()
    flip(index_files(group)[1], offset, 0x04)
    assert scrub_and_rebuild(group, member) >= 1
    assert_all_found(group, member, range(COUNT))


def test_a_file_that_was_taken_away_has_the_index_built_anew(group: StoreGroup) -> None:
    member = group.lead()
    index_files(group)[1].unlink()
    assert scrub_and_rebuild(group, member) >= 1
    assert_all_found(group, member, range(COUNT))
