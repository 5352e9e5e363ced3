"""A group that is handed messages, and works on several batches of a queue at once; the client commits. With --sql it
is handed those that match.
"""

import argparse
import asyncio
import random

from workload.bodies import delivered
from workload.client_process import TOPIC, Client, run_client
from workload.group_notes import at, noted

from faults.history import Poll
from mqclient import ConsumeFromWhere, ConsumerConfig, PushConsumer, sql

GROUP = "fault_run_push"
WORKERS = 4
CONFIG = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST,
    rebalance_interval_s=5.0,
    pull_suspend_s=5.0,
    persist_interval_s=1.0,
)


async def consume(client: Client, options: argparse.Namespace) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(options.members):
            tasks.create_task(_work_until_end(client, f"{client.name}.{number}", options))


async def _work_until_end(client: Client, name: str, options: argparse.Namespace) -> None:
    expression = "*" if options.sql is None else sql(options.sql)
    subscriptions = dict.fromkeys(options.topics, expression)
    consumer = PushConsumer(client.namesrv, options.group, subscriptions, config=CONFIG, instance_name=name)
    noted(consumer, client.notes, name)
    async with asyncio.TaskGroup() as tasks, consumer:
        for number in range(WORKERS):
            tasks.create_task(_work(client, consumer, name, random.Random(f"{name}/{number}")))
        await client.ending.wait()


async def _work(client: Client, consumer: PushConsumer, name: str, dice: random.Random) -> None:
    while (batch := await consumer.take()) is not None:
        client.notes.note(
            Poll,
            offset=batch.oldest_offset,
            next_offset=batch.next_offset,
            messages=tuple(map(delivered, batch.messages)),
            in_order=False,
            **at(consumer.group, name, batch.queue),
        )
        await asyncio.sleep(dice.uniform(0, 0.01))
        batch.done()


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--topics", nargs="+", default=[TOPIC])
    parser.add_argument("--group", default=GROUP)
    parser.add_argument("--sql", metavar="EXPRESSION", help="of what is to be handed to it; all without one")


if __name__ == "__main__":
    run_client(consume, _add_options)
