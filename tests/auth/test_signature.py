"""Signatures: those that RocketMQ's own classes made, and what is no part of them."""

from __future__ import annotations

import pytest
from golden_store import vectors

from auth.signature import ACCESS_KEY, SIGNATURE, is_signature, sign, signed_content

HOOKED = vectors("acl_sign", "AclClientRPCHook")


@pytest.mark.parametrize("vector", vectors("acl_sign", "calSignature"), ids=lambda vector: vector["output"])
def test_a_signature_is_that_of_rocketmq(vector: dict[str, str]) -> None:
    content = vector["data"].encode()
    assert sign(content, vector["secretKey"]) == vector["output"]
    assert is_signature(vector["output"], content, vector["secretKey"])


@pytest.mark.parametrize("vector", HOOKED, ids=lambda vector: str(vector["code"]))
def test_a_request_of_javas_hook_is_signed(vector: dict[str, str]) -> None:
    fields = dict(vector["extFields_after"])
    content = signed_content(fields, vector["body"].encode(), 401)
    if "signed_content_hex" in vector:
        assert content.hex() == vector["signed_content_hex"]
    assert fields[ACCESS_KEY] == vector["accessKey"]
    assert is_signature(fields[SIGNATURE], content, vector["secretKey"])


def test_each_other_value_and_body_and_secret_is_another_signature() -> None:
    (vector, *_) = HOOKED
    fields, body, secret = dict(vector["extFields_after"]), vector["body"].encode(), vector["secretKey"]
    signature = fields[SIGNATURE]
    for key in fields.keys() - {SIGNATURE}:
        for spoilt in ({**fields, key: fields[key] + "x"}, {k: v for k, v in fields.items() if k != key}):
            assert not is_signature(signature, signed_content(spoilt, body, 401), secret), key
    added = {**fields, "zz": "1"}
    assert not is_signature(signature, signed_content(added, body, 401), secret)
    assert is_signature(signature, signed_content(added, body, 401, unsigned={"zz"}), secret)
    assert not is_signature(signature, signed_content(fields, body + b" ", 401), secret)
    assert not is_signature(signature, signed_content(fields, body, 401), secret + "x")
    for no_signature in ("", "é", "\ud800"):
        assert not is_signature(no_signature, signed_content(fields, body, 401), secret)


def test_what_a_client_before_4_9_4_adds_after_signing_is_left_out() -> None:
    fields = {ACCESS_KEY: "ak", "_UNIQUE_KEY_QUERY": "true"}
    assert signed_content(fields, b"", 400) == b"ak"
    assert signed_content(fields, b"", 401) == b"aktrue"


def test_a_body_that_is_a_view_and_a_value_that_is_no_text_are_signed() -> None:
    assert signed_content({"k": "\ud800"}, memoryview(b"body"), 513) == b"?body"
