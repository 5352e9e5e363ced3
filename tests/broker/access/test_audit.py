"""Changes are noted in the log before they are made, without secrets, and each member can tell of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_requests import as_json
from one_broker import OneBroker, RecordingChannel
from secured_broker import NEW_USER, ROOT, USER, ask_as, change, secured_broker, signed

from broker.access.audit_notes import WHAT_SIZE_MAX
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from store.put_message import PutRefusal, PutStatus

TOPIC = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[OneBroker]:
    with secured_broker(tmp_path) as made:
        change(made, NEW_USER)
        yield made


def audit(broker: OneBroker, since_ms: int = 0) -> list[dict[str, Any]]:
    answer = ask_as(broker, ROOT, Code.GET_AUDIT, {"sinceMs": str(since_ms)})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    told: list[dict[str, Any]] = json.loads(bytes(answer.body))["requests"]
    return told


def test_who_changed_what_and_from_where_is_told(secured: OneBroker) -> None:
    body = as_json({"username": "bob", "password": "bobs-secret", "userType": "Normal"})
    assert ask_as(secured, ROOT, Code.UPDATE_AND_CREATE_TOPIC, TOPIC).code == ResponseCode.SUCCESS
    made = ask_as(secured, ROOT, Code.AUTH_CREATE_USER, {"username": "bob"}, body, source_ip="10.9.9.9")
    assert made.code == ResponseCode.SUCCESS
    topic, user = audit(secured)
    assert (topic["username"], topic["sourceIp"], topic["code"]) == ("root", "10.1.2.3", 17)
    assert "perm=6" in topic["what"]
    assert "topic=orders" in topic["what"]
    assert (user["sourceIp"], user["code"]) == ("10.9.9.9", 3001)
    assert user["what"] == 'username=bob {"username": "bob", "userType": "Normal"}'
    assert "secret" not in json.dumps([topic, user])
    assert audit(secured, user["atMs"] + 1) == []


def test_what_a_body_says_is_shown(secured: OneBroker) -> None:
    body = as_json({"groupName": "billing", "consumeEnable": True})
    assert ask_as(secured, ROOT, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    (row,) = audit(secured)
    assert '"groupName": "billing"' in row["what"]


def test_no_field_hides_another_one(secured: OneBroker) -> None:
    """Neither those that the header does not know, nor long ones that it does."""
    fields = {"!": "x" * 400, "SecurityToken": "t-secret", "bname": "y" * 4000, "topic": "orders"}
    assert ask_as(secured, ROOT, Code.DELETE_TOPIC_IN_BROKER, fields).code == 0
    (row,) = audit(secured)
    assert row["what"] == f"bname={'y' * 140}… topic=orders"


def test_each_resource_of_a_policy_is_named(secured: OneBroker) -> None:
    sources = [f"10.0.{number // 256}.{number % 256}" for number in range(1000)]
    entries: list[dict[str, object]] = [
        {"resource": f"Topic:t{number}", "actions": ["Pub"], "decision": "Allow"} for number in range(20)
    ]
    entries[0]["sourceIps"] = sources
    acl = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": entries}]}
    assert ask_as(secured, ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:u"}, as_json(acl)).code == 0
    (row,) = audit(secured)
    first, second, *_ = json.loads(row["what"].removeprefix("subject=User:u "))["policies"][0]["entries"]
    assert first["sourceIps"].startswith('["10.0.0.0", "10.0.0.1", ')
    assert first["sourceIps"].endswith("…")
    assert second == entries[1]
    assert '"Topic:t19"' in row["what"]


def test_what_is_too_much_for_a_note_ends_with_a_mark(secured: OneBroker) -> None:
    entries = [{"resource": f"Topic:é{n}", "actions": ["Pub"], "decision": "Allow"} for n in range(300)]
    acl = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": entries}]}
    ask_as(secured, ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:u"}, as_json(acl))
    (row,) = audit(secured)
    assert row["what"].endswith("…")
    assert WHAT_SIZE_MAX - 4 < len(row["what"].removesuffix("…").encode()) <= WHAT_SIZE_MAX


def test_a_note_does_nothing_to_the_terminal_of_its_reader(secured: OneBroker) -> None:
    ask_as(secured, ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "a\x1b[2J\n\x9b1m\u202eb"})
    body = as_json({"groupName": "c\x7f\x1b[2J"})
    ask_as(secured, ROOT, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    topic, group = (row["what"] for row in audit(secured))
    assert topic == "topic=a?[2J??1m?b"
    assert group.startswith('{"groupName": "c?\\u001b[2J", ')


def test_what_access_control_refuses_and_what_only_asks_has_no_note(secured: OneBroker) -> None:
    refused = ask_as(secured, USER, Code.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert refused.code == ResponseCode.NO_PERMISSION
    ask_as(secured, ROOT, Code.AUTH_LIST_USER)
    ask_as(secured, ROOT, Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
    assert audit(secured) == []


def test_without_its_note_a_change_is_not_made(secured: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that can write nothing, and then leads no longer."""
    full = PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")
    monkeypatch.setattr(secured.store._proposals._commit_log, "append_state", lambda *_: full)
    channel = RecordingChannel(9, "10.1.2.3:50009")
    command = signed(secured.new_request(Code.UPDATE_AND_CREATE_TOPIC, TOPIC), ROOT)
    secured.receive([command], channel)
    secured.run_for(1000)
    assert channel.response_to(command.opaque) is None
    secured.step_down()
    secured.run_until(lambda: channel.response_to(command.opaque) is not None)
    answer = channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "nothing was changed" in (answer.remark or "")
    assert secured.store.tables.topic_config_table.configs.get("orders") is None


def test_what_is_done_while_a_member_may_not_know_the_audit_is_a_warning_in_the_log(
    secured: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without = {"audit": ("n2",)}
    monkeypatch.setattr(
        secured.store._proposals, "_members_without", lambda table_name: without.get(table_name, ())
    )
    assert ask_as(secured, ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == 0
    assert "not in the audit: code=215 user='root' addr=10.1.2.3 what=topic=orders" in caplog.messages
    without.clear()
    caplog.clear()
    assert ask_as(secured, ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "billing"}).code == 0
    assert "not in the audit" not in caplog.text
    assert [row["what"] for row in audit(secured)] == ["topic=billing"]
