"""SEND_REPLY_MESSAGE (324, 325) and what the broker pushes to requesters (326)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from broker.waiting import waiting_replies
from message.decoder import decode_messages
from message.properties import decode_properties
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response
from remoting.headers import headers

REPLY_TOPIC = "GoldenCluster_REPLY_TOPIC"
REQUESTER = "192.0.2.2@requester"
NOT_FOUND = f"push reply message fail, channel of <{REQUESTER}> not found."


def reply_properties(client_id: str = REQUESTER, ttl: str = "8000", correlation_id: str = "c1") -> str:
    pairs = {
        "MSG_TYPE": "reply",
        "REPLY_TO_CLIENT": client_id,
        "UNIQ_KEY": "FD" + "0" * 30,
        "TTL": ttl,
        "CORRELATION_ID": correlation_id,
    }
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items() if value)


def reply_fields(properties: str | None = None, topic: str = REPLY_TOPIC, **more: str) -> dict[str, str]:
    return send_fields(topic, 0, reply_properties() if properties is None else properties, **more)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    yield broker
    broker.close()


@pytest.fixture
def requester(broker: OneBroker) -> RecordingChannel:
    return connected(broker, RecordingChannel(7, "127.0.0.1:50007"))


def connected(
    broker: OneBroker, channel: RecordingChannel, client_id: str = REQUESTER, group: str = "requesters"
) -> RecordingChannel:
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)]).encode()
    assert broker.ask(RequestCode.HEART_BEAT, body=body, channel=channel).code == ResponseCode.SUCCESS
    return channel


def pushes(channel: RecordingChannel) -> list[RemotingCommand]:
    return [
        c
        for c in channel.received
        if c.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and not c.is_response
    ]


def send_reply(broker: OneBroker, fields: dict[str, str] | None = None, body: bytes = b"the reply") -> int:
    """Sends a reply; the number by which its answer is found."""
    command = broker.new_request(RequestCode.SEND_REPLY_MESSAGE_V2, fields or reply_fields(), body)
    broker.receive([command])
    broker.settle()
    return command.opaque


def take(
    broker: OneBroker, channel: RecordingChannel, code: int = 0, remark: str | None = None
) -> RemotingCommand:
    """The requester answers the last push, which is returned."""
    push = pushes(channel)[-1]
    broker.receive([response(push, code, remark)], channel)
    broker.settle()
    return push


def stored_replies(broker: OneBroker) -> list[bytes]:
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields(REPLY_TOPIC))
    return [message.body for message in decode_messages(answer.body)]


def test_reply_is_pushed_to_its_requester_and_stored(broker: OneBroker, requester: RecordingChannel) -> None:
    opaque = send_reply(broker, reply_fields(h="5", g="1795167238032"))
    assert broker.channel.response_to(opaque) is None, "nobody has taken it yet"
    push = take(broker, requester)
    header = headers.decode(headers.ReplyMessageRequestHeader, push.ext_fields)
    assert header == headers.ReplyMessageRequestHeader(
        producer_group="p",
        topic=REPLY_TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1795167238032,
        flag=5,
        properties=header.properties,
        reconsume_times=0,
        unit_mode=False,
        born_host="127.0.0.1:50001",
        store_host="127.0.0.1:17911",
        store_timestamp=header.store_timestamp,
    )
    properties = decode_properties((header.properties or "").encode())
    assert properties == {
        **decode_properties(reply_properties().encode()),
        "PUSH_REPLY_TIME": str(header.store_timestamp),
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert push.body == b"the reply"
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields.keys() == {"queueId", "msgId", "TRACE_ON", "MSG_REGION", "queueOffset"}
    (message,) = decode_messages(broker.ask(RequestCode.PULL_MESSAGE, pull_fields(REPLY_TOPIC)).body)
    assert message.msg_id == answer.ext_fields["msgId"]
    assert message.queue_offset == int(answer.ext_fields["queueOffset"])
    assert (message.body, message.flag) == (b"the reply", 5)
    assert "PUSH_REPLY_TIME" not in message.properties


def test_long_named_header_is_read_alike(broker: OneBroker, requester: RecordingChannel) -> None:
    long_names = headers.to_ext_fields(
        headers.SendMessageRequestHeader(
            producer_group="p",
            topic=REPLY_TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=reply_properties(),
        )
    )
    command = broker.new_request(RequestCode.SEND_REPLY_MESSAGE, long_names, b"r")
    broker.receive([command])
    broker.settle()
    take(broker, requester)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_reply_is_not_stored_where_that_is_switched_off(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "storeReplyMessageEnable=false\n")
    requester = connected(broker, RecordingChannel(7))
    opaque = send_reply(broker)
    take(broker, requester)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert (answer.code, answer.ext_fields["msgId"], answer.ext_fields["queueOffset"]) == (0, "0", "0")
    assert stored_replies(broker) == []
    broker.close()


def test_reply_larger_than_other_requests_is_pushed(broker: OneBroker, requester: RecordingChannel) -> None:
    opaque = send_reply(broker, body=b"x" * 3_000_000)
    assert len(take(broker, requester).body) == 3_000_000
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    too_long = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(), b"x" * 4_194_305)
    assert too_long.code == ResponseCode.MESSAGE_ILLEGAL


def test_client_that_refuses_a_reply_is_told_as_javas_broker_tells_it(
    broker: OneBroker, requester: RecordingChannel
) -> None:
    opaque = send_reply(broker)
    take(broker, requester, ResponseCode.SYSTEM_ERROR, "process reply message fail")
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert (answer.code, answer.remark) == (1, f"push reply message to {REQUESTER}fail.")
    assert answer.ext_fields["msgId"] != "0", "it is stored all the same"


def test_reply_for_nobody_is_refused_at_once_and_not_stored(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(reply_properties("")), b"r")
    assert (answer.code, answer.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    assert stored_replies(broker) == []


@pytest.mark.parametrize("ttl", ["", "0", "-5", "soon", "\u0663", "9" * 5000])
def test_reply_without_a_time_to_live_does_not_wait(broker: OneBroker, ttl: str) -> None:
    answer = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(reply_properties(ttl=ttl)), b"r")
    assert (answer.code, answer.remark) == (1, NOT_FOUND)


def test_reply_waits_for_its_requester(broker: OneBroker) -> None:
    opaque = send_reply(broker)
    broker.run_for(7000)
    assert broker.channel.response_to(opaque) is None
    requester = connected(broker, RecordingChannel(7))
    take(broker, requester)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["msgId"] != "0"
    assert len(broker.controller.waiting_replies) == 0


def test_reply_to_a_request_of_go_waits_for_seconds(broker: OneBroker) -> None:
    opaque = send_reply(broker, reply_fields(reply_properties(ttl="8")))
    broker.run_for(7000)
    assert broker.channel.response_to(opaque) is None
    broker.run_for(1100)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.remark == f"{NOT_FOUND} It did not connect within 8000 ms, the request's TTL."


def test_reply_waits_no_longer_than_its_request_lives(broker: OneBroker) -> None:
    opaque = send_reply(broker)
    broker.run_for(8100)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"{NOT_FOUND} It did not connect within 8000 ms, the request's TTL."
    requester = connected(broker, RecordingChannel(7))
    assert pushes(requester) == []


def test_only_clients_with_a_producer_group_are_requesters(broker: OneBroker) -> None:
    send_reply(broker)
    body = HeartbeatData(client_id=REQUESTER).encode()
    channel = RecordingChannel(7)
    broker.ask(RequestCode.HEART_BEAT, body=body, channel=channel)
    assert pushes(channel) == []


def test_reply_is_pushed_again_where_the_connection_ended_before_it_was_taken(
    broker: OneBroker, requester: RecordingChannel
) -> None:
    opaque = send_reply(broker)
    assert len(pushes(requester)) == 1
    broker.controller.pipeline.channel_closed(requester)
    assert broker.channel.response_to(opaque) is None
    again = connected(broker, RecordingChannel(8))
    assert take(broker, again).body == b"the reply"
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_client_that_leaves_one_of_two_groups_is_still_reached(
    broker: OneBroker, requester: RecordingChannel
) -> None:
    connected(broker, requester, group="others")
    fields = {"clientID": REQUESTER, "producerGroup": "others"}
    broker.ask(RequestCode.UNREGISTER_CLIENT, fields, channel=requester)
    send_reply(broker)
    assert len(pushes(requester)) == 1
    broker.ask(RequestCode.UNREGISTER_CLIENT, {**fields, "producerGroup": "requesters"}, channel=requester)
    assert broker.controller.producers.channel_of(REQUESTER) is None


def test_a_connection_speaks_for_the_client_of_its_last_heartbeat(
    broker: OneBroker, requester: RecordingChannel
) -> None:
    connected(broker, requester, "another")
    producers = broker.controller.producers
    assert producers.channel_of(REQUESTER) is None
    assert producers.channel_of("another") is requester
    broker.controller.pipeline.channel_closed(requester)
    assert producers.channel_of("another") is None


def test_a_client_is_reached_by_its_newest_connection(broker: OneBroker, requester: RecordingChannel) -> None:
    newer = connected(broker, RecordingChannel(8))
    broker.controller.pipeline.channel_closed(requester)
    assert broker.controller.producers.channel_of(REQUESTER) is newer


def test_replies_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "pyDLedgerMaxWaitingReplyBytes=5000\n")
    first = send_reply(broker, body=b"x" * 3000)
    answer = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(), b"x" * 3000)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(f"{NOT_FOUND} 1 replies of ")
    assert answer.remark.endswith("5000 bytes may (pyDLedgerMaxWaitingReplyBytes)")
    assert broker.channel.response_to(first) is None, "it waits on"
    broker.close()


def test_replies_that_wait_are_bounded_in_number(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_replies, "WAITING_REPLIES_MAX", 2)
    for _ in range(2):
        send_reply(broker)
    answer = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(), b"r")
    assert answer.remark is not None
    assert answer.remark.startswith(f"{NOT_FOUND} 2 replies of ")


def test_no_reply_waits_for_longer_than_the_conf_allows(tmp_path: Path) -> None:
    """Else replies to clients that are no more would keep the room for those of others."""
    broker = OneBroker(tmp_path, "pyDLedgerMaxReplyWaitMs=3000\n")
    opaque = send_reply(broker, reply_fields(reply_properties(ttl="86400000")))
    broker.run_for(2900)
    assert broker.channel.response_to(opaque) is None
    broker.run_for(200)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.remark == f"{NOT_FOUND} It did not connect within 3000 ms, pyDLedgerMaxReplyWaitMs."
    broker.close()


def test_replies_that_wait_and_how_that_ended_are_counted(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "pyDLedgerMaxWaitingReplyBytes=5000\n")
    figures = broker.controller.waiting_replies.figures
    send_reply(broker, body=b"x" * 3000)
    send_reply(broker, body=b"x" * 3000)
    seen = figures()
    assert seen["waiting_replies"] == 1
    assert isinstance(size := seen["waiting_reply_bytes"], int)
    assert 3000 < size <= 5000
    broker.run_for(8100)
    send_reply(broker)
    connected(broker, RecordingChannel(7))
    send_reply(broker, reply_fields(reply_properties("another")))
    broker.step_down()
    assert figures() == {
        "waiting_replies": 0,
        "waiting_reply_bytes": 0,
        "waited_replies_total": {"no_room": 1, "expired": 1, "requester_came": 1, "stopped_leading": 1},
    }
    broker.close()


@pytest.mark.parametrize(
    ("is_stored", "code"), [(False, ResponseCode.SERVICE_NOT_AVAILABLE), (True, ResponseCode.SYSTEM_ERROR)]
)
def test_repliers_are_sent_to_the_next_leader_when_leading_ends(
    tmp_path: Path, is_stored: bool, code: int
) -> None:
    """Of one that is stored nobody can say that it will not be pushed."""
    broker = OneBroker(tmp_path, "" if is_stored else "storeReplyMessageEnable=false\n")
    opaque = send_reply(broker)
    broker.tick()
    broker.step_down()
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == code
    broker.close()


class TestNextLeader:
    def test_it_pushes_what_waited_at_the_one_before(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path)
        send_reply(broker, reply_fields(f="1", h="5"), b"still wanted")
        broker.tick()
        broker.close()
        again = OneBroker(tmp_path, now_ms=broker.now_ms)
        again.run_until(lambda: len(again.controller.waiting_replies) == 1)
        requester = connected(again, RecordingChannel(7))
        push = take(again, requester)
        assert push.body == b"still wanted"
        header = headers.decode(headers.ReplyMessageRequestHeader, push.ext_fields)
        assert (header.topic, header.flag, header.sys_flag) == (REPLY_TOPIC, 5, 1)
        assert "CORRELATION_ID\x01c1\x02" in (header.properties or "")
        assert len(again.controller.waiting_replies) == 0
        again.close()

    def test_it_leaves_what_nobody_waits_for_any_more(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path)
        send_reply(broker)
        send_reply(broker, reply_fields(reply_properties(ttl="60000", correlation_id="c2")))
        broker.tick()
        broker.close()
        again = OneBroker(tmp_path, now_ms=broker.now_ms + 8000)
        again.run_until(lambda: len(again.controller.waiting_replies) == 1)
        again.run_for(1000)
        requester = connected(again, RecordingChannel(7))
        (push,) = pushes(requester)
        assert "CORRELATION_ID\x01c2\x02" in push.ext_fields["properties"]
        again.run_for(60_000)
        assert len(again.controller.waiting_replies) == 0
        again.close()

    def test_it_leaves_what_has_waited_long_enough(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path)
        send_reply(broker, reply_fields(reply_properties(ttl="86400000")))
        broker.tick()
        broker.close()
        again = OneBroker(tmp_path, now_ms=broker.now_ms + 120_000)
        again.run_for(1000)
        assert pushes(connected(again, RecordingChannel(7))) == []
        again.close()

    def test_it_reads_many_in_parts(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path)
        for number in range(200):
            send_reply(broker, reply_fields(reply_properties(ttl="60000", correlation_id=f"c{number}")))
        broker.tick()
        broker.close()
        again = OneBroker(tmp_path, now_ms=broker.now_ms)
        again.run_until(lambda: len(again.controller.waiting_replies) == 200)
        assert again.controller.due_ms(again.now_ms) != again.now_ms, "there is no more to read"
        again.close()


def test_follower_pushes_to_requesters_that_it_knows_and_refuses_the_others(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    refused = broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_fields(), b"r")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    requester = connected(broker, RecordingChannel(7))
    opaque = send_reply(broker)
    take(broker, requester)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0"), "pushed, not stored"
    broker.close()


def test_topic_of_another_name_is_made_as_by_a_send(broker: OneBroker, requester: RecordingChannel) -> None:
    opaque = send_reply(broker, reply_fields(topic="Other_REPLY_TOPIC"))
    broker.run_until(lambda: len(pushes(requester)) == 1)
    take(broker, requester)
    answer = broker.channel.response_to(opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (reply_fields(topic="no spaces"), ResponseCode.INVALID_PARAMETER),
        (reply_fields(topic="SCHEDULE_TOPIC_XXXX"), ResponseCode.NO_PERMISSION),
        (reply_fields(topic="Unknown", c="NoTemplate"), ResponseCode.TOPIC_NOT_EXIST),
        (reply_fields(e="9"), ResponseCode.INVALID_PARAMETER),
    ],
)
def test_reply_is_checked_as_a_send_is(
    broker: OneBroker, requester: RecordingChannel, fields: dict[str, str], code: int
) -> None:
    assert broker.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"r").code == code
    assert pushes(requester) == []


def test_reply_topic_is_a_system_topic_with_one_queue(broker: OneBroker) -> None:
    config = broker.controller.topics.system_topics[REPLY_TOPIC]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
