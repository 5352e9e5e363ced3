"""Disks that fail, fill or lose power, pushes that are not sound, members that lost their disk."""

from functools import partial
from pathlib import Path
from random import Random

import pytest
from virtual_group import VirtualGroup, VirtualMember

from disk.disk import DiskError
from dledger.config import FlushMode
from dledger.core.messages import Message, PeerId, PushRequest
from dledger.core.output import AppendStatus, Role
from dledger.core.refusal import RefusalReason
from dledger.entry import Index
from dledger.errors import DLedgerConfigError, HandshakeRefusedError
from dledger.formation import GroupIdentity
from dledger.log.errors import (
    LedgerConfigError,
    LedgerDamagedError,
    PositionMismatchError,
)
from simulator.world.sim_disk import SimDisk


class SimGroup(VirtualGroup):
    """Members on simulated disks, one each."""

    def __init__(
        self,
        size: int = 3,
        *,
        seed: int = 1,
        flush_mode: FlushMode = FlushMode.SYNC_FLUSH,
        disk_random: Random | None = None,
    ) -> None:
        self.disks: dict[PeerId, SimDisk] = {}
        self._disk_random = disk_random
        super().__init__(Path("/sim"), size, seed=seed, flush_mode=flush_mode, disk_of=self._disk)

    def _disk(self, peer: PeerId) -> SimDisk:
        if peer not in self.disks:
            self.disks[peer] = SimDisk(self._disk_random or Random(f"{peer}"), lambda: 0, lambda: 0)
            self.boot_ids[peer] = "boot-1"
        return self.disks[peer]

    def lose_power(self, peer: PeerId) -> None:
        self.crash(peer)
        self.disks[peer].power_loss()
        self.boot_ids[peer] += "+"

    def followers(self, leader: VirtualMember) -> list[VirtualMember]:
        return [member for member in self.running() if member is not leader]


def test_a_failed_sync_ends_the_member_and_its_pending_appends_are_unknown() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(50)
    ends: list[AppendStatus] = []
    group.disks[leader.id].failing_syncs = 1
    group.append(leader, [b"on its way to a bad disk"], ends.append)
    group.members = {leader.id: leader}  # so that no majority completes it first
    group.run_until(lambda: leader.failure)
    assert "sync job" in str(leader.failure)
    assert ends == [AppendStatus.UNKNOWN]
    refusal = leader.replica.member.check_append(1, 1)
    assert refusal is not None
    assert refusal.reason is RefusalReason.STOPPED


def test_after_a_failed_sync_nothing_more_is_said_to_anybody() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(50)
    group.disks[leader.id].failing_syncs = 1
    group.append(leader, [b"x"])
    group.run_until(lambda: leader.failure)
    sent = leader.sent
    group.run_for(3000)
    assert leader.sent == sent
    assert group.elect() is not leader


def test_a_push_with_a_flipped_bit_is_dropped_with_its_connection_and_replication_goes_on() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(50)
    flipped = 0

    def flip_once(message: Message, payload: bytes) -> bytes:
        nonlocal flipped
        if isinstance(message, PushRequest) and payload and not flipped:
            flipped += 1
            return payload[:-1] + bytes([payload[-1] ^ 1])
        return payload

    group.tamper = flip_once
    group.append(leader, [b"to be damaged on its way"])
    group.run_for(20)
    assert flipped == 1
    assert [len(member.dropped) for member in group.followers(leader)] in ([0, 1], [1, 0])
    group.run_until(group.converged)


def test_a_sound_range_that_is_not_the_announced_one_is_dropped() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(50)

    def shorten(message: Message, payload: bytes) -> bytes:
        return (
            payload[: len(payload) // 2]
            if isinstance(message, PushRequest) and len(payload) > 500
            else payload
        )

    group.tamper = shorten
    end = leader.replica.log.ledger_end_index
    group.append(leader, [bytes(300), bytes(300)])
    group.run_for(20)
    for follower in group.followers(leader):
        assert "announced" in follower.dropped[0]
        assert follower.replica.log.ledger_end_index == end


@pytest.mark.parametrize("seed", range(5))
def test_nothing_acknowledged_is_lost_when_all_lose_power_at_once(seed: int) -> None:
    group = SimGroup(seed=seed)
    acknowledged: list[Index] = []
    chains: dict[Index, int | None] = {}
    group.start()

    def note(member: VirtualMember, index: Index, status: AppendStatus) -> None:
        if status is AppendStatus.SUCCESS:
            acknowledged.append(index)
            chains[index] = member.replica.log.chain_at(index)

    for _ in range(4):
        leader = group.elect()
        for number in range(30):
            index = Index(leader.replica.log.ledger_end_index + 1)
            group.append(leader, [b"%d" % number * 100], partial(note, leader, index))
            group.run_for(group.random.choice([0, 1, 4]))
        for peer in list(group.members):
            group.lose_power(peer)
        group.start()
    group.run_until(group.converged)
    assert len(acknowledged) > 40
    for member in group.running():
        assert {index: member.replica.log.chain_at(index) for index in acknowledged} == chains


def test_under_async_flush_a_member_that_lost_power_is_doubted_and_one_that_was_killed_is_not() -> None:
    group = SimGroup(flush_mode=FlushMode.ASYNC_FLUSH)
    group.start()
    leader = group.elect()
    group.run_for(2000)
    killed, powerless = group.followers(leader)
    group.crash(killed.id)
    group.lose_power(powerless.id)
    group.members[leader.id].replica.stop(group.now_ms)  # so that nobody ends the doubt
    group.start(killed.id, powerless.id)
    assert not group.members[killed.id].replica.member.doubted
    assert group.members[powerless.id].replica.member.doubted


def test_a_power_loss_counts_as_what_the_run_before_it_acknowledged_from() -> None:
    """Whatever the conf says by now, and the other way round as well."""
    for before, now in (
        (FlushMode.ASYNC_FLUSH, FlushMode.SYNC_FLUSH),
        (FlushMode.SYNC_FLUSH, FlushMode.ASYNC_FLUSH),
    ):
        group = SimGroup(flush_mode=before)
        group.start()
        leader = group.elect()
        group.run_for(2000)
        powerless = group.followers(leader)[0].id
        group.lose_power(powerless)
        leader.replica.stop(group.now_ms)
        group.flush_mode = now
        group.start(powerless)
        assert group.members[powerless].replica.member.doubted is (before is FlushMode.ASYNC_FLUSH)


def test_under_async_flush_a_disk_that_is_slow_while_the_members_change_does_not_hang() -> None:
    """The sync under way does not cover the change, and the next one takes as long: no disk does nothing for 5 s."""
    group = SimGroup(flush_mode=FlushMode.ASYNC_FLUSH)
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    leader.job_delays_ms["sync"] = 4_000
    group.append(leader, [bytes(40_000)])
    group.run_for(2_000)  # the flush of what is above a few pages has begun
    gone = group.followers(leader)[0].id
    assert leader.replica.remove_member(gone, lambda status: None, group.now_ms) is None
    core = leader.replica.member
    group.run_until(lambda: core.role is not Role.LEADER or core.committed_index >= core.membership_index)
    assert (core.role, core.curr_term) == (Role.LEADER, 1)
    assert gone not in core.membership.voters


def test_the_doubt_of_a_power_loss_ends_once_its_leader_has_committed() -> None:
    group = SimGroup(flush_mode=FlushMode.ASYNC_FLUSH)
    group.start()
    leader = group.elect()
    powerless = group.followers(leader)[0].id
    group.lose_power(powerless)
    group.start(powerless)
    assert group.members[powerless].replica.member.doubted
    group.append(leader, [b"an own-term entry"])
    group.run_until(lambda: not group.members[powerless].replica.member.doubted)
    group.run_for(100)
    group.crash(powerless)
    group.start(powerless)
    assert not group.members[powerless].replica.member.doubted


def test_a_wiped_member_is_doubted_and_catches_up() -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.append(leader, [b"kept by the others"])
    wiped = group.followers(leader)[0].id
    group.run_for(50)
    identity = group.members[wiped].replica.formation.group
    group.crash(wiped)
    del group.disks[wiped]
    group.start(wiped)
    replica = group.members[wiped].replica
    group.run_for(0)
    assert replica.formation.group == identity
    assert replica.member.doubted
    group.run_until(group.converged)
    group.append(leader, [b"ends the doubt"])
    group.run_until(lambda: not group.members[wiped].replica.member.doubted)


def test_a_member_of_another_group_is_refused() -> None:
    group = SimGroup()
    group.start()
    group.elect()
    with pytest.raises(HandshakeRefusedError, match="another group"):
        group.members["n0"].replica.peer_seen(
            "n1", b"d" * 16, GroupIdentity(b"g" * 32, ()), group.now_ms, begin_pos=0
        )


def test_another_data_file_size_is_a_start_error(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, 1)
    group.start()
    group.stop("n0")
    group.data_file_size *= 2
    with pytest.raises(LedgerConfigError, match="131072"):
        group.start()


def test_the_data_file_size_of_a_member_without_a_ledger_is_still_that_of_its_group(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path, 1)
    group.start()
    group.stop("n0")
    for name in ("data", "index", "pydledger/synced-mark", "pydledger/begin-mark"):
        (tmp_path / "dledger-n0" / name).rename(tmp_path / name.replace("/", "-"))
    group.data_file_size *= 2
    with pytest.raises(DLedgerConfigError, match="has data files of 65536 bytes"):
        group.start()


def test_currterm_follows_each_term_for_java(tmp_path: Path) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    for _ in range(3):
        leader = group.elect()
        group.run_for(100)
        term = leader.replica.member.curr_term
        for member in group.running():
            lines = (tmp_path / f"dledger-{member.id}" / "currterm").read_text().split()
            assert f"currTerm={term + 1}" in lines
            assert "voteLeader=" in lines
        group.crash(leader.id)
        group.elect()
        group.start(leader.id)


def test_an_append_error_that_is_not_want_of_space_ends_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = VirtualGroup(tmp_path, 1)
    group.start()
    leader = group.elect()

    def fail(*arguments: object) -> None:
        raise DiskError(5, "Input/output error", "data")

    monkeypatch.setattr(leader.replica.log, "append", fail)
    with pytest.raises(DiskError):
        group.append(leader, [b"x"])
    group.run_until(lambda: leader.failure)
    assert "log failed" in str(leader.failure)


def test_a_leader_that_cannot_read_its_log_for_a_follower_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    group.run_for(100)

    def fail(*arguments: object) -> None:
        raise LedgerDamagedError("data/0: entry 0 is not readable")

    monkeypatch.setattr(leader.replica.log, "read_range", fail)
    ends: list[AppendStatus] = []
    with pytest.raises(LedgerDamagedError):
        group.append(leader, [b"x"], ends.append)
    group.run_until(lambda: leader.failure)
    assert ends == [AppendStatus.UNKNOWN]


def test_pushed_entries_that_lie_elsewhere_than_here_end_the_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    group.run_for(100)
    follower = next(member for member in group.running() if member is not leader)

    def refuse(*arguments: object) -> None:
        raise PositionMismatchError("entry 1 lies elsewhere")

    monkeypatch.setattr(follower.replica.log, "append_range", refuse)
    group.append(leader, [bytes(10)])
    group.run_until(lambda: follower.failure)
    assert "lies elsewhere" in str(follower.failure)
    assert leader.failure is None


def test_a_defect_ends_the_member_instead_of_leaving_a_step_half_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = SimGroup()
    group.start()
    leader = group.elect()
    group.run_for(50)
    ends: list[AppendStatus] = []
    group.members = {leader.id: leader}  # so that no majority completes it first
    group.append(leader, [b"never to be known"], ends.append)

    def broken(*_: object) -> None:
        raise AssertionError("what cannot happen")

    monkeypatch.setattr(leader.replica.member, "tick", broken)
    with pytest.raises(AssertionError, match="what cannot happen"):
        group.run_for(100)
    group.run_until(lambda: leader.failure)
    assert "defect" in str(leader.failure)
    assert "what cannot happen" in str(leader.failure)
    refusal = leader.replica.member.check_append(1, 1)
    assert refusal is not None
    assert refusal.reason is RefusalReason.STOPPED
    assert ends == [AppendStatus.UNKNOWN]
