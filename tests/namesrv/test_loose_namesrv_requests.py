"""Each request that a NameServer serves, written as loosely as fastjson reads it, is fulfilled."""

from __future__ import annotations

import pytest
from loose_requests import loose_frames
from test_hostile_namesrv_requests import SOUND, Hostile

from remoting.codes import MQ_VERSION, ResponseCode
from remoting.frame.connection import RemotingConnection


@pytest.mark.parametrize(("code", "fields", "body"), SOUND, ids=[row[0].name for row in SOUND])
def test_a_request_is_read_however_loosely_it_is_written(
    code: int, fields: dict[str, str], body: bytes
) -> None:
    for name, frame in loose_frames(code, fields, body, MQ_VERSION):
        (command,) = RemotingConnection().receive_data(frame)
        answer = Hostile().ask(command)
        assert answer.code == ResponseCode.SUCCESS, (name, answer.remark)
