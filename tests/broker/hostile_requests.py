"""A sound request of each code that a broker serves; the tests spoil them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from one_broker import commit_fields, heart_beat, pull_fields, send_fields

from message.batch import BatchMessage, encode_batch
from remoting.codes import RequestCode, ResponseCode

GROUP, TOPIC = {"group": "g"}, {"topic": "T"}
QUEUE = {**TOPIC, "queueId": "0"}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


TOPIC_CONFIG = {
    "topicName": "Made",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
    "attributes": {"+message.type": "NORMAL"},
}
GROUP_CONFIG = {
    "groupName": "made",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "consumeMessageOrderly": False,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
    "groupSysFlag": 0,
    "consumeTimeoutMinute": 15,
    "subscriptionDataSet": [],
    "attributes": {},
}
LOCKS = {
    "consumerGroup": "g",
    "clientId": "c1",
    "mqSet": [{"topic": "T", "brokerName": "golden-a", "queueId": 0}],
    "onlyThisBroker": False,
}
LONG_SEND = {
    "producerGroup": "p",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1795166744856",
    "flag": "0",
    "properties": "KEYS\x01k\x02TAGS\x01A\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
    "maxReconsumeTimes": "16",
}
NEEDS = [{"resource": "Topic:T", "actions": ["Pub"]}]
USERNAME, SUBJECT = {"username": "made"}, {"subject": "User:made"}
ACL = {
    "subject": "User:made",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {
                    "resource": "Topic:T",
                    "actions": ["Pub"],
                    "sourceIps": ["10.0.0.0/8"],
                    "decision": "Allow",
                }
            ],
        }
    ],
}
HANDLE = "0 1800000000000 60000 0 0 golden-a 0 0"
BATCH_ACK = {"b": "AQ==", "c": "pop", "it": 60000, "pt": 1, "q": 0, "r": "0", "rq": 0, "so": 0, "t": "T"}


@dataclass(frozen=True)
class Sound:
    """`code`: what the broker answers to it."""

    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    code: int = ResponseCode.SUCCESS


BATCH = encode_batch([BatchMessage(0, b"one", b"TAGS\x01A\x02"), BatchMessage(0, b"two", b"KEYS\x01k\x02")])


def sound_requests(message_id: str = "00" * 16) -> dict[int, Sound]:
    """By code. `message_id`: of a message of topic T."""
    phy_offset = str(int(message_id[-16:], 16))
    return {
        RequestCode.SEND_MESSAGE: Sound(LONG_SEND, b"m"),
        RequestCode.SEND_MESSAGE_V2: Sound(send_fields("T", l="16", n="golden-a"), b"m"),
        RequestCode.SEND_BATCH_MESSAGE: Sound(send_fields("T", m="true"), BATCH),
        RequestCode.SEND_REPLY_MESSAGE: Sound(LONG_SEND, b"m", code=ResponseCode.SYSTEM_ERROR),
        RequestCode.SEND_REPLY_MESSAGE_V2: Sound(
            send_fields("T", l="16", n="golden-a"), b"m", code=ResponseCode.SYSTEM_ERROR
        ),
        RequestCode.PULL_MESSAGE: Sound(pull_fields("T")),
        RequestCode.LITE_PULL_MESSAGE: Sound(
            pull_fields("T", 1, sysFlag="7", commitOffset="1"), code=ResponseCode.PULL_NOT_FOUND
        ),
        RequestCode.QUERY_MESSAGE: Sound(
            {**TOPIC, "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9999999999999"},
        ),
        RequestCode.QUERY_CONSUMER_OFFSET: Sound(
            {"consumerGroup": "g", **QUEUE, "setZeroIfNotFound": "true"}
        ),
        RequestCode.UPDATE_CONSUMER_OFFSET: Sound(commit_fields(1)),
        RequestCode.UPDATE_AND_CREATE_TOPIC: Sound(
            {
                "topic": "Made",
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "4",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "+message.type=NORMAL",
                "force": "false",
            }
        ),
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Sound(body=as_json({"topicConfigList": [TOPIC_CONFIG]})),
        RequestCode.GET_ALL_TOPIC_CONFIG: Sound({"topicSeq": "0", "maxTopicNum": "100"}),
        RequestCode.UPDATE_BROKER_CONFIG: Sound(body=b"shortPollingTimeMills=900\n"),
        RequestCode.GET_BROKER_CONFIG: Sound(),
        RequestCode.GET_BROKER_RUNTIME_INFO: Sound(),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Sound({**QUEUE, "timestamp": "0", "boundaryType": "LOWER"}),
        RequestCode.GET_MAX_OFFSET: Sound({**QUEUE, "committed": "true"}),
        RequestCode.GET_MIN_OFFSET: Sound(QUEUE),
        RequestCode.GET_EARLIEST_MSG_STORETIME: Sound(QUEUE),
        RequestCode.VIEW_MESSAGE_BY_ID: Sound({"offset": phy_offset}),
        RequestCode.GET_TIMER_CHECK_POINT: Sound(),
        RequestCode.GET_TIMER_METRICS: Sound(),
        RequestCode.GET_TIMER_STATE: Sound({"offset": phy_offset}, code=ResponseCode.QUERY_NOT_FOUND),
        RequestCode.RECALL_MESSAGE: Sound(
            {**TOPIC, "producerGroup": "p", "recallHandle": "djE="}, code=ResponseCode.ILLEGAL_OPERATION
        ),
        RequestCode.HEART_BEAT: Sound(body=heart_beat("c1", fingerprint=7)),
        RequestCode.UNREGISTER_CLIENT: Sound({"clientID": "c1", "producerGroup": "p", "consumerGroup": "g"}),
        RequestCode.CONSUMER_SEND_MSG_BACK: Sound(
            {
                **GROUP,
                "offset": phy_offset,
                "delayLevel": "0",
                "originMsgId": message_id,
                "originTopic": "T",
                "unitMode": "false",
                "maxReconsumeTimes": "16",
            },
        ),
        RequestCode.END_TRANSACTION: Sound(
            {
                **TOPIC,
                "producerGroup": "p",
                "tranStateTableOffset": "0",
                "commitLogOffset": phy_offset,
                "commitOrRollback": "8",
                "fromTransactionCheck": "false",
                "msgId": "id",
                "transactionId": "id",
            },
            code=ResponseCode.SYSTEM_ERROR,
        ),
        RequestCode.RESUME_CHECK_HALF_MESSAGE: Sound(
            {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "msgId": message_id}, code=ResponseCode.SYSTEM_ERROR
        ),
        RequestCode.GET_PENDING_TRANSACTIONS: Sound(),
        RequestCode.GET_POPPED_MESSAGES: Sound(),
        RequestCode.GET_TRANSACTION_STATE: Sound({"offset": phy_offset}, code=ResponseCode.QUERY_NOT_FOUND),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: Sound({"consumerGroup": "g"}),
        RequestCode.LOCK_BATCH_MQ: Sound(body=as_json(LOCKS)),
        RequestCode.UNLOCK_BATCH_MQ: Sound(body=as_json(LOCKS)),
        RequestCode.GET_ALL_DELAY_OFFSET: Sound(),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Sound(),
        RequestCode.CLEAN_UNUSED_TOPIC: Sound(),
        RequestCode.CHECK_CLIENT_CONFIG: Sound(
            body=as_json(
                {
                    "clientId": "c1",
                    "group": "g",
                    "namespace": "",
                    "subscriptionData": {
                        "topic": "T",
                        "subString": "*",
                        "expressionType": "TAG",
                        "tagsSet": [],
                        "codeSet": [],
                        "subVersion": 1,
                    },
                }
            )
        ),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Sound(body=as_json(GROUP_CONFIG)),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Sound(
            body=as_json({"groupConfigList": [GROUP_CONFIG]})
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Sound(),
        RequestCode.GET_TOPIC_STATS_INFO: Sound(TOPIC),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: Sound({"consumerGroup": "g"}),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: Sound({"producerGroup": "p"}),
        RequestCode.GET_ALL_PRODUCER_INFO: Sound(),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: Sound({"groupName": "g", "cleanOffset": "true"}),
        RequestCode.GET_CONSUME_STATS: Sound({"consumerGroup": "g", **TOPIC}),
        RequestCode.DELETE_TOPIC_IN_BROKER: Sound(TOPIC),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Sound(
            {**GROUP, **QUEUE, "offset": "0", "timestamp": "0", "isForce": "true"}
        ),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Sound({**GROUP, **TOPIC, "clientAddr": "c1"}),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Sound(TOPIC),
        RequestCode.QUERY_CONSUME_TIME_SPAN: Sound({**GROUP, **TOPIC}),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Sound(),
        RequestCode.GET_CONSUMER_RUNNING_INFO: Sound(
            {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"},
            code=ResponseCode.CONSUME_MSG_TIMEOUT,
        ),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: Sound(
            {"consumerGroup": "g", "clientId": "c1", "msgId": message_id, **TOPIC},
            code=ResponseCode.CONSUME_MSG_TIMEOUT,
        ),
        RequestCode.CLONE_GROUP_OFFSET: Sound(
            {"srcGroup": "g", "destGroup": "made", **TOPIC, "offline": "true"}
        ),
        RequestCode.VIEW_BROKER_STATS_DATA: Sound(
            {"statsName": "BROKER_PUT_NUMS", "statsKey": "GoldenCluster"}
        ),
        RequestCode.GET_BROKER_CONSUME_STATS: Sound({"isOrder": "false"}),
        RequestCode.QUERY_CONSUME_QUEUE: Sound({**QUEUE, "index": "0", "count": "1", "consumerGroup": "g"}),
        RequestCode.DELETE_EXPIRED_COMMITLOG: Sound(),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: Sound(GROUP),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Sound({**GROUP, **TOPIC}),
        RequestCode.GET_TOPIC_CONFIG: Sound(TOPIC),
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Sound(GROUP),
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: Sound({**GROUP, **TOPIC, "readable": "false"}),
        RequestCode.GET_BROKER_HA_STATUS: Sound(),
        RequestCode.POP_MESSAGE: Sound(
            {
                **QUEUE,
                "consumerGroup": "pop",
                "maxMsgNums": "1",
                "invisibleTime": "60000",
                "pollTime": "0",
                "bornTime": "0",
                "initMode": "0",
                "expType": "TAG",
                "exp": "*",
                "order": "false",
            },
        ),
        RequestCode.ACK_MESSAGE: Sound(
            {**QUEUE, "consumerGroup": "pop", "offset": "0", "extraInfo": HANDLE},
        ),
        RequestCode.BATCH_ACK_MESSAGE: Sound(body=as_json({"brokerName": "golden-a", "acks": [BATCH_ACK]})),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Sound(
            {
                **QUEUE,
                "consumerGroup": "pop",
                "offset": "0",
                "extraInfo": HANDLE,
                "invisibleTime": "1000",
                "suspend": "false",
            },
            code=ResponseCode.NO_MESSAGE,
        ),
        RequestCode.PEEK_MESSAGE: Sound({**QUEUE, "consumerGroup": "pop", "maxMsgNums": "8"}),
        RequestCode.NOTIFICATION: Sound(
            {**QUEUE, "consumerGroup": "pop", "pollTime": "0", "bornTime": "0", "order": "false"}
        ),
        RequestCode.POLLING_INFO: Sound({**QUEUE, "consumerGroup": "pop"}),
        RequestCode.QUERY_ASSIGNMENT: Sound(
            body=as_json(
                {
                    "clientId": "c1",
                    "consumerGroup": "g",
                    "messageModel": "CLUSTERING",
                    "strategyName": "AVG",
                    "topic": "T",
                }
            )
        ),
        RequestCode.SET_MESSAGE_REQUEST_MODE: Sound(
            body=as_json({"consumerGroup": "g", "mode": "POP", "popShareQueueNum": -1, "topic": "T"})
        ),
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Sound(),
        # In a group of one there is nobody else.
        RequestCode.LEADERSHIP_TRANSFER: Sound({"transfereeId": "n1"}, code=ResponseCode.INVALID_PARAMETER),
        RequestCode.SCRUB: Sound({"begin": "true"}),
        RequestCode.REPAIR_STATUS: Sound(),
        RequestCode.GET_ENTRIES: Sound({"beginIndex": "0", "maxBytes": "1000"}),
        RequestCode.GET_ENTRY_HEAD: Sound({"index": "0"}),
        RequestCode.LIST_MEMBERS: Sound(),
        RequestCode.ADD_MEMBER: Sound(
            {"memberId": "n0", "address": "127.0.0.1:1"}, code=ResponseCode.INVALID_PARAMETER
        ),
        RequestCode.AUTH_CREATE_USER: Sound(
            USERNAME,
            as_json({"username": "made", "password": "p", "userType": "Normal", "userStatus": "enable"}),
        ),
        RequestCode.AUTH_UPDATE_USER: Sound(
            USERNAME, as_json({"username": "made", "userStatus": "disable"}), code=ResponseCode.NO_PERMISSION
        ),
        RequestCode.AUTH_DELETE_USER: Sound(USERNAME),
        RequestCode.AUTH_GET_USER: Sound(USERNAME),
        RequestCode.AUTH_LIST_USER: Sound({"filter": "a"}),
        RequestCode.AUTH_CREATE_ACL: Sound(SUBJECT, as_json(ACL), code=ResponseCode.NO_PERMISSION),
        RequestCode.AUTH_UPDATE_ACL: Sound(SUBJECT, as_json(ACL), code=ResponseCode.NO_PERMISSION),
        RequestCode.AUTH_DELETE_ACL: Sound(
            {**SUBJECT, "policyType": "Custom", "resource": "Topic:T"}, code=ResponseCode.NO_PERMISSION
        ),
        RequestCode.AUTH_GET_ACL: Sound(SUBJECT, code=ResponseCode.NO_PERMISSION),
        RequestCode.AUTH_LIST_ACL: Sound({"subjectFilter": "u", "resourceFilter": "T"}),
        RequestCode.EXPLAIN_ACCESS: Sound(
            {**USERNAME, "requestCode": "310", "resource": "Topic:T", "sourceIp": "10.0.0.1"}
        ),
        RequestCode.GET_AUDIT: Sound({"sinceMs": "0"}),
        RequestCode.CHECK_ACCESS: Sound(
            {},
            as_json(
                {"username": "u", "content": "c", "signature": "s", "sourceIp": "10.0.0.1", "needs": NEEDS}
            ),
        ),
        RequestCode.REMOVE_MEMBER: Sound({"memberId": "n0"}, code=ResponseCode.INVALID_PARAMETER),
    }
