"""A member to which entries that were never committed have come back, in the place of committed ones."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from virtual_group import VirtualGroup, VirtualMember

from dledger.entry import Index
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore
from dledger.rpc.requests import RepairRequest

FILE_SIZE = 65536  # of data files; there is one index file
FIRST = 51  # of the entries that were cut; in front are a no-op and 50 messages


class ParkedGroup:
    """`peer` has led, and had some entries behind the 50 of all, which others came in place of; it is stopped, or runs
    and remembers those.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 0,
        *,
        is_stopped: bool = True,
        body_size: int = 40,
        sizes: Sequence[int] = (),
        parked_count: int = 5,
    ) -> None:
        """`body_size`: of the 50, in bytes. `sizes`: of the others, and as many of them; else `count`, each of the size
        of the parked one in its place.
        """
        others_bodies = [b"B%d" % number + bytes(size) for number, size in enumerate(sizes)]
        others_bodies += [b"B%d" % number * 40 for number in range(count)]
        self.group = group = VirtualGroup(directory)
        group.start()
        old_leader = group.elect()
        self.peer = old_leader.id
        group.append(old_leader, [b"%d" % (number % 10) * body_size for number in range(50)])
        group.run_until(group.converged)
        others = [member.id for member in group.running() if member is not old_leader]
        for other in others:
            group.crash(other)
        group.append(old_leader, [b"A%d" % number * 40 for number in range(parked_count)])
        log = old_leader.replica.log
        self.begin = log.pos_at(Index(FIRST))
        group.run_until(lambda: log.durable_index == log.ledger_end_index)
        self.end, self.end_index = log.ledger_end_pos, log.ledger_end_index
        self.positions = {index: log.pos_at(Index(index)) for index in range(FIRST, self.end_index + 1)}
        group.crash(self.peer)
        self.directory = directory / f"dledger-{self.peer}"
        self.stale = {kind: self._read(kind) for kind in ("data", "index")}
        group.start(*others)
        leader = group.elect()
        group.append(leader, others_bodies)
        group.run_until(group.converged)
        group.start(self.peer)
        group.run_until(group.converged)
        self.bodies = all_bodies(leader.replica.log)
        if is_stopped:
            group.stop(self.peer)
        else:
            end_index = self.log.ledger_end_index
            group.run_until(lambda: self.log.scrub_bounds().last_index == end_index)

    def _read(self, kind: str) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.directory / kind).iterdir())]

    def lose_writes(self, *kinds: str, first: int = FIRST, last: int | None = None) -> None:
        """The entries parked there are back, all or some."""
        last = self.end_index if last is None else last
        for kind in kinds:
            pos, end = first * 32, (last + 1) * 32
            if kind == "data":
                pos, end = self.positions[first], self.positions.get(last + 1, self.end)
            paths = sorted((self.directory / kind).iterdir())
            while pos < end:
                stale = self.stale[kind][pos // FILE_SIZE]
                offset = pos % FILE_SIZE
                lost = stale[offset : offset + end - pos]
                with paths[pos // FILE_SIZE].open("r+b") as file:
                    file.seek(offset)
                    file.write(lost)
                pos += len(lost)

    def run_until_mended(self) -> None:
        group = self.group
        group.run_until(lambda: group.leader() and group.converged() and not self.log.has_faults)
        scrub(group, group.members[self.peer])
        group.run_until(lambda: not self.log.has_faults)
        assert group.members[self.peer].replica.repairer.repaired_count
        assert all_bodies(self.log)[: len(self.bodies)] == self.bodies
        files = [group.data_files(peer) for peer in group.peers]
        assert files[0] == files[1] == files[2]

    @property
    def log(self) -> LogStore:
        return self.group.members[self.peer].replica.log


def all_bodies(log: LogStore) -> list[bytes]:
    return [log.body_at(Index(index)) for index in range(log.ledger_end_index + 1)]


def scrub(group: VirtualGroup, member: VirtualMember) -> None:
    scrubber = member.replica.scrubber
    rounds = scrubber.rounds
    assert scrubber.start_round(group.now_ms)
    group.run_until(lambda: scrubber.rounds > rounds or member.replica.failure, limit_ms=120_000)


@pytest.mark.parametrize("count", [30, 4])
@pytest.mark.parametrize("found_by", ["read", "scrub"])
@pytest.mark.parametrize("kinds", [("data",), ("data", "index")])
def test_they_are_mended_from_peers_and_never_served(
    tmp_path: Path, found_by: str, kinds: tuple[str, ...], count: int
) -> None:
    """Where their units came back as well, only the leader's entries tell how many they are."""
    parked = ParkedGroup(tmp_path, count)
    parked.lose_writes(*kinds)
    group = parked.group
    group.start(parked.peer)
    group.run_until(lambda: group.leader() is not None)
    if found_by == "read":
        with pytest.raises(FaultyEntryError):
            list(parked.log.batches_from(Index(40), parked.log.ledger_end_index, 1 << 16))
    else:
        scrub(group, group.members[parked.peer])
    parked.run_until_mended()


@pytest.mark.parametrize("kinds", [("data",), ("data", "index")])
def test_what_the_member_remembers_does_not_hide_them_from_the_repair(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    parked = ParkedGroup(tmp_path, 30, is_stopped=False)
    parked.lose_writes(*kinds)
    parked.run_until_mended()


def test_what_ends_a_file_is_not_written_over_where_one_of_before_begins_the_next(tmp_path: Path) -> None:
    """No fault touches entries 51 and 52 at the end of the first file, which a blank and 51 of before would follow
    from what is in front, too.
    """
    parked = ParkedGroup(tmp_path, body_size=1259, sizes=[0] * 3 + [40] * 20)
    assert parked.begin == FILE_SIZE
    path = min((parked.directory / "data").iterdir())
    before = path.read_bytes()
    parked.lose_writes("data", "index")
    assert path.read_bytes() == before
    parked.group.start(parked.peer)
    assert path.read_bytes() == before
    parked.run_until_mended()
    assert path.read_bytes() == before


@pytest.mark.parametrize("next_offset", [None, 30, 49])
@pytest.mark.parametrize("offset", [30, 100])
def test_no_repair_writes_over_what_ends_a_file_either(
    tmp_path: Path, offset: int, next_offset: int | None
) -> None:
    """The same, and a byte of the header or of the body of entry 50 is damaged, and perhaps one of 51."""
    parked = ParkedGroup(tmp_path, body_size=1259, sizes=[0] * 3 + [40] * 20, is_stopped=False)
    pos, own, behind = (parked.log.pos_at(Index(index)) for index in (50, 51, 52))
    parked.group.stop(parked.peer)
    path = min((parked.directory / "data").iterdir())
    parked.lose_writes("data", "index")
    content = bytearray(path.read_bytes())
    content[pos + offset] ^= 1
    if next_offset is not None:
        content[own + next_offset] ^= 1
        own = behind
    path.write_bytes(content)
    writes: list[bool] = []
    parked.group.start(parked.peer)

    def is_mended() -> bool:
        writes.append(path.read_bytes()[own:] != content[own:])
        return parked.group.leader() is not None and not parked.log.has_faults

    parked.group.run_until(is_mended)
    parked.run_until_mended()
    assert not any(writes)
    assert path.read_bytes()[own:] == content[own:]


def test_two_stretches_of_them_with_damage_in_each_are_both_looked_at_farther_behind(tmp_path: Path) -> None:
    """No scrub comes by. What follows from the damaged ones leads to no peer's, up to where each stretch ends."""
    parked = ParkedGroup(tmp_path, 120, parked_count=100)
    parked.group.scrub_bytes_per_second = 0
    for first in (FIRST, FIRST + 50):
        parked.lose_writes("data", "index", first=first, last=first + 30)
        with min((parked.directory / "data").iterdir()).open("r+b") as file:
            file.seek(parked.positions[first + 1])
            file.write(bytes(20))
    parked.group.start(parked.peer)
    for first in (FIRST, FIRST + 50):
        with pytest.raises(FaultyEntryError):
            parked.log.body_at(Index(first + 1))
    assert len(parked.log.faulty) == 2
    parked.group.run_until(lambda: not parked.log.has_faults, limit_ms=120_000)
    parked.run_until_mended()


def start_where_the_leader_has_deleted_them(
    parked: ParkedGroup, *, other_begins: int = 0, other_damage: int | None = None
) -> VirtualMember:
    """The other member, which begins where `other_begins`, and may have a damaged entry that it does not know of."""
    parked.lose_writes("data", "index")
    group = parked.group
    leader = group.elect()
    (other,) = (member for member in group.running() if member is not leader)
    for member, begin_index in ((other, other_begins), (leader, FIRST + 6)):
        while member.replica.log.ledger_begin_index < begin_index:
            group.delete_files(member, 1)
    assert other.replica.log.ledger_begin_index == other_begins
    if other_damage is not None:
        pos = other.replica.log.pos_at(Index(other_damage)) + 60
        path = min((parked.directory.parent / f"dledger-{other.id}" / "data").iterdir())
        with path.open("r+b") as file:
            file.seek(pos)
            file.write(b"\xff")
    group.start(parked.peer)
    group.run_until(group.converged)
    assert group.leader() is leader
    return other


@pytest.mark.parametrize("is_other_first", [False, True])
@pytest.mark.parametrize("damage", [None, FIRST - 3, FIRST - 1, FIRST + 3])
def test_where_the_leader_has_deleted_what_lay_there_they_are_mended_from_another(
    tmp_path: Path, damage: int | None, is_other_first: bool
) -> None:
    """Nobody but a follower tells then that what is in front of the known damage is not the group's either. What is
    damaged on its disk is mended from here, and never by them.
    """
    parked = ParkedGroup(tmp_path, 1000)
    other = start_where_the_leader_has_deleted_them(parked, other_damage=damage)
    member = parked.group.members[parked.peer]
    for scrubbed in (other, member) if is_other_first else (member, other):
        scrub(parked.group, scrubbed)
    parked.group.run_until(lambda: not parked.log.has_faults and not other.replica.log.has_faults)
    for log in (parked.log, other.replica.log):
        assert log.ledger_begin_index == 0
        assert all_bodies(log)[: len(parked.bodies)] == parked.bodies


# Sizes of the 50 messages with which the five lie at the begin of the second data file, and across it.
SECOND_FILE, BOTH_FILES = 1261, 1254


def test_nothing_in_front_of_them_is_given_up_where_the_others_log_begins(tmp_path: Path) -> None:
    parked = ParkedGroup(tmp_path, 1000, body_size=SECOND_FILE)
    start_where_the_leader_has_deleted_them(parked, other_begins=FIRST)
    scrub(parked.group, parked.group.members[parked.peer])
    parked.group.run_until(lambda: not parked.log.has_faults)
    assert parked.group.members[parked.peer].replica.repairer.repaired_count
    assert parked.log.ledger_begin_index == 0
    assert all_bodies(parked.log)[: len(parked.bodies)] == parked.bodies


def test_where_all_others_begin_among_them_the_log_begins_there_as_well(tmp_path: Path) -> None:
    """Who has those behind tells that they are others; of those in front nobody has the right ones."""
    parked = ParkedGroup(tmp_path, 1000, body_size=BOTH_FILES)
    parked.lose_writes("data", "index")
    group = parked.group
    group.elect()
    for member in group.running():
        group.delete_files(member, 1)
    (begin_index,) = {member.replica.log.ledger_begin_index for member in group.running()}
    assert FIRST < begin_index < FIRST + 5
    group.start(parked.peer)
    group.run_until(group.converged)
    scrub(group, group.members[parked.peer])
    group.run_until(lambda: not parked.log.has_faults)
    assert parked.log.ledger_begin_index == begin_index
    bodies = [parked.log.body_at(Index(index)) for index in range(begin_index, len(parked.bodies))]
    assert bodies == parked.bodies[begin_index:]


@pytest.mark.parametrize(
    ("body_size", "asked_for"),
    [(SECOND_FILE, range(FIRST - 5, FIRST)), (BOTH_FILES, range(FIRST, FIRST + 1))],
)
def test_retention_may_come_by_while_a_peer_is_asked_where_they_begin(
    tmp_path: Path, body_size: int, asked_for: range
) -> None:
    """Where it deletes some of them, what the log begins behind is an entry of before as well."""
    parked = ParkedGroup(tmp_path, 1000, body_size=body_size)
    parked.lose_writes("data", "index")
    group = parked.group
    group.elect()
    group.start(parked.peer)
    group.run_until(group.converged)
    group.run_for(1500)  # the synced mark comes up
    replica = group.members[parked.peer].replica
    asked: list[int] = []

    def delete_while_asked(message: object, payload: bytes) -> bytes:
        if isinstance(message, RepairRequest) and message.first_index in asked_for and not asked:
            asked.append(message.first_index)
            group.at(group.now_ms, lambda: replica.delete_first_file(group.now_ms))
        return payload

    group.tamper = delete_while_asked
    scrub(group, group.members[parked.peer])
    group.run_until(lambda: asked and replica.idle)
    begin_index = parked.log.ledger_begin_index
    assert begin_index in range(FIRST, FIRST + 5)
    if begin_index == FIRST:
        group.run_until(lambda: not parked.log.has_faults)
        bodies = [parked.log.body_at(Index(index)) for index in range(FIRST, len(parked.bodies))]
        assert bodies == parked.bodies[FIRST:]
    else:
        group.run_for(20_000)
        assert parked.log.has_faults
    assert not replica.failure
