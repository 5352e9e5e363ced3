"""Producers of a fault run, many in one process: each sends one message after the other, to all queues in turn.

So its messages in a queue have an order. Every second one does not try again what ended unknown: of its messages
nothing may be stored twice.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

from workload.bodies import body_of
from workload.client_process import QUEUES, TOPIC, Client, run_client

from faults.history import Send, SendBegun
from mqclient import Message, MessageQueue, Producer, ProducerConfig, SendError, SendResult

RETRIES = (0, 2)
SHADE = "shade"  # the property that SQL expressions select by
SHADES = 10


async def produce(client: Client, options: argparse.Namespace) -> None:
    producers = [
        Producer(
            client.namesrv,
            "fault_run",
            config=ProducerConfig(
                send_timeout_s=options.timeout_s, retry_times=retries, default_topic_queue_nums=QUEUES
            ),
            instance_name=f"{client.name}-{retries}",
        )
        for retries in RETRIES
    ]
    for producer in producers:
        await producer.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.producers):
                tasks.create_task(_send_in_turn(client, producers[number % len(producers)], number, options))
    finally:
        for producer in producers:
            await producer.close()


async def _send_in_turn(client: Client, producer: Producer, number: int, options: argparse.Namespace) -> None:
    name = f"{client.name}.{number}"
    async for sequence in in_turn(client, number, options):
        await _send(client, producer, name, sequence, number + sequence, options.body_size)


async def in_turn(client: Client, number: int, options: argparse.Namespace) -> AsyncIterator[int]:
    """Sequences of one of `options.producers`, each at its time, until the client is to end."""
    loop = asyncio.get_running_loop()
    interval_s = options.producers / options.rate
    next_s = loop.time() + interval_s * number / options.producers
    sequence = 0
    while not client.ending.is_set():
        # What an outage left out is not made up for: that would be a storm of its own.
        next_s = max(next_s + interval_s, loop.time() - interval_s)
        await asyncio.sleep(next_s - loop.time())
        yield sequence
        sequence += 1


async def _send(
    client: Client, producer: Producer, name: str, sequence: int, turn: int, body_size: int
) -> None:
    begun_ns = client.notes.note(SendBegun, producer=name, sequence=sequence, topic=TOPIC)
    try:
        result = await producer.send(
            Message(TOPIC, body_of(name, sequence, body_size), properties={SHADE: str(sequence % SHADES)}),
            selector=lambda queues, message: queues[turn % len(queues)],
        )
    except SendError as error:
        client.notes.note(
            Send,
            begun_ns=begun_ns,
            producer=name,
            sequence=sequence,
            outcome="fail" if error.definite else "unknown",
            topic=TOPIC,
            attempts=max(error.attempts, 1),
            reason=str(error),
        )
        return
    queue: MessageQueue = result.message_queue
    client.notes.note(
        Send,
        begun_ns=begun_ns,
        producer=name,
        sequence=sequence,
        outcome="ok",
        topic=TOPIC,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        queue_offset=result.queue_offset,
        phy_offset=result.phy_offset,
        msg_id=result.msg_id,
        attempts=attempts_that_count(result),
    )


def attempts_that_count(result: SendResult) -> int:
    """Refusals before it was stored cannot have stored it as well."""
    return result.attempts if result.maybe_duplicate else 1


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--producers", type=int, default=32)
    parser.add_argument("--rate", type=float, default=400, help="messages per second, of all of them")
    parser.add_argument("--body-size", type=int, default=300, help="bytes")
    parser.add_argument("--timeout-s", type=float, default=3.0, help="of one send, all attempts together")


if __name__ == "__main__":
    run_client(produce, _add_options)
