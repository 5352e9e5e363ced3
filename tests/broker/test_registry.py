"""The table of requests: each row names what it needs, and RocketMQ's access control agrees where it has a rule."""

from __future__ import annotations

import logging

import pytest
from one_broker import OneBroker

from auth.policy import Action
from broker.access.needs import Need, topic, with_names
from broker.registry import BatchRequestType, RequestType
from remoting.codes import RequestCode
from remoting.headers.headers import CommandHeader

# What RocketMQ 5.5's authorization asks for, by code: resources, and the actions of which one is enough.
ROCKETMQ = {
    RequestCode.SEND_MESSAGE: "Topic Pub",
    RequestCode.SEND_MESSAGE_V2: "Topic Pub",
    RequestCode.SEND_BATCH_MESSAGE: "Topic Pub",
    RequestCode.PULL_MESSAGE: "Topic Sub, Group Sub",
    RequestCode.QUERY_MESSAGE: "Topic Get/Sub",
    RequestCode.QUERY_CONSUMER_OFFSET: "Topic Get/Sub, Group Get/Sub",
    RequestCode.UPDATE_CONSUMER_OFFSET: "Topic Sub/Update, Group Sub/Update",
    RequestCode.UPDATE_AND_CREATE_TOPIC: "Topic Create",
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "Topic Create",
    RequestCode.VIEW_MESSAGE_BY_ID: "Topic Get",
    RequestCode.HEART_BEAT: "Topic Sub, Group Sub",
    RequestCode.UNREGISTER_CLIENT: "Group Sub",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "Group Get/Sub",
    RequestCode.LOCK_BATCH_MQ: "Topic Sub, Group Sub",
    RequestCode.UNLOCK_BATCH_MQ: "Topic Sub, Group Sub",
    RequestCode.GET_TOPIC_STATS_INFO: "Topic Get",
    RequestCode.GET_CONSUMER_CONNECTION_LIST: "Group Get",
    RequestCode.GET_PRODUCER_CONNECTION_LIST: "Cluster Get",
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "Group Delete",
    RequestCode.GET_CONSUME_STATS: "Topic Get, Group Get",
    RequestCode.DELETE_TOPIC_IN_BROKER: "Topic Delete",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "Topic Update, Group Update",
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: "Topic Get, Group Get",
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "Topic Get",
    RequestCode.QUERY_CONSUME_TIME_SPAN: "Topic Get, Group Get",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "Group Get",
    RequestCode.CLONE_GROUP_OFFSET: "Topic Update, Group Update",
    RequestCode.VIEW_BROKER_STATS_DATA: "Cluster Get",
    RequestCode.GET_BROKER_CONSUME_STATS: "Cluster Get",
    RequestCode.QUERY_CONSUME_QUEUE: "Topic Get, Group Get",
    RequestCode.GET_ALL_PRODUCER_INFO: "Cluster Get",
    RequestCode.QUERY_TOPICS_BY_CONSUMER: "Group Get",
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: "Topic Get, Group Get",
    RequestCode.GET_TOPIC_CONFIG: "Topic Get",
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "Group Get",
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: "Topic Update, Group Update",
}
# RocketMQ asks for less: nothing, or not for the topic of a message that is named by its offset.
GAPS = {
    RequestCode.UPDATE_BROKER_CONFIG: "Cluster Update",
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "Cluster Update",
    RequestCode.CONSUMER_SEND_MSG_BACK: "Group Sub, Topic Sub",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "Topic Sub, Group Sub, Topic Sub",
    RequestCode.END_TRANSACTION: "Topic Pub",
    RequestCode.BATCH_ACK_MESSAGE: "Topic Sub, Group Sub",
    RequestCode.SEND_REPLY_MESSAGE_V2: "Topic Pub",
}
# RocketMQ asks for Get alone, and its consumers need these where a group has no offset yet.
WIDER = {
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "Topic Get/Sub",
    RequestCode.GET_MAX_OFFSET: "Topic Get/Sub",
    RequestCode.GET_MIN_OFFSET: "Topic Get/Sub",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "Topic Get/Sub",
}
# What is closed beyond pyDLedgerAdminFrom while authorization is off.
ADMINISTRATION = {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.LEADERSHIP_TRANSFER,
    RequestCode.ADD_MEMBER,
    RequestCode.REMOVE_MEMBER,
    RequestCode.SCRUB,
    RequestCode.GET_ENTRIES,
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
    RequestCode.EXPLAIN_ACCESS,
    RequestCode.GET_AUDIT,
    RequestCode.CHECK_ACCESS,
}


def rows(broker: OneBroker) -> dict[int, RequestType | BatchRequestType]:
    pipeline = broker.controller.pipeline
    assert not pipeline.types.keys() & pipeline.batch_types.keys()
    return {**pipeline.types, **pipeline.batch_types}


def shown(needs: tuple[Need, ...]) -> str:
    return ", ".join(
        f"{need.resource} {'/'.join(sorted(action.value for action in need.actions))}" for need in needs
    )


def test_each_request_names_a_resource_and_an_action_or_says_that_it_needs_none(broker: OneBroker) -> None:
    for code, row in rows(broker).items():
        assert row.code == code
        assert row.needs, row.code.name
        for need in row.needs:
            assert bool(need.actions) == (need.resource is not None), row.code.name
    without = {row.code for row in rows(broker).values() if row.needs[0].resource is None}
    assert without == {RequestCode.CHECK_CLIENT_CONFIG}


def test_rows_agree_with_rocketmq_and_close_its_gaps(broker: OneBroker) -> None:
    found = rows(broker)
    wanted = ROCKETMQ | GAPS | WIDER
    assert {code: shown(found[code].needs) for code in wanted} == wanted


def test_what_is_administration_is_known(broker: OneBroker) -> None:
    found = broker.controller.pipeline.types.values()
    assert {row.code for row in found if row.is_administration} == ADMINISTRATION


def test_a_row_without_a_way_to_the_name_of_its_resource_is_refused() -> None:
    with pytest.raises(TypeError, match="CommandHeader names no Topic"):
        with_names([topic(Action.PUB)], CommandHeader, None)


@pytest.mark.parametrize(
    ("code", "fields", "is_noted"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, True),
        (RequestCode.REMOVE_MEMBER, {"memberId": "n3"}, True),
        (RequestCode.LIST_MEMBERS, {}, False),
        (RequestCode.REPAIR_STATUS, {}, False),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "T"}, False),
    ],
)
def test_changes_by_operators_are_noted_and_nothing_else(
    broker: OneBroker,
    caplog: pytest.LogCaptureFixture,
    code: RequestCode,
    fields: dict[str, str],
    is_noted: bool,
) -> None:
    caplog.set_level(logging.INFO)
    broker.ask(code, fields)
    assert any("asked for" in record.getMessage() for record in caplog.records) == is_noted
