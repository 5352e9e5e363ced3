"""A member to which entries that were never committed have come back, in the place of committed ones."""

from pathlib import Path

import pytest
from virtual_group import VirtualGroup, VirtualMember

from dledger.entry import Index
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore

FIRST = 51  # of the entries that were cut; in front are a no-op and 50 messages


class ParkedGroup:
    """`peer` has led, and had five entries behind the 50 of all, which others came in place of; it is stopped, or runs
    and remembers those.
    """

    def __init__(self, directory: Path, count: int, *, is_stopped: bool = True) -> None:
        self.group = group = VirtualGroup(directory)
        group.start()
        old_leader = group.elect()
        self.peer = old_leader.id
        group.append(old_leader, [b"%d" % number * 40 for number in range(50)])
        group.run_until(group.converged)
        others = [member.id for member in group.running() if member is not old_leader]
        for other in others:
            group.crash(other)
        self.begin = old_leader.replica.log.ledger_end_pos
        group.append(old_leader, [b"A%d" % number * 40 for number in range(5)])
        log = old_leader.replica.log
        group.run_until(lambda: log.durable_index == log.ledger_end_index)
        self.end = log.ledger_end_pos
        group.crash(self.peer)
        self.directory = directory / f"dledger-{self.peer}"
        self.stale = {kind: self._path(kind).read_bytes() for kind in ("data", "index")}
        group.start(*others)
        leader = group.elect()
        group.append(leader, [b"B%d" % number * 40 for number in range(count)])
        group.run_until(group.converged)
        group.start(self.peer)
        group.run_until(group.converged)
        self.bodies = all_bodies(leader.replica.log)
        if is_stopped:
            group.stop(self.peer)
        else:
            end_index = self.log.ledger_end_index
            group.run_until(lambda: self.log.scrub_bounds().last_index == end_index)

    def _path(self, kind: str) -> Path:
        return min((self.directory / kind).iterdir())

    def lose_writes(self, *kinds: str) -> None:
        for kind in kinds:
            start, end = (self.begin, self.end) if kind == "data" else (FIRST * 32, (FIRST + 5) * 32)
            with self._path(kind).open("r+b") as file:
                file.seek(start)
                file.write(self.stale[kind][start:end])

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
