"""The scrub of a running member: when it reads, how fast, and what it does about damage."""

import errno
import logging
import shutil
from pathlib import Path

import pytest
from virtual_group import VirtualGroup, VirtualMember

from disk import mapped_file_queue
from disk.disk import NoSpaceError
from dledger.scrubber import DEFAULT_BYTES_PER_SECOND, ScrubRound

BODIES = [b"%03d" % number * 100 for number in range(100)]


@pytest.fixture
def group(tmp_path: Path) -> VirtualGroup:
    """With some files of entries, below the synced mark of all."""
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    for start in range(0, 1000, 100):
        group.append(leader, [b"%d " % start + body for body in BODIES])
        group.run_until(group.converged)
    group.run_for(3_000)
    return group


def scrub(group: VirtualGroup, member: VirtualMember) -> ScrubRound:
    """A round now; returns what it came to."""
    scrubber = member.replica.scrubber
    rounds = scrubber.rounds
    assert scrubber.start_round(group.now_ms)
    group.run_until(lambda: scrubber.rounds > rounds)
    result = scrubber.status().last_round
    assert result is not None
    return result


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    with path.open("r+b") as file:
        file.write(content)


def test_a_round_reads_all_and_takes_its_time(group: VirtualGroup) -> None:
    (member, *_) = group.running()
    result = scrub(group, member)
    end_pos = member.replica.log.ledger_end_pos
    assert result.bytes_read >= end_pos
    assert (result.faults, result.mended) == (0, 0)
    assert result.ended_ms is not None
    assert result.ended_ms - result.began_ms >= result.bytes_read * 1000 // DEFAULT_BYTES_PER_SECOND
    assert member.replica.scrubber.status().size == pytest.approx(result.bytes_read, rel=0.1)


def test_a_round_begins_soon_after_the_start_and_the_next_after_the_pause(group: VirtualGroup) -> None:
    (member, *_) = group.running()
    scrubber = member.replica.scrubber
    group.run_until(lambda: scrubber.rounds == 1, limit_ms=62_000)
    ended_ms = group.now_ms
    group.run_until(lambda: scrubber.rounds == 2, limit_ms=3_700_000)
    assert group.now_ms - ended_ms >= 3_600_000


def test_damage_in_a_running_members_data_file_is_named(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    (member, *_) = group.running()
    first_file = group.directory / f"dledger-{member.id}" / "data" / f"{0:020d}"
    flip(first_file, 100)
    with caplog.at_level(logging.ERROR, "dledger"):
        assert scrub(group, member).faults == 1
    assert "entries 1..1 pos=64" in caplog.text
    assert f"[{member.id}]" in caplog.text


@pytest.mark.parametrize("name", ["quorum-state", "synced-mark", "begin-mark"])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_is_made_good_while_the_member_runs(group: VirtualGroup, name: str, slot: int) -> None:
    (member, *_) = group.running()
    path = group.directory / f"dledger-{member.id}" / "pydledger" / name
    before = path.read_bytes()
    flip(path, 4096 * slot + 20)
    result = scrub(group, member)
    assert (result.faults, result.mended) == (1, 1)
    # Which of the two is called the copy may be the other way round.
    assert path.read_bytes()[32:4096] == before[32:4096]
    assert scrub(group, member).faults == 0


def test_a_second_command_does_not_begin_a_second_round(group: VirtualGroup) -> None:
    (member, *_) = group.running()
    scrubber = member.replica.scrubber
    assert scrubber.start_round(group.now_ms)
    assert not scrubber.start_round(group.now_ms)


def test_a_member_that_stops_waits_for_the_step_under_way_and_begins_no_other(group: VirtualGroup) -> None:
    (member, *_) = group.running()
    scrubber = member.replica.scrubber
    scrubber.start_round(group.now_ms)
    group.run_until(lambda: not scrubber.idle)
    group.stop(member.id)
    assert scrubber.idle
    assert not scrubber.start_round(group.now_ms)
    assert scrubber.rounds == 0


def test_at_rate_zero_it_reads_only_when_it_is_told_to(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, scrub_bytes_per_second=0)
    group.start()
    leader = group.elect()
    group.append(leader, BODIES)
    group.run_until(lambda: group.now_ms > 120_000, limit_ms=200_000)
    assert leader.replica.scrubber.bytes_read == 0
    assert scrub(group, leader).faults == 0
    assert leader.replica.scrubber.bytes_read > 0


@pytest.mark.parametrize("is_full", [False, True])
def test_an_index_that_cannot_be_made_anew_ends_no_member_and_no_round(
    group: VirtualGroup, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read without it. Its directory is gone, or the disk has no room for a file more."""
    member = group.elect()
    index = Path(member.replica.config.directory) / "index"
    if is_full:
        min(index.iterdir()).unlink()

        def make_file(*arguments: object, **named: object) -> None:
            raise NoSpaceError(errno.ENOSPC, "no space left on device", str(index))

        monkeypatch.setattr(mapped_file_queue, "make_file", make_file)
    else:
        shutil.rmtree(index)
    result = scrub(group, member)
    assert result.faults
    assert member.replica.failure is None
