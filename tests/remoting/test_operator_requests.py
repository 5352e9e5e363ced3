"""Who asked a server to change something, as its log says it."""

import logging

import pytest

from remoting.codes import RequestCode
from remoting.frame.command import request
from remoting.operator_requests import note_operator_request


def lines(
    caplog: pytest.LogCaptureFixture, code: RequestCode, fields: dict[str, str], body: bytes
) -> list[str]:
    caplog.set_level(logging.INFO)
    note_operator_request(request(code, fields, body, opaque=1), "10.0.0.7:4711")
    return [record.getMessage() for record in caplog.records]


def test_a_request_of_an_operator_is_noted_with_who_asked_and_without_its_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert lines(caplog, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, b"secret=1") == [
        "asked for DELETE_TOPIC_IN_BROKER code=215 addr=10.0.0.7:4711 body_size=8 fields={'topic': 'T'}"
    ]


def test_neither_signature_nor_token_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    fields = {"AccessKey": "a", "SecurityToken": "t-secret", "Signature": "s-secret", "topic": "T"}
    (line,) = lines(caplog, RequestCode.DELETE_TOPIC_IN_BROKER, fields, b"")
    assert line.endswith("fields={'AccessKey': 'a', 'topic': 'T'}")


@pytest.mark.parametrize("code", [RequestCode.ADD_MEMBER, RequestCode.REMOVE_MEMBER])
def test_who_changed_the_members_is_noted(caplog: pytest.LogCaptureFixture, code: RequestCode) -> None:
    (line,) = lines(caplog, code, {"memberId": "n3"}, b"")
    assert line.startswith(f"asked for {code.name} code={code.value} addr=10.0.0.7:4711")


def test_nobody_writes_lines_of_their_own_or_endless_ones_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = lines(caplog, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic\n": "T\nrole changed" * 10_000}, b"")
    assert "\n" not in line
    assert len(line) < 600
