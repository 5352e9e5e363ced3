"""What an operator reads in the log of a member whose group elects: who, in which term, and why."""

import logging
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from virtual_group import VirtualGroup

from dledger.config import FlushMode
from dledger.core.membership import Membership, Seat
from dledger.core.messages import HeartBeatResponse, VoteResponse, VoteResult
from dledger.core.output import HardState
from dledger.entry import Index, Term
from dledger.member_journal import MemberJournal
from dledger.replica_status import replica_figures

JOURNAL = "dledger.member_journal"


def lines(caplog: pytest.LogCaptureFixture, pattern: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == JOURNAL and re.search(pattern, record.getMessage())
    ]


@pytest.fixture
def group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> VirtualGroup:
    caplog.set_level(logging.INFO, JOURNAL)
    return VirtualGroup(tmp_path)


def test_a_vote_is_noted_by_who_gives_it_and_by_who_gets_it_with_term_and_ends(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.start()
    leader = group.elect().id
    group.run_until(group.converged)
    said = lines(caplog, rf"vote granted to={leader} for_term=1 voter_term=1 voter_end=-1/-1$")
    heard = lines(caplog, rf"^\[{leader}\]\[CANDIDATE\]\[term=1\] vote granted by=n. for_term=1 voter_term=1")
    assert said
    assert heard
    assert lines(
        caplog,
        rf"\[{leader}\]\[LEADER\]\[term=1\] role changed from=CANDIDATE term=1 leader={leader} reason=won the",
    )


def test_a_refusal_says_why_and_what_repeats_itself_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, JOURNAL)
    journal = MemberJournal("n0", HardState(1, Term(3), None, doubted=False))
    small = VoteResponse(
        *(Term(3), Term(4), "n0", True, VoteResult.REJECT_SMALL_LEDGER_END_INDEX, Term(3), Index(1207), False)
    )
    for _ in range(100):
        journal.vote_said("n2", small)
    journal.vote_said("n2", replace(small, request_term=Term(5)))
    journal.vote_said("n1", replace(small, vote_result=VoteResult.ACCEPT, pre_vote=False, doubted=True))
    who, own = "[n0][FOLLOWER][term=3]", "voter_term=3 voter_end=3/1207"
    assert lines(caplog, "") == [
        f"{who} pre-vote refused to=n2 for_term=4 reason=REJECT_SMALL_LEDGER_END_INDEX {own}",
        f"{who} pre-vote refused to=n2 for_term=5 reason=REJECT_SMALL_LEDGER_END_INDEX {own}",
        f"{who} vote granted to=n1 for_term=4 {own} doubted",
    ]


def test_a_member_that_lost_power_says_why_it_is_doubted_and_when_that_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    group = VirtualGroup(tmp_path, flush_mode=FlushMode.ASYNC_FLUSH)
    group.boot_ids["n0"] = "boot-1"
    group.start()
    group.append(group.elect(), [b"x"])
    group.run_until(group.converged)
    group.crash("n0")
    group.boot_ids["n0"] = "boot-2"
    caplog.clear()
    group.start("n0")
    said = [record.getMessage() for record in caplog.records if "doubted" in record.getMessage()]
    assert any(line.startswith("[n0] doubted from here on") and "page cache" in line for line in said), said
    group.run_until(lambda: lines(caplog, r"^\[n0\].* doubted no more"))


def test_a_leader_that_steps_down_warns_and_says_why(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.start()
    leader = group.elect()
    for member in group.running():
        if member is not leader:
            group.crash(member.id)
    caplog.clear()
    group.run_until(lambda: lines(caplog, "from=LEADER"))
    (line,) = lines(caplog, "from=LEADER")
    assert re.match(
        rf"\[{leader.id}\]\[FOLLOWER\]\[term=1\] role changed from=LEADER term=1 leader=None "
        r"reason=no majority answered for \d+ ms, limit \d+ ms$",
        line,
    )
    (record,) = [record for record in caplog.records if record.getMessage() == line]
    assert record.levelno == logging.WARNING
    assert replica_figures(leader.replica)["step_downs_total"] == 1


def test_a_leader_says_to_whom_it_hands_over_and_why_it_leads_on(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    first, second = (member for member in group.running() if member is not leader)
    first.replica.leave(group.now_ms)  # it campaigns no more
    assert leader.replica.transfer_leadership(first.id, "asked for", group.now_ms) is None
    group.run_until(lambda: leader.replica.member.transfer_target is None)
    assert leader.replica.transfer_leadership(second.id, "asked for", group.now_ms) is None
    group.run_until(lambda: group.leader() is second)
    who = f"[{leader.id}][LEADER][term=1]"
    assert lines(caplog, "hands over to=|leads on") == [
        f"{who} hands over to={first.id} reason=asked for",
        f"{who} leads on, no longer hands over reason={first.id} did not lead after 1000 ms",
        f"{who} hands over to={second.id} reason=asked for",
    ]
    figures = replica_figures(leader.replica)
    assert (figures["transfers_begun_total"], figures["transfers_given_up_total"]) == (2, 1)


def test_a_change_of_members_is_noted_once_with_what_becomes_of_whom_also_when_it_is_taken_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, JOURNAL)
    journal = MemberJournal("n0", HardState(1, Term(3), None, doubted=False))
    formed = Membership({"n0": Seat(b"0"), "n1": Seat(b"1")})
    added = formed.with_learner("n2", Seat(b"2"))
    unformed = Membership({})
    for membership, index in (
        (unformed, -1),
        (formed, -1),
        (formed, -1),
        (added, 7),
        (added, 7),
        (formed, -1),
    ):
        journal.members_are(membership, Index(index))
    journal.members_are(added.with_voter("n2", b"2").without("n1"), Index(9))
    who = "[n0][FOLLOWER][term=3] members"
    assert lines(caplog, "") == [
        f"{who} voters=n0,n1 learners=- by_entry=-1",
        f"{who} voters=n0,n1 learners=n2 by_entry=7 before=-1 n2: no member -> learner",
        f"{who} voters=n0,n1 learners=- by_entry=-1 before=7 (taken back) n2: learner -> no member",
        f"{who} voters=n0,n2 learners=- by_entry=9 before=-1 n1: voter -> no member n2: no member -> voter",
    ]


def test_a_cut_is_noted_with_the_leader_for_whom_and_counted(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.start()
    old = group.elect()
    group.run_until(group.converged)
    end = old.replica.log.ledger_end_index
    others = [member.id for member in group.running() if member is not old]
    for other in others:
        group.crash(other)
    for _ in range(5):
        group.append(old, [b"nobody else has this"])
    group.run_until(lambda: old.replica.log.durable_index == end + 5)
    group.crash(old.id)
    group.start(*others)
    new = group.elect()
    group.append(new, [b"this is what is true"])
    group.run_for(100)
    group.start(old.id)
    group.run_until(group.converged)
    assert lines(
        caplog,
        rf"^\[{old.id}\]\[FOLLOWER\]\[term=2\] entries are cut from={end + 1} end={end + 5} leader={new.id}",
    )
    assert replica_figures(group.members[old.id].replica)["entries_cut_total"] == 5


def test_elections_and_leaders_are_counted(group: VirtualGroup) -> None:
    group.start()
    leader = group.elect()
    group.run_until(group.converged)
    figures = replica_figures(leader.replica)
    assert figures["elections_total"] == {"begun": 1, "won": 1, "lost": 0}
    assert [replica_figures(member.replica)["leader_changes_total"] for member in group.running()] == [
        1,
        1,
        1,
    ]
    group.crash(leader.id)
    second = group.elect()
    (third,) = (member for member in group.running() if member is not second)
    group.run_until(lambda: third.replica.member.leader_id == second.id)
    assert [replica_figures(member.replica)["leader_changes_total"] for member in (second, third)] == [2, 2]


def test_a_refused_message_is_told_once_for_each_sender(
    group: VirtualGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever says terms that cannot be goes on saying them."""
    group.start()
    leader = group.elect()
    for _ in range(3):
        for sender in ("n7", "n8"):
            leader.replica.receive(HeartBeatResponse(Term(2**63 - 1), sender, 1, Index(0)), group.now_ms)
    assert (
        len(lines(caplog, "message refused reason=HeartBeatResponse of n7 names term 9223372036854775807"))
        == 1
    )
    assert len(lines(caplog, "message refused")) == 2
    assert leader.replica.member.curr_term == 1
