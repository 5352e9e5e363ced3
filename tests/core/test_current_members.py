"""Whom a member takes for the members follows its log, also where another entry comes to lie at the same index."""

from random import Random

from memory_log import MemoryLog

from dledger.core.member import Member
from dledger.core.member_config import MemberConfig
from dledger.core.membership import CurrentMembers, Membership, Seat, pack_membership
from dledger.core.messages import HeartBeatRequest, MembershipBefore, PushRequest, PushType
from dledger.core.output import HardState
from dledger.entry import EntryKind, Index, Pos, Term

IDS = ("n0", "n1", "n2", "n3")


def seats(*ids: str) -> dict[str, Seat]:
    return {peer: Seat(peer.encode()) for peer in ids}


def test_a_log_that_begins_anew_may_have_another_entry_where_its_last_change_of_members_lay() -> None:
    log = MemoryLog([1] * 7)
    log.formed = Membership(seats(*IDS))
    log.append([pack_membership(Membership(seats("n0", "n3")))], Term(1), EntryKind.MEMBERSHIP)
    log.durable_index = log.ledger_end_index
    member = Member(
        MemberConfig(self_id="n3", peers=IDS),
        log,
        HardState(1, Term(1), None, False),
        Random(0),
        0,
        durable_index=log.ledger_end_index,
        members=CurrentMembers("n3", b"n3", log),
    )
    leaders = Membership(seats(*IDS), seats("n4"))
    begins_behind = PushRequest(
        *(PushType.INSTALL_BEGIN, Term(3), "n0", Index(99), Term(2), 1234, Index(120), 1),
        begin_pos=Pos(10_000),
        begin_membership=MembershipBefore(Index(7), pack_membership(leaders)),
    )
    output = member.step(begins_behind, 10)
    log.carry_out(output.cut)
    member.cut_done(10)
    member.tick(20)
    member.step(HeartBeatRequest(Term(3), "n0", Index(120), 1), 30)
    assert log.membership() == leaders
    assert member.membership == leaders


def test_a_cut_that_leaves_the_members_as_they_are_is_no_change() -> None:
    log = MemoryLog([1] * 7)
    log.formed = Membership(seats(*IDS))
    members = CurrentMembers("n3", b"n3", log)
    log.version += 1
    assert not members.refresh()
    log.append([pack_membership(Membership(seats("n0", "n3")))], Term(1), EntryKind.MEMBERSHIP)
    assert members.refresh()
    assert members.voters == ("n0", "n3")
