"""RocketMQ's plain_acl.yml: what becomes of it."""

from __future__ import annotations

import pytest

from auth.plain_acl import PlainAclError, read_plain_acl
from auth.user import UserType

# As RocketMQ 4.9 and 5.2 ship it.
SHIPPED = """
# Licensed to the Apache Software Foundation (ASF) under one or more

globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: "1234 5678"
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def test_the_file_that_rocketmq_ships_is_translated_as_rocketmq_does() -> None:
    found = read_plain_acl(SHIPPED)
    assert found.left_out == ("globalWhiteRemoteAddresses",)
    first, second = found.accounts
    assert (first.user.username, first.user.password) == ("RocketMQ", "12345678")
    assert first.user.user_type is UserType.NORMAL
    assert [str(entry) for entry in first.policies.custom.values()] == [
        "Deny All on Topic:topicA",
        "Allow Pub,Sub on Topic:topicB",
        "Allow Sub on Topic:topicC",
        "Deny All on Group:groupA",
        "Allow Pub,Sub on Group:groupB",
        "Allow Sub on Group:groupC",
    ]
    assert [str(entry) for entry in first.policies.default.values()] == [
        "Deny All on Topic:*",
        "Allow Sub on Group:*",
    ]
    assert first.left_out == ()
    assert (second.user.username, second.user.password) == ("rocketmq2", "1234 5678")
    assert second.user.user_type is UserType.SUPER
    assert second.left_out == ("whiteRemoteAddress",)
    assert (second.policies.custom, second.policies.default) == ({}, {})


def test_lists_may_stand_at_the_indent_of_their_key() -> None:
    text = "accounts:\n- accessKey: ak\n  secretKey: sk\n  topicPerms:\n  - T=PUB\n- accessKey: b\n  secretKey: c\n"
    first, second = read_plain_acl(text).accounts
    assert list(first.policies.custom) == ["Topic:T"]
    assert second.user.username == "b"


@pytest.mark.parametrize("text", ["", "accounts:\n", "globalWhiteRemoteAddresses:\n"])
def test_a_file_without_accounts_has_none(text: str) -> None:
    assert read_plain_acl(text).accounts == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accounts: {a: b}\n", "line 1 is not as in"),
        ("accounts:\n  - accessKey: a\n    secretKey: [secret-1]\n", "line 3 is not as in"),
        ("accounts:\n  - accessKey: a\n    secretKey\n", "line 3 is not as in"),
        ("accounts:\n  - accessKey: a\n", "account 1 has no accessKey or no secretKey"),
        ("accounts:\n  - plain\n", "account 1 is no map"),
        ("accounts: text\n", "a list of accounts is expected"),
        ("- a\n", "a list of accounts is expected"),
        (
            "accounts:\n  - accessKey: a\n    secretKey: secret-1\n    topicPerms:\n      - T\n",
            "account a: topicPerms: 'T' is not name=PUB|SUB",
        ),
        (
            "accounts:\n  - accessKey: a\n    secretKey: secret-1\n    defaultTopicPerm: ALL\n",
            "account a: 'ALL' of Topic:* is none of DENY, PUB, SUB, PUB|SUB",
        ),
    ],
)
def test_what_cannot_be_read_is_told_by_its_line(text: str, reason: str) -> None:
    with pytest.raises(PlainAclError) as caught:
        read_plain_acl(text)
    assert reason in str(caught.value)
    assert "secret-1" not in str(caught.value)
