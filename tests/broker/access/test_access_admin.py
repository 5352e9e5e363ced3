"""Users and policies by RocketMQ's codes: recorded requests of its mqadmin, what changes, and what is refused."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_requests import ACL, as_json
from one_broker import OneBroker, pull_fields, send_fields
from secured_broker import NEW_USER, ROOT, USER, allow, answer_to, ask_as, change, secured_broker, signed

from auth.credentials import Credentials
from auth.signature import sign
from auth.user import User, UserStatus, UserType
from message.names import group_fault, topic_fault
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand
from remoting.frame.connection import RemotingConnection
from store.state.tables.access_table import PutUser

WIRE = Path(__file__).parents[2] / "golden" / "wire"
ALLOWED = {"subject": "User:u", "policies": [{"entries": [{"actions": ["Pub"], "decision": "Allow"}]}]}


def acl_of(*resources: str) -> dict[str, object]:
    entries = [{"resource": resource, "actions": ["Pub"], "decision": "Allow"} for resource in resources]
    return {"subject": "User:u", "policies": [{"entries": entries}]}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[OneBroker]:
    with secured_broker(tmp_path) as made:
        change(made, NEW_USER)
        yield made


def recorded(name: str) -> RemotingCommand:
    """The request that RocketMQ's mqadmin of 5.5 sent for this command."""
    with gzip.open(WIRE / f"mqadmin_{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    (frame,) = [base64.b64decode(row["frame_b64"]) for row in rows if row["kind"] == "request"]
    (command,) = RemotingConnection().receive_data(frame)
    return command


def as_root(broker: OneBroker, command: RemotingCommand) -> RemotingCommand:
    return answer_to(broker, signed(command, ROOT))


def told(answer: RemotingCommand) -> Any:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(bytes(answer.body)) if answer.body else None


def entry(resource: str = "Topic:T", decision: str = "Allow", **more: object) -> bytes:
    entries = [{"resource": resource, "actions": ["Pub"], "decision": decision, **more}]
    return as_json({"subject": "User:u", "policies": [{"entries": entries}]})


def test_the_requests_of_mqadmin_are_understood(secured: OneBroker) -> None:
    table = secured.store.tables.access_table
    assert told(as_root(secured, recorded("createUser"))) is None
    assert table.users["adm"] == User("adm", "pwd12345", UserType.SUPER)
    shown = {"userStatus": "enable", "userType": "Super", "username": "adm"}
    assert told(as_root(secured, recorded("getUser"))).items() >= shown.items()
    assert [user["username"] for user in told(as_root(secured, recorded("listUser")))] == ["adm", "root", "u"]
    no_source = as_root(secured, recorded("createAcl"))
    assert (no_source.code, no_source.remark) == (ResponseCode.NO_PERMISSION, "The source ip is invalid.")
    change(secured, PutUser("u1", "s", UserType.NORMAL, UserStatus.ENABLE))
    allow(secured, "Pub Topic:*", username="u1")
    assert [acl["subject"] for acl in told(as_root(secured, recorded("listAcl")))] == ["User:u1"]
    assert told(as_root(secured, recorded("deleteAcl"))) is None
    assert table.policies == {}
    assert told(as_root(secured, recorded("deleteUser"))) is None
    assert "adm" not in table.users


def test_a_users_password_is_never_told_and_differences_are(secured: OneBroker) -> None:
    before = told(ask_as(secured, ROOT, Code.AUTH_GET_USER, {"username": "u"}))
    assert "password" not in before
    change(secured, PutUser("u", "another", None, None))
    after = told(ask_as(secured, ROOT, Code.AUTH_GET_USER, {"username": "u"}))
    assert before["passwordSum"] != after["passwordSum"]
    assert len(after["passwordSum"]) == 4


def test_nothing_of_passwords_is_told_to_users_who_may_only_look(secured: OneBroker) -> None:
    allow(secured, "Get Cluster:GoldenCluster")
    looked = told(ask_as(secured, USER, Code.AUTH_GET_USER, {"username": "u"}))
    assert looked == {"username": "u", "userType": "Normal", "userStatus": "enable"}
    assert not [
        user for user in told(ask_as(secured, USER, Code.AUTH_LIST_USER, {})) if "passwordSum" in user
    ]


def test_what_is_created_is_shown_and_counts_at_once(secured: OneBroker) -> None:
    send = Code.SEND_MESSAGE_V2
    assert ask_as(secured, USER, send, send_fields("T"), b"m").code == ResponseCode.NO_PERMISSION
    body = as_json({**ACL, "subject": "User:u"})
    assert told(ask_as(secured, ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:u"}, body)) is None
    assert ask_as(secured, USER, send, send_fields("T"), b"m").code == ResponseCode.SUCCESS
    (shown,) = told(ask_as(secured, ROOT, Code.AUTH_LIST_ACL, {}))
    assert shown == {**ACL, "subject": "User:u"}
    assert told(ask_as(secured, ROOT, Code.AUTH_GET_ACL, {"subject": "User:u"})) == shown
    assert told(ask_as(secured, ROOT, Code.AUTH_LIST_ACL, {"resourceFilter": "nothing"})) is None
    fields = {"subject": "User:u", "resource": "Topic:T"}
    assert told(ask_as(secured, ROOT, Code.AUTH_DELETE_ACL, fields)) is None
    assert ask_as(secured, USER, send, send_fields("T"), b"m").code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("code", "fields", "body", "refusal"),
    [
        (Code.AUTH_CREATE_USER, {}, {"password": "p"}, (29, "The username is blank")),
        (Code.AUTH_CREATE_USER, {"username": "n"}, {"password": " "}, (16, "password can not be blank")),
        (Code.AUTH_CREATE_USER, {"username": "u"}, {"password": "p"}, (16, "The user is existed")),
        (
            Code.AUTH_CREATE_USER,
            {"username": "n"},
            {"password": "\x07"},
            (29, "a password has at most 255 characters, all of which can be seen"),
        ),
        (
            Code.AUTH_CREATE_USER,
            {"username": "n"},
            {"password": "p", "userType": "Supper"},
            (29, "'Supper' is none of Super, Normal"),
        ),
        (Code.AUTH_UPDATE_USER, {"username": "n"}, {}, (16, "The user is not exist")),
        (Code.AUTH_CREATE_ACL, {"subject": "User:u"}, {}, (16, "The policies is empty.")),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "Role:u"},
            ACL | {"subject": None},
            (16, "The subject type is null."),
        ),
        (Code.AUTH_CREATE_ACL, {}, ACL, (16, "The subject of User:made is not exist.")),
        (Code.AUTH_CREATE_ACL, {}, ALLOWED, (16, "The resource is null.")),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "User:u"},
            acl_of(*(f"Topic:{number}" for number in range(4097))),
            (16, "u would have 4097 entries, 4096 are allowed: name prefixes (Topic:orders-*)"),
        ),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "User:u"},
            acl_of("Topic:" + 256 * "t"),
            (16, "The resource has 256 characters, 255 are allowed"),
        ),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "User:u"},
            acl_of("Topic:%RETRY%g"),
            (16, "Topic:%RETRY%g would never count: a retry topic stands for its group, write Group:g"),
        ),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "User:u"},
            acl_of("Topic:orders "),
            (16, f"'Topic:orders ' would never count: {topic_fault('orders ')}"),
        ),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": "User:u"},
            acl_of("Group:" + 121 * "g" + "*"),
            (16, f"'Group:{121 * 'g'}*' would never count: {group_fault(121 * 'g')}"),
        ),
        (Code.AUTH_DELETE_ACL, {"subject": "User:n"}, None, (16, "The subject is not exist.")),
        (Code.AUTH_DELETE_ACL, {"subject": "User:u"}, None, (16, "The acl is not exist.")),
        (Code.AUTH_GET_ACL, {"subject": "User:n"}, None, (16, "The subject is not exist.")),
    ],
)
def test_what_cannot_be_is_refused_in_rocketmqs_words(
    secured: OneBroker, code: int, fields: dict[str, str], body: object, refusal: tuple[int, str]
) -> None:
    answer = ask_as(secured, ROOT, code, fields, b"" if body is None else as_json(body))
    assert (answer.code, answer.remark) == refusal


def test_only_a_super_user_makes_changes_and_deletes_super_users(secured: OneBroker) -> None:
    allow(secured, "All *")
    as_super = {"password": "p", "userType": "Super"}
    root = {"username": "root"}
    for code, fields, body, words in (
        (Code.AUTH_CREATE_USER, {"username": "n"}, as_super, "create"),
        (Code.AUTH_UPDATE_USER, {"username": "u"}, {"userType": "Super"}, "update"),
        (Code.AUTH_UPDATE_USER, root, {"password": "mine"}, "update"),
        (Code.AUTH_DELETE_USER, root, {}, "update"),
    ):
        answer = ask_as(secured, USER, code, fields, as_json(body))
        assert answer.remark == f"The super user can only be {words} by super user"
    assert (
        told(ask_as(secured, USER, Code.AUTH_CREATE_USER, {"username": "n"}, as_json({"password": "p"})))
        is None
    )


def test_the_last_super_user_stays(secured: OneBroker) -> None:
    root = {"username": "root"}
    for code, body in (
        (Code.AUTH_DELETE_USER, {}),
        (Code.AUTH_UPDATE_USER, {"userStatus": "disable"}),
        (Code.AUTH_UPDATE_USER, {"userType": "Normal"}),
    ):
        answer = ask_as(secured, ROOT, code, root, as_json(body))
        assert answer.remark == "root is the last super user that is enabled: make another one first"
    change(secured, PutUser("other", "s", UserType.SUPER, UserStatus.ENABLE))
    assert told(ask_as(secured, ROOT, Code.AUTH_DELETE_USER, root)) is None
    answer = ask_as(secured, ROOT, Code.AUTH_LIST_USER)
    assert answer.remark == "User:root is not found.", "the conf does not bring it back"


def test_of_two_super_users_that_are_deleted_at_once_one_stays(secured: OneBroker) -> None:
    """The second request is looked at when the first is not applied yet."""
    change(secured, PutUser("other", "s", UserType.SUPER, UserStatus.ENABLE))
    delete = [
        signed(secured.new_request(Code.AUTH_DELETE_USER, {"username": name}), ROOT)
        for name in ("other", "root")
    ]
    secured.receive(delete)
    secured.run_until(lambda: secured.channel.response_to(delete[-1].opaque) is not None)
    answers = [secured.channel.response_to(command.opaque) for command in delete]
    last = "root is the last super user that is enabled: make another one first"
    assert [answer.remark for answer in answers if answer is not None] == [None, last]
    assert set(secured.store.tables.access_table.users) == {"root", "u"}


def test_without_a_leader_the_super_user_of_the_conf_is_known(tmp_path: Path) -> None:
    with secured_broker(tmp_path, elect=False) as broker:
        assert not broker.store.serving
        assert told(ask_as(broker, ROOT, Code.AUTH_LIST_USER)) is None
        assert ask_as(broker, USER, Code.AUTH_LIST_USER).remark == "User:u is not found."
        broker.run_until(lambda: broker.store.serving)
        broker.run_until(lambda: "root" in broker.store.tables.access_table.users)
        change(broker, PutUser("root", "changed", None, None))
        assert ask_as(broker, ROOT, Code.AUTH_LIST_USER).remark == "check signature failed."
        changed = Credentials("root", "changed")
        assert [user["username"] for user in told(ask_as(broker, changed, Code.AUTH_LIST_USER))] == ["root"]


def test_who_waits_for_messages_asks_again_after_a_change(secured: OneBroker) -> None:
    allow(secured, "Sub Topic:T", "Sub Group:g")
    assert ask_as(secured, ROOT, Code.SEND_MESSAGE_V2, send_fields("T"), b"m").code == ResponseCode.SUCCESS
    secured.run_for(1000)
    held = pull_fields("T", offset=1, sysFlag="6", suspendTimeoutMillis="60000")
    command = signed(secured.new_request(Code.PULL_MESSAGE, held), USER)
    secured.receive([command])
    secured.run_for(1000)
    assert secured.channel.response_to(command.opaque) is None
    change(secured, PutUser("u", None, None, UserStatus.DISABLE))
    secured.run_until(lambda: secured.channel.response_to(command.opaque) is not None, 30)


def ask_for_client(broker: OneBroker, secret: str, *needs: tuple[str, str], **more: object) -> dict[str, Any]:
    """What a proxy is told of user u, who has signed `now`."""
    body = {
        "username": "u",
        "content": "now",
        "signature": sign(b"now", secret),
        "sourceIp": "10.1.2.3",
        "needs": [{"resource": resource, "actions": [action]} for resource, action in needs],
    }
    found: dict[str, Any] = told(ask_as(broker, ROOT, Code.CHECK_ACCESS, {}, as_json(body | more)))
    return found


def test_a_proxy_is_told_what_its_client_may_do(secured: OneBroker) -> None:
    allow(secured, "Pub,Sub Topic:T 10.0.0.0/8", "Sub Group:g")
    passes = {"allowed": True, "authenticated": True, "remark": ""}
    own = ("Topic:T", "Pub"), ("Topic:%RETRY%g", "Pub"), ("Group:g", "Sub")
    assert ask_for_client(secured, "u-secret", *own) == passes
    assert ask_for_client(secured, "u-secret") == passes
    refused = ask_for_client(secured, "u-secret", *own, sourceIp="192.168.1.1")
    assert (refused["authenticated"], refused["allowed"]) == (True, False)
    assert refused["remark"] == (
        "User:u has no permission to access Topic:T from 192.168.1.1, no matched policies."
    )
    assert ask_for_client(secured, "u-secret", ("Group:other", "Sub"))["allowed"] is False
    for secret, more, why in (
        ("wrong", {}, "check signature failed."),
        ("u-secret", {"content": "later"}, "check signature failed."),
        ("u-secret", {"username": ""}, "username cannot be null."),
        ("u-secret", {"username": "n"}, "User:n is not found."),
    ):
        answer = ask_for_client(secured, secret, *own, **more)
        assert answer == {"allowed": False, "authenticated": False, "remark": why}


def test_only_a_proxy_that_signs_as_a_super_user_is_told_so(secured: OneBroker) -> None:
    body = as_json({"username": "u", "content": "c", "signature": "s", "sourceIp": "10.1.2.3"})
    assert ask_as(secured, USER, Code.CHECK_ACCESS, {}, body).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("need", [("T", "Pub"), ("Cluster:c", "Get"), ("Topic:T", "Look"), ("", "")])
def test_a_question_of_a_proxy_that_means_nothing_is_refused(
    secured: OneBroker, need: tuple[str, str]
) -> None:
    body = {"username": "u", "content": "c", "signature": "s", "sourceIp": ""}
    body |= {"needs": [{"resource": need[0], "actions": [need[1]]}]}
    answer = ask_as(secured, ROOT, Code.CHECK_ACCESS, {}, as_json(body))
    assert answer.code == ResponseCode.INVALID_PARAMETER


def explain(broker: OneBroker, code: int, **fields: str) -> dict[str, Any]:
    asked = {"username": "u", "requestCode": str(code), **fields}
    found: dict[str, Any] = told(ask_as(broker, ROOT, Code.EXPLAIN_ACCESS, asked))
    return found


def test_it_is_explained_which_rule_decides(secured: OneBroker) -> None:
    allow(secured, "Pub,Sub Topic:T 10.0.0.0/8", "Sub Group:g")
    rule = "Custom policy: Allow Pub,Sub on Topic:T from 10.0.0.0/8"
    assert explain(secured, Code.SEND_MESSAGE_V2, resource="Topic:T") == {
        "allowed": True,
        "verdicts": [{"allowed": True, "needed": "Pub on Topic:T", "rule": rule}],
    }
    refused = explain(secured, Code.SEND_MESSAGE_V2, resource="Topic:T", sourceIp="192.168.1.1")
    assert refused["verdicts"][0]["rule"] == "no policy matches"
    of_group = {
        "allowed": True,
        "needed": "Sub on Group:g",
        "rule": "Custom policy: Allow Sub on Group:g",
    }
    unnamed = {"needed": "Sub on a Group", "rule": "not known: name a Group, too"}
    assert explain(secured, Code.PULL_MESSAGE, resource="Topic:%RETRY%g") == {"verdicts": [of_group, unnamed]}
    both = explain(secured, Code.PULL_MESSAGE, resource="Topic:%RETRY%g,Group:g")
    assert both == {"allowed": True, "verdicts": [of_group, of_group]}
    assert explain(secured, Code.PULL_MESSAGE, resource="Topic:secret")["allowed"] is False
    (of_cluster,) = explain(secured, Code.UPDATE_BROKER_CONFIG)["verdicts"]
    assert of_cluster == {
        "allowed": False,
        "needed": "Update on Cluster:GoldenCluster",
        "rule": "no policy matches",
    }
    for username, why in (("nobody", "no such user"), ("root", "super user")):
        (verdict,) = explain(secured, Code.UPDATE_BROKER_CONFIG, username=username)["verdicts"]
        assert verdict["rule"] == why


@pytest.mark.parametrize("resource", ["Topic:*", "Topic:T,Group:g*", "*", "Topic:T,"])
def test_what_is_explained_is_about_single_resources(secured: OneBroker, resource: str) -> None:
    asked = {"username": "u", "requestCode": "310", "resource": resource}
    assert ask_as(secured, ROOT, Code.EXPLAIN_ACCESS, asked).code == ResponseCode.INVALID_PARAMETER


def test_without_access_control_it_is_explained_what_administration_is(broker: OneBroker) -> None:
    asked = {"username": "u", "requestCode": str(Code.DELETE_TOPIC_IN_BROKER.value), "sourceIp": "10.1.2.3"}
    (verdict,) = told(broker.ask(Code.EXPLAIN_ACCESS, asked))["verdicts"]
    assert verdict["allowed"] is False
    assert "pyDLedgerAdminFrom" in verdict["rule"]
    (verdict,) = told(broker.ask(Code.EXPLAIN_ACCESS, asked | {"requestCode": "310"}))["verdicts"]
    assert verdict == {"allowed": True, "needed": "nothing", "rule": "authorization is off"}


def test_users_and_policies_are_there_after_a_restart(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        change(broker, NEW_USER)
        allow(broker, "Pub Topic:T")
        broker.close(clean=True)
    with secured_broker(tmp_path) as again:
        assert ask_as(again, USER, Code.SEND_MESSAGE_V2, send_fields("T"), b"m").code == ResponseCode.SUCCESS
