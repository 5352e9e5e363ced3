"""Replicas elect, replicate, lose their leader and come back, in virtual time."""

from functools import partial
from pathlib import Path
from random import Random

import pytest
from virtual_group import DATA_FILE_SIZE, VirtualGroup

from dledger.config import FlushMode
from dledger.core.messages import HeartBeatRequest
from dledger.core.output import AppendStatus, Role
from dledger.core.refusal import HAS_STOPPED, RefusalReason
from dledger.entry import Index, Term

FLUSH_MODES = pytest.mark.parametrize("flush_mode", FlushMode)


def bodies(random: Random, count: int) -> list[bytes]:
    return [random.randbytes(random.randint(0, 300)) for _ in range(count)]


def test_an_unformed_group_elects_nobody_until_all_members_were_seen(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start("n0", "n1")
    group.run_for(5000)
    assert [member.replica.member.role for member in group.running()] == [Role.FOLLOWER] * 2
    assert group.members["n0"].replica.formation.waits_for == ["n2"]
    group.start("n2")
    group.elect()
    assert len({member.replica.formation.group for member in group.running()}) == 1


def test_a_leader_is_ready_within_150_virtual_ms_of_a_start(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    group.run_until(group.leader, limit_ms=150)


@pytest.mark.slow
@FLUSH_MODES
def test_three_replicas_are_byte_identical_after_a_thousand_batches(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    group = VirtualGroup(tmp_path, flush_mode=flush_mode)
    group.start()
    leader = group.elect()
    ends: list[AppendStatus] = []
    random = Random(7)
    for _ in range(1000):
        group.append(leader, bodies(random, random.randint(1, 4)), ends.append)
        assert not ends or ends.pop() is AppendStatus.SUCCESS
        group.run_for(random.randint(0, 6))
    group.run_until(group.converged)
    files = group.data_files("n0")
    assert files == group.data_files("n1") == group.data_files("n2")
    assert len(files) > 300 * 1000 // DATA_FILE_SIZE
    assert {member.journal.committed_indexes[-1] for member in group.running()} == {
        leader.replica.log.ledger_end_index
    }


def test_on_done_never_runs_inside_append(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, 1, flush_mode=FlushMode.ASYNC_FLUSH)
    group.start()
    leader = group.elect()
    ends: list[AppendStatus] = []
    group.append(leader, [b"alone"], ends.append)
    assert ends == []
    group.run_for(0)
    assert ends == [AppendStatus.SUCCESS]


@pytest.mark.slow
@FLUSH_MODES
def test_what_was_acknowledged_is_there_after_the_leader_is_lost(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    group = VirtualGroup(tmp_path, flush_mode=flush_mode)
    group.start()
    random = Random(3)
    acknowledged: dict[Index, bytes] = {}

    def note(body: bytes, index: Index, status: AppendStatus) -> None:
        if status is AppendStatus.SUCCESS:
            acknowledged[index] = body

    for round_number in range(4):
        leader = group.elect()
        for number in range(40):
            body = b"%d/%d" % (round_number, number)
            group.append(leader, [body], partial(note, body, Index(leader.replica.log.ledger_end_index + 1)))
            group.run_for(random.randint(0, 2))
        group.crash(leader.id)
        new_leader = group.elect()
        assert new_leader.replica.member.curr_term > leader.replica.member.curr_term
        group.start(leader.id)
        group.run_until(group.converged)
    for member in group.running():
        log = member.replica.log
        for index, body in acknowledged.items():
            assert log.read(log.pos_at(index) + 48, len(body)) == body
    assert 80 < len(acknowledged) < 160
    assert group.data_files("n0") == group.data_files("n1") == group.data_files("n2")


def test_a_killed_leader_is_replaced_within_150_virtual_ms(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    group.run_for(1000)
    group.crash(leader.id)
    group.run_until(group.leader, limit_ms=150)


def test_a_deposed_leaders_tail_is_cut_and_the_embedder_told(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    old = group.elect()
    group.run_for(100)
    others = [member.id for member in group.running() if member is not old]
    committed = old.replica.member.committed_index
    for other in others:
        group.crash(other)
    ends: list[AppendStatus] = []
    for _ in range(5):
        group.append(old, [b"nobody else has this"], ends.append)
    group.run_until(lambda: old.replica.log.durable_index == committed + 5)
    group.crash(old.id)
    group.start(*others)
    new = group.elect()
    group.append(new, [b"this is what is true"])
    group.run_for(100)
    group.start(old.id)
    group.run_until(group.converged)
    returned = group.members[old.id]
    assert returned.journal.cuts == [committed + 1]
    assert ends == []
    assert group.data_files("n0") == group.data_files("n1") == group.data_files("n2")


def test_pending_appends_end_as_unknown_when_the_leader_stops(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    ends: list[AppendStatus] = []
    group.append(leader, [b"pending"], ends.append)
    group.stop(leader.id)
    assert ends == [AppendStatus.UNKNOWN]


def test_a_cleanly_stopped_member_comes_back_with_all_it_had(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, 1)
    group.start()
    leader = group.elect()
    group.append(leader, [b"kept"])
    end = leader.replica.log.ledger_end_index
    group.stop("n0")
    group.start()
    replica = group.members["n0"].replica
    assert replica.log.ledger_end_index == replica.log.durable_index == end
    assert not replica.member.doubted


def test_a_follower_refuses_appends_and_says_who_leads(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    group.run_for(500)
    follower = next(member for member in group.running() if member is not leader)
    refusal = follower.replica.member.check_append(100, 1)
    assert refusal is not None
    assert refusal.reason is RefusalReason.NOT_LEADER
    assert leader.id in refusal.text


def test_a_member_that_ends_by_itself_tells_its_reads_so_each_once(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    told: list[object] = []
    leader.replica.read_index(told.append, group.now_ms)
    assert told == []
    leader.replica.receive(HeartBeatRequest(leader.replica.member.curr_term, "n9", Index(0), 1), group.now_ms)
    leader.replica.read_index(told.append, group.now_ms)
    group.run_for(50)
    assert leader.failure is not None
    assert told == [HAS_STOPPED] * 2


def test_a_group_serves_on_after_a_heartbeat_of_the_last_term_and_elects_after_a_restart(
    tmp_path: Path,
) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    for member in group.running():
        forged = HeartBeatRequest(Term(2**63 - 1), "n0" if member.id != "n0" else "n1", Index(0), 1)
        member.replica.receive(forged, group.now_ms)
    ends: list[AppendStatus] = []
    group.append(leader, [b"after"], ends.append)
    group.run_until(lambda: ends)
    assert (ends, group.leader(), leader.replica.member.curr_term) == ([AppendStatus.SUCCESS], leader, 1)
    for member in group.running():
        group.crash(member.id)
    group.start()
    assert group.elect().replica.member.curr_term == 2
    group.run_until(group.converged)
