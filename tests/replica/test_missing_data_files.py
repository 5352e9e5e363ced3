"""Members of which somebody took a data file away while they were down."""

import errno
import os
from pathlib import Path

import pytest
from test_repair import faulty, is_level
from test_replica_faults import SimGroup
from virtual_group import VirtualGroup

from disk.disk import NoSpaceError
from disk.slots import newest_payload
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus
from dledger.entry import ENTRY_HEADER_SIZE
from dledger.log.begin_mark import BeginMark, BeginMarkFile
from dledger.log.log_repair import RepairJob
from dledger.log.synced_mark import MARK_FILE_NAME, unpack_mark


def data_files(group: VirtualGroup, peer: PeerId) -> list[Path]:
    return sorted((group.directory / f"dledger-{peer}" / "data").iterdir())


def assert_n0_waits_for_n1(group: VirtualGroup) -> None:
    """n1 alone has what was acknowledged, and n0 has lost it and knows that: with n2 it elects nobody."""
    group.start("n0", "n2")
    assert group.members["n0"].replica.member.doubted
    group.run_for(20_000)
    assert group.leader() is None
    group.start("n1")
    group.run_until(lambda: is_level(group) and not group.members["n0"].replica.member.doubted)


@pytest.mark.parametrize("file", [0, 1, -1])
@pytest.mark.parametrize("peer", ["n0", "n1", "n2"])
def test_a_missing_data_file_comes_back_byte_by_byte(
    group: VirtualGroup,
    peer: PeerId,
    file: int,
) -> None:
    path = data_files(group, peer)[file]
    before = path.read_bytes()
    path.unlink()
    group.start()
    group.run_until(lambda: is_level(group) and not faulty(group.members[peer]))
    assert group.members[peer].replica.repairer.repaired_count
    assert len(before.rstrip(b"\0")) > 10
    assert path.read_bytes().startswith(before.rstrip(b"\0"))


@pytest.mark.parametrize("left", ["nothing", "zeros"])
def test_what_was_acknowledged_behind_the_mark_in_a_file_that_is_gone_raises_a_doubt(
    group: VirtualGroup, left: str
) -> None:
    """n2 lacks what n0 and n1 acknowledged. n0 must not make a majority with it, when it does not know that either."""
    group.start("n0", "n1")
    leader = group.elect()
    group.append(leader, [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    end_index = leader.replica.log.ledger_end_index
    for peer in ("n0", "n1"):
        group.crash(peer)
    path = data_files(group, "n0")[-1]
    if left == "nothing":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    group.start("n0", "n2")
    assert group.members["n0"].replica.member.doubted
    group.run_for(20_000)
    assert group.leader() is None
    group.start("n1")
    group.run_until(lambda: is_level(group) and not faulty(group.members["n0"]))
    assert group.elect().replica.log.ledger_end_index > end_index
    group.run_until(lambda: not group.members["n0"].replica.member.doubted)


@pytest.mark.parametrize("left", ["none of the zeros", "some of the zeros", "more than the entry"])
def test_a_file_cut_short_about_an_entry_that_ends_with_zeros_raises_a_doubt(
    group: VirtualGroup, left: str
) -> None:
    """The zeros that come in the place of what is missing make that entry whole, but not those behind it."""
    group.start("n0", "n1")
    leader = group.elect()
    zeros = 40
    group.append(leader, [b"the last one that is marked" + bytes(zeros)])
    group.run_until(group.converged)
    for peer in ("n0", "n1"):
        group.stop(peer)  # moves the mark
    group.start("n0", "n1")
    marked = group.members["n0"].replica.log.ledger_end_pos
    group.append(group.elect(), [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    for peer in ("n0", "n1"):
        group.crash(peer)
    path = data_files(group, "n0")[-1]
    length = {"none of the zeros": -zeros, "some of the zeros": -1, "more than the entry": 8}[left]
    os.truncate(path, marked % path.stat().st_size + length)
    assert_n0_waits_for_n1(group)


@pytest.mark.parametrize("left", ["nothing", "the last entry"])
def test_a_clean_stop_leaves_nothing_behind_the_mark_to_doubt(group: VirtualGroup, left: str) -> None:
    path = data_files(group, "n0")[-1]
    if left == "nothing":
        path.unlink()
    else:
        os.truncate(path, len(path.read_bytes().rstrip(b"\0")))
    group.start("n0", "n1")
    assert not group.members["n0"].replica.member.doubted
    group.run_until(lambda: not faulty(group.members["n0"]))


class _KilledError(BaseException):
    """kill -9 in the middle of a job."""


def test_a_repair_broken_off_when_it_had_given_a_file_its_length_back_leaves_a_doubt(
    group: VirtualGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then zeros make the last marked entry whole, and nothing seems to follow it."""
    group.start("n0", "n1")
    group.append(group.elect(), [b"the last one that is marked" + bytes(40)])
    log = group.members["n0"].replica.log
    group.run_until(lambda: log.is_marked and group.converged(), limit_ms=3000)
    marked = log.ledger_end_pos
    group.append(group.elect(), [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    end_index = log.ledger_end_index
    path = data_files(group, "n0")[-1]
    size = path.stat().st_size
    os.truncate(path, marked % size - 1)

    def run(job: RepairJob) -> None:
        os.truncate(path, size)
        raise _KilledError

    monkeypatch.setattr(RepairJob, "run", run)
    assert group.members["n0"].replica.scrubber.start_round(group.now_ms)
    with pytest.raises(_KilledError):
        group.run_for(20_000)
    monkeypatch.undo()
    for peer in ("n0", "n1"):
        group.crash(peer)
    assert_n0_waits_for_n1(group)
    assert group.elect().replica.log.ledger_end_index > end_index


def test_a_stop_that_has_no_space_for_the_mark_is_no_clean_one(
    group: VirtualGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark does not tell of what was acknowledged, so what is gone behind it raises a doubt as after a kill."""

    def keep(file: BeginMarkFile, mark: BeginMark) -> None:
        raise NoSpaceError(errno.ENOSPC, "no space left on device", file.slots.path)

    group.start("n0", "n1")
    log = group.members["n0"].replica.log
    group.run_until(lambda: log.is_marked and group.converged(), limit_ms=3000)
    marked = log.ledger_end_pos
    monkeypatch.setattr(BeginMarkFile, "keep", keep)
    group.append(group.elect(), [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    for peer in ("n0", "n1"):
        group.stop(peer)
    monkeypatch.undo()
    path = data_files(group, "n0")[-1]
    os.truncate(path, marked % path.stat().st_size)
    assert_n0_waits_for_n1(group)


def test_after_a_clean_stop_both_slots_of_the_mark_tell_of_all_that_was_acknowledged() -> None:
    """A power loss and damage to the newer one then uncover no other, with which nobody would doubt what is gone."""
    group = SimGroup()
    for body in (b"of the mark before", b"more"):
        group.start()
        group.append(group.elect(), [body])
        group.run_until(group.converged)
        log = group.members["n0"].replica.log
        for peer in group.peers:
            group.stop(peer)
    slots = group.disks["n0"].durable(f"{log.config.own_directory}/{MARK_FILE_NAME}")
    assert slots is not None
    half = len(slots) // 2
    for left in (slots[:half] + bytes(half), bytes(half) + slots[half:]):
        payload = newest_payload(left)
        assert payload is not None
        assert unpack_mark(payload).index == log.ledger_end_index


@pytest.mark.parametrize("mark", ["gone", "damaged"])
@pytest.mark.parametrize("data", ["gone", "emptied"])
def test_who_has_run_and_has_neither_mark_nor_entries_is_doubted(
    tmp_path: Path, mark: str, data: str
) -> None:
    """Its quorum state says that it has run, and no run was without a mark."""
    group = VirtualGroup(tmp_path)
    group.start()
    group.elect()
    group.run_until(group.converged)
    group.stop("n2")
    group.append(group.elect(), [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    end_index = group.elect().replica.log.ledger_end_index
    own = Path(group.members["n0"].replica.log.config.own_directory)
    for peer in ("n0", "n1"):
        group.crash(peer)
    if mark == "gone":
        (own / MARK_FILE_NAME).unlink()
    else:
        (own / MARK_FILE_NAME).write_bytes(b"\xff" * 8192)
    for path in data_files(group, "n0"):
        if data == "gone":
            path.unlink()
        else:
            os.truncate(path, 0)
    assert_n0_waits_for_n1(group)
    assert group.elect().replica.log.ledger_end_index > end_index


@pytest.mark.parametrize("file", [0, 1, -1])
@pytest.mark.parametrize("left", [0, 5000])
def test_a_data_file_that_is_cut_short_while_the_member_runs_gets_all_of_its_length_back(
    group: VirtualGroup, file: int, left: int
) -> None:
    group.start()
    group.run_until(lambda: is_level(group))
    member = group.members["n1"]
    path = data_files(group, "n1")[file]
    size = path.stat().st_size
    os.truncate(path, left)
    rounds = member.replica.scrubber.rounds
    assert member.replica.scrubber.start_round(group.now_ms)
    group.run_until(lambda: member.replica.scrubber.rounds > rounds and not faulty(member), limit_ms=120_000)
    assert member.replica.failure is None
    assert member.replica.repairer.repaired_count
    assert path.stat().st_size == size
    group.append(group.elect(), [b"more"])
    group.run_until(group.converged)
    files = [group.data_files(peer) for peer in group.peers]
    assert files[0] == files[1] == files[2]


def test_a_repair_gives_no_file_its_length_back_before_it_is_noted_what_was_lost_behind(
    group: VirtualGroup,
) -> None:
    """Zeros behind the mark look like the end of the log, and the next start would not doubt."""
    group.start("n0", "n1")
    group.append(group.elect(), [b"it rots", b"the last one that is marked"])
    group.run_until(group.converged)
    rotten = group.elect().replica.log.ledger_end_index - 1
    for peer in ("n0", "n1"):
        group.stop(peer)  # moves the mark
    group.start("n0", "n1")
    member = group.members["n0"]
    marked, marked_index = member.replica.log.ledger_end_pos, member.replica.log.ledger_end_index
    rotten_pos = member.replica.log.pos_at(rotten)
    leader = group.elect()
    group.append(leader, [b"acknowledged, and n2 does not have it"])
    group.run_until(group.converged)
    path = data_files(group, "n0")[-1]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(rotten_pos % size + ENTRY_HEADER_SIZE)
        file.write(b"!")
    os.truncate(path, marked % size)
    repaired = member.replica.repairer.repaired_count
    member.replica.log.fault_found(rotten, rotten)
    group.run_until(
        lambda: path.stat().st_size == size or member.replica.repairer.repaired_count > repaired, limit_ms=500
    )
    mark = newest_payload((path.parent.parent / "pydledger" / MARK_FILE_NAME).read_bytes())
    assert mark is not None
    assert unpack_mark(mark).index == marked_index  # the next start is told of no more
    for peer in ("n0", "n1"):
        group.crash(peer)
    assert_n0_waits_for_n1(group)
    assert path.stat().st_size == size


def test_nothing_is_acknowledged_of_a_file_of_which_the_mark_does_not_tell_yet() -> None:
    """Else a member that lost it whole would not know that it ever held more."""
    group = SimGroup()
    group.start()
    leader = group.elect()
    log = leader.replica.log
    size = log.config.data_file_size
    group.run_until(group.converged)
    group.run_for(1200)
    while size - log.ledger_end_pos % size > 9500:
        group.append(leader, [bytes(9000)])
        group.run_for(30)
    group.run_for(1200)
    next_file = log.ledger_end_pos - log.ledger_end_pos % size + size
    group.crash(group.followers(leader)[-1].id)
    ends: list[AppendStatus] = []
    for _ in range(2):
        group.append(leader, [bytes(9000)], ends.append)
    group.run_until(lambda: len(ends) == 2, limit_ms=900)
    assert ends == [AppendStatus.SUCCESS] * 2
    assert log.ledger_end_pos > next_file
    group.crash(leader.id)
    group.disks[leader.id].lose(f"{log.config.data_directory}/{next_file:020d}")
    group.start(leader.id)
    again = group.members[leader.id].replica
    assert again.member.doubted
    assert again.log.has_faults
