"""The pull table, long polling and what wakes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from broker.waiting import waiting_room
from message.decoder import decode_messages
from remoting.bodies.admin_bodies import GroupForbidden
from remoting.bodies.bodies import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

PULL = RequestCode.PULL_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2
SUSPEND = "6"  # sysFlag: may wait, and brings its subscription


def fill(broker: OneBroker, count: int, topic: str = "T", tags: str = "A") -> None:
    for number in range(count):
        answer = broker.ask(SEND, send_fields(topic, 0, f"TAGS\x01{tags}\x02"), b"%d" % number)
        assert answer.code == ResponseCode.SUCCESS


def bodies_of(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_messages(bytes(answer.body))]


def heart_beat(broker: OneBroker, topic: str, sub_version: int = 5, model: str = "CLUSTERING") -> None:
    data = HeartbeatData(
        client_id="c1",
        consumer_data_set=[
            ConsumerData(
                group_name="g",
                message_model=model,
                subscription_data_set=[
                    SubscriptionData(
                        topic=topic, sub_string="A", tags_set=["A"], code_set=[65], sub_version=sub_version
                    )
                ],
            )
        ],
    )
    assert broker.ask(RequestCode.HEART_BEAT, {}, data.encode()).code == ResponseCode.SUCCESS


def hold(
    broker: OneBroker, offset: int, channel: RecordingChannel | None = None, **more: str
) -> RemotingCommand:
    """A pull that waits, and that nothing has answered yet."""
    command = broker.new_request(PULL, pull_fields("T", 0, offset, sysFlag=SUSPEND, **more))
    broker.receive([command], channel)
    broker.settle()
    assert (channel or broker.channel).response_to(command.opaque) is None
    return command


def test_found_messages_come_as_they_lie_in_the_log(broker: OneBroker) -> None:
    fill(broker, 3)
    answer = broker.ask(PULL, pull_fields("T", 0, 1))
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "FOUND"
    assert bodies_of(answer) == [b"1", b"2"]
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


@pytest.mark.parametrize(
    ("queue_id", "offset", "more", "code", "remark", "next_offset"),
    [
        (0, 2, {}, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "2"),
        (0, 5, {}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "2"),
        (0, -1, {}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
        (1, 0, {}, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", "0"),
        (1, 7, {}, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", "0"),
        (0, 0, {"subscription": "B"}, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", "2"),
    ],
)
def test_the_state_of_the_queue_makes_the_answer(
    broker: OneBroker,
    queue_id: int,
    offset: int,
    more: dict[str, str],
    code: int,
    remark: str,
    next_offset: str,
) -> None:
    fill(broker, 2)
    answer = broker.ask(PULL, pull_fields("T", queue_id, offset, **more))
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext_fields["nextBeginOffset"] == next_offset


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "Other"}, ResponseCode.TOPIC_NOT_EXIST, "topic[Other] not exist"),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal, topic:[T]"),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is illegal"),
        (
            {"subscription": "||"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        ),
        (
            {"expressionType": "XPATH", "subscription": "a>1"},
            ResponseCode.SYSTEM_ERROR,
            "filter message by XPATH",
        ),
        (
            {"expressionType": "SQL92", "subscription": "a > 'x'"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed: > compares numbers, and this is a string",
        ),
        ({"sysFlag": "0"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist"),
        ({"consumerGroup": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist"),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR, "queueOffset"),
    ],
)
def test_what_the_table_refuses(broker: OneBroker, more: dict[str, str], code: int, remark: str) -> None:
    fill(broker, 1)
    answer = broker.ask(PULL, pull_fields("T", **more))
    assert answer.code == code
    assert remark in (answer.remark or "")


def test_a_topic_without_read_permission_is_refused(broker: OneBroker) -> None:
    fields = {"topic": "W", "readQueueNums": "1", "writeQueueNums": "1", "perm": "2"}
    more = {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "order": "false"}
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | more).code == ResponseCode.SUCCESS
    answer = broker.ask(PULL, pull_fields("W"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.ext_fields == {"forbiddenType": "3"}


def test_a_group_that_may_not_consume_is_refused(broker: OneBroker) -> None:
    fill(broker, 1)
    body = b'{"groupName":"g","consumeEnable":false}'
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.SUCCESS
    answer = broker.ask(PULL, pull_fields("T"))
    assert (answer.code, answer.ext_fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "2"})


def test_a_group_that_is_forbidden_a_topic_is_refused_until_it_is_allowed(broker: OneBroker) -> None:
    fill(broker, 1)
    heart_beat(broker, "T")
    forbid = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    fields = {"group": "g", "topic": "T"}
    told = broker.ask(forbid, {**fields, "readable": "false"})
    assert GroupForbidden.decode(told.body) == GroupForbidden(group="g", topic="T", readable=False)
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0"))
    assert (answer.code, answer.ext_fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "5"})
    assert GroupForbidden.decode(broker.ask(forbid, fields).body).readable is False
    broker.ask(forbid, {**fields, "readable": "true"})
    assert broker.ask(PULL, pull_fields("T", sysFlag="0")).code == ResponseCode.SUCCESS
    for unknown in ({**fields, "group": "none"}, {**fields, "topic": "none"}):
        assert broker.ask(forbid, {**unknown, "readable": "false"}).code == ResponseCode.INVALID_PARAMETER


def test_a_registered_subscription_filters_by_tag(broker: OneBroker) -> None:
    fill(broker, 1, tags="A")
    fill(broker, 1, tags="B")
    heart_beat(broker, "T")
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0", subVersion="5"))
    assert bodies_of(answer) == [b"0"]
    assert answer.ext_fields["nextBeginOffset"] == "2"


def test_a_pull_that_knows_a_newer_subscription_is_refused(broker: OneBroker) -> None:
    fill(broker, 1)
    heart_beat(broker, "T", sub_version=5)
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0", subVersion="6"))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


def test_a_topic_that_the_group_does_not_subscribe_is_refused(broker: OneBroker) -> None:
    fill(broker, 1)
    heart_beat(broker, "Else")
    answer = broker.ask(PULL, pull_fields("T", sysFlag="0"))
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    assert "subscription not exist" in (answer.remark or "")


def test_the_count_is_limited(broker: OneBroker) -> None:
    fill(broker, 40)
    assert len(bodies_of(broker.ask(PULL, pull_fields("T", maxMsgNums="1000")))) == 32
    assert len(bodies_of(broker.ask(PULL, pull_fields("T", maxMsgNums="5")))) == 5


@pytest.mark.parametrize("count", [0, -1, -(1 << 31)])
def test_a_pull_of_no_message_gets_one_and_skips_none(broker: OneBroker, count: int) -> None:
    fill(broker, 2)
    answer = broker.ask(PULL, pull_fields("T", 0, 0, maxMsgNums=str(count)))
    assert (bodies_of(answer), answer.ext_fields["nextBeginOffset"]) == ([b"0"], "1")


def test_the_size_is_limited_but_the_first_message_always_fits(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "maxTransferBytesOnMessageInMemory=1\n")
    fill(broker, 2)
    assert len(bodies_of(broker.ask(PULL, pull_fields("T")))) == 1
    broker.close()


def test_the_offset_in_a_pull_is_committed(broker: OneBroker) -> None:
    fill(broker, 2)
    broker.ask(PULL, pull_fields("T", sysFlag="5", commitOffset="2"))
    broker.tick()
    broker.tick()
    assert broker.store.tables.consumer_offset_table.query("g", "T", 0) == 2


def test_a_held_pull_is_answered_by_the_next_message(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1)
    fill(broker, 1)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert bodies_of(answer) == [b"0"]
    assert len(broker.controller.waiting_room) == 0


def test_a_client_that_waits_for_several_queues_gets_its_answers_in_one_write(broker: OneBroker) -> None:
    for queue_id in range(3):
        broker.ask(SEND, send_fields("T", queue_id), b"0")
    channel = RecordingChannel(7, "127.0.0.1:50007")
    pulls = [
        broker.new_request(PULL, pull_fields("T", queue_id, 1, sysFlag=SUSPEND)) for queue_id in range(3)
    ]
    broker.receive(pulls, channel)
    broker.settle()
    sends = [broker.new_request(SEND, send_fields("T", queue_id), b"1") for queue_id in range(3)]
    broker.receive(sends)
    broker.settle()
    assert len(channel.writes) == 1
    answers = [channel.response_to(pull.opaque) for pull in pulls]
    assert [bodies_of(answer) for answer in answers if answer is not None] == [[b"1"]] * 3


def test_messages_of_other_queues_do_not_wake_it(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1)
    broker.ask(SEND, send_fields("T", 1), b"x")
    assert broker.channel.response_to(command.opaque) is None


def test_messages_with_other_tags_do_not_wake_it(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1, subscription="B")
    fill(broker, 2, tags="A")
    assert broker.channel.response_to(command.opaque) is None
    fill(broker, 1, tags="B")
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert bodies_of(answer) == [b"0"]
    assert answer.ext_fields["nextBeginOffset"] == "4"


def test_a_held_pull_ends_when_its_time_is_up(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1)
    broker.run_for(900)
    assert broker.channel.response_to(command.opaque) is None
    broker.run_for(200)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND


def test_what_no_tag_matched_is_skipped_when_the_time_is_up(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1, subscription="B")
    fill(broker, 2, tags="A")
    broker.run_for(1100)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext_fields["nextBeginOffset"] == "3"


def test_short_polling_holds_for_a_second_whatever_the_client_asks(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "longPollingEnable=false\nshortPollingTimeMills=200\n")
    fill(broker, 1)
    command = hold(broker, 1, suspendTimeoutMillis="15000")
    broker.run_for(300)
    assert broker.channel.response_to(command.opaque) is not None
    broker.close()


def test_a_change_of_role_wakes_held_pulls_and_refuses_them(broker: OneBroker) -> None:
    fill(broker, 1)
    command = hold(broker, 1)
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY


def test_a_closed_channel_holds_nothing(broker: OneBroker) -> None:
    fill(broker, 1)
    channel = RecordingChannel(7, "127.0.0.1:50007")
    hold(broker, 1, channel)
    kept = hold(broker, 1)
    broker.controller.pipeline.channel_closed(channel)
    assert len(broker.controller.waiting_room) == 1
    fill(broker, 1)
    assert channel.received == []
    assert broker.channel.response_to(kept.opaque) is not None


def test_above_the_limit_a_pull_is_answered_at_once_until_others_have_left(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "WAITING_MAX", 3)
    monkeypatch.setattr(waiting_room, "WAITING_OF_CHANNEL_MAX", 2)
    fill(broker, 1)
    flooding, other, late = (RecordingChannel(number, f"127.0.0.1:5000{number}") for number in (7, 8, 9))
    flood = [broker.new_request(PULL, pull_fields("T", 0, 1, sysFlag=SUSPEND)) for _ in range(3)]
    broker.receive(flood, flooding)
    assert [answer.code for answer in flooding.received] == [ResponseCode.PULL_NOT_FOUND], "two are held"
    hold(broker, 1, other)
    refused = broker.new_request(PULL, pull_fields("T", 0, 1, sysFlag=SUSPEND))
    broker.receive([refused], late)
    answer = late.response_to(refused.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND, "three are held of all"
    broker.controller.pipeline.channel_closed(flooding)
    hold(broker, 1, late)
    fill(broker, 1)
    assert [c.code for channel in (other, late) for c in channel.received[-1:]] == [ResponseCode.SUCCESS] * 2
    assert len(broker.controller.waiting_room) == 0


def test_a_pull_waits_for_two_minutes_at_most_and_only_a_short_one(broker: OneBroker) -> None:
    fill(broker, 1)
    fields = pull_fields("T", 0, 1, sysFlag=SUSPEND, suspendTimeoutMillis="1000000000000000")
    command = broker.new_request(PULL, fields, bytes(1024 * 1024))
    broker.receive([command])
    broker.settle()
    assert (command.body, command.ext_fields) == (b"", {}), "what nobody reads any more is not kept"
    assert broker.channel.response_to(command.opaque) is None
    broker.tick(120_000)
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert broker.ask(PULL, {**fields, "unknown": "x" * 9000}).code == ResponseCode.PULL_NOT_FOUND
    assert len(broker.controller.waiting_room) == 0


def test_a_follower_holds_no_pull_that_it_would_refuse(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    answer = broker.ask(PULL, pull_fields("TBW102", sysFlag=SUSPEND))
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert len(broker.controller.waiting_room) == 0
    broker.close()


def test_a_follower_that_may_serve_reads_does(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "slaveReadEnable=true\n", elect=False)
    answer = broker.ask(PULL, pull_fields("TBW102"))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    broker.close()


def test_a_follower_that_is_behind_moves_no_offset(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "slaveReadEnable=true\n")
    fill(broker, 2)
    broker.step_down()
    answer = broker.ask(PULL, pull_fields("T", 0, 9))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "9")
    broker.store.leader_id = "n1"
    answer = broker.ask(PULL, pull_fields("T", 0, 9))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "9")
    assert answer.ext_fields["suggestWhichBrokerId"] == "0"
    assert broker.ask(PULL, pull_fields("T", 0, 2)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert broker.ask(PULL, pull_fields("T", 0, 0)).code == ResponseCode.SUCCESS
    broker.close()


@pytest.mark.parametrize(("conf", "cold", "hot"), [("slaveReadEnable=true\n", "1", "0"), ("", "0", "0")])
def test_cold_readers_are_sent_to_a_follower_where_followers_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str, cold: str, hot: str
) -> None:
    monkeypatch.setattr("broker.config.component_configs._memory_size", lambda: 1000)
    broker = OneBroker(tmp_path, conf)
    fill(broker, 20)
    answer = broker.ask(PULL, pull_fields("T", 0, 0, maxMsgNums="1"))
    assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, cold)
    answer = broker.ask(PULL, pull_fields("T", 0, 19))
    assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, hot)
    broker.close()


def test_lite_pulls_can_be_switched_off(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "litePullMessageEnable=false\n")
    fill(broker, 1)
    answer = broker.ask(RequestCode.LITE_PULL_MESSAGE, pull_fields("T"))
    assert (answer.code, answer.ext_fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "1"})
    assert broker.ask(PULL, pull_fields("T")).code == ResponseCode.SUCCESS
    broker.close()


def test_pulls_of_one_read_are_answered_in_one_write(broker: OneBroker) -> None:
    fill(broker, 2)
    broker.channel.writes.clear()
    broker.receive(
        [broker.new_request(PULL, pull_fields("T")), broker.new_request(PULL, pull_fields("T", 0, 1))]
    )
    assert len(broker.channel.writes) == 1
    assert [len(bodies_of(answer)) for answer in broker.channel.received[-2:]] == [2, 1]
