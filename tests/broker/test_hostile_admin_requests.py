"""Requests of tools with fields missing, of another type, huge, negative or unreadable: one answer each, and the broker
goes on. Nothing that is refused is stored.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import HOSTILE_VALUES, OneBroker, RecordingChannel, heart_beat, send_fields

from remoting.codes import RequestCode, ResponseCode

GROUP, TOPIC = {"group": "g"}, {"topic": "T"}
REQUESTS: dict[int, dict[str, str]] = {
    RequestCode.GET_CONSUMER_CONNECTION_LIST: {"consumerGroup": "g"},
    RequestCode.GET_PRODUCER_CONNECTION_LIST: {"producerGroup": "p"},
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: {**GROUP, **TOPIC},
    RequestCode.GET_CONSUMER_RUNNING_INFO: {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"},
    RequestCode.CONSUME_MESSAGE_DIRECTLY: {"consumerGroup": "g", "clientId": "c1", "msgId": "00" * 16},
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: {**GROUP, **TOPIC},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "g", **TOPIC},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: TOPIC,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: GROUP,
    RequestCode.QUERY_CONSUME_TIME_SPAN: {**GROUP, **TOPIC},
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: {
        **GROUP,
        **TOPIC,
        "queueId": "0",
        "offset": "0",
        "timestamp": "0",
        "isForce": "true",
    },
    RequestCode.CLONE_GROUP_OFFSET: {"srcGroup": "g", "destGroup": "h", **TOPIC, "offline": "true"},
    RequestCode.QUERY_CONSUME_QUEUE: {**TOPIC, "queueId": "0", "index": "0", "count": "1"},
    RequestCode.QUERY_MESSAGE: {
        **TOPIC,
        "key": "k",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": "9999999999999",
    },
    RequestCode.VIEW_MESSAGE_BY_ID: {"offset": "48"},
    RequestCode.GET_TOPIC_STATS_INFO: TOPIC,
    RequestCode.GET_TOPIC_CONFIG: TOPIC,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: GROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: {**GROUP, **TOPIC, "readable": "false"},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "g", "cleanOffset": "false"},
    RequestCode.DELETE_TOPIC_IN_BROKER: TOPIC,
    RequestCode.VIEW_BROKER_STATS_DATA: {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {},
    RequestCode.UPDATE_BROKER_CONFIG: {},
    RequestCode.GET_BROKER_CONFIG: {},
    RequestCode.GET_BROKER_RUNTIME_INFO: {},
    RequestCode.GET_ALL_DELAY_OFFSET: {},
    RequestCode.GET_BROKER_HA_STATUS: {},
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: {},
}
BODIES = (
    b"",
    b"{",
    b"[]",
    b"7",
    b"null",
    b'{"topicConfigList":7}',
    b'{"topicConfigList":[{}]}',
    b"\xff\xfe",
    b"a=\\uzz",
    b'{"groupConfigList":[{"groupName":null,"retryQueueNums":-5}]}',
    b'{"groupConfigList":[7]}',
    b"=" * 5000,
)


@pytest.mark.parametrize("code", REQUESTS)
def test_every_request_is_answered_whatever_it_holds(tmp_path: Path, code: int) -> None:
    broker = OneBroker(tmp_path, "flushDiskType=ASYNC_FLUSH\n")
    client = RecordingChannel(7)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m").code == ResponseCode.SUCCESS
    sound = REQUESTS[code]
    hostile = [{name: value for name, value in sound.items() if name != left_out} for left_out in sound]
    hostile += [{**sound, name: value} for name in sound for value in HOSTILE_VALUES]
    asked = [broker.new_request(code, fields, body) for fields in hostile for body in (b"", b"{")]
    asked += [broker.new_request(code, sound, body) for body in BODIES]
    for command in asked:
        broker.receive([command])
    broker.settle()
    broker.run_for(11_000)
    for command in asked:
        assert broker.channel.response_to(command.opaque) is not None, (
            command.ext_fields,
            bytes(command.body),
        )
    assert set(broker.store.topic_config_table.configs) <= {"T", "%RETRY%g"}
    assert all(
        group.retry_queue_nums >= 0 for group in broker.store.subscription_group_table.configs.values()
    )
    assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("U"), b"m").code == ResponseCode.SUCCESS
    broker.close()
