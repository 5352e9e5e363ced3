"""Requests of a producer, and replies of a push consumer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from fake_group import FIRST, FakeGroup

import mqclient.sync
from message.decoder import MessageExt
from mqclient import (
    ClientClosedError,
    Message,
    MessageIllegalError,
    MessageQueue,
    Producer,
    PushConsumer,
    RequestTimeoutError,
    SendError,
    SendResult,
    SendStatus,
)
from mqclient.producer.requester import _state_of
from remoting.codes import RequestCode, ResponseCode

LONG_S = 20.0  # nothing here waits for so long


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


Answer = Callable[[PushConsumer, MessageExt], Awaitable[None]]


async def shout(consumer: PushConsumer, message: MessageExt) -> None:
    await consumer.reply(message, message.body.upper())


async def serve(group: FakeGroup, answer: Answer = shout) -> None:
    async with PushConsumer(group.address, "repliers", {"T": "*"}, config=FIRST) as consumer:
        async for message in consumer:
            await answer(consumer, message)
            group.changed()


def with_replier(
    story: Callable[[FakeGroup, Producer], Awaitable[None]], answer: Answer = shout, *, members: int = 3
) -> None:
    async def main() -> None:
        async with FakeGroup(members) as group, Producer(group.address, "requesters") as producer:
            serving = asyncio.create_task(serve(group, answer))
            try:
                await story(group, producer)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    run(main())


def test_a_request_gets_the_reply_of_its_consumer() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        reply = await producer.request(Message("T", b"hello", tags="A"), timeout_s=LONG_S)
        assert reply.body == b"HELLO"
        assert reply.topic == "C_REPLY_TOPIC"
        assert reply.properties["MSG_TYPE"] == "reply"
        assert int(reply.properties["ARRIVE_TIME"]) > 0
        (sent,) = group.brokers[0].sends
        assert "TTL\x0120000\x02" in sent.ext_fields["i"]
        (answered,) = group.brokers[0].replies
        assert answered.ext_fields["a"] == "repliers"
        assert len(reply.properties["UNIQ_KEY"]) == 32

    with_replier(story)


def test_the_brokers_know_the_requester_before_it_sends() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        await producer.request(Message("T", b"one"), timeout_s=LONG_S)
        assert group.brokers[0].producers
        # Followers as well: the one that leads when the reply comes can push it.
        await group.until(lambda: all(broker.producers for broker in group.brokers))
        count = len(group.brokers[0].heartbeats)
        await producer.request(Message("T", b"two"), timeout_s=LONG_S)
        assert len(group.brokers[0].heartbeats) == count, "once for a connection"

    with_replier(story)


def test_the_broker_of_a_topic_that_the_request_makes_knows_the_requester() -> None:
    async def main() -> None:
        async with FakeGroup(topics=("TBW102",)) as group, Producer(group.address) as producer:
            asked = asyncio.create_task(producer.request(Message("New", b"x"), timeout_s=LONG_S))
            await group.until(lambda: group.brokers[0].sends)
            assert group.brokers[0].producers
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    run(main())


def test_requests_wait_beside_each_other() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        asked = [producer.request(Message("T", b"%d" % n + b"x"), timeout_s=LONG_S) for n in range(20)]
        replies = await asyncio.gather(*asked)
        assert [reply.body for reply in replies] == [b"%dX" % n for n in range(20)]

    with_replier(story)


def test_large_bodies_are_compressed_on_both_ways() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        reply = await producer.request(Message("T", b"x" * 100_000), timeout_s=LONG_S)
        assert reply.body == b"X" * 100_000
        assert len(group.brokers[0].replies[0].body) < 10_000

    with_replier(story)


@asynccontextmanager
async def asking(group: FakeGroup, producer: Producer) -> AsyncIterator[asyncio.Task[MessageExt]]:
    """A request that nobody has replied to; at the end nobody waits for the reply any more."""
    asked = asyncio.create_task(producer.request(Message("T", b"x"), timeout_s=LONG_S))
    await group.until(lambda: group.records and group.brokers[0].producers)
    yield asked
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


def test_no_reply_in_time_is_an_error_of_its_own() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            with pytest.raises(RequestTimeoutError, match=r"to topic T within 0.2 s: ") as caught:
                await producer.request(Message("T", b"nobody is here"), timeout_s=0.2)
            assert not caught.value.definite

    run(main())


def test_a_request_without_a_reply_says_what_is_known_of_its_message() -> None:
    async def main() -> None:
        sending: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        assert _state_of(sending) == "whether it is stored is unknown"
        sending.set_result(
            SendResult(SendStatus.SEND_OK, "KEY", "ID", MessageQueue("T", "G", 0), 0, 1, False)
        )
        assert _state_of(sending) == "it is stored as KEY, whether it was worked on is unknown"

    run(main())


def test_a_late_reply_is_dropped_and_taken_all_the_same() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            async with asking(group, producer):
                pass
            async with PushConsumer(group.address, "g", {"T": "*"}, config=FIRST) as consumer:
                batch = await consumer.take()
                assert batch is not None
                await consumer.reply(batch.messages[0], b"too late", timeout_s=LONG_S)
            leader = group.brokers[0]
            await group.until(lambda: leader.answers)
            (answer,) = leader.answers.values()
            assert answer.code == ResponseCode.SUCCESS

    run(main())


def test_a_second_reply_to_a_request_is_dropped() -> None:
    async def twice(consumer: PushConsumer, message: MessageExt) -> None:
        await consumer.reply(message, b"first")
        await consumer.reply(message, b"second")

    async def story(group: FakeGroup, producer: Producer) -> None:
        reply = await producer.request(Message("T", b"x"), timeout_s=LONG_S)
        assert reply.body == b"first"
        await group.until(lambda: len(group.brokers[0].replies) == 2)

    with_replier(story, twice)


def test_a_request_that_is_refused_is_not_waited_for() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            group.brokers[0].steps = [ResponseCode.MESSAGE_ILLEGAL]
            with pytest.raises(SendError, match="told to answer 13") as caught:
                await producer.request(Message("T", b"x"), timeout_s=LONG_S)
            assert caught.value.definite
            with pytest.raises(MessageIllegalError):
                await producer.request(Message("T", b""), timeout_s=LONG_S)

    run(main())


def test_a_request_that_no_broker_takes_says_so() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            group.lead(None)
            with pytest.raises(SendError, match="the group has no leader") as caught:
                await producer.request(Message("T", b"x"), timeout_s=2)
            assert caught.value.definite

    run(main())


def test_a_request_whose_send_ended_unknown_takes_its_reply() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        group.brokers[0].steps = ["late"]
        reply = await producer.request(Message("T", b"x"), timeout_s=LONG_S)
        assert reply.body == b"X"

    with_replier(story)


def test_requests_end_with_their_producer() -> None:
    async def main() -> None:
        async with FakeGroup() as group:
            producer = Producer(group.address)
            with pytest.raises(ClientClosedError):
                await producer.request(Message("T", b"x"))
            await producer.start()
            asked = asyncio.create_task(producer.request(Message("T", b"x"), timeout_s=LONG_S))
            await group.until(lambda: group.brokers[0].sends)
            await producer.close()
            with pytest.raises(ClientClosedError):
                await asked

    run(main())


def test_the_broker_is_greeted_again_when_the_connection_ends_while_a_request_waits() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            leader = group.brokers[0]
            asked = asyncio.create_task(producer.request(Message("T", b"x"), timeout_s=LONG_S))
            await group.until(lambda: leader.sends and leader.producers)
            (channel,) = leader.producers.values()
            channel.abort()
            await group.until(lambda: leader.producers and channel not in leader.producers.values())
            async with PushConsumer(group.address, "g", {"T": "*"}, config=FIRST) as consumer:
                batch = await consumer.take()
                assert batch is not None
                await consumer.reply(batch.messages[0], b"still wanted")
            assert (await asked).body == b"still wanted"

    run(main())


def test_replies_go_to_the_next_leader() -> None:
    async def story(group: FakeGroup, producer: Producer) -> None:
        old, new = group.brokers[:2]
        asked = asyncio.create_task(producer.request(Message("T", b"x"), timeout_s=LONG_S))
        old.reply_steps = [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
        await group.until(lambda: old.replies)
        await group.until(lambda: all(broker.producers for broker in group.brokers))
        group.lead(new)
        assert (await asked).body == b"X"
        assert new.replies

    with_replier(story)


def test_an_outcome_that_is_unknown_to_the_broker_is_no_definite_error() -> None:
    errors: list[SendError] = []

    async def answer(consumer: PushConsumer, message: MessageExt) -> None:
        try:
            await consumer.reply(message, b"r")
        except SendError as error:
            errors.append(error)

    async def story(group: FakeGroup, producer: Producer) -> None:
        group.brokers[0].reply_steps = [ResponseCode.SYSTEM_ERROR]
        async with asking(group, producer):
            await group.until(lambda: errors)
        assert (errors[0].code, errors[0].definite) == (ResponseCode.SYSTEM_ERROR, False)

    with_replier(story, answer)


def test_a_message_that_is_no_request_cannot_be_replied_to() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            await producer.send(Message("T", b"x"))
            async with PushConsumer(group.address, "g", {"T": "*"}, config=FIRST) as consumer:
                batch = await consumer.take()
                assert batch is not None
                with pytest.raises(MessageIllegalError, match=r"is no request: it lacks .*CLUSTER"):
                    await consumer.reply(batch.messages[0], b"r")

    run(main())


def test_what_a_producer_is_not_asked_for_is_refused_and_what_cannot_be_read_is_told() -> None:
    async def main() -> None:
        async with FakeGroup() as group, Producer(group.address) as producer:
            leader = group.brokers[0]
            async with asking(group, producer):
                pass
            leader.channels = leader.producers
            (client_id,) = leader.producers
            answer = await leader.ask(client_id, RequestCode.GET_CONSUMER_RUNNING_INFO, {})
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            answer = await leader.ask(client_id, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {"topic": "T"})
            assert answer.code == ResponseCode.SYSTEM_ERROR

    run(main())


def test_threads_without_an_event_loop_ask_and_reply() -> None:
    started, ended = threading.Event(), threading.Event()
    addresses: list[str] = []

    async def group() -> None:
        async with FakeGroup() as fake:
            addresses.append(fake.address)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(group()))
    thread.start()
    started.wait()
    try:
        consumer: mqclient.sync.PushConsumer

        def listener(message: MessageExt) -> None:
            consumer.reply(message, message.body + b"!")

        consumer = mqclient.sync.PushConsumer(
            addresses[0], "g", {"T": "*"}, listener, thread_count=2, config=replace(FIRST)
        )
        with consumer, mqclient.sync.Producer(addresses[0]) as producer:
            assert producer.request(Message("T", b"hello"), timeout_s=LONG_S).body == b"hello!"
    finally:
        ended.set()
        thread.join()
