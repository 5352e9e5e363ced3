"""Users and policies in groups of real processes: after a kill, and where one of two groups misses a change."""

import json
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from our_commands import try_mq
from secured_cluster import CONF, at_leaders

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_root")]


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "app.secret"
    path.write_text("app-secret\n")
    return str(path)


def users(cluster: LocalCluster, *at: str) -> dict[str, dict[str, str]]:
    """By name."""
    shown = try_mq("admin", "listUser", "-n", cluster.namesrv, *(at or ("-c", "DefaultCluster")), "--json")
    return {row["username"]: row for row in json.loads(shown.stdout)} if shown.returncode == 0 else {}


def is_allowed(cluster: LocalCluster, member: str) -> bool | None:
    """Whether that member lets app send to orders."""
    address = cluster.nodes()[member]["listen"]
    asked = ("-u", "app", "--code", "SEND_MESSAGE_V2", "-r", "Topic:orders", "-b", str(address), "--json")
    shown = try_mq("admin", "explainAccess", "-n", cluster.namesrv, *asked)
    return bool(json.loads(shown.stdout)[0]["allowed"]) if shown.returncode == 0 else None


def test_members_decide_alike_before_and_after_their_leader_is_killed(
    cluster: LocalCluster, secret_file: str
) -> None:
    cluster.up(conf=CONF)
    first = cluster.leader()
    rule = ("-s", "User:app", "-r", "Topic:orders", "-a", "Pub")
    app = ("-u", "app", "--passwordFile", secret_file)
    wait_for(lambda: at_leaders(cluster, "createUser", *app), 60, "a user")
    wait_for(lambda: at_leaders(cluster, "createAcl", *rule, "-d", "Allow"), 60, "a policy")
    for member in ("n0", "n1", "n2"):
        wait_for(lambda member=member: is_allowed(cluster, member) is True, 30, f"{member} allows it")
    cluster.kill(first)
    cluster.leader()
    others = sorted({"n0", "n1", "n2"} - {first})
    assert [is_allowed(cluster, member) for member in others] == [True, True]
    wait_for(lambda: at_leaders(cluster, "updateAcl", *rule, "-d", "Deny"), 60, "another policy")
    cluster.start(first)
    for member in ("n0", "n1", "n2"):
        wait_for(lambda member=member: is_allowed(cluster, member) is False, 60, f"{member} refuses it")
    # Without a leader, the last member still knows the users.
    for member in others:
        cluster.kill(member)
    address = str(cluster.nodes()[first]["listen"])
    wait_for(lambda: {"app", "root"} <= users(cluster, "-b", address).keys(), 30, "users without a leader")


@pytest.mark.long
def test_a_change_that_one_of_two_groups_has_missed_is_shown_and_can_be_made_up_for(
    cluster: LocalCluster, secret_file: str
) -> None:
    cluster.up("--groups", "2", conf=CONF)
    groups = "RaftNode00", "RaftNode01"
    for group in groups:
        cluster.leader(group=group)
    app = ("-u", "app", "--passwordFile", secret_file)
    wait_for(
        lambda: at_leaders(cluster, "createUser", *app) or at_leaders(cluster, "updateUser", *app),
        60,
        "a user at both groups",
    )
    wait_for(lambda: users(cluster).get("app", {}).get("differs") == "", 30, "no difference")
    for member in ("n3", "n4", "n5"):
        cluster.kill(member)
    # Nobody knows the second group any more, so the first alone is changed.
    wait_for(lambda: at_leaders(cluster, "updateUser", "-u", "app", "-s", "disable"), 60, "the change")
    for member in ("n3", "n4", "n5"):
        cluster.start(member)
    cluster.leader(group=groups[1])
    wait_for(lambda: "otherwise" in users(cluster).get("app", {}).get("differs", ""), 60, "what differs")
    wait_for(
        lambda: at_leaders(cluster, "updateUser", "-u", "app", "-s", "disable"),
        60,
        "the change at both groups",
    )
    app_row = wait_for(lambda: users(cluster).get("app"), 30, "users")
    assert (app_row["status"], app_row["differs"]) == ("disable", "")
