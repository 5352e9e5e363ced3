"""Progress and lag of consumers, and who consumes what."""

from __future__ import annotations

import pytest
from one_broker import OneBroker, RecordingChannel, commit_fields, heart_beat, pull_fields, send_fields
from test_send_message import create

from broker.processors.admin.consume_stats_processor import QUEUES_PER_TICK, WALKS_MAX
from remoting.bodies.admin_bodies import (
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
)
from remoting.bodies.bodies import MessageQueue, TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from store.errors import StoreDamagedError

QUEUE = MessageQueue(topic="T", broker_name="golden-a", queue_id=0)


def send(broker: OneBroker, count: int = 1) -> None:
    for _ in range(count):
        answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m")
        assert answer.code == ResponseCode.SUCCESS


def commit(broker: OneBroker, offset: int, group: str = "g") -> None:
    fields = commit_fields(offset, consumerGroup=group)
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS


def stats(broker: OneBroker, **more: str) -> ConsumeStats:
    answer = broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **more})
    assert answer.code == ResponseCode.SUCCESS
    return ConsumeStats.decode(answer.body)


def test_lag_is_told_queue_by_queue(broker: OneBroker) -> None:
    send(broker, 3)
    commit(broker, 2)
    found = stats(broker)
    assert len(found.offset_table) == 4
    assert found.offset_table[QUEUE] == OffsetWrapper(
        broker_offset=3,
        consumer_offset=2,
        pull_offset=2,
        last_timestamp=broker.store.reads.store_timestamp("T", 0, 1),
    )


def test_a_commit_behind_the_end_gives_no_negative_lag(broker: OneBroker) -> None:
    send(broker)
    commit(broker, 99)
    offsets = stats(broker).offset_table[QUEUE]
    assert (offsets.broker_offset, offsets.consumer_offset) == (1, 1)


def test_what_was_pulled_and_not_committed_yet_is_in_flight(broker: OneBroker) -> None:
    send(broker, 3)
    commit(broker, 1)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, 1, maxMsgNums="1"))
    assert stats(broker).offset_table[QUEUE].pull_offset == 2
    answer = broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    assert ConsumeStatsList.decode(answer.body).total_inflight_diff == 1


def test_a_group_without_offsets_has_no_progress_unless_the_topic_is_named(broker: OneBroker) -> None:
    send(broker, 2)
    assert stats(broker).offset_table == {}
    offsets = stats(broker, topic="T").offset_table[QUEUE]
    assert (offsets.broker_offset, offsets.consumer_offset) == (2, 0)


def test_a_topic_that_a_group_online_no_longer_subscribes_is_left_out(broker: OneBroker) -> None:
    send(broker)
    commit(broker, 1)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", topics=("U",)))
    assert stats(broker).offset_table == {}


def test_consumed_messages_give_a_rate(broker: OneBroker) -> None:
    broker.run_for(10_100)
    send(broker, 20)
    commit(broker, 0)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, 0))
    broker.run_for(10_000)
    assert stats(broker).consume_tps == pytest.approx(20 / 10, rel=0.1)
    broker.run_for(80_000)
    assert stats(broker).consume_tps == 0.0


def test_all_groups_of_the_broker_are_told_with_their_sum(broker: OneBroker) -> None:
    send(broker, 3)
    commit(broker, 1)
    commit(broker, 3, "h")
    answer = broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    found = ConsumeStatsList.decode(answer.body)
    assert [list(item) for item in found.consume_stats_list] == [["g"], ["h"]]
    assert found.total_diff == 2
    answer = broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
    assert ConsumeStatsList.decode(answer.body).total_diff == 0


def many_queues(broker: OneBroker, groups: str = "ghi") -> RemotingCommand:
    """A topic with more queues than one tick looks up for two groups, and a request about all of them."""
    create(broker, "T", readQueueNums=str(QUEUES_PER_TICK // 2 + 10))
    send(broker, 3)
    for group in groups:
        commit(broker, 1, group)
    broker.tick()
    return broker.new_request(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})


def test_too_many_queues_for_one_go_are_told_over_several_ticks_and_others_are_answered_meanwhile(
    broker: OneBroker,
) -> None:
    request = many_queues(broker)
    channel = RecordingChannel(2)
    broker.receive([request, request], channel)
    assert not channel.received
    assert stats(broker, topic="T").offset_table[QUEUE].consumer_offset == 1
    broker.tick()
    (answer,) = channel.received
    found = ConsumeStatsList.decode(answer.body)
    assert [list(item) for item in found.consume_stats_list] == [["g"], ["h"], ["i"]]
    assert [
        len(item.offset_table) for groups in found.consume_stats_list for (item,) in groups.values()
    ] == 3 * [QUEUES_PER_TICK // 2 + 10]
    assert found.total_diff == 3 * 2
    broker.run_until(lambda: len(channel.received) == 2, 3)
    assert channel.received[1].body == answer.body


def test_what_is_deleted_while_all_groups_are_told_is_left_out(broker: OneBroker) -> None:
    channel = RecordingChannel(2)
    broker.receive([many_queues(broker, "ghijk")], channel)
    broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "k", "cleanOffset": "true"})
    assert not channel.received
    broker.run_until(lambda: bool(channel.received), 3)
    found = ConsumeStatsList.decode(channel.received[0].body)
    assert found.consume_stats_list[4] == {"k": []}
    assert found.total_diff == 4 * 2


def test_when_the_store_cannot_be_read_any_more_a_walk_over_all_groups_ends_with_that(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = RecordingChannel(2)
    request = many_queues(broker)
    broker.receive([request, request], channel)

    def unreadable(topic: str, queue_id: int, offset: int) -> int:
        raise StoreDamagedError("a unit that points nowhere")

    monkeypatch.setattr(broker.store.reads, "store_timestamp", unreadable)
    broker.tick()
    assert [answer.code for answer in channel.received] == 2 * [ResponseCode.SYSTEM_ERROR]
    assert channel.received[0].remark == "the store cannot be read: a unit that points nowhere"
    monkeypatch.undo()
    assert broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).code == ResponseCode.SUCCESS


def test_walks_over_all_groups_do_not_pile_up_behind_each_other(broker: OneBroker) -> None:
    channel = RecordingChannel(2)
    request = many_queues(broker)
    broker.receive([request] * 1000, channel)
    assert [(answer.code, answer.remark) for answer in channel.received] == (1000 - WALKS_MAX) * [
        (
            ResponseCode.SYSTEM_BUSY,
            f"{WALKS_MAX} answers about all groups are being put together, {WALKS_MAX} are allowed: ask again later",
        )
    ]
    broker.run_until(lambda: len(channel.received) == 1000, 2 * WALKS_MAX)
    assert stats(broker, topic="T").offset_table[QUEUE].consumer_offset == 1
    broker.receive([request], channel)
    broker.run_until(lambda: channel.received[-1].code == ResponseCode.SUCCESS, 3)


def test_nobody_waits_for_what_a_closed_connection_asked(broker: OneBroker) -> None:
    gone, channel = RecordingChannel(2), RecordingChannel(3)
    request = many_queues(broker)
    broker.receive([request, request, request], gone)
    broker.receive([request], channel)
    gone.close()
    broker.tick()
    broker.run_until(lambda: bool(channel.received), 2)


def test_who_consumes_a_topic_and_what_a_group_consumes(broker: OneBroker) -> None:
    send(broker)
    commit(broker, 1)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", group="online"))
    answer = broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
    assert GroupList.decode(answer.body).group_list == ["online", "g"]
    answer = broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
    assert TopicList.decode(answer.body).topic_list == ["T"]


def test_lag_in_time_is_the_age_of_the_first_message_that_waits(broker: OneBroker) -> None:
    send(broker)
    broker.run_for(1000)
    send(broker)
    commit(broker, 1)
    broker.run_for(500)
    ask = RequestCode.QUERY_CONSUME_TIME_SPAN
    spans = QueryConsumeTimeSpanBody.decode(broker.ask(ask, {"group": "g", "topic": "T"}).body)
    span = spans.consume_time_span_set[0]
    first_ms, second_ms = (broker.store.reads.store_timestamp("T", 0, offset) for offset in (0, 1))
    assert (span.min_time_stamp, span.max_time_stamp) == (first_ms, second_ms)
    assert span.consume_time_stamp == first_ms
    assert span.delay_time == broker.now_ms - second_ms
    commit(broker, 2)
    spans = QueryConsumeTimeSpanBody.decode(broker.ask(ask, {"group": "g", "topic": "T"}).body)
    assert spans.consume_time_span_set[0].delay_time == 0
    assert broker.ask(ask, {"group": "g", "topic": "none"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_new_leader_counts_from_zero(broker: OneBroker) -> None:
    send(broker, 2)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, 1), channel=RecordingChannel(3))
    assert broker.controller.stats.pull_offset("g", "T", 0) == 2
    broker.controller.stats.start_serving()
    assert broker.controller.stats.pull_offset("g", "T", 0) == 0
