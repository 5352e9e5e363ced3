"""The sums of a queue's units are those of its files, however the units came there."""

from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_group import StoreGroup, StoreMember, message

from disk.real_disk import RealDisk
from store.derived.sums_file import DerivedSums, load_sums
from store.queues import unit_sums
from store.queues.unit_queue import UnitQueue
from store.queues.unit_sums import UnitSums

BLOCK = 8
FILE_UNITS = 20
ROOM = 200


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_sums, "BLOCK_UNITS", BLOCK)


def units(first: int, end: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in range(first, end))


def sums_of(*ends: int) -> UnitSums:
    """Of units that came in several parts."""
    sums = UnitSums(2, FILE_UNITS)
    for first, end in pairwise((0, *ends)):
        sums.add(units(first, end))
    return sums


def test_blocks_end_with_their_file() -> None:
    sums = UnitSums(2, FILE_UNITS)
    assert [sums.bounds(block) for block in range(6)] == [
        *((0, 8), (8, 16), (16, 20)),
        *((20, 28), (28, 36), (36, 40)),
    ]
    assert all(
        first <= number < end for number in range(40) for first, end in [sums.bounds(sums.block_of(number))]
    )


@given(st.lists(st.integers(0, ROOM), max_size=8).map(sorted))
def test_sums_do_not_depend_on_the_parts_in_which_units_came(ends: list[int]) -> None:
    sums = sums_of(*ends)
    end = ends[-1] if ends else 0
    for block in range(sums.block_of(ROOM) + 1):
        first, block_end = sums.bounds(block)
        wanted = crc32(units(first, min(block_end, end))) if first < end else 0
        assert sums.get(block) == wanted


@given(st.integers(0, ROOM), st.integers(0, ROOM), st.integers(0, ROOM), st.integers(0, ROOM))
def test_what_is_restored_is_right_or_unknown(first: int, end: int, packed_end: int, more: int) -> None:
    first, end = sorted((first, end))
    sums = UnitSums(2, FILE_UNITS)
    sums.begin(first, end, sums_of(packed_end).pack(first))
    sums.add(units(end, end + more))
    whole = sums_of(end + more)
    for block in range(sums.block_of(first), sums.block_of(end + more) + 1):
        first_unit, block_end = sums.bounds(block)
        is_known = block_end <= min(end, packed_end) or first_unit >= end or end == packed_end
        assert sums.get(block) == (whole.get(block) if is_known else 0)


def test_one_that_was_not_known_is_set() -> None:
    sums = UnitSums(2, FILE_UNITS)
    sums.begin(3, 30)
    sums.set(1, 17)
    sums.set(1000, 17)
    assert [sums.get(block) for block in (0, 1, 2, 1000)] == [0, 17, 0, 0]


# -- of a store ------------------------------------------------------------------------------------------------


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    return StoreGroup(tmp_path, cq_file_units=FILE_UNITS)


def fill(group: StoreGroup, count: int) -> StoreMember:
    group.start()
    member = group.lead()
    for _ in range(count):
        member.put(message())
    group.settle()
    return member


def known(queue: UnitQueue) -> list[bool]:
    """Whether the sum of each block is known; then it must be that of the units."""
    queue.sum_up()
    found = []
    for block in range(queue.sums.block_of(queue.end_unit - 1) + 1):
        first, end = queue.sums.bounds(block)
        value = queue.sums.get(block)
        assert value in (0, crc32(queue.units(first, min(end, queue.end_unit) - first)))
        found.append(value > 0)
    return found


def queue_of(member: StoreMember) -> UnitQueue:
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    return queue


@pytest.mark.parametrize("ends", ["stop", "crash"])
def test_a_start_knows_all_sums(group: StoreGroup, ends: str) -> None:
    member = fill(group, 75)
    if ends == "stop":
        member.stop()
    else:
        group.run_for(61_000)  # a checkpoint
        for _ in range(30):
            member.put(message())
        group.settle()
        member.crash()
    member = fill(group, 30)
    assert all(known(queue_of(member)))


@pytest.mark.parametrize("damage", ["lost", "flipped", "empty", "of another version"])
def test_a_store_without_sums_has_those_of_what_comes(
    group: StoreGroup, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(group, 75).stop()
    directory = group.root() / "dledger-n0" / "pydledger"
    for path in directory.glob("derived-sums-*"):
        content = path.read_bytes()
        if damage == "lost":
            path.unlink()
        elif damage == "flipped":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif damage == "empty":
            path.write_bytes(b"")
        else:
            payload = content[4:].replace(b"\x93\x01", b"\x93\x02", 1)
            path.write_bytes(crc32(payload).to_bytes(4, "big") + payload)
    member = fill(group, 30)
    assert known(queue_of(member)) == [False] * 11 + [True] * 5
    assert ("sums are unreadable" in caplog.text) == (damage != "lost")


def test_sums_that_are_older_than_the_checkpoint_count_where_they_reach(group: StoreGroup) -> None:
    """As after some days of an earlier release."""
    fill(group, 45).stop()
    directory = group.root() / "dledger-n0" / "pydledger"
    (path,) = directory.glob("derived-sums-*")
    content = path.read_bytes()
    fill(group, 45).stop()
    for newer in directory.glob("derived-sums-*"):
        newer.write_bytes(content)
    member = fill(group, 1)
    # The last block of the older sums was not full.
    assert known(queue_of(member)) == [True] * 6 + [False] * 8


def test_the_sums_that_a_file_has_are_those_that_were_packed(tmp_path: Path) -> None:
    sums = DerivedSums({(b"T", 3): (75, 2, bytes(8)), (b"\xff", 0): (0, 0, b"")})
    path = tmp_path / "derived-sums-0"
    path.write_bytes(sums.pack())
    assert load_sums(RealDisk(), str(path)) == sums
