"""Sectors of ConsumeQueues that the disk does not give: what is in them is damage like other damage."""

from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember, message, scrub
from test_unit_damage import filled, pulled, pulled_until_mended, units_path
from worn_disk import WornDisk

from store.layout.consume_queue_unit import CQ_UNIT_SIZE

COUNT = 500  # messages of the queue, whose units lie in three sectors


@pytest.fixture
def disk() -> WornDisk:
    return WornDisk()


@pytest.fixture
def group(tmp_path: Path, disk: WornDisk) -> StoreGroup:
    return StoreGroup(
        tmp_path, disk_of=lambda peer: disk, cq_file_units=2000, flush_consume_queue_least_pages=1
    )


def lose(group: StoreGroup, disk: WornDisk, *sectors: int) -> set[int]:
    """The sectors of that queue's file that are still unreadable."""
    bad = disk.bad.setdefault(str(units_path(group, 0)), set())
    bad.update(sectors)
    return bad


@pytest.mark.parametrize("sectors", [(0,), (1,), (0, 1, 2)])
def test_a_pull_that_meets_an_unreadable_sector_of_units_has_it_mended(
    group: StoreGroup, disk: WornDisk, sectors: tuple[int, ...]
) -> None:
    member = filled(group, COUNT)
    sound = units_path(group, 0).read_bytes()
    bad = lose(group, disk, *sectors)
    assert pulled_until_mended(group, member) == list(range(COUNT))
    assert not bad
    assert units_path(group, 0).read_bytes() == sound
    assert member.failure is None


def test_the_scrub_mends_units_in_unreadable_sectors(group: StoreGroup, disk: WornDisk) -> None:
    member = filled(group, COUNT)
    sound = units_path(group, 0).read_bytes()
    bad = lose(group, disk, 0, 1, 2)
    result = scrub(member)
    assert result.faults == result.mended > 0
    assert not bad
    assert units_path(group, 0).read_bytes() == sound
    assert pulled(member) == list(range(COUNT))
    assert scrub(member).faults == 0


def test_units_are_flushed_into_a_sector_that_cannot_be_read(group: StoreGroup, disk: WornDisk) -> None:
    member = filled(group, COUNT)
    bad = lose(group, disk, COUNT * CQ_UNIT_SIZE // 4096)
    count = put_more(member, 400)
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    group.run_until(lambda: queue.flushed_unit > COUNT)
    assert not bad
    assert pulled_until_mended(group, member) == list(range(count))


def put_more(member: StoreMember, count: int) -> int:
    for _ in range(count):
        member.put(message())
    member.group.settle()
    return COUNT + count


@pytest.mark.parametrize("sector", [0, 2])
def test_a_start_builds_queues_anew_whose_edges_cannot_be_read(
    group: StoreGroup, disk: WornDisk, sector: int
) -> None:
    filled(group, COUNT).stop()
    bad = lose(group, disk, sector)
    group.start()
    member = group.lead()
    assert pulled(member) == list(range(COUNT))
    member.stop()
    group.start()
    assert pulled(group.lead()) == list(range(COUNT))
    assert not bad
