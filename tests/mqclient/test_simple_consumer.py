"""The consumer that pops, and brokers that do not do as it likes."""

from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from fake_group import HOST, FakeGroup

from message.encoder import encode_record
from message.pop_handle import PopHandle
from mqclient import SimpleConsumer
from mqclient.answer import Answer
from mqclient.popped_messages import popped_messages
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import request, response


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def test_a_broker_that_holds_as_many_pops_as_it_may_is_not_asked_without_end() -> None:
    async def story() -> None:
        async with FakeGroup() as group, SimpleConsumer(group.address, "g", {"T": "*"}) as consumer:
            leader = group.brokers[0]
            leader.steps = [ResponseCode.POLLING_FULL] * 1000
            assert await consumer.receive(wait_s=0.3) == []
            assert 2 <= len(leader.pops) <= 6

    run(story())


def test_a_pop_waits_by_the_clock_of_the_broker() -> None:
    async def story() -> None:
        async with (
            FakeGroup() as group,
            SimpleConsumer(group.address, "g", {"T": "*"}, now_ms=lambda: 1_000) as consumer,
        ):
            assert await consumer.receive(wait_s=0.05) == []
            assert {pop["bornTime"] for pop in group.brokers[0].pops} == {"0"}

    run(story())


def test_the_next_leader_is_asked_at_once() -> None:
    """Routes are looked at every few seconds only."""

    async def story() -> None:
        async with FakeGroup() as group, SimpleConsumer(group.address, "g", {"T": "*"}) as consumer:
            assert await consumer.receive(wait_s=0) == []
            group.lead(group.brokers[1])
            assert await consumer.receive(wait_s=0.5) == []
            assert group.brokers[1].pops

    run(story())


def test_why_nothing_comes_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a member of the group that does not know pops yet."""

    async def story() -> None:
        async with FakeGroup() as group, SimpleConsumer(group.address, "g", {"T": "*"}) as consumer:
            group.brokers[0].steps = [ResponseCode.SYSTEM_ERROR] * 1000
            assert await consumer.receive(wait_s=0.3) == []

    run(story())
    assert [
        record.getMessage().partition(" reason=")[0]
        for record in caplog.records
        if record.levelname == "WARNING"
    ] == ["pop failed topic=T broker=G"]


def test_a_message_that_lies_in_a_retry_topic_is_one_of_its_own() -> None:
    """Where there was no room for its handle; and where the retry topic itself is subscribed to."""
    record = encode_record(b"%RETRY%g_T", 0, 0, 7, 0, 0, 0, HOST, 0, HOST, 1, 0, b"x", b"")
    fields = {"popTime": "5", "invisibleTime": "9", "reviveQid": "0", "startOffsetInfo": "1 0 6"}
    command = response(request(RequestCode.POP_MESSAGE, {}, opaque=1), ext_fields=fields, body=record)
    answer = Answer("127.0.0.1:1", RequestCode.POP_MESSAGE, command)
    for topic, retry in (("T", "1"), ("%RETRY%g_T", "0")):
        (message,) = popped_messages(answer, topic, "G")
        assert message.topic == topic
        assert message.properties["POP_CK"] == PopHandle(6, 5, 9, 0, retry, "G", 0, 7).encode()
