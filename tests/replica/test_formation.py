"""The first start of a group, late and wiped members."""

from hashlib import sha256
from itertools import permutations

import pytest

from dledger.errors import HandshakeRefusedError
from dledger.formation import Formation, Formed, GroupIdentity, group_uuid_of

MEMBERS = ("n0", "n1", "n2")
DISKS = {member: member.encode() * 8 for member in MEMBERS}
PAIRS = tuple(DISKS.items())
GROUP = GroupIdentity(group_uuid_of(PAIRS), PAIRS)


def formation(self_id: str, *, begin_pos: int = -1) -> Formation:
    return Formation(self_id, MEMBERS, DISKS[self_id], begin_pos=begin_pos)


@pytest.mark.parametrize("self_id", MEMBERS)
def test_all_members_form_the_same_group_whatever_the_order_of_meeting(self_id: str) -> None:
    for first, second in permutations(member for member in MEMBERS if member != self_id):
        member = formation(self_id)
        assert member.start() is None
        assert member.peer_seen(first, DISKS[first], None, begin_pos=-1) is None
        assert member.missing == [second]
        assert member.peer_seen(second, DISKS[second], None, begin_pos=-1) == Formed(GROUP, doubted=False)


def test_a_group_uuid_is_the_sha_256_of_the_sorted_pairs_with_lengths() -> None:
    expected = sha256(b"\0\0\0\2n0\0\0\0\3abc" + b"\0\0\0\2n1\0\0\0\1d").digest()
    assert group_uuid_of([("n1", b"d"), ("n0", b"abc")]) == expected


def test_a_group_of_one_is_formed_at_once() -> None:
    formed = Formation("n0", ["n0"], DISKS["n0"], begin_pos=-1).start()
    assert formed is not None
    assert formed.group.pairs == (("n0", DISKS["n0"]),)


def test_meeting_one_peer_twice_is_not_meeting_both() -> None:
    member = formation("n0")
    assert member.peer_seen("n1", DISKS["n1"], None, begin_pos=-1) is None
    assert member.peer_seen("n1", DISKS["n1"], None, begin_pos=-1) is None


def test_a_late_member_adopts_the_group_it_is_in_without_doubt() -> None:
    assert formation("n2").peer_seen("n0", DISKS["n0"], GROUP, begin_pos=-1) == Formed(GROUP, doubted=False)


def test_a_member_whose_disk_is_not_in_the_pairs_is_doubted() -> None:
    wiped = Formation("n2", MEMBERS, b"a new disk of n2", begin_pos=-1)
    assert wiped.peer_seen("n0", DISKS["n0"], GROUP, begin_pos=-1) == Formed(GROUP, doubted=True)


@pytest.mark.parametrize("own_has", [True, False])
@pytest.mark.parametrize("others_have", [True, False])
def test_a_member_with_an_empty_log_among_logs_is_doubted(own_has: bool, others_have: bool) -> None:
    member = formation("n2", begin_pos=0 if own_has else -1)
    member.peer_seen("n0", DISKS["n0"], None, begin_pos=-1)
    formed = member.peer_seen("n1", DISKS["n1"], None, begin_pos=0 if others_have else -1)
    assert formed == Formed(GROUP, doubted=others_have and not own_has)
    late = formation("n2", begin_pos=0 if own_has else -1)
    formed = late.peer_seen("n1", DISKS["n1"], GROUP, begin_pos=0 if others_have else -1)
    assert formed == Formed(GROUP, doubted=others_have and not own_has)


def test_what_a_peer_that_went_away_had_is_not_held_against_an_empty_log() -> None:
    member = formation("n2")
    member.peer_seen("n0", DISKS["n0"], None, begin_pos=0)
    member.peer_lost("n0")
    member.peer_seen("n0", b"a new disk of n0", None, begin_pos=-1)
    formed = member.peer_seen("n1", DISKS["n1"], None, begin_pos=-1)
    assert formed is not None
    assert not formed.doubted


def test_logs_that_begin_apart_make_no_group_and_the_one_to_start_anew_is_named() -> None:
    for own, other, member_id in ((4096, 0, "n2"), (0, 4096, "n0")):
        member = Formation("n2", MEMBERS, DISKS["n2"], begin_pos=own)
        with pytest.raises(
            HandshakeRefusedError, match=f"Stop '{member_id}', remove its dledger-{member_id}"
        ):
            member.peer_seen("n0", DISKS["n0"], None, begin_pos=other)


def test_two_wiped_members_do_not_form_a_second_group_while_the_third_is_away() -> None:
    wiped = Formation("n1", MEMBERS, b"a new disk of n1", begin_pos=-1)
    assert wiped.peer_seen("n2", b"a new disk of n2", None, begin_pos=-1) is None
    assert wiped.peer_seen("n0", DISKS["n0"], GROUP, begin_pos=-1) == Formed(GROUP, doubted=True)


def test_a_peer_that_has_not_noticed_that_a_disk_went_forms_a_group_that_the_others_refuse() -> None:
    """The connection to the old disk stands there still; the others see the new one. Who has formed alone
    comes back with an empty directory.
    """
    n0, n1 = formation("n0"), formation("n1")
    n0.peer_seen("n2", DISKS["n2"], None, begin_pos=-1)
    n1.peer_seen("n2", b"a new disk of n2", None, begin_pos=-1)
    one = n0.peer_seen("n1", DISKS["n1"], None, begin_pos=-1)
    other = n1.peer_seen("n0", DISKS["n0"], None, begin_pos=-1)
    assert one is not None
    assert other is not None
    assert one.group != other.group
    n2 = Formation("n2", MEMBERS, b"a new disk of n2", begin_pos=-1)
    assert n2.peer_seen("n1", DISKS["n1"], other.group, begin_pos=-1) == Formed(other.group, doubted=False)
    emptied = Formation("n0", MEMBERS, b"a new disk of n0", begin_pos=-1)
    assert emptied.peer_seen("n1", DISKS["n1"], other.group, begin_pos=-1) == Formed(
        other.group, doubted=True
    )


def test_it_is_formed_once() -> None:
    member = formation("n0")
    assert member.peer_seen("n1", DISKS["n1"], GROUP, begin_pos=-1) is not None
    assert member.peer_seen("n2", DISKS["n2"], GROUP, begin_pos=-1) is None


def test_a_group_uuid_that_is_not_of_its_pairs_is_refused() -> None:
    with pytest.raises(HandshakeRefusedError, match="'n0'"):
        formation("n1").peer_seen("n0", DISKS["n0"], GroupIdentity(b"x" * 32, PAIRS), begin_pos=-1)


def test_a_peer_that_went_away_may_be_formed_by_now_and_must_be_met_again() -> None:
    member = formation("n0")
    member.peer_seen("n1", DISKS["n1"], None, begin_pos=-1)
    member.peer_lost("n1")
    assert member.peer_seen("n2", b"a new disk of n2", None, begin_pos=-1) is None
    assert member.missing == ["n1"]
    assert member.peer_seen("n1", DISKS["n1"], GROUP, begin_pos=-1) == Formed(GROUP, doubted=False)


def test_two_that_are_unformed_and_name_different_members_form_nothing() -> None:
    newcomer = Formation("n3", ["n0", "n3"], b"n3" * 8, begin_pos=-1)
    with pytest.raises(HandshakeRefusedError, match="n0, n3 here, n0, n1, n2, n3 there"):
        newcomer.peer_seen("n0", DISKS["n0"], None, begin_pos=-1, peers=(*MEMBERS, "n3"))
    assert newcomer.missing == ["n0"]
    assert newcomer.peer_seen("n0", DISKS["n0"], GROUP, begin_pos=-1) == Formed(GROUP, doubted=True)


def test_the_same_members_in_another_order_form_a_group() -> None:
    member = formation("n0")
    member.peer_seen("n1", DISKS["n1"], None, begin_pos=-1, peers=("n2", "n1", "n0"))
    assert member.peer_seen("n2", DISKS["n2"], None, begin_pos=-1, peers=MEMBERS) is not None
