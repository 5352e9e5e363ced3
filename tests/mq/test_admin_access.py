"""`mq admin` about users and policies, and where the groups of a cluster have them otherwise."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_cluster import BROKER, AdminCluster, asked_cluster, in_one_line, run
from test_plain_acl import SHIPPED

from auth.policy import PolicyType
from mq.admin.access import _differs
from remoting.bodies.auth_bodies import UserInfo
from remoting.codes import RequestCode, ResponseCode


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    with asked_cluster(tmp_path, monkeypatch) as made:
        yield made


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    run(*arguments)
    return in_one_line(capsys.readouterr().out).strip()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run(*arguments)
    return capsys.readouterr().err


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("very-secret\n")
    return str(path)


def test_users_are_made_changed_and_deleted(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    made = shown(capsys, "createUser", "-u", "u", "-c", "GoldenCluster", "--passwordFile", password)
    assert made == f"{BROKER}: user u made"
    users = cluster.broker.store.tables.access_table.users
    assert users["u"].password == "very-secret"
    assert "u Normal enable" in shown(capsys, "listUser", "-c", "GoldenCluster")
    shown(capsys, "updateUser", "-u", "u", "-s", "disable", "-b", BROKER)
    assert "u Normal disable" in shown(capsys, "getUser", "-u", "u", "-b", BROKER)
    assert users["u"].password == "very-secret"
    assert shown(capsys, "deleteUser", "-u", "u", "-b", BROKER) == f"{BROKER}: user u deleted"
    assert users == {}


def test_a_password_comes_from_standard_input_and_is_no_argument(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("typed-secret\n"))
    shown(capsys, "createUser", "-u", "u", "-t", "Super", "--passwordFile", "-")
    assert cluster.broker.store.tables.access_table.users["u"].password == "typed-secret"
    assert "give the password with --passwordFile" in refused(capsys, "createUser", "-u", "v")
    assert "No such file" in refused(capsys, "createUser", "-u", "v", "--passwordFile", "/nonexistent")
    assert "unrecognized arguments: -p" in refused(capsys, "createUser", "-u", "v", "-p", "x")


def test_policies_are_put_and_deleted_and_what_decides_is_told(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    shown(capsys, "createUser", "-u", "u", "--passwordFile", password)
    user = ("-s", "User:u")
    shown(
        capsys,
        "createAcl",
        *user,
        "-r",
        "Topic:a,Topic:b*",
        "-a",
        "Pub,Sub",
        "-d",
        "Allow",
        "-i",
        "10.0.0.0/8",
    )
    shown(capsys, "updateAcl", *user, "-r", "*", "-a", "All", "-d", "Deny", "--policyType", "Default")
    listed = shown(capsys, "listAcl")
    assert "User:u Custom Topic:a Pub,Sub 10.0.0.0/8 Allow" in listed
    assert "User:u Default * All Deny" in listed
    assert "Topic:a" not in shown(capsys, "listAcl", "-r", "Topic:b")
    told = shown(capsys, "explainAccess", "-u", "u", "--code", "SEND_MESSAGE_V2", "-r", "Topic:a")
    assert "authorization is off" in told
    shown(capsys, "deleteAcl", *user, "-r", "Topic:a,Topic:b*")
    policies = cluster.broker.store.tables.access_table.policies["u"]
    assert (list(policies.of_type(PolicyType.CUSTOM)), list(policies.default)) == ([], ["*"])
    assert "User:u Default" in shown(capsys, "getAcl", *user)
    shown(capsys, "deleteAcl", *user)
    assert cluster.broker.store.tables.access_table.policies == {}
    assert "The source ip is invalid." in refused(
        capsys, "createAcl", *user, "-r", "Topic:a", "-a", "Pub", "-d", "Allow", "-i", "everywhere"
    )
    assert "NOPE is no request code" in refused(capsys, "explainAccess", "-u", "u", "--code", "NOPE")


def test_the_audit_shows_who_asked_for_which_change(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], password: str
) -> None:
    shown(capsys, "createUser", "-u", "u", "-c", "GoldenCluster", "--passwordFile", password)
    told = shown(capsys, "audit", "--since", "1h")
    assert "127.0.0.1 AUTH_CREATE_USER username=u" in told
    assert "very-secret" not in told
    row = json.loads(shown(capsys, "audit", "-b", BROKER, "--json"))[-1]
    assert (row["user"], row["source_ip"], row["broker"]) == ("", "127.0.0.1", BROKER)
    assert json.loads(shown(capsys, "audit", "--since", "2100-01-01T00:00", "--json")) == []
    assert "'yesterday' is no time" in refused(capsys, "audit", "--since", "yesterday")


def test_programs_get_json(cluster: AdminCluster, capsys: pytest.CaptureFixture[str], password: str) -> None:
    shown(capsys, "createUser", "-u", "u", "--passwordFile", password)
    (user,) = json.loads(shown(capsys, "listUser", "--json"))
    assert user == {"username": "u", "type": "Normal", "status": "enable", "differs": ""}


def test_a_file_of_access_control_1_is_imported_once(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(SHIPPED)
    told = shown(capsys, "importPlainAcl", "-f", str(path), "-c", "GoldenCluster")
    assert "globalWhiteRemoteAddresses is left out" in told
    assert f"{BROKER}: user rocketmq2 made, whiteRemoteAddress left out" in told
    table = cluster.broker.store.tables.access_table
    assert table.users["rocketmq2"].is_super
    assert len(table.policies["RocketMQ"].custom) == 6
    again = shown(capsys, "importPlainAcl", "-f", str(path), "-c", "GoldenCluster")
    assert "user RocketMQ was there already" in again
    path.write_text("accounts: [")
    assert "line 1 is not as in RocketMQ's plain_acl.yml" in refused(
        capsys, "importPlainAcl", "-f", str(path)
    )


def test_an_import_that_fails_says_what_is_left_and_may_be_run_again(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(SHIPPED)
    command = ("importPlainAcl", "-f", str(path), "-c", "GoldenCluster")
    table = cluster.broker.store.tables.access_table
    cluster.refuse[RequestCode.AUTH_UPDATE_ACL] = (ResponseCode.SYSTEM_ERROR, "not now")
    told = refused(capsys, *command)
    assert "not now" in told
    assert "not imported there: RocketMQ, rocketmq2." in told
    assert (list(table.users), table.policies) == (["RocketMQ"], {})
    cluster.refuse = {RequestCode.AUTH_CREATE_USER: (ResponseCode.SYSTEM_ERROR, "not now")}
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run(*command)
    told, failed = capsys.readouterr()
    assert f"{BROKER}: user RocketMQ was there already, Custom policy made, Default policy made" in told
    assert "not imported there: rocketmq2." in failed
    cluster.refuse.clear()
    assert f"{BROKER}: user rocketmq2 made" in shown(capsys, *command)
    assert set(table.users) == {"RocketMQ", "rocketmq2"}
    assert len(table.policies["RocketMQ"].custom) == 6
    # What somebody has changed since then stays.
    shown(capsys, "deleteAcl", "-s", "User:RocketMQ", "-r", "Topic:topicB", "-b", BROKER)
    assert f"{BROKER}: user RocketMQ was there already" in shown(capsys, *command)
    assert len(table.policies["RocketMQ"].custom) == 5


def test_where_groups_differ_is_told() -> None:
    user = UserInfo(username="u", user_type="Normal", user_status="enable", password_sum="0a0b")
    other = UserInfo(username="u", user_type="Normal", user_status="enable", password_sum="ffff")
    assert _differs(["a:1", "b:1"], [user, user]) == ""
    assert _differs(["a:1", "b:1"], [None, user]) == "missing at a:1"
    assert _differs(["a:1", "b:1", "c:1"], [user, other, user]) == "a:1 has it otherwise than b:1"
