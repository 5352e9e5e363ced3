"""A pipeline of sends: each message's outcome once, under its number."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from fake_group import FakeGroup

from message.decoder import decode_message
from mqclient import (
    Message,
    MessageIllegalError,
    Producer,
    ProducerConfig,
    SendError,
    SendPipeline,
    SendResult,
)

QUICK = ProducerConfig(send_timeout_s=20, retry_pause_s=0.001, retry_pause_max_s=0.002, stalled_after_s=0.01)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def test_a_pipeline_reports_each_message_once_under_its_number() -> None:
    async def story() -> None:
        outcomes: dict[int, SendResult | SendError] = {}

        def note(number: int, outcome: SendResult | SendError) -> None:
            assert number not in outcomes
            outcomes[number] = outcome

        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            group.brokers[0].steps = [0, 13, "close"]
            async with SendPipeline(producer, note, batch_size_max=7, in_flight_max=20) as pipeline:
                for i in range(100):
                    await pipeline.put(Message("T", b"%d" % i, properties={"number": str(i)}))
        assert sorted(outcomes) == list(range(100))
        assert isinstance(outcomes[1], SendError)
        for number, outcome in outcomes.items():
            if isinstance(outcome, SendResult):
                record = group.queues["T", outcome.message_queue.queue_id][outcome.queue_offset]
                assert decode_message(record).properties["number"] == str(number)

    run(story())


def test_a_pipeline_sends_a_lone_message_without_waiting_for_others() -> None:
    async def story() -> None:
        arrived = asyncio.Event()
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            async with SendPipeline(producer, lambda *_: arrived.set()) as pipeline:
                await pipeline.put(Message("T", b"x"))
                async with asyncio.timeout(20):
                    await arrived.wait()
            assert group.records == 1

    run(story())


def test_a_pipeline_tells_of_an_illegal_message() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            with pytest.raises(MessageIllegalError):
                async with SendPipeline(producer, lambda *_: None) as pipeline:
                    await pipeline.put(Message("T", b""))
            assert group.records == 0

    run(story())


def test_a_pipeline_of_many_illegal_batches_tells_of_the_first_and_logs_none() -> None:
    logged: list[str] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            pipeline = SendPipeline(producer, lambda *_: None, batch_size_max=1)
            for _ in range(5):
                await pipeline.put(Message("T", b""))
            with pytest.raises(MessageIllegalError):
                await pipeline.drain()
            assert group.records == 0
            gc.collect()  # asyncio tells of an error that nobody asked for when its task is let go

    run(story())
    assert logged == []
