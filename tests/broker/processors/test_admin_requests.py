"""Queue bounds, single messages, topics and groups by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker, commit_fields, heart_beat, send_fields

from message.decoder import decode_message
from message.message_id import decode_offset_message_id, pack_host
from remoting.bodies.admin_bodies import (
    CreateTopicListRequestBody,
    QueryConsumeQueueResponseBody,
    SubscriptionGroupList,
)
from remoting.bodies.bodies import SubscriptionGroupConfig, TopicList
from remoting.bodies.topic_bodies import TopicConfig, TopicConfigSerializeWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads_fastjson
from remoting.frame.command import RemotingCommand
from store.put_message import PutMessage

QUEUE = {"topic": "T", "queueId": "0"}
CREATE = {
    "topic": "Made",
    "readQueueNums": "3",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "defaultTopic": "TBW102",
    "order": "false",
}


def send(broker: OneBroker, body: bytes = b"x") -> int:
    """The physical offset of a message just stored."""
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), body)
    return decode_offset_message_id(answer.ext_fields["msgId"])[1]


def offset(broker: OneBroker, code: int, **more: str) -> str:
    answer = broker.ask(code, {**QUEUE, **more})
    assert answer.code == ResponseCode.SUCCESS
    return answer.ext_fields["offset"]


def test_bounds_of_a_queue(broker: OneBroker) -> None:
    assert offset(broker, RequestCode.GET_MAX_OFFSET) == "0"
    send(broker)
    send(broker)
    assert offset(broker, RequestCode.GET_MAX_OFFSET) == "2"
    assert offset(broker, RequestCode.GET_MIN_OFFSET) == "0"


def test_offsets_by_time(broker: OneBroker) -> None:
    send(broker)
    first_ms = broker.now_ms
    broker.run_for(1000)
    send(broker)
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert offset(broker, search, timestamp=str(first_ms + 500)) == "1"
    assert offset(broker, search, timestamp=str(first_ms + 500), boundaryType="UPPER") == "0"
    assert offset(broker, search, timestamp="0") == "0"
    assert offset(broker, search, timestamp=str(broker.now_ms + 1)) == "2"


def test_the_earliest_store_time(broker: OneBroker) -> None:
    send(broker)
    stored_ms = broker.store.reads.store_timestamp("T", 0, 0)
    answer = broker.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, QUEUE)
    assert answer.ext_fields == {"timestamp": str(stored_ms)}
    answer = broker.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, {**QUEUE, "queueId": "1"})
    assert answer.ext_fields == {"timestamp": "-1"}


def test_a_message_is_shown_by_its_physical_offset(broker: OneBroker) -> None:
    phy_offset = send(broker, b"look at me")
    answer = broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(phy_offset)})
    assert decode_message(bytes(answer.body)).body == b"look at me"
    answer = broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(phy_offset + 1)})
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {phy_offset + 1}",
    )


def test_a_topic_is_made_changed_shown_and_deleted(broker: OneBroker) -> None:
    create = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert broker.ask(create, CREATE).code == ResponseCode.SUCCESS
    assert (
        broker.ask(create, {**CREATE, "perm": "4", "attributes": "+message.type=FIFO"}).code
        == ResponseCode.SUCCESS
    )
    shown = loads_fastjson(bytes(broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"}).body))
    assert shown == {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 4,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Made",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert broker.ask(create, {**CREATE, "attributes": "-message.type"}).code == ResponseCode.SUCCESS
    made = broker.store.tables.topic_config_table.get("Made")
    assert made is not None
    assert made.attributes == {}
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Made"}).code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "Made"}).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ({"topic": "golden-a"}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ({"topic": "rmq_sys_x"}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ({"topic": "a*b"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"attributes": "+nope=1"}, ResponseCode.SYSTEM_ERROR, "unsupported key: nope"),
        ({"attributes": "message.type"}, ResponseCode.SYSTEM_ERROR, "unsupported key"),
        ({"attributes": "+message.type"}, ResponseCode.SYSTEM_ERROR, "neither +key=value nor -key"),
        ({"readQueueNums": "many"}, ResponseCode.SYSTEM_ERROR, "readQueueNums"),
        (
            {"readQueueNums": "2147483647"},
            ResponseCode.INVALID_PARAMETER,
            "readQueueNums 2147483647: 0 to 4096",
        ),
        ({"writeQueueNums": "-1"}, ResponseCode.INVALID_PARAMETER, "writeQueueNums -1: 0 to 4096"),
    ],
)
def test_topics_that_cannot_be_made(broker: OneBroker, more: dict[str, str], code: int, remark: str) -> None:
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, **more})
    assert answer.code == code
    assert remark in (answer.remark or "")


@pytest.mark.parametrize("topic", ["TBW102", ""])
def test_topics_that_cannot_be_deleted(broker: OneBroker, topic: str) -> None:
    answer = broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_all_topics_are_listed_with_the_brokers_own(broker: OneBroker) -> None:
    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigSerializeWrapper.decode(answer.body)
    assert {"Made", "TBW102", "GoldenCluster", "golden-a"} <= table.topic_config_table.keys()
    assert answer.ext_fields == {"totalTopicNum": str(len(table.topic_config_table))}
    assert table.data_version.state_version == 1


def test_statistics_of_a_topics_queues(broker: OneBroker) -> None:
    send(broker)
    stats = loads_fastjson(bytes(broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}).body))
    assert isinstance(stats, dict)
    queue = (("brokerName", "golden-a"), ("queueId", 0), ("topic", "T"))
    assert len(stats["offsetTable"]) == 4
    assert stats["offsetTable"][queue]["maxOffset"] == 1
    assert stats["offsetTable"][queue]["lastUpdateTimestamp"] == broker.store.reads.store_timestamp("T", 0, 0)


def test_a_group_is_made_shown_listed_and_deleted(broker: OneBroker) -> None:
    body = SubscriptionGroupConfig(group_name="g", retry_max_times=3).encode()
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.SUCCESS
    shown = SubscriptionGroupConfig.decode(
        broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"}).body
    )
    assert (shown.group_name, shown.retry_max_times, shown.consume_timeout_minute) == ("g", 3, 15)
    listed = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert listed.ext_fields == {"totalGroupNum": "1"}
    delete = {"groupName": "g", "cleanOffset": "true"}
    assert broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete).code == ResponseCode.SUCCESS
    assert broker.store.tables.subscription_group_table.get("g") is None


def test_a_group_with_a_bad_name_is_refused(broker: OneBroker) -> None:
    body = SubscriptionGroupConfig(group_name="a b").encode()
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_a_group_whose_retry_topic_would_be_too_wide_is_refused(broker: OneBroker) -> None:
    body = SubscriptionGroupConfig(group_name="g", retry_queue_nums=4097).encode()
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "retryQueueNums 4097: 0 to 4096 are allowed",
    )


def test_topics_are_made_in_a_list_all_or_none(broker: OneBroker) -> None:
    make = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    one, two = TopicConfig(topic_name="L1", read_queue_nums=2), TopicConfig(topic_name="L2", perm=4)
    bad = TopicConfig(topic_name="a*b")
    answer = broker.ask(make, {}, CreateTopicListRequestBody(topic_config_list=[one, bad]).encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "topic a*b: " in (answer.remark or "")
    assert broker.store.tables.topic_config_table.get("L1") is None
    answer = broker.ask(make, {}, CreateTopicListRequestBody(topic_config_list=[one, two]).encode())
    assert answer.code == ResponseCode.SUCCESS
    made = [broker.store.tables.topic_config_table.get(name) for name in ("L1", "L2")]
    assert [(topic.read_queue_nums, topic.perm) for topic in made if topic] == [(2, 6), (16, 4)]
    assert broker.ask(make, {}, b"{}").code == ResponseCode.SUCCESS


def test_attributes_of_topics_in_a_list_are_signed_and_known_as_those_of_one_topic_are(
    broker: OneBroker,
) -> None:
    def make(attributes: dict[str, str]) -> RemotingCommand:
        topics = [TopicConfig(topic_name="L1"), TopicConfig(topic_name="L2", attributes=attributes)]
        body = CreateTopicListRequestBody(topic_config_list=topics).encode()
        return broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)

    for refused in ({"message.type": "NORMAL"}, {"+nope": "1"}, {"+message.type": ""}, {"": "x"}):
        answer = make(refused)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topic L2: " in (answer.remark or "")
    assert broker.store.tables.topic_config_table.configs == {}
    assert make({"+message.type": "FIFO"}).code == ResponseCode.SUCCESS
    made = broker.store.tables.topic_config_table.get("L2")
    assert made is not None
    assert made.attributes == {"message.type": "FIFO"}


def test_groups_are_made_in_a_list_all_or_none(broker: OneBroker) -> None:
    make = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    one, bad = SubscriptionGroupConfig(group_name="g1"), SubscriptionGroupConfig(group_name="a b")
    answer = broker.ask(make, {}, SubscriptionGroupList(group_config_list=[one, bad]).encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    answer = broker.ask(make, {}, SubscriptionGroupList(group_config_list=[one]).encode())
    assert answer.code == ResponseCode.SUCCESS
    assert list(broker.store.tables.subscription_group_table.configs) == ["g1"]


def test_system_topics_of_the_broker_are_listed(broker: OneBroker) -> None:
    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    listed = TopicList.decode(broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    assert {"TBW102", "GoldenCluster", "SCHEDULE_TOPIC_XXXX"} <= set(listed)
    assert "Made" not in listed


def test_units_of_a_consume_queue_are_shown(broker: OneBroker) -> None:
    phy_offset = send(broker)
    send(broker)
    fields = {"topic": "T", "queueId": "0", "index": "0", "count": "1"}
    ask = RequestCode.QUERY_CONSUME_QUEUE
    shown = QueryConsumeQueueResponseBody.decode(broker.ask(ask, fields).body)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 2)
    assert [unit.physic_offset for unit in shown.queue_data] == [phy_offset]
    shown = QueryConsumeQueueResponseBody.decode(broker.ask(ask, {**fields, "index": "9"}).body)
    assert shown.queue_data == []
    answer = broker.ask(ask, {**fields, "queueId": "7"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "7@T is not exist!")
    fields["consumerGroup"] = "g"
    shown = QueryConsumeQueueResponseBody.decode(broker.ask(ask, fields).body)
    assert (shown.filter_data, shown.subscription_data) == ("g@T is not online!", None)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"))
    shown = QueryConsumeQueueResponseBody.decode(broker.ask(ask, fields).body)
    assert (shown.filter_data, [unit.eval for unit in shown.queue_data]) == (None, [True])
    assert shown.subscription_data is not None
    assert shown.subscription_data.sub_string == "*"


def test_changes_are_refused_by_a_member_that_does_not_serve(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "nothing was changed" in (answer.remark or "")
    broker.close()


def test_a_member_that_does_not_serve_cannot_say_that_a_topic_is_as_wanted_already(broker: OneBroker) -> None:
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE).code == ResponseCode.SUCCESS
    broker.step_down()
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_change_under_way_when_the_member_steps_down_has_an_unknown_outcome(broker: OneBroker) -> None:
    assert (
        broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": "T"}).code == ResponseCode.SUCCESS
    )
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(0))  # which makes the group
    command = broker.new_request(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(0))
    broker.receive([command])
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "outcome unknown" in (answer.remark or "")


def test_a_change_that_was_not_noted_yet_is_surely_not_made(broker: OneBroker) -> None:
    command = broker.new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
    broker.receive([command])
    broker.step_down()
    answer = broker.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "nothing was changed" in (answer.remark or "")


def test_expired_files_are_deleted_by_hand(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(broker.store.retention.log, "delete_expired", lambda: asked.append(True))
    assert broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, {}).code == ResponseCode.SUCCESS
    assert asked == [True]


def put_without_topic(broker: OneBroker, topic: str) -> None:
    """As a topic may have been deleted by a version that left its queues."""
    message = PutMessage(topic.encode(), 0, b"m", b"", 0, broker.now_ms, pack_host("127.0.0.1:1"))
    broker.put(message)
    broker.run_until(lambda: broker.store.reads.max_offset(topic, 0) == 1)


def test_the_queue_files_of_topics_that_are_not_there_go_by_hand_and_those_of_others_stay(
    broker: OneBroker, tmp_path: Path
) -> None:
    def files() -> set[str]:
        return {path.parent.parent.name for path in tmp_path.glob("consumequeue/*/*/*")}

    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "Kept"})
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Kept"), b"m").code == ResponseCode.SUCCESS
    put_without_topic(broker, "Gone")
    for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC):
        broker.run_for(70_000)
        assert files() == {"Gone", "Kept"}
        assert broker.ask(code).code == ResponseCode.SUCCESS
    broker.run_until(lambda: files() == {"Kept"}, 2_000)
    broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE | {"topic": "Gone"})
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("Gone"), b"m").ext_fields["queueOffset"] == "1"
    assert (broker.store.reads.min_offset("Gone", 0), broker.store.reads.max_offset("Gone", 0)) == (1, 2)


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_member_that_does_not_know_all_topics_yet_lets_no_queue_go_as_unused(
    broker: OneBroker, is_asked_before: bool
) -> None:
    """As one whose log begins behind the first entry, until a full state comes."""
    put_without_topic(broker, "T")
    clean = broker.new_request(RequestCode.CLEAN_UNUSED_TOPIC, {})
    if is_asked_before:
        broker.receive([clean])
    broker.store.java_term_began(broker.store.reads.applied_index)
    if not is_asked_before:
        broker.receive([clean])
    broker.run_for(2_000)
    assert (broker.store.reads.min_offset("T", 0), broker.store.reads.max_offset("T", 0)) == (0, 1)
    answer = broker.channel.response_to(clean.opaque)
    assert answer is not None
    expected = ResponseCode.SUCCESS if is_asked_before else ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.code == expected, answer.remark
