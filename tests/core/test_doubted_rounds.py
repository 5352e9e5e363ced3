"""A voter that was just starting has answered in a round: it has promised nothing, and may be counted elsewhere."""

from core_group import CoreGroup
from msgspec.structs import replace

from dledger.core.messages import VoteResponse, VoteResult
from dledger.core.output import AppendStatus, HardState, Role
from dledger.entry import Index, Term

IDS = ("n0", "n1", "n2")
PATIENCE_MS = 3000


def group_with_two_entries(starting: str) -> CoreGroup:
    """`starting` has read both back and synced one: it cannot vote yet."""
    group = CoreGroup(IDS)
    for node in group.nodes.values():
        node.hard_state = HardState(1, Term(1), None, False)
        for body in (b"a", b"b"):
            node.log.append([body], Term(1))
        node.log.durable_index = Index(1)
    group.nodes[starting].log.durable_index = Index(0)
    return group


def tick_until_candidate(group: CoreGroup, node: str) -> None:
    until_ms = group.now_ms + PATIENCE_MS
    while group.nodes[node].up.role is not Role.CANDIDATE:
        group.now_ms += 10
        assert group.now_ms < until_ms
        group.tick(node)


def deliver_all(group: CoreGroup, *links: tuple[str, str]) -> None:
    for link in links:
        while group.links[link]:
            group.deliver(*link)


def acknowledge(group: CoreGroup, leader: str, follower: str) -> None:
    """An append of the leader, which the third member hears nothing of."""

    def replicate() -> None:
        group.sync(leader)
        for _ in range(6):
            for link in group.links:
                if not {leader, follower}.issuperset(link):
                    group.links[link].clear()
            deliver_all(group, (leader, follower), (follower, leader))
            group.save(follower)
            group.sync(follower)

    replicate()
    group.append(leader, [b"acknowledged"], "w")
    replicate()
    assert group.nodes[leader].results == [("w", AppendStatus.SUCCESS)]


def leaders(group: CoreGroup) -> list[tuple[str, Term]]:
    ups = [(name, node.up) for name, node in group.nodes.items() if node.member is not None]
    return [(name, up.curr_term) for name, up in ups if up.role is Role.LEADER]


def test_a_voter_that_could_not_vote_yet_and_one_that_lost_its_disk_give_a_term_no_second_leader() -> None:
    group = group_with_two_entries(starting="n1")
    for name in IDS:
        group.start(name)
    tick_until_candidate(group, "n0")
    group.links["n0", "n1"].clear()
    group.deliver("n0", "n2")
    group.deliver("n2", "n0")
    group.save("n0")
    group.deliver("n0", "n1")
    group.links["n0", "n2"].clear()
    answer = group.links["n1", "n0"][-1]
    assert isinstance(answer, VoteResponse)
    assert answer.vote_result is VoteResult.REJECT_CANNOT_VOTE
    group.deliver("n1", "n0")
    group.sync("n1")
    # n1 has synced its tail, and wins the same term with n2.
    tick_until_candidate(group, "n1")
    group.links["n1", "n0"].clear()
    group.deliver("n1", "n2")
    group.deliver("n2", "n1")
    group.save("n1")
    group.links["n1", "n0"].clear()
    group.deliver("n1", "n2")
    group.save("n2")
    group.deliver("n2", "n1")
    assert leaders(group) == [("n1", 2)]
    acknowledge(group, "n1", "n2")
    group.crash("n2")
    group.wipe("n2")
    for link in (("n1", "n2"), ("n2", "n1")):
        group.links[link].clear()
    group.start("n2")
    group.connect("n0", "n2")
    group.tick("n0")
    group.deliver("n0", "n2")
    group.save("n2")
    deliver_all(group, ("n2", "n0"))
    assert leaders(group) == [("n1", 2)]


def test_a_voter_that_could_not_vote_yet_does_not_vouch_for_what_it_acknowledged_since() -> None:
    group = group_with_two_entries(starting="n2")
    group.start("n0")
    group.start("n1")
    tick_until_candidate(group, "n1")
    deliver_all(group, ("n1", "n0"), ("n0", "n1"))
    group.save("n1")
    group.links["n1", "n2"].clear()
    group.deliver("n1", "n0")
    group.save("n0")
    (late_grant,) = group.links["n0", "n1"]
    group.disconnect("n0", "n1")
    group.connect("n0", "n1")
    for link in group.links.values():
        link.clear()
    tick_until_candidate(group, "n0")
    group.links["n0", "n2"].clear()
    deliver_all(group, ("n0", "n1"), ("n1", "n0"))
    group.save("n0")
    assert group.nodes["n0"].up.curr_term == 3
    group.start("n2")
    group.deliver("n0", "n2")
    group.deliver("n2", "n0")
    group.links["n0", "n1"].clear()
    group.sync("n2")
    group.receive("n1", late_grant)
    assert leaders(group) == [("n1", 2)]
    acknowledge(group, "n1", "n2")
    # Under ASYNC_FLUSH: the page cache of n1 is gone, and it knows that.
    group.crash("n1")
    group.nodes["n1"].log.lose_durable(2)
    group.nodes["n1"].hard_state = replace(group.nodes["n1"].hard_state, doubted=True)
    for link in group.links.values():
        link.clear()
    group.start("n1")
    group.connect("n0", "n1")
    group.tick("n0")
    group.deliver("n0", "n1")
    group.save("n1")
    deliver_all(group, ("n1", "n0"))
    assert leaders(group) == []
