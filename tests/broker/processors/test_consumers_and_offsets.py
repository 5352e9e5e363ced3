"""Heartbeats, consumer lists, offsets, locks: what consumers live by."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from one_broker import OneBroker, RecordingChannel, commit_fields, heart_beat, pull_fields, send_fields

from remoting.bodies.bodies import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerData,
)
from remoting.codes import RequestCode, ResponseCode

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def notices(channel: RecordingChannel) -> int:
    return sum(command.code == NOTICE and not command.is_response for command in channel.received)


@pytest.fixture
def second() -> RecordingChannel:
    return RecordingChannel(2, "127.0.0.1:50002")


def test_a_heartbeat_makes_the_group_and_its_retry_topic(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    broker.tick()
    assert broker.store.tables.subscription_group_table.get("g") is not None
    retry = broker.store.tables.topic_config_table.get("%RETRY%g")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


def test_members_are_told_when_one_joins_or_leaves(broker: OneBroker, second: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    assert notices(broker.channel) == 1
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c2"), second)
    assert (notices(broker.channel), notices(second)) == (2, 1)
    body = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).body
    assert GetConsumerListByGroupResponseBody.decode(body).consumer_id_list == ["c1", "c2"]
    broker.controller.pipeline.channel_closed(second)
    assert notices(broker.channel) == 3
    body = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).body
    assert GetConsumerListByGroupResponseBody.decode(body).consumer_id_list == ["c1"]


def test_a_repeated_heartbeat_tells_nobody(broker: OneBroker) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", sub_version=2))
    assert notices(broker.channel) == 1
    assert broker.controller.consumers.subscriptions("g")["T"].sub_version == 2


def test_a_topic_more_or_less_tells_everybody(broker: OneBroker) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", topics=("T", "U")))
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", topics=("U",)))
    assert notices(broker.channel) == 3
    assert list(broker.controller.consumers.subscriptions("g")) == ["U"]


def test_broadcast_groups_are_not_told(broker: OneBroker) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", model="BROADCASTING"))
    assert notices(broker.channel) == 0


def test_a_short_heartbeat_is_enough_once_the_long_one_came(broker: OneBroker) -> None:
    first = broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", fingerprint=7, without_sub=True))
    assert first.ext_fields["IS_SUB_CHANGE"] == "true"  # unknown here: the client sends the long one next
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", fingerprint=7))
    again = broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", fingerprint=7, without_sub=True))
    assert again.ext_fields["IS_SUB_CHANGE"] == "false"
    assert "T" in broker.controller.consumers.subscriptions("g")


def test_unregistering_leaves_group_and_producers(broker: OneBroker) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    fields = {"clientID": "c1", "consumerGroup": "g", "producerGroup": "p"}
    assert broker.ask(RequestCode.UNREGISTER_CLIENT, fields).code == ResponseCode.SUCCESS
    assert broker.controller.consumers.groups == {}
    assert broker.controller.producers.groups == {}
    answer = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no consumer for this group, g")


def test_silent_clients_are_dropped(broker: OneBroker, second: RecordingChannel) -> None:
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    broker.tick(100_000)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c2"), second)
    broker.now_ms += 30_000
    expired = broker.controller.tick(broker.now_ms)
    assert {channel.id for channel in expired} == {broker.channel.id}
    assert broker.controller.consumers.client_ids("g") == ["c2"]
    assert notices(second) == 2


def test_a_body_that_is_no_heartbeat_costs_one_error(broker: OneBroker) -> None:
    assert broker.ask(RequestCode.HEART_BEAT, {}, b"{not json").code == ResponseCode.SYSTEM_ERROR


def test_a_heartbeat_of_too_many_groups_is_refused_whole(broker: OneBroker) -> None:
    producers = [ProducerData(group_name=f"p{number}") for number in range(4096)]
    body = msgspec.structs.replace(
        HeartbeatData.decode(heart_beat("c1")), producer_data_set=producers
    ).encode()
    answer = broker.ask(RequestCode.HEART_BEAT, {}, body)
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "heartbeat of 4097 groups: 4096 are allowed",
    )
    assert broker.controller.producers.groups == {}
    assert broker.controller.consumers.groups == {}


def test_a_body_beyond_the_limit_is_refused_unread(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1").ljust(1024 * 1024 + 1))
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "body of 1048577 bytes: 1048576 are allowed",
    )
    assert (
        broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1").ljust(1024 * 1024)).code
        == ResponseCode.SUCCESS
    )


def test_an_unknown_code_is_told_so(broker: OneBroker) -> None:
    answer = broker.ask(88888)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 88888 not supported",
    )


def query(broker: OneBroker, **more: str) -> tuple[int, str | None]:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", **more}
    answer = broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return answer.code, answer.ext_fields.get("offset")


def test_a_committed_offset_is_read_back_smaller_ones_too(broker: OneBroker) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(7)).code == ResponseCode.SUCCESS
    assert query(broker) == (ResponseCode.SUCCESS, "7")
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(3)).code == ResponseCode.SUCCESS
    assert query(broker) == (ResponseCode.SUCCESS, "3")
    assert broker.store.tables.consumer_offset_table.query("g", "T", 0) == 3


def test_a_client_reads_its_own_oneway_commit_in_the_same_read(broker: OneBroker) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    commit = broker.new_request(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(5), oneway=True)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
    asked = broker.new_request(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    broker.receive([commit, asked])
    broker.settle()
    answer = broker.channel.response_to(asked.opaque)
    assert answer is not None
    assert answer.ext_fields == {"offset": "5"}
    assert broker.channel.response_to(commit.opaque) is None


@pytest.mark.parametrize("set_zero", ["true", "false"])
def test_a_member_that_does_not_serve_tells_nobody_that_there_is_no_offset(
    broker: OneBroker, set_zero: str
) -> None:
    """It may be behind: a consumer that heard so would begin at the queue's end, and skip what is there."""
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1))
    broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"pyDLedgerReadIndexEnable=false")
    broker.step_down()
    assert query(broker) == (ResponseCode.SUCCESS, "1")
    for unknown in ({"queueId": "1"}, {"consumerGroup": "new"}):
        answered = query(broker, **unknown, setZeroIfNotFound=set_zero)
        assert answered == (ResponseCode.SERVICE_NOT_AVAILABLE, None)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "Other"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": ""}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "4096"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": ""}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_commits_that_the_table_refuses(broker: OneBroker, more: dict[str, str], code: int) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1, **more)).code == code
    assert broker.store.tables.consumer_offset_table.offsets == {}


def test_what_is_left_in_a_queue_that_a_topic_no_longer_has_is_committed_still(broker: OneBroker) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", 3), b"x")
    fewer = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fewer |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fewer).code == ResponseCode.SUCCESS
    commit = commit_fields(1, queueId="3")
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == ResponseCode.SUCCESS
    assert broker.store.reads.query_offset("g", "T", 3) == 1


def test_a_group_without_offset_begins_at_zero_where_the_first_message_is_still_hot(
    broker: OneBroker,
) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert query(broker) == (ResponseCode.SUCCESS, "0")
    assert query(broker, setZeroIfNotFound="false") == (ResponseCode.QUERY_NOT_FOUND, None)
    assert query(broker, queueId="1") == (ResponseCode.QUERY_NOT_FOUND, None)


def test_lists_are_answered_by_a_follower_and_commits_refused(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    assert (
        broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).code
        == ResponseCode.SUCCESS
    )
    assert query(broker) == (ResponseCode.SERVICE_NOT_AVAILABLE, None)
    answer = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1, topic="TBW102"))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.close()


def lock(broker: OneBroker, client_id: str, queues: tuple[int, ...] = (0,)) -> list[int]:
    body = LockBatchRequestBody(
        consumer_group="g",
        client_id=client_id,
        mq_set=[MessageQueue(topic="T", broker_name="golden-a", queue_id=queue) for queue in queues],
    )
    answer = broker.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode())
    return [queue.queue_id for queue in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set]


def test_a_queue_has_one_owner_until_it_lets_go_or_a_minute_is_over(broker: OneBroker) -> None:
    assert lock(broker, "c1", (0, 1)) == [0, 1]
    assert lock(broker, "c2", (0, 2)) == [2]
    assert lock(broker, "c1") == [0]
    body = LockBatchRequestBody(
        consumer_group="g",
        client_id="c1",
        mq_set=[MessageQueue(topic="T", broker_name="golden-a", queue_id=0)],
    )
    assert broker.ask(RequestCode.UNLOCK_BATCH_MQ, {}, body.encode()).code == ResponseCode.SUCCESS
    assert lock(broker, "c2", (0, 1)) == [0]
    broker.now_ms += 60_001
    assert lock(broker, "c2", (1,)) == [1]


def test_locks_of_clients_that_went_without_a_word_are_forgotten(broker: OneBroker) -> None:
    assert lock(broker, "c1") == [0]
    broker.run_for(75_000)
    assert not broker.controller.locks.locks


def test_a_member_that_does_not_serve_grants_no_lock(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    body = LockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=[])
    answer = broker.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.close()


def test_the_tables_come_back_after_a_restart(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1))
    broker.close()
    broker = OneBroker(tmp_path)
    assert query(broker) == (ResponseCode.SUCCESS, "1")
    assert broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T")).code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"y").ext_fields["queueOffset"] == "1"
    broker.close()
