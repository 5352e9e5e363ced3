"""Members come, go and come back with another disk, over real files."""

import shutil
from pathlib import Path

import pytest
import virtual_group
from msgspec.structs import replace
from virtual_group import VirtualGroup, VirtualMember

from dledger.config import DLedgerConfig
from dledger.core.membership import Membership, pack_membership
from dledger.core.output import AppendStatus, Role
from dledger.core.refusal import RefusalReason
from dledger.log.membership_entries import MEMBERSHIP_SIZE_MAX


def seated(group: VirtualGroup, *voters: str) -> bool:
    """Everybody that runs knows these as the voters, and no learner."""
    return all(
        tuple(sorted(member.replica.member.membership.voters)) == voters
        and not member.replica.member.membership.learners
        and member.replica.member.membership_index <= member.replica.member.committed_index
        for member in group.running()
    )


def started(tmp_path: Path, size: int = 3, late: str = "") -> tuple[VirtualGroup, VirtualMember]:
    group = VirtualGroup(tmp_path, size)
    group.late = frozenset({late} if late else ())
    group.start(*(peer for peer in group.peers if peer != late))
    leader = group.elect()
    group.append(leader, [b"first"])
    group.run_until(group.converged)
    return group, leader


def add(group: VirtualGroup, leader: VirtualMember, peer: str) -> list[AppendStatus]:
    ended: list[AppendStatus] = []
    address = str(group.peers[peer])
    assert leader.replica.add_member(peer, address, ended.append, group.now_ms) is None
    return ended


def test_a_new_member_becomes_a_voter_by_itself_and_the_group_lives_on_it(tmp_path: Path) -> None:
    group, leader = started(tmp_path, 4, late="n3")
    ended = add(group, leader, "n3")
    group.start("n3")
    group.run_until(lambda: seated(group, "n0", "n1", "n2", "n3") and group.converged())
    assert ended == [AppendStatus.SUCCESS]
    assert leader.replica.addresses["n3"] == group.peers["n3"]
    # Three of four are left, and the new one is needed.
    away = next(member.id for member in group.running() if member.id not in (leader.id, "n3"))
    group.crash(away)
    group.append(leader, [b"second"], ended.append)
    group.run_until(lambda: len(ended) == 2)
    assert ended[-1] is AppendStatus.SUCCESS


def test_who_the_members_are_survives_a_restart_of_all(tmp_path: Path) -> None:
    group, leader = started(tmp_path, 4, late="n3")
    add(group, leader, "n3")
    group.start("n3")
    group.run_until(lambda: seated(group, "n0", "n1", "n2", "n3"))
    group.run_for(2000)  # the mark passes the entries
    for peer in group.peers:
        group.stop(peer)
    group.start()
    group.elect()
    group.run_until(group.converged)
    assert seated(group, "n0", "n1", "n2", "n3")


def test_a_leader_that_is_taken_out_hands_the_group_to_the_others(tmp_path: Path) -> None:
    group, leader = started(tmp_path)
    ended: list[AppendStatus] = []
    assert leader.replica.remove_member(leader.id, ended.append, group.now_ms) is None
    group.run_until(lambda: leader.replica.member.role is Role.FOLLOWER)
    assert ended == [AppendStatus.SUCCESS]
    group.run_until(lambda: group.leader() not in (None, leader))
    others = sorted(peer for peer in group.peers if peer != leader.id)
    successor = group.elect()
    assert sorted(successor.replica.member.membership.voters) == others
    group.run_for(5000)
    assert leader.replica.member.role is Role.FOLLOWER


def test_a_member_that_is_taken_out_is_dialled_until_that_is_committed(tmp_path: Path) -> None:
    """Votes of those who are left may have to be backed by it until then."""
    group, leader = started(tmp_path)
    away = next(member.id for member in group.running() if member is not leader)
    ended: list[AppendStatus] = []
    assert leader.replica.remove_member(away, ended.append, group.now_ms) is None
    assert away not in leader.replica.member.membership.members
    assert leader.replica.addresses[away] == group.peers[away]
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])
    assert away not in leader.replica.addresses


def test_one_that_does_not_lead_changes_nobody(tmp_path: Path) -> None:
    group, leader = started(tmp_path)
    follower = next(member for member in group.running() if member is not leader)
    refusal = follower.replica.remove_member("n0", lambda status: None, group.now_ms)
    assert refusal is not None
    assert refusal.reason is RefusalReason.NOT_LEADER
    assert leader.id in refusal.text


def test_members_that_do_not_fit_into_the_synced_mark_are_refused_before_they_are_appended(
    tmp_path: Path,
) -> None:
    group, leader = started(tmp_path)
    end_index = leader.replica.log.ledger_end_index
    host = "h" * MEMBERSHIP_SIZE_MAX
    refusal = leader.replica.add_member("n3", f"{host}:1", lambda status: None, group.now_ms)
    assert refusal is not None
    assert refusal.reason is RefusalReason.MEMBERS_TOO_LARGE
    assert "names 4 members" in refusal.text
    assert f"allowed are {MEMBERSHIP_SIZE_MAX}" in refusal.text
    assert leader.replica.log.ledger_end_index == end_index
    assert sorted(leader.replica.member.membership.members) == ["n0", "n1", "n2"]


def test_a_disk_that_is_not_known_yet_has_its_place_in_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, leader = started(tmp_path, 4, late="n3")
    replica, address = leader.replica, str(group.peers["n3"])
    learner = replica.member.changes.add("n3", address)
    assert isinstance(learner, Membership)
    monkeypatch.setattr("dledger.log_members.MEMBERSHIP_SIZE_MAX", len(pack_membership(learner)))
    refusal = replica.add_member("n3", address, lambda status: None, group.now_ms)
    assert refusal is not None
    assert refusal.reason is RefusalReason.MEMBERS_TOO_LARGE


def test_a_change_without_an_operator_that_does_not_fit_is_left_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    group, leader = started(tmp_path)
    wiped = next(member.id for member in group.running() if member is not leader)
    monkeypatch.setattr("dledger.log_members.MEMBERSHIP_SIZE_MAX", 100)
    group.crash(wiped)
    shutil.rmtree(tmp_path / f"dledger-{wiped}")
    group.start(wiped)
    group.run_until(lambda: "members not changed" in caplog.text)
    group.run_for(1000)
    assert caplog.text.count("members not changed") == 1
    assert leader.replica.member.membership_index == -1


def test_a_wiped_member_gets_its_seat_back_and_is_counted_again(tmp_path: Path) -> None:
    group, leader = started(tmp_path)
    wiped, other = (member.id for member in group.running() if member is not leader)
    group.crash(wiped)
    shutil.rmtree(tmp_path / f"dledger-{wiped}")
    group.start(wiped)
    disk = group.members[wiped].replica.formation.identity.disk_uuid

    def has_seat() -> bool:
        seat = leader.replica.member.membership.voters.get(wiped)
        return seat is not None and seat.disk == disk and group.members[wiped].replica.member.has_seat

    group.run_until(has_seat)
    group.crash(other)
    ended: list[AppendStatus] = []
    group.append(leader, [b"second"], ended.append)
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_member_that_lost_its_vote_comes_back_with_its_log_and_gets_its_seat(
    tmp_path: Path, is_missing: bool
) -> None:
    group, leader = started(tmp_path)
    group.run_for(2000)  # the mark says that there are entries
    lost, other = (member.id for member in group.running() if member is not leader)
    group.crash(lost)
    path = tmp_path / f"dledger-{lost}" / "pydledger" / "quorum-state"
    if is_missing:
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    end_index = leader.replica.log.ledger_end_index
    group.start(lost)
    member = group.members[lost].replica
    assert member.log.ledger_end_index == end_index
    assert member.member.doubted
    group.run_until(lambda: group.members[lost].replica.member.has_seat)
    assert leader.replica.member.membership.voters[lost].disk == member.formation.identity.disk_uuid
    group.crash(other)
    ended: list[AppendStatus] = []
    group.append(leader, [b"second"], ended.append)
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])


def test_a_member_that_is_formed_while_its_term_is_being_stored_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, leader = started(tmp_path)
    group.run_for(2000)
    lost = next(member.id for member in group.running() if member is not leader)
    group.crash(lost)
    (tmp_path / f"dledger-{lost}" / "pydledger" / "quorum-state").unlink()
    # The next term is not that of its last entry: the leader's first message has it store a state once more.
    group.crash(leader.id)
    group.start(leader.id)
    leader = group.elect()
    monkeypatch.setattr(virtual_group, "JOB_DELAY_MS", 500)
    group.start(lost)
    group.run_until(lambda: group.members[lost].replica.member.curr_term == leader.replica.member.curr_term)
    group.run_until(lambda: group.members[lost].replica.member.has_seat)
    assert group.members[lost].failure is None


def test_who_has_lost_its_vote_and_holds_most_holds_the_others_up_until_it_starts_empty(
    tmp_path: Path,
) -> None:
    """A limit, which docs/membership.md tells: another one of three is doubted, and may lack what is acknowledged."""
    group, leader = started(tmp_path)
    group.run_for(2000)  # the mark says that there are entries
    most, behind = (member for member in group.running() if member is not leader)
    group.crash(behind.id)
    ended: list[AppendStatus] = []
    pos = leader.replica.log.ledger_end_pos
    group.append(leader, [b"acknowledged"], ended.append)
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])
    for peer in (leader.id, most.id):
        group.crash(peer)
    (tmp_path / f"dledger-{most.id}" / "pydledger" / "quorum-state").unlink()
    path = next(iter(sorted((tmp_path / f"dledger-{leader.id}" / "data").iterdir())))
    content = bytearray(path.read_bytes())
    content[pos + 50] ^= 1  # above the mark: a torn end
    path.write_bytes(content)
    group.start()
    assert group.members[leader.id].replica.member.doubted
    group.run_for(10_000)
    assert group.leader() is None
    group.crash(most.id)
    shutil.rmtree(tmp_path / f"dledger-{most.id}")
    group.start(most.id)
    group.elect()
    group.run_until(group.converged)


def test_a_group_that_shrank_to_one_goes_on_when_that_one_has_lost_its_vote(tmp_path: Path) -> None:
    group, leader = started(tmp_path, 2)
    other = next(member.id for member in group.running() if member is not leader)
    ended: list[AppendStatus] = []
    assert leader.replica.remove_member(other, ended.append, group.now_ms) is None
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])
    group.crash(other)
    group.run_for(2000)
    group.crash(leader.id)
    (tmp_path / f"dledger-{leader.id}" / "pydledger" / "quorum-state").unlink()
    del group.peers[other]
    group.start(leader.id)
    again = group.elect()
    ended.clear()
    group.append(again, [b"goes on"], ended.append)
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])
    assert group.leader() is again


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_wiped_member_of_a_group_that_began_as_one_does_not_lead_by_what_it_was_formed_as(
    tmp_path: Path, is_cut_off: bool
) -> None:
    """Its log is empty, so all it knows is who formed the group: itself, with the disk that it has lost."""
    group = VirtualGroup(tmp_path, 3)
    group.late = frozenset({"n1", "n2"})
    group.start("n0")
    leader = group.elect()
    group.append(leader, [b"first"])
    for peer in ("n1", "n2"):
        add(group, leader, peer)
        group.start(peer)
        group.run_until(
            lambda: group.converged() and seated(group, *sorted(member.id for member in group.running())),
            30_000,
        )
    group.late = frozenset()
    for peer in ("n0", "n1", "n2"):
        group.crash(peer)
    shutil.rmtree(tmp_path / "dledger-n0")
    if is_cut_off:
        group.loses = lambda message: (
            "n0"
            in {
                getattr(message, name, None)
                for name in ("leader_id", "candidate_id", "voter_id", "member_id")
            }
        )
    group.start("n0", "n1")
    wiped = group.members["n0"]
    for _ in range(1000):
        group.run_for(5)
        assert wiped.replica.member.role is not Role.LEADER
    group.start("n2")
    group.loses = lambda message: False
    group.run_until(lambda: group.converged() and seated(group, "n0", "n1", "n2"), 60_000)
    assert wiped.replica.failure is None


def test_members_of_a_log_that_began_anew_are_those_that_it_names(tmp_path: Path) -> None:
    """Where its own last change of them lay, which it alone had, the leader's lies now."""
    group, leader = started(tmp_path, 4)
    if leader.id != "n3":
        assert leader.replica.transfer_leadership("n3", "asked for", group.now_ms) is None
    group.run_until(lambda: (now := group.leader()) is not None and now.id == "n3")
    group.run_until(group.converged)
    alone = group.members["n3"]
    end_index = alone.replica.log.ledger_end_index
    group.loses = lambda message: getattr(message, "leader_id", None) == "n3"
    group.append(alone, [b"on its disk alone"])
    assert alone.replica.remove_member("n1", lambda status: None, group.now_ms) is None
    group.run_for(100)
    assert alone.replica.log.memberships.last_index == end_index + 2
    group.crash("n3")
    group.loses = lambda message: False
    leader = group.elect()
    assert leader.replica.log.ledger_end_index == end_index + 1
    gone = "n0" if leader.id != "n0" else "n2"
    ended: list[AppendStatus] = []
    assert leader.replica.remove_member(gone, ended.append, group.now_ms) is None
    group.run_until(lambda: ended == [AppendStatus.SUCCESS])
    assert leader.replica.member.membership_index == end_index + 2
    group.crash(gone)
    rest = sorted({"n0", "n1", "n2"} - {gone})
    while group.members[leader.id].replica.log.ledger_begin_index <= end_index + 2:
        group.append(leader, [bytes(1500)] * 20)
        group.run_for(500)
        for peer in rest:
            group.members[peer].replica.delete_first_file(group.now_ms)
        group.run_for(500)
    group.start("n3")
    alone = group.members["n3"]
    group.run_until(
        lambda: (
            alone.replica.log.ledger_end_index == leader.replica.log.ledger_end_index
            and seated(group, *rest, "n3")
        )
    )
    assert alone.replica.member.membership == alone.replica.logged_membership()


def test_a_wiped_member_and_a_newcomer_form_no_group_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, _ = started(tmp_path, 4, late="n3")
    true_group = group.members["n1"].replica.formation.group
    for member in list(group.running()):
        group.crash(member.id)
    shutil.rmtree(tmp_path / "dledger-n0")
    group.late = frozenset()
    config_of = VirtualGroup.config

    def with_a_short_conf(self: VirtualGroup, peer: str) -> DLedgerConfig:
        """That a newcomer may have: itself and one that is there."""
        made = config_of(self, peer)
        if peer != "n3":
            return made
        peers = {other: made.peers[other] for other in ("n0", "n3")}
        return replace(made, peers=peers, member=replace(made.member, peers=tuple(peers)))

    monkeypatch.setattr(VirtualGroup, "config", with_a_short_conf)
    group.start("n0", "n3")
    group.run_for(5000)
    assert group.leader() is None
    group.start("n1", "n2")
    group.run_until(lambda: group.leader() is not None and group.members["n0"].replica.formation.is_formed)
    assert group.members["n0"].replica.formation.group == true_group


def test_a_group_of_one_that_lost_its_vote_goes_on(tmp_path: Path) -> None:
    group, leader = started(tmp_path, 1)
    term = leader.replica.member.curr_term
    group.run_for(2000)
    group.crash("n0")
    (tmp_path / "dledger-n0" / "pydledger" / "quorum-state").unlink()
    group.start()
    assert group.elect().replica.member.curr_term > term
