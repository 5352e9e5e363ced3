"""Doubted members and wiped disks while the members change: two views of who has a vote, and nothing acknowledged is
lost between them.
"""

from collections.abc import Sequence

import pytest
from core_group import CoreGroup
from memory_log import MemoryLog

from dledger.core.membership import Membership
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus, HardState, Role
from dledger.core.refusal import RefusalReason
from dledger.entry import Index
from dledger.errors import FaultyEntryError

IDS = ("n0", "n1", "n2")


def start(voters: Sequence[PeerId]) -> CoreGroup:
    """n0 leads."""
    group = CoreGroup(IDS, voters=voters)
    for node_id in IDS:
        group.start(node_id)
    join(group, *IDS)
    group.run_until(lambda: group.leader() is not None)
    if group.leader() != "n0":
        leader = group.nodes[group.leader()].up
        group.carry_out(
            group.leader(), leader.transfer_leadership("n0", "the story begins with it", group.now_ms)
        )
        group.run_until(lambda: group.leader() == "n0")
    return group


def lose_tail(group: CoreGroup, node_id: PeerId, count: int) -> None:
    """It crashes, and its disk has lost the last `count` entries, as the next start finds out."""
    group.crash(node_id)
    node = group.nodes[node_id]
    node.log.lose_durable(count)
    node.hard_state = replace_doubted(node.hard_state)


def replace_doubted(state: HardState) -> HardState:
    return HardState(state.sequence + 1, state.curr_term, state.curr_vote_for, True)


def cut_off(group: CoreGroup, node_id: PeerId) -> None:
    group.apart.add(node_id)
    for peer in IDS:
        if peer != node_id:
            group.disconnect(node_id, peer)


def join(group: CoreGroup, *ids: PeerId) -> None:
    group.apart -= set(ids)
    for number, a in enumerate(ids):
        for b in ids[number + 1 :]:
            group.connect(a, b)


def is_acknowledged(group: CoreGroup, node_id: PeerId, name: str) -> bool:
    return (name, AppendStatus.SUCCESS) in group.nodes[node_id].results


def voters(group: CoreGroup, node_id: PeerId) -> set[PeerId]:
    return set(group.nodes[node_id].up.membership.voters)


def grow_past_n1() -> CoreGroup:
    """n2 becomes the third voter while n1's disk is slow: that, and an append in front of it, are on n0 and n2."""
    group = start(("n0", "n1"))
    group.hung.add("n2")
    assert group.change_members("n0", group.nodes["n0"].up.changes.add("n2", "")) is None
    group.run(50)
    group.hung.add("n1")
    group.append("n0", [b"in front"], "in front")
    group.hung.remove("n2")
    group.run_until(lambda: voters(group, "n0") == set(IDS))
    group.run(50)
    assert group.nodes["n2"].up.durable_index == group.nodes["n0"].up.durable_index
    return group


def test_until_a_new_voter_is_committed_a_majority_of_the_old_ones_holds_all_that_is_acknowledged() -> None:
    group = grow_past_n1()
    assert not is_acknowledged(group, "n0", "in front")
    group.hung.remove("n1")
    group.run(50)
    assert is_acknowledged(group, "n0", "in front")
    assert group.nodes["n0"].up.committed_index == group.nodes["n0"].log.ledger_end_index
    group.hung.add("n1")
    group.append("n0", [b"behind"], "behind")
    group.run(50)
    assert is_acknowledged(group, "n0", "behind")  # by n2, which counts for all by now


def test_a_voter_that_loses_the_entry_that_added_another_does_not_elect_past_it() -> None:
    group = grow_past_n1()
    group.hung.remove("n1")
    group.run(50)
    end_index = group.nodes["n0"].log.ledger_end_index
    group.hung.add("n1")
    group.append("n0", [b"behind"], "behind")
    group.run(50)
    cut_off(group, "n2")
    lose_tail(group, "n0", 3)
    group.crash("n1")
    group.hung.clear()
    group.start("n0")
    group.start("n1")
    join(group, "n0", "n1")
    group.run(3000)
    assert group.leader() is None
    join(group, *IDS)
    group.run_until(lambda: group.leader() is not None)
    assert group.nodes[group.leader()].log.entry(end_index + 1).endswith(b"behind")


def test_one_that_only_a_wiped_disk_helps_to_a_majority_lets_another_lead() -> None:
    """n1 does not know n2 for a voter, and could commit nothing with n0's new disk. n2 can, with n1."""
    group = grow_past_n1()
    group.crash("n0")
    group.crash("n1")
    group.hung.clear()
    group.wipe("n0")
    for node_id in ("n0", "n1"):
        group.start(node_id)
    join(group, *IDS)
    group.run_until(lambda: group.leader() is not None)
    assert group.leader() == "n2"
    new_disk = group.nodes["n0"].disk
    group.run_until(lambda: "n0" not in voters(group, "n2"))
    group.run_until(lambda: voters(group, "n2") == set(IDS))
    assert group.nodes["n2"].up.membership.voters["n0"].disk == new_disk


def part_over_removal() -> CoreGroup:
    """n0 takes n2 out while it is cut off. Nobody hears of that; the others go on and acknowledge."""
    group = start(IDS)
    assert group.change_members("n0", group.nodes["n0"].up.changes.remove("n2")) is None
    cut_off(group, "n0")  # before anything has left it
    group.run_until(lambda: group.leader() in ("n1", "n2") and group.nodes["n0"].up.role is not Role.LEADER)
    group.append(group.leader(), [b"acknowledged"], "acknowledged")
    leader_id = group.leader()
    group.run(50)
    assert is_acknowledged(group, leader_id, "acknowledged")
    return group


def test_one_that_a_change_nobody_else_has_took_out_is_heard_where_another_is_doubted() -> None:
    group = part_over_removal()
    end_index = group.nodes["n2"].log.ledger_end_index
    cut_off(group, "n2")
    lose_tail(group, "n1", 2)
    group.start("n1")
    join(group, "n0", "n1")
    group.run(3000)
    assert group.leader() is None
    assert "n2 (not connected)" in (group.nodes["n0"].up.election_obstacle or "")
    join(group, *IDS)
    group.run_until(lambda: group.leader() is not None)
    assert group.nodes[group.leader()].log.entry(end_index).endswith(b"acknowledged")


def test_one_that_was_taken_out_long_ago_need_not_be_heard() -> None:
    group = start(IDS)
    group.crash("n2")
    group.run(1200)
    assert group.change_members("n0", group.nodes["n0"].up.changes.remove("n2")) is None
    group.append("n0", [b"behind"], None)
    group.run(50)
    group.crash("n0")
    lose_tail(group, "n1", 1)
    for node_id in ("n0", "n1"):
        group.start(node_id)
    join(group, "n0", "n1")
    group.run_until(lambda: group.leader() is not None)
    assert group.leader() == "n0"
    group.run_until(lambda: not group.nodes["n1"].up.doubted)


def test_a_removal_that_is_on_one_disk_alone_holds_up_nobody_who_all_can_be_heard() -> None:
    group = start(IDS)
    assert group.change_members("n0", group.nodes["n0"].up.changes.remove("n2")) is None
    cut_off(group, "n0")  # before anything has left it
    group.sync("n0")
    group.crash("n0")
    group.crash("n2")
    lose_tail(group, "n1", 0)
    for node_id in IDS:
        group.start(node_id)
    join(group, *IDS)
    group.run_until(lambda: group.leader() is not None)
    assert group.leader() == "n0"
    group.run(500)
    assert voters(group, "n1") == {"n0", "n1"}
    assert group.nodes["n1"].up.committed_index == Index(group.nodes["n0"].log.ledger_end_index)


def test_where_damage_hides_who_voted_before_all_voters_hold_what_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(_: MemoryLog) -> Membership:
        raise FaultyEntryError("entry 1 is damaged")

    monkeypatch.setattr(MemoryLog, "membership_before", hidden)
    group = grow_past_n1()
    group.append("n0", [b"behind"], "behind")
    group.run(50)
    assert group.nodes["n2"].up.durable_index == group.nodes["n0"].log.ledger_end_index
    assert not group.nodes["n0"].results
    group.hung.remove("n1")
    group.run(50)
    assert is_acknowledged(group, "n0", "behind")


def restart_without(group: CoreGroup, away: PeerId) -> None:
    for node_id in IDS:
        group.crash(node_id)
    up = [node_id for node_id in IDS if node_id != away]
    for node_id in up:
        group.start(node_id)
    join(group, *up)


@pytest.mark.parametrize("away", IDS)
def test_a_new_voter_that_is_committed_counts_after_a_restart_whichever_other_one_is_away(
    away: PeerId,
) -> None:
    """Nobody who starts knows what is committed, and who had voted before would be needed to tell."""
    group = grow_past_n1()
    group.hung.clear()
    group.run(200)
    restart_without(group, away)
    group.run_until(lambda: group.leader() is not None)
    leader_id = group.leader()
    group.append(leader_id, [b"more"], "more")
    group.run(50)
    assert is_acknowledged(group, leader_id, "more")


@pytest.mark.parametrize("away", ["n0", "n1"])
def test_a_replaced_disk_counts_after_a_restart_whichever_other_one_is_away(away: PeerId) -> None:
    group = start(IDS)
    group.crash("n2")
    group.wipe("n2")
    group.start("n2")
    join(group, *IDS)
    new_disk = group.nodes["n2"].disk
    group.run_until(
        lambda: "n2" in voters(group, "n0") and group.nodes["n0"].up.membership.voters["n2"].disk == new_disk
    )
    group.run(200)
    restart_without(group, away)
    group.run_until(lambda: group.leader() is not None)


def test_members_that_are_said_once_more_are_told_as_committed() -> None:
    group = start(IDS)
    leader = group.nodes["n0"].up
    assert group.change_members("n0", leader.changes.remove("n2")) is None
    assert not leader.is_membership_committed
    changed_index = leader.membership_index
    group.run_until(lambda: leader.is_membership_committed)
    group.hung.update(IDS)
    group.run_until(lambda: leader.membership_index > changed_index)
    assert leader.committed_index < leader.membership_index
    assert leader.is_membership_committed
    group.hung.clear()
    group.run_until(lambda: leader.committed_index == leader.membership_index)


def test_a_change_is_refused_for_one_that_is_not_committed_as_long_as_the_members_are_told_so() -> None:
    """Behind that they are said once more, which changes nothing, and is waited for as well."""
    group = start(IDS)
    leader = group.nodes["n0"].up
    assert group.change_members("n0", leader.changes.remove("n2")) is None
    changed_index = leader.membership_index
    refusal = leader.changes.refusal()
    assert not leader.is_membership_committed
    assert refusal is not None
    assert f"entry {changed_index} changes the members and is not committed yet" in refusal.text
    group.run_until(lambda: leader.is_membership_committed)
    group.hung.update(IDS)
    group.run_until(lambda: leader.membership_index > changed_index)
    refusal = leader.changes.refusal()
    assert leader.is_membership_committed
    assert refusal is not None
    assert refusal.reason is RefusalReason.CHANGE_IN_PROGRESS
    assert f"entry {leader.membership_index} says once more who the members are" in refusal.text
    assert "not committed" not in refusal.text
    group.hung.clear()
    group.run_until(lambda: leader.changes.refusal() is None)
    assert leader.is_membership_committed
