import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from fake_group import FIRST, FakeGroup

from message.decoder import MessageExt
from message.sys_flag import PULL_SUBSCRIPTION
from mqclient import (
    ClientClosedError,
    CommitError,
    LitePullConsumer,
    Message,
    MessageQueue,
    OffsetIllegalError,
    Producer,
    PushConsumer,
    QueueNotAssignedError,
)
from remoting.codes import RequestCode

QUEUES = [MessageQueue("T", "G", i) for i in range(4)]
ONE = QUEUES[0]


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def member(
    group: FakeGroup, subscriptions: Mapping[str, str] | None = None, **options: Any
) -> LitePullConsumer:
    options = {"config": FIRST, "on_assignment": group.changed} | options
    return LitePullConsumer(group.address, "g", subscriptions, **options)


async def send(group: FakeGroup, bodies: str, queue: MessageQueue | None = None, tags: str = "") -> None:
    """A message for each character."""
    async with Producer(group.address, "p") as producer:
        await producer.send_batch([Message("T", body.encode(), tags=tags) for body in bodies], queue=queue)


def bodies(messages: Sequence[MessageExt]) -> str:
    return b"".join(message.body for message in messages).decode()


async def read(consumer: LitePullConsumer, count: int) -> str:
    messages: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(messages) < count:
            messages += await consumer.poll(20)
    return bodies(messages)


# Subscribing


def test_polls_return_what_the_queues_of_this_member_hold() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}) as consumer:
            await send(group, "abcdefgh")
            assert sorted(await read(consumer, 8)) == list("abcdefgh")
            assert consumer.assignment == QUEUES

    run(story())


def test_members_that_poll_and_members_that_are_handed_messages_share_the_queues() -> None:
    async def story() -> None:
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}) as one,
            PushConsumer(group.address, "g", {"T": "*"}, config=FIRST, on_assignment=group.changed) as two,
        ):
            await group.until(lambda: len(one.assignment) == 2 and len(two.queues) == 2)
            assert sorted(one.assignment + two.queues) == QUEUES

    run(story())


def test_it_registers_and_pulls_as_javas_does() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}):
            await group.until(lambda: len(group.brokers[0].held) == 4)
            (data,) = group.brokers[0].heartbeats[0].consumer_data_set
            assert data.consume_type == "CONSUME_ACTIVELY"
            assert [subscription.topic for subscription in data.subscription_data_set] == ["T"]
            for _, command in group.brokers[0].held:
                assert command.code == RequestCode.LITE_PULL_MESSAGE
                assert int(command.ext_fields["sysFlag"]) & PULL_SUBSCRIPTION

    run(story())


def test_a_poll_that_finds_nothing_ends_with_its_time() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}) as consumer:
            await group.until(lambda: len(group.brokers[0].held) == 4)
            assert await consumer.poll(0) == []
            assert await consumer.poll(0.001) == []
            await send(group, "a")
            assert bodies(await consumer.poll(20)) == "a"

    run(story())


def test_polls_follow_the_leader() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}) as consumer:
            await group.until(lambda: len(group.brokers[0].held) == 4)
            group.lead(group.brokers[2])
            await group.until(lambda: len(group.brokers[2].held) == 4)
            await send(group, "a")
            assert await read(consumer, 1) == "a"

    run(story())


def test_a_closed_consumer_says_so_and_a_poll_that_waits_ends() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            consumer = member(group, {"T": "*"})
            with pytest.raises(ClientClosedError, match="not started"):
                await consumer.poll()
            await consumer.start()
            waiting = asyncio.create_task(consumer.poll(3600))
            await group.until(lambda: len(group.brokers[0].held) == 4)
            await consumer.close()
            assert await waiting == []
            with pytest.raises(ClientClosedError, match="closed"):
                await consumer.poll()
            with pytest.raises(ClientClosedError, match="closed"):
                await consumer.commit()

    run(story())


def test_a_consumer_that_subscribes_is_assigned_nothing_by_hand() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}) as consumer:
            with pytest.raises(ValueError, match="subscribes"):
                await consumer.assign([ONE])

    run(story())
    with pytest.raises(ValueError, match="without subscriptions"):
        LitePullConsumer("h:1", "g", {"T": "*"}, assign_expressions={"T": "A"})


# Offsets


def test_what_a_poll_returned_counts_as_done_with_the_next_one() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abc", ONE)
            async with member(group, config=replace(FIRST, pull_batch_size=1)) as consumer:
                await consumer.assign([ONE])
                assert await read(consumer, 2) == "ab"
            assert group.offsets["g", "T", 0] == 1
            async with member(group) as consumer:
                await consumer.assign([ONE])
                assert await read(consumer, 2) == "bc"
                await consumer.commit()
                assert group.offsets["g", "T", 0] == 3

    run(story())


def test_without_auto_commit_nothing_is_committed_but_by_hand() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abc", ONE)
            config = replace(FIRST, pull_batch_size=1, persist_interval_s=0.001)
            async with member(group, auto_commit=False, config=config) as consumer:
                await consumer.assign([ONE])
                assert await read(consumer, 2) == "ab"
                assert await consumer.committed(ONE) is None
                await consumer.commit()
                assert await consumer.committed(ONE) == 2
                await consumer.commit({ONE: 1, QUEUES[3]: 0})
                assert await consumer.committed(ONE) == 1
                assert await read(consumer, 1) == "c"
            assert group.offsets == {("g", "T", 0): 1, ("g", "T", 3): 0}

    run(story())


def test_offsets_that_were_not_committed_are_named_and_committed_the_next_time() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a", ONE)
            async with member(group, auto_commit=False) as consumer:
                await consumer.assign([ONE])
                assert await read(consumer, 1) == "a"
                group.brokers[0].refuses_offsets = True
                with pytest.raises(CommitError, match=r"queue 0 of T on G: .* told to refuse") as caught:
                    await consumer.commit()
                assert list(caught.value.failed) == [ONE]
                assert (caught.value.definite, caught.value.retriable) == (True, True)
                group.brokers[0].refuses_offsets = False
                await consumer.commit()
                assert group.offsets == {("g", "T", 0): 1}

    run(story())


# Assigning and seeking


def test_assigned_queues_are_read_and_others_are_left() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group) as consumer:
            for queue, body in zip(QUEUES, "abcd", strict=True):
                await send(group, body, queue)
            await consumer.assign([QUEUES[1], QUEUES[2]])
            assert sorted(await read(consumer, 2)) == ["b", "c"]
            await consumer.assign([QUEUES[2], QUEUES[3]])
            assert await read(consumer, 1) == "d"
            assert consumer.assignment == [QUEUES[2], QUEUES[3]]
            await group.until(lambda: group.brokers[0].heartbeats)
            assert group.brokers[0].heartbeats[0].consumer_data_set[0].subscription_data_set == []

    run(story())


def test_of_assigned_queues_only_the_tags_asked_for_are_read() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, assign_expressions={"T": "B"}) as consumer:
            await send(group, "a", ONE, tags="A")
            await send(group, "b", ONE, tags="B")
            await consumer.assign([ONE])
            assert await read(consumer, 1) == "b"

    run(story())


def test_a_queue_whose_group_elects_when_it_is_assigned_is_read_once_there_is_a_leader() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group) as consumer:
            await send(group, "a", ONE)
            group.lead(None)
            await consumer.assign([ONE])
            assert consumer.assignment == []
            group.lead(group.brokers[1])
            assert await read(consumer, 1) == "a"

    run(story())


def test_after_a_seek_the_next_message_is_that_one_whatever_was_pulled_before() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, config=replace(FIRST, pull_batch_size=2)) as consumer:
            await send(group, "abcdef", ONE)
            await consumer.assign([ONE])
            assert await read(consumer, 2) == "ab"
            await group.until(lambda: group.brokers[0].held)  # all of it was pulled
            await consumer.seek(ONE, 1)
            assert await read(consumer, 2) == "bc"
            await consumer.seek_to_begin(ONE)
            assert await read(consumer, 2) == "ab"
            await consumer.seek_to_end(ONE)
            await send(group, "g", ONE)
            assert await read(consumer, 1) == "g"
            await consumer.commit()
            assert group.offsets["g", "T", 0] == 7

    run(story())


def test_a_seek_back_does_not_wait_for_the_pull_that_is_held() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group) as consumer:
            await send(group, "a", ONE)
            await consumer.assign([ONE])
            assert await read(consumer, 1) == "a"
            await group.until(lambda: group.brokers[0].held)
            await consumer.seek(ONE, 0)
            assert await read(consumer, 1) == "a"
            await consumer.seek(ONE, 0)
            await consumer.commit()
            assert group.offsets["g", "T", 0] == 0

    run(story())


def test_a_seek_beyond_the_queue_or_of_a_queue_of_others_is_refused() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group) as consumer:
            await send(group, "ab", ONE)
            group.min_offset = 1
            await consumer.assign([ONE])
            for offset in (0, 3):
                with pytest.raises(OffsetIllegalError, match=rf"offset {offset} of queue 0 .* 1 to 2"):
                    await consumer.seek(ONE, offset)
            with pytest.raises(QueueNotAssignedError, match="queue 1 of T on G"):
                await consumer.seek(QUEUES[1], 0)
            with pytest.raises(QueueNotAssignedError):
                consumer.pause(ONE, QUEUES[1])
            assert await read(consumer, 1) == "b"

    run(story())


def test_a_paused_queue_returns_nothing_until_it_is_resumed_and_keeps_its_order() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, config=replace(FIRST, pull_batch_size=1)) as consumer:
            await send(group, "ab", ONE)
            await consumer.assign(QUEUES)
            await group.until(lambda: len(group.brokers[0].held) == 4)
            consumer.pause(ONE)
            await send(group, "c", ONE)
            await send(group, "x", QUEUES[1])
            assert await read(consumer, 1) == "x"
            assert await consumer.poll(0.001) == []
            await consumer.seek(ONE, 1)
            assert await consumer.poll(0.001) == []
            consumer.resume(ONE)
            assert await read(consumer, 2) == "bc"

    run(story())


# Queues and times


def test_an_offset_is_found_by_time() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group) as consumer:
            await send(group, "abc", ONE)
            await consumer.assign([ONE])
            first = (await consumer.poll(20))[0].store_timestamp
            assert await consumer.offset_for_timestamp(ONE, first) == 0
            assert await consumer.offset_for_timestamp(ONE, first + 3_600_000) == 3

    run(story())


def test_a_listener_hears_of_the_queues_that_a_topic_gets(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        heard: list[tuple[str, int]] = []

        def listen(topic: str, queues: Sequence[MessageQueue]) -> None:
            heard.append((topic, len(queues)))
            group.changed()

        async with FakeGroup() as group, member(group) as consumer:
            await consumer.on_topic_queues("T", listen)
            assert await consumer.fetch_message_queues("T") == QUEUES
            group.lead(group.brokers[1])  # another route, the same queues
            await consumer.fetch_message_queues("T")
            group.queue_count = 6
            await group.until(lambda: heard)
            assert heard == [("T", 6)]

    run(story())


def test_a_listener_that_fails_is_told_of_and_the_consumer_reads_on(caplog: pytest.LogCaptureFixture) -> None:
    def listen(queues: Sequence[MessageQueue]) -> None:
        raise RuntimeError("the application's own")

    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}, on_assignment=listen) as consumer:
            await send(group, "a")
            assert await read(consumer, 1) == "a"
            await group.until(lambda: len(group.brokers[0].held) == 4)
        assert "listener failed group=g" in caplog.text

    run(story())
