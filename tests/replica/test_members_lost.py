"""A voter that was the only one, and has lost the entries by which the group grew: it must not lead by itself."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from test_replica_faults import SimGroup
from virtual_group import VirtualMember

from dledger.config import FlushMode
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus, Role
from dledger.entry import Pos
from dledger.log.synced_mark import MARK_FILE_NAME
from simulator.world.disk_nodes import Survival
from simulator.world.sim_disk import SimDisk


class AllIsLost(Random):
    """Of what no sync has covered nothing survives a power loss."""

    def choice(self, seq: Any) -> Any:
        return Survival.NOTHING if Survival.NOTHING in seq else super().choice(seq)


def shrink_to_one_and_grow(group: SimGroup) -> tuple[VirtualMember, Pos]:
    """The only voter of meanwhile, and where its log ended then."""
    group.start()
    leader = group.elect()
    others = group.followers(leader)

    def has_voters(*members: VirtualMember) -> bool:
        ids = {leader.id, *(member.id for member in members)}
        value = [member.replica.member for member in (leader, *members)]
        return all(
            core.membership.voters.keys() == ids and core.committed_index >= core.membership_index
            for core in value
        )

    addresses = {member.id: str(member.replica.config.peers[member.id]) for member in others}
    for left in (others[:1], []):
        (gone,) = [member for member in others if member not in left and member.id in voters_of(leader)]
        assert leader.replica.remove_member(gone.id, lambda status: None, group.now_ms) is None
        group.run_until(partial(has_voters, *left))
    log = leader.replica.log
    end, end_pos = log.ledger_end_index, log.ledger_end_pos
    group.run_until(lambda: log.durable_index == end)
    for joined in (others[:1], others):
        new = joined[-1].id
        assert leader.replica.add_member(new, addresses[new], lambda status: None, group.now_ms) is None
        group.run_until(partial(has_voters, *joined))
    for member in others:
        group.crash(member.id)
    return leader, end_pos


def voters_of(member: VirtualMember) -> set[PeerId]:
    return set(member.replica.member.membership.voters)


def leads_never(group: SimGroup, peer: PeerId) -> bool:
    alone = group.members[peer].replica.member
    assert alone.doubted
    assert len(alone.membership.voters) > 1
    group.run_for(15_000)
    return alone.role is not Role.LEADER


def test_under_async_flush_a_voter_that_was_the_only_one_knows_of_the_others_after_a_power_loss() -> None:
    """Of three voters one may lose its page cache. With it went the entries that say that there are others: by its
    log it was a majority by itself, and led with less than they had acknowledged.
    """
    group = SimGroup(flush_mode=FlushMode.ASYNC_FLUSH, disk_random=AllIsLost())
    leader, _ = shrink_to_one_and_grow(group)
    group.lose_power(leader.id)
    group.start(leader.id)
    assert leads_never(group, leader.id)


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_voter_that_was_the_only_one_knows_of_the_others_after_the_loss_of_the_data(
    flush_mode: FlushMode,
) -> None:
    """Likewise, with a data file of which only a part is left."""
    group = SimGroup(flush_mode=flush_mode)
    leader, end_pos = shrink_to_one_and_grow(group)
    config = leader.replica.config.log_config
    file_start = end_pos - end_pos % config.data_file_size
    group.crash(leader.id)
    group.disks[leader.id].shorten(f"{config.data_directory}/{file_start:020d}", end_pos - file_start)
    group.start(leader.id)
    assert group.members[leader.id].replica.log.has_faults
    assert leads_never(group, leader.id)


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("loses", [SimDisk.lose, SimDisk.zero])
def test_a_member_that_formed_its_group_alone_knows_of_the_others_without_its_synced_mark(
    flush_mode: FlushMode, loses: Callable[[SimDisk, str], None]
) -> None:
    """Retention has deleted the entries that say so. It went by the formation and led by itself, beside the others."""
    group = SimGroup(flush_mode=flush_mode)
    group.late = frozenset(peer for peer in group.peers if peer != "n0")
    group.start("n0")
    leader = group.elect()
    log, core = leader.replica.log, leader.replica.member
    for new in ("n1", "n2"):
        assert (
            leader.replica.add_member(new, str(group.peers[new]), lambda status: None, group.now_ms) is None
        )
        group.start(new)
        group.meet_all(group.members[new])
        group.run_until(
            lambda new=new: new in core.membership.voters and core.committed_index >= core.membership_index,
            limit_ms=20_000,
        )
    while len(log._data.queue.mapped_files) < 4:
        group.append(leader, [bytes(9000)])
        group.run_for(30)
    group.run_for(1_500)
    while leader.replica.delete_first_file(group.now_ms):
        group.run_for(50)
    assert core.membership_index < log.ledger_begin_index
    group.crash(leader.id)
    loses(group.disks[leader.id], f"{leader.replica.config.log_config.own_directory}/{MARK_FILE_NAME}")
    carry = group.carry

    def carry_between_the_others(sender: VirtualMember, to: PeerId, message: Any, payload: bytes) -> None:
        if leader.id not in (sender.id, to):
            carry(sender, to, message, payload)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "carry", carry_between_the_others)
        group.start(leader.id)
        assert leads_never(group, leader.id)
        (other,) = [member for member in group.running() if member.replica.member.role is Role.LEADER]
    group.meet_all(group.members[leader.id])
    ends: list[AppendStatus] = []
    group.append(other, [b"after"], ends.append)
    end = other.replica.log.ledger_end_index
    group.run_until(lambda: group.members[leader.id].replica.member.committed_index >= end, limit_ms=20_000)
    assert ends == [AppendStatus.SUCCESS]
