"""Each request that a broker serves, written as loosely as fastjson reads it: the same answer as to the plain one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_requests import USERNAME, sound_requests
from loose_requests import loose_frames
from one_broker import OneBroker, commit_fields, heart_beat, send_fields

from remoting.codes import MQ_VERSION, RequestCode, ResponseCode
from remoting.frame.connection import RemotingConnection


@pytest.mark.parametrize("code", sorted(sound_requests()))
def test_a_request_is_read_however_loosely_it_is_written(tmp_path: Path, code: int) -> None:
    broker = OneBroker(tmp_path, "flushDiskType=ASYNC_FLUSH\n")
    count = 0
    while True:
        # Again each time, for the request may have deleted or made something.
        broker.ask(RequestCode.AUTH_DELETE_USER, USERNAME)
        assert broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1")).code == ResponseCode.SUCCESS
        sent = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", properties="KEYS\x01k\x02"), b"m")
        assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1)).code == ResponseCode.SUCCESS
        sound = sound_requests(sent.ext_fields["msgId"])[code]
        frames = list(loose_frames(code, sound.fields, sound.body, MQ_VERSION))
        if count == len(frames):
            break
        name, frame = frames[count]
        count += 1
        connection = RemotingConnection()
        (command,) = connection.receive_data(frame)
        command.opaque = broker.new_request(code).opaque
        broker.receive([command])
        broker.settle()
        for _ in range(120):
            answer = broker.channel.response_to(command.opaque)
            if answer is not None:
                break
            broker.tick(100)
        assert answer is not None, name
        assert answer.code == sound.code, (name, answer.remark)
    broker.close()
