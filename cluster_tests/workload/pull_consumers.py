"""Members of one group that poll, and commit what they have polled by themselves. Now and then one leaves and comes
back, so that queues change hands.
"""

import argparse
import asyncio
import contextlib
import random

from workload.bodies import delivered
from workload.client_process import TOPIC, Client, run_client
from workload.group_notes import at, noted

from faults.history import Poll
from mqclient import (
    CommitError,
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    MQClientError,
)

GROUP = "fault_run_pull"
COMMIT_S = 1.0
ASK_S = 5.0
CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, rebalance_interval_s=5.0, pull_suspend_s=5.0)


async def consume(client: Client, options: argparse.Namespace) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(options.members):
            # The first one stays.
            name = f"{client.name}.{number}"
            tasks.create_task(_come_and_go(client, name, options, stays=number == 0))


async def _come_and_go(client: Client, name: str, options: argparse.Namespace, *, stays: bool) -> None:
    dice = random.Random(name)
    life = 0
    while not client.ending.is_set():
        consumer = LitePullConsumer(
            client.namesrv,
            GROUP,
            dict.fromkeys(options.topics, "*"),
            auto_commit=False,
            config=CONFIG,
            instance_name=name,
        )
        reads_s = float("inf") if stays else dice.uniform(10, 40)
        await _read(client, consumer, f"{name}.{life}", reads_s)
        life += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(2, 10)):
                await client.ending.wait()


async def _read(client: Client, consumer: LitePullConsumer, name: str, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    next_offsets: dict[MessageQueue, int] = {}
    noted(consumer, client.notes, name, next_offsets.__setitem__)
    async with consumer:
        until = loop.time() + seconds
        commit_at, ask_at = loop.time() + COMMIT_S, loop.time() + ASK_S
        while not client.ending.is_set() and loop.time() < until:
            messages = await consumer.poll(0.5)
            if messages:
                queue = _queue_of(consumer, messages[0])
                if queue is None:
                    continue
                next_offsets[queue] = messages[-1].queue_offset + 1
                client.notes.note(
                    Poll,
                    offset=messages[0].queue_offset,
                    next_offset=next_offsets[queue],
                    messages=tuple(map(delivered, messages)),
                    **at(GROUP, name, queue),
                )
            if loop.time() >= commit_at:
                await _commit(consumer, next_offsets)
                commit_at = loop.time() + COMMIT_S
            if loop.time() >= ask_at:
                for queue in consumer.assignment:
                    with contextlib.suppress(MQClientError):
                        await consumer.committed(queue)
                ask_at = loop.time() + ASK_S
        await _commit(consumer, next_offsets)


def _queue_of(consumer: LitePullConsumer, message: MessageExt) -> MessageQueue | None:
    """None: it went to another member in this moment, which gets these messages as well."""
    at = message.topic, message.queue_id
    return next((queue for queue in consumer.assignment if (queue.topic, queue.queue_id) == at), None)


async def _commit(consumer: LitePullConsumer, next_offsets: dict[MessageQueue, int]) -> None:
    mine = set(consumer.assignment)
    with contextlib.suppress(CommitError):  # as it was noted
        await consumer.commit({queue: offset for queue, offset in next_offsets.items() if queue in mine})


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--topics", nargs="+", default=[TOPIC])


if __name__ == "__main__":
    run_client(consume, _add_options)
