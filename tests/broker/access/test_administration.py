"""Administration without access control: open to this machine and to addresses that the conf names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_requests import sound_requests
from one_broker import OneBroker, send_fields
from secured_broker import NEW_USER, ROOT, USER, ask_as, change, secured_broker

from remoting.codes import RequestCode, ResponseCode

DELETE, SEND = RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.SEND_MESSAGE_V2
REFUSAL = (
    "DELETE_TOPIC_IN_BROKER is administration, which is closed for 10.1.2.3: put its address into pyDLedgerAdminFrom "
    "of this broker's conf, or switch access control on (docs/security.md)"
)


def test_each_administrative_code_is_closed_beyond_this_machine_and_no_other(broker: OneBroker) -> None:
    rows = broker.controller.pipeline.types | broker.controller.pipeline.batch_types
    sent = broker.ask(SEND, send_fields("T"), b"m")
    for code, sound in sound_requests(sent.ext_fields["msgId"]).items():
        answer = ask_as(broker, None, code, sound.fields, sound.body)
        is_closed = getattr(rows[code], "is_administration", False)
        is_refused = (answer.remark or "").startswith(f"{RequestCode(code).name} is administration")
        assert is_refused == is_closed, answer.remark
    assert ask_as(broker, None, DELETE, {"topic": "T"}).remark == REFUSAL


@pytest.mark.parametrize("source_ip", ["127.0.0.1", "127.8.8.8", "[::1]"])
def test_this_machine_administrates(broker: OneBroker, source_ip: str) -> None:
    answer = ask_as(broker, None, DELETE, {"topic": "T"}, source_ip=source_ip)
    assert answer.code != ResponseCode.NO_PERMISSION


def test_addresses_of_the_conf_administrate(tmp_path: Path) -> None:
    with secured_broker(tmp_path, "pyDLedgerAdminFrom=10.1.0.0/16,fd00::1") as broker:
        for source_ip in ("10.1.2.3", "[fd00::1]"):
            answer = ask_as(broker, None, DELETE, {"topic": "T"}, source_ip=source_ip)
            assert answer.code != ResponseCode.NO_PERMISSION, source_ip
        for source_ip in ("10.2.2.3", "[fd00::2]"):
            answer = ask_as(broker, None, DELETE, {"topic": "T"}, source_ip=source_ip)
            assert answer.code == ResponseCode.NO_PERMISSION, source_ip


def test_with_authentication_alone_a_super_user_administrates_from_everywhere(tmp_path: Path) -> None:
    conf = 'authenticationEnabled=true\ninitAuthenticationUser={"username":"root","password":"root-secret"}\n'
    with secured_broker(tmp_path, conf) as broker:
        change(broker, NEW_USER)
        assert ask_as(broker, USER, SEND, send_fields("T"), b"m").code == ResponseCode.SUCCESS
        assert ask_as(broker, USER, DELETE, {"topic": "T"}).remark == REFUSAL
        assert ask_as(broker, ROOT, DELETE, {"topic": "T"}).code == ResponseCode.SUCCESS
        assert ask_as(broker, USER, DELETE, {"topic": "U"}, source_ip="127.0.0.1").code != 16
