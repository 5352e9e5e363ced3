"""A member whose disk does not give some sectors: damage as any other, found, named and written anew from a peer."""

import shutil
from pathlib import Path

import pytest
from virtual_group import VirtualGroup, VirtualMember
from worn_disk import WornDisk

from dledger.entry import Index
from dledger.errors import FaultyEntryError

DATA_FILE_SIZE = 4 << 20
BODIES = [b"%03d" % number * 300 for number in range(100)]


class WornGroup(VirtualGroup):
    """Three that hold the same 5,000 entries, in two data files, and are stopped."""

    def __init__(self, directory: Path) -> None:
        self.disks = {f"n{number}": WornDisk() for number in range(3)}
        super().__init__(directory, disk_of=self.disks.__getitem__)
        self.data_file_size = DATA_FILE_SIZE
        self.start()
        leader = self.elect()
        for start in range(0, 5_000, 100):
            self.append(leader, [b"%d " % start + body for body in BODIES])
            self.run_until(self.converged)
        for peer in list(self.members):
            self.stop(peer)

    def wear(self, peer: str, sectors: set[int], *, kind: str = "data", file: int = 0) -> None:
        path = sorted((self.directory / f"dledger-{peer}" / kind).iterdir())[file]
        self.disks[peer].bad.setdefault(str(path), set()).update(sectors)

    def unreadable(self, peer: str) -> int:
        return sum(len(sectors) for sectors in self.disks[peer].bad.values())

    def run_until_mended(self) -> None:
        """All hold the same bytes, and none has failed on the way."""
        self.run_until(
            lambda: self.leader() and not any(member.replica.log.has_faults for member in self.running())
        )
        self.run_until(self.converged)
        assert [member.replica.failure for member in self.running()] == [None] * 3
        files = [self.data_files(peer) for peer in self.peers]
        assert files[0] == files[1] == files[2]


@pytest.fixture
def group(tmp_path: Path) -> WornGroup:
    return WornGroup(tmp_path)


def scrub(group: VirtualGroup, member: VirtualMember) -> None:
    scrubber = member.replica.scrubber
    rounds = scrubber.rounds
    assert scrubber.start_round(group.now_ms)
    group.run_until(lambda: scrubber.rounds > rounds or member.replica.failure, limit_ms=60_000)


@pytest.mark.parametrize("peer", ["n0", "n1"])
@pytest.mark.parametrize("sectors", [{7}, {0}, {3, 4, 5, 40}])
def test_the_scrub_names_them_and_they_are_mended(group: WornGroup, peer: str, sectors: set[int]) -> None:
    group.start()
    group.elect()
    group.wear(peer, sectors)
    member = group.members[peer]
    scrub(group, member)
    assert member.replica.failure is None
    assert member.replica.log.faults_found >= 1
    group.run_until_mended()
    assert group.unreadable(peer) == 0


def test_a_read_names_them_and_refuses_until_they_are_mended(group: WornGroup) -> None:
    group.start()
    group.elect()
    log = group.members["n0"].replica.log
    pos = log.pos_at(Index(20))
    size = log.end_pos_at(Index(20)) - pos
    body = log.read_body(pos + 48, size - 48)
    group.wear("n0", {pos // 4096})
    with pytest.raises(FaultyEntryError):
        log.read_body(pos + 48, size - 48)
    with pytest.raises(FaultyEntryError):
        log.read(pos + 48, 10)
    group.run_until_mended()
    assert log.read_body(pos + 48, size - 48) == body


def test_a_leader_has_them_mended_before_it_sends_them_to_who_needs_them(group: WornGroup) -> None:
    group.start("n0", "n1")
    leader = group.elect()
    group.wear(leader.id, {100, 101})
    shutil.rmtree(group.directory / "dledger-n2")
    group.start("n2")
    group.run_until_mended()
    assert group.unreadable(leader.id) == 0


def test_a_start_that_cannot_read_where_a_file_ends_names_it(group: WornGroup) -> None:
    group.wear("n0", {DATA_FILE_SIZE // 4096 - 1})
    group.start()
    assert group.members["n0"].replica.log.has_faults
    group.run_until_mended()
    assert group.unreadable("n0") == 0


def test_a_start_with_known_damage_that_still_cannot_be_read_goes_on_with_it(group: WornGroup) -> None:
    group.start("n0")
    group.wear("n0", {30, 31})
    scrub(group, group.members["n0"])
    group.run_for(100)
    group.stop("n0")
    assert group.unreadable("n0") == 2, "nobody was there to mend them"
    group.start()
    assert group.members["n0"].replica.log.has_faults
    group.run_until_mended()
    assert group.unreadable("n0") == 0


def test_more_than_one_answer_of_a_peer_holds_is_mended_too(group: WornGroup) -> None:
    group.start()
    group.elect()
    group.wear("n1", set(range(10, 900)))
    scrub(group, group.members["n1"])
    group.run_until_mended()
    assert group.unreadable("n1") == 0


@pytest.mark.parametrize("sectors", [{0}, {1}, {1, 2, 3}])
def test_units_of_the_index_that_cannot_be_read_are_made_anew(group: WornGroup, sectors: set[int]) -> None:
    before = {peer: index_files(group, peer) for peer in group.peers}
    group.start()
    group.elect()
    group.wear("n1", sectors, kind="index")
    scrub(group, group.members["n1"])
    group.run_until_mended()
    assert group.unreadable("n1") == 0
    for name, content in before["n1"].items():
        whole = index_files(group, "n1")[name]
        assert whole[: len(content.rstrip(b"\0"))] == content.rstrip(b"\0"), name


def index_files(group: VirtualGroup, peer: str) -> dict[str, bytes]:
    index = group.directory / f"dledger-{peer}" / "index"
    return {path.name: path.read_bytes() for path in sorted(index.iterdir())}
