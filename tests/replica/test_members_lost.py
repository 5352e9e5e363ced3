"""A voter that was the only one, and has lost the entries by which the group grew: it must not lead by itself."""

from functools import partial
from random import Random
from typing import Any

import pytest
from test_replica_faults import SimGroup
from virtual_group import VirtualMember

from dledger.config import FlushMode
from dledger.core.messages import PeerId
from dledger.core.output import Role
from dledger.entry import Pos
from simulator.disk_nodes import Survival


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
