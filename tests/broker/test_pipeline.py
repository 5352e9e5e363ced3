"""A defect of one handler costs its request alone."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace
from one_broker import OneBroker

from remoting.codes import RequestCode, ResponseCode


def test_a_handler_that_fails_is_answered_for_and_the_others_of_its_read_too(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("defect")

    types = broker.controller.pipeline.types
    code = RequestCode.GET_BROKER_CONFIG
    monkeypatch.setitem(types, code, replace(types[code], handler=broken))
    codes = (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.LIST_MEMBERS)
    commands = [broker.new_request(code) for code in codes]
    broker.receive(commands)
    answers = [broker.channel.response_to(command.opaque) for command in commands]
    assert [answer and answer.code for answer in answers] == [
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SUCCESS,
    ]
    assert answers[1] is not None
    assert answers[1].remark == "failed: KeyError: 'defect'"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
