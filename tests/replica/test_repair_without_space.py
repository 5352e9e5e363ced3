"""A repair that finds no space: a data file may be all holes, and full disks give peers' bytes no place in it."""

import errno
import os
from pathlib import Path

import pytest
from test_repair import faulty, find, flip, is_level, told
from virtual_group import DATA_FILE_SIZE, VirtualGroup, VirtualMember

from disk.disk import Buffer, NoSpaceError
from disk.real_disk import RealDisk, RealFile
from dledger.core.output import Role
from dledger.entry import INDEX_UNIT_SIZE, Index
from dledger.errors import FaultyEntryError
from dledger.repair_status import RepairStage
from dledger.rpc.requests import RepairRequest


class FullFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, descriptor: int, disk: "FullDisk") -> None:
        super().__init__(path, descriptor)
        self._disk = disk

    def pwrite(self, data: Buffer, offset: int) -> None:
        if self._disk.is_full and any(part in self.path for part in self._disk.full_parts):
            raise NoSpaceError(errno.ENOSPC, "no space", self.path)
        super().pwrite(data, offset)


class FullDisk(RealDisk):
    __slots__ = ("full_parts", "is_full")

    def __init__(self) -> None:
        self.is_full = False
        self.full_parts: tuple[str, ...] = ("/data/",)  # of the paths of files that find no space then

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FullFile:
        file = super().open(path, create=create, read_only=read_only)
        descriptor, file._descriptor = file._descriptor, -1
        return FullFile(path, descriptor, self)


@pytest.fixture
def disks() -> dict[str, FullDisk]:
    return {f"n{number}": FullDisk() for number in range(3)}


def test_a_repair_that_finds_no_space_waits_for_some(tmp_path: Path, disks: dict[str, FullDisk]) -> None:
    group = VirtualGroup(tmp_path, disk_of=disks.__getitem__)
    group.start()
    leader = group.elect()
    for start in range(0, 600, 50):
        group.append(leader, [b"%d" % number * 60 for number in range(start, start + 50)])
        group.run_until(group.converged)
    for peer in list(group.members):
        group.stop(peer)
    path = min((tmp_path / "dledger-n1" / "data").iterdir())
    before = path.read_bytes()
    path.write_bytes(b"")
    group.start()
    disks["n1"].is_full = True
    member = group.members["n1"]
    group.run_until(
        lambda: any(range_status.refusals for range_status in member.replica.repairer.status().ranges)
    )
    group.run_for(5_000)
    assert member.replica.failure is None
    (status,) = member.replica.repairer.status().ranges
    assert (status.stage, status.refusals) == ("waiting", {"n1": "no space on its disk"})
    assert status.retry_ms is not None
    disks["n1"].is_full = False
    group.run_until(lambda: is_level(group) and not faulty(member))
    assert path.read_bytes() == before


def follower_of(group: VirtualGroup) -> VirtualMember:
    """Of a group with some entries in more than one file."""
    group.start()
    leader = group.elect()
    for number in range(90):
        group.append(leader, [b"%d" % number * 500])
    group.run_until(group.converged)
    return next(member for member in group.running() if member.replica.member.role is not Role.LEADER)


def first_behind_a_blank(member: VirtualMember) -> Index:
    log = member.replica.log
    return next(
        index
        for index in map(Index, range(1, log.ledger_end_index))
        if log.end_pos_at(Index(index - 1)) + 8 < log.pos_at(index) == DATA_FILE_SIZE
    )


@pytest.mark.parametrize("part", ["index", "data"])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_noted", [False, True])
def test_units_and_blanks_for_which_there_is_no_space_are_damage_until_there_is_some(
    part: str, restarts: bool, is_noted: bool, tmp_path: Path, disks: dict[str, FullDisk]
) -> None:
    """Their file has become shorter. Whoever looks there, also a start, goes on without them."""
    group = VirtualGroup(tmp_path, disk_of=disks.__getitem__)
    member = follower_of(group)
    log, disk = member.replica.log, disks[member.id]
    index = Index(5) if part == "index" else first_behind_a_blank(member)
    size = index * INDEX_UNIT_SIZE if part == "index" else log.end_pos_at(Index(index - 1)) + 3
    path = min((tmp_path / f"dledger-{member.id}" / part).iterdir())
    if restarts:
        group.stop(member.id)
    before = path.read_bytes()
    os.truncate(path, size)
    disk.is_full, disk.full_parts = True, (f"/{part}/",) if is_noted else (f"/{part}/", "/faulty-ranges")
    if restarts:
        group.start(member.id)
        member = group.members[member.id]
    else:
        find(member, index, index)
    assert member.replica.log.faulty.first_within(index, index) is not None
    if is_noted:
        group.run_until(lambda: bool(member.replica.repairer.waits))
    with pytest.raises(FaultyEntryError):
        member.replica.log.body_at(index)
    group.run_for(12_000)
    assert member.replica.failure is None
    assert told(member).refusals == ({member.id: "no space on its disk"} if is_noted else {})
    assert told(member).stage is (RepairStage.WAITING if is_noted else RepairStage.NOTING)
    disk.is_full = False
    group.run_until(lambda: is_level(group) and not faulty(member))
    assert len(member.replica.log.body_at(index)) > 400
    assert find(member, 0, member.replica.log.ledger_end_index) == []  # units that nobody has asked for yet
    assert path.read_bytes() == before


def test_a_file_that_is_cut_short_within_its_blank_gets_that_back_when_there_is_space(
    tmp_path: Path, disks: dict[str, FullDisk]
) -> None:
    """The repair of an entry in front finds it so, and the entry behind the blank counts as damaged, too."""
    group = VirtualGroup(tmp_path, disk_of=disks.__getitem__)
    group.start()
    leader = group.elect()
    for number in range(60):
        group.append(leader, [b"%d" % number * 1000])
        group.run_until(group.converged)
    member = next(member for member in group.running() if member.replica.member.role is not Role.LEADER)
    log = member.replica.log
    path = min((tmp_path / f"dledger-{member.id}" / "data").iterdir())
    before = path.read_bytes()
    last = next(
        index for index in range(log.ledger_end_index) if log.pos_at(Index(index + 1)) == DATA_FILE_SIZE
    )
    blank_pos = log.end_pos_at(Index(last))
    assert DATA_FILE_SIZE - blank_pos > 8
    flip(group, member.id, log.pos_at(Index(5)) + 60)
    os.truncate(path, blank_pos + 8)
    disks[member.id].is_full = True
    assert find(member, 5, 5) == [(5, 5)]
    group.run_until(lambda: bool(member.replica.repairer.waits))
    group.run_for(12_000)  # and again
    assert member.replica.failure is None
    statuses = member.replica.repairer.status().ranges
    assert [status.refusals for status in statuses] == [{member.id: "no space on its disk"}] * 2
    disks[member.id].is_full = False
    group.run_until(lambda: is_level(group) and not faulty(member))
    assert path.read_bytes() == before


def cut_short_behind_an_entry(
    tmp_path: Path, disks: dict[str, FullDisk], cut_index: int
) -> tuple[VirtualGroup, VirtualMember, Path, list[RepairRequest]]:
    """Entry 5 of a follower is noted as damaged, and its file ends within another by now. And what is asked for."""
    group = VirtualGroup(tmp_path, disk_of=disks.__getitem__)
    group.start()
    leader = group.elect()
    group.append(leader, [b"%d" % number * 500 for number in range(30)])
    group.run_until(group.converged)
    member = next(member for member in group.running() if member.replica.member.role is not Role.LEADER)
    log = member.replica.log
    path = min((tmp_path / f"dledger-{member.id}" / "data").iterdir())
    flip(group, member.id, log.pos_at(Index(5)) + 60)
    assert find(member, 5, 5) == [(5, 5)]
    group.loses = lambda message: isinstance(message, RepairRequest)
    group.run_until(lambda: log.is_noted(log.faulty.ranges[0]))
    os.truncate(path, log.pos_at(Index(cut_index)) + 3)
    asked: list[RepairRequest] = []

    def counted(message: object) -> bool:
        if isinstance(message, RepairRequest):
            asked.append(message)
        return False

    group.loses = counted
    return group, member, path, asked


def test_damage_in_front_of_where_a_file_is_cut_short_waits_while_that_cannot_be_noted(
    tmp_path: Path, disks: dict[str, FullDisk]
) -> None:
    group, member, _, asked = cut_short_behind_an_entry(tmp_path, disks, 20)
    disk, replica = disks[member.id], member.replica
    disk.full_parts, disk.is_full = ("faulty-ranges",), True
    group.run_until(lambda: replica.repairer.waits)
    asked.clear()
    group.run_for(12_000)
    assert replica.failure is None
    in_front, behind = replica.repairer.status().ranges
    assert (in_front.stage, in_front.refusals) == ("waiting", {member.id: "no space on its disk"})
    assert behind.stage == "noting"
    assert len(asked) <= 2 * (12_000 // replica.config.repair_retry_ms)
    disk.is_full = False
    group.run_until(lambda: is_level(group) and not faulty(member))
