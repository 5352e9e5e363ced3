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


def formation(self_id: str, *, has_entries: bool = False) -> Formation:
    return Formation(self_id, MEMBERS, DISKS[self_id], has_entries=has_entries)


@pytest.mark.parametrize("self_id", MEMBERS)
def test_all_members_form_the_same_group_whatever_the_order_of_meeting(self_id: str) -> None:
    for first, second in permutations(member for member in MEMBERS if member != self_id):
        member = formation(self_id)
        assert member.start() is None
        assert member.peer_seen(first, DISKS[first], None, has_entries=False) is None
        assert member.missing == [second]
        assert member.peer_seen(second, DISKS[second], None, has_entries=False) == Formed(
            GROUP, doubted=False
        )


def test_a_group_uuid_is_the_sha_256_of_the_sorted_pairs_with_lengths() -> None:
    expected = sha256(b"\0\0\0\2n0\0\0\0\3abc" + b"\0\0\0\2n1\0\0\0\1d").digest()
    assert group_uuid_of([("n1", b"d"), ("n0", b"abc")]) == expected


def test_a_group_of_one_is_formed_at_once() -> None:
    formed = Formation("n0", ["n0"], DISKS["n0"], has_entries=False).start()
    assert formed is not None
    assert formed.group.pairs == (("n0", DISKS["n0"]),)


def test_meeting_one_peer_twice_is_not_meeting_both() -> None:
    member = formation("n0")
    assert member.peer_seen("n1", DISKS["n1"], None, has_entries=False) is None
    assert member.peer_seen("n1", DISKS["n1"], None, has_entries=False) is None


def test_a_late_member_adopts_the_group_it_is_in_without_doubt() -> None:
    assert formation("n2").peer_seen("n0", DISKS["n0"], GROUP, has_entries=False) == Formed(
        GROUP, doubted=False
    )


def test_a_member_whose_disk_is_not_in_the_pairs_is_doubted() -> None:
    wiped = Formation("n2", MEMBERS, b"a new disk of n2", has_entries=False)
    assert wiped.peer_seen("n0", DISKS["n0"], GROUP, has_entries=False) == Formed(GROUP, doubted=True)


@pytest.mark.parametrize("own_has", [True, False])
@pytest.mark.parametrize("others_have", [True, False])
def test_a_member_with_an_empty_log_among_logs_is_doubted(own_has: bool, others_have: bool) -> None:
    member = formation("n2", has_entries=own_has)
    member.peer_seen("n0", DISKS["n0"], None, has_entries=False)
    formed = member.peer_seen("n1", DISKS["n1"], None, has_entries=others_have)
    assert formed == Formed(GROUP, doubted=others_have and not own_has)
    late = formation("n2", has_entries=own_has)
    formed = late.peer_seen("n1", DISKS["n1"], GROUP, has_entries=others_have)
    assert formed == Formed(GROUP, doubted=others_have and not own_has)


def test_what_a_peer_that_went_away_had_is_not_held_against_an_empty_log() -> None:
    member = formation("n2")
    member.peer_seen("n0", DISKS["n0"], None, has_entries=True)
    member.peer_lost("n0")
    member.peer_seen("n0", b"a new disk of n0", None, has_entries=False)
    formed = member.peer_seen("n1", DISKS["n1"], None, has_entries=False)
    assert formed is not None
    assert not formed.doubted


def test_two_wiped_members_do_not_form_a_second_group_while_the_third_is_away() -> None:
    wiped = Formation("n1", MEMBERS, b"a new disk of n1", has_entries=False)
    assert wiped.peer_seen("n2", b"a new disk of n2", None, has_entries=False) is None
    assert wiped.peer_seen("n0", DISKS["n0"], GROUP, has_entries=False) == Formed(GROUP, doubted=True)


def test_it_is_formed_once() -> None:
    member = formation("n0")
    assert member.peer_seen("n1", DISKS["n1"], GROUP, has_entries=False) is not None
    assert member.peer_seen("n2", DISKS["n2"], GROUP, has_entries=False) is None


def test_a_group_uuid_that_is_not_of_its_pairs_is_refused() -> None:
    with pytest.raises(HandshakeRefusedError, match="'n0'"):
        formation("n1").peer_seen("n0", DISKS["n0"], GroupIdentity(b"x" * 32, PAIRS), has_entries=False)


def test_a_peer_that_went_away_may_be_formed_by_now_and_must_be_met_again() -> None:
    member = formation("n0")
    member.peer_seen("n1", DISKS["n1"], None, has_entries=False)
    member.peer_lost("n1")
    assert member.peer_seen("n2", b"a new disk of n2", None, has_entries=False) is None
    assert member.missing == ["n1"]
    assert member.peer_seen("n1", DISKS["n1"], GROUP, has_entries=False) == Formed(GROUP, doubted=False)
