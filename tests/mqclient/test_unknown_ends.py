"""Sends of which nobody heard whether they are stored: looked for, sent again, and told as what they are."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from fake_group import FakeGroup

from message.decoder import decode_message
from message.recall_handle import RecallHandle
from mqclient import (
    BrokerResponseError,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    SendError,
    SendResult,
)
from remoting.frame.command import response

QUICK = ProducerConfig(send_timeout_s=20, retry_pause_s=0.001, retry_pause_max_s=0.002, stalled_after_s=0.01)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def test_a_connection_that_ends_before_the_answer_is_tried_again_and_reported_as_maybe_twice() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            group.brokers[0].steps = ["close"]
            result = await producer.send(Message("T", b"x"))
            assert (result.attempts, result.maybe_duplicate) == (2, True)
            stored = [decode_message(record) for records in group.queues.values() for record in records]
            assert [message.uniq_key for message in stored] == [result.msg_id] * 2

    run(story())


async def _send_to_each_queue(producer: Producer) -> None:
    """From then on the producer knows from where on a queue holds what it sends next."""
    await producer.send_batch([Message("T", b"first") for _ in range(4)])


def test_what_is_stored_is_not_sent_again_after_the_leader_has_died() -> None:
    """The leader stores what came and dies before it answers. Its successor has it, and serves a little later."""

    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            await _send_to_each_queue(producer)
            dead, successor = group.brokers[:2]
            dead.steps = ["close"] * 40
            successor.refused_looks = 3
            sends = asyncio.create_task(producer.send_batch([Message("T", b"%d" % i) for i in range(40)]))
            await group.until(lambda: group.records == 44)
            group.lead(successor)
            outcomes = await sends
            assert group.records == 44, "none is stored twice"
            for number, outcome in enumerate(outcomes):
                assert isinstance(outcome, SendResult)
                assert (outcome.attempts, outcome.maybe_duplicate) == (1, False)
                record = group.queues["T", outcome.message_queue.queue_id][outcome.queue_offset]
                assert decode_message(record).body == b"%d" % number
                assert decode_message(record).phy_offset == outcome.phy_offset

    run(story())


def test_sends_that_end_unknown_together_share_the_reading_of_a_queue() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            await _send_to_each_queue(producer)
            dead, successor = group.brokers[:2]
            dead.steps = ["close"] * 200
            sends = [asyncio.create_task(producer.send(Message("T", b"%d" % i))) for i in range(200)]
            await group.until(lambda: group.records == 204)
            group.lead(successor)
            results = await asyncio.gather(*sends)
            assert group.records == 204
            assert {(result.attempts, result.maybe_duplicate) for result in results} == {(1, False)}
            assert len({(result.message_queue, result.queue_offset) for result in results}) == 200
            assert dead.looks + successor.looks < 100

    run(story())


def test_what_is_not_stored_is_sent_again() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            await _send_to_each_queue(producer)
            group.brokers[0].steps = ["close", 1, 0]  # SYSTEM_ERROR stores nothing
            results = [await producer.send(Message("T", body)) for body in (b"kept", b"lost")]
            assert [result.attempts for result in results] == [1, 2]
            assert [result.maybe_duplicate for result in results] == [False, True]
            assert group.records == 6

    run(story())


def test_a_send_that_nobody_can_look_for_is_sent_again_in_time() -> None:
    async def story() -> None:
        config = ProducerConfig(send_timeout_s=0.5, retry_pause_s=0.001)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            await _send_to_each_queue(producer)
            group.brokers[0].refused_looks = 1_000_000
            group.brokers[0].steps = ["close"]
            result = await producer.send(Message("T", b"x"))
            assert (result.attempts, result.maybe_duplicate) == (2, True)

    run(story())


def test_a_queue_that_has_gained_too_much_to_be_read_in_time_keeps_no_send_waiting() -> None:
    async def story() -> None:
        config = ProducerConfig(send_timeout_s=0.5, retry_pause_s=0.001)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            await _send_to_each_queue(producer)
            group.brokers[0].unread_gain = 1_000_000_000_000
            group.brokers[0].steps = ["close"]
            async with asyncio.timeout(20):
                result = await producer.send(Message("T", b"x"))
            assert (result.attempts, result.maybe_duplicate) == (2, True)

    run(story())


def test_the_offset_of_a_delayed_message_is_none_of_its_queue() -> None:
    """It counts in the queue of its level: taken for the queue's own, it would hide what lies there."""

    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            await _send_to_each_queue(producer)
            queue = MessageQueue("T", "G", 0)
            for _ in range(9):
                await producer.send(Message("T", b"later", delay_level=3), queue=queue)
            group.brokers[0].steps = ["close"]
            result = await producer.send(Message("T", b"now"), queue=queue)
            assert (result.attempts, result.maybe_duplicate) == (1, False)
            assert len(group.queues["T", 0]) == 2

    run(story())


def test_an_unknown_end_is_reported_as_unknown_when_retries_are_off() -> None:
    async def story() -> None:
        config = ProducerConfig(retry_times=0)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            group.brokers[0].steps = ["close"]
            with pytest.raises(SendError) as caught:
                await producer.send(Message("T", b"x"))
            assert not caught.value.definite
            assert caught.value.attempts == 1
            assert group.records == 1

    run(story())


def test_gives_up_after_three_unknown_ends() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            group.brokers[0].steps = [1, 1, 1]
            with pytest.raises(SendError, match="outcome unknown after 3 attempts") as caught:
                await producer.send(Message("T", b"x"))
            assert not caught.value.definite
            assert caught.value.code == 1

    run(story())


def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        config = ProducerConfig(retry_times=0)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            monkeypatch.setattr(
                group.brokers[0],
                "send_message",
                lambda _, command: response(command, ext_fields={"queueId": "x"}),
            )
            with pytest.raises(SendError, match="cannot be read") as caught:
                await producer.send(Message("T", b"x"))
            assert (caught.value.definite, caught.value.attempts) == (False, 1)

    run(story())


@pytest.mark.parametrize(("steps", "definite"), [(["close", 16], False), ([16], True)])
def test_a_recall_that_may_have_been_stored_is_told_as_unknown(
    steps: list[int | str], definite: bool
) -> None:
    """The first attempt may have recalled the message, whatever the broker says to the second."""

    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.brokers[0].steps = steps
            with pytest.raises(BrokerResponseError) as caught:
                await producer.recall("T", RecallHandle("T", "G", 1, "id").encode())
            assert caught.value.definite is definite

    run(story())
