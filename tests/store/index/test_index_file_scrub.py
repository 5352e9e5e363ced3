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
@pytest.mark.parametrize("file_number", [0, 3, -1], ids=["oldest", "middle", "newest"])
def test_a_flip_in_any_byte_of_an_entry_has_the_index_built_anew(
    group: StoreGroup, file_number: int, bit: int
) -> None:
    member = group.lead()
    for at in range(INDEX_ENTRY_SIZE):
        path = index_files(group)[file_number]
        flip(path, entry_offset(7, SHAPE.slot_count) + at, bit)
        assert scrub_and_rebuild(group, member) >= 1, f"byte {at}"
    assert scrub(member).faults == 0
    assert_all_found(group, member, range(COUNT))


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
