"""What is read of what RocketMQ's brokers leave, and said where they cannot be had; none of them runs."""

from pathlib import Path

import pytest
from fault_runs import fault_command
from originals.java_servers import Elected, JavaGroup

BASE_PORT = 12000
MEMBERS = ("n0", "n1", "n2")


def group_of(work: Path, members: tuple[str, ...] = MEMBERS) -> JavaGroup:
    return JavaGroup(work, {member: work / member / "store" for member in members}, BASE_PORT, {})


def vote(group: JavaGroup, member: str, term: int, leader: str | None) -> None:
    """As DLedger leaves it on the disk; None: a term that the member has heard of, and not voted in."""
    file = group.stores[member] / f"dledger-{member}" / "currterm"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"currTerm={term}\n" + (f"voteLeader={leader}\n" if leader else ""))


def test_one_alone_leads_by_its_own_vote_in_the_term_in_which_it_begins(tmp_path: Path) -> None:
    group = group_of(tmp_path, ("n1",))
    assert group.elected() is None
    vote(group, "n1", 0, "n1")
    assert group.elected() == Elected(0, "n1", frozenset({"n1"}))


def test_a_leader_is_whom_two_members_have_voted_for_in_the_newest_term(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    assert group.elected() is None
    vote(group, "n0", 3, "n0")
    vote(group, "n1", 3, "n0")
    vote(group, "n2", 3, None)
    assert group.elected() == Elected(3, "n0", frozenset({"n0", "n1"}))
    vote(group, "n1", 4, "n1")
    assert (group.elected(), group.term()) == (None, 4)
    vote(group, "n2", 4, "n2")
    assert group.elected() is None
    vote(group, "n0", 4, "n2")
    assert group.elected() == Elected(4, "n2", frozenset({"n0", "n2"}))


def test_without_maven_and_a_jdk_a_run_against_rocketmqs_group_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert fault_command.main(["--target", "java", "--list"]) == 1
    told = capsys.readouterr().err
    assert "JDK and Maven" in told
    assert "mvn, java, javac" in told
