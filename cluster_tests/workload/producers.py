"""Producers of a fault run: each sends to all queues in turn, so its messages in a queue have an order."""

import argparse

from workload.bodies import body_of
from workload.client_process import TOPIC, Client, run_client
from workload.sending import add_options, both_producers, failed, send_in_turn, stored

from faults.history import Send, SendBegun
from mqclient import Message, Producer, SendError

SHADE = "shade"  # the property that SQL expressions select by
SHADES = 10


async def produce(client: Client, options: argparse.Namespace) -> None:
    async with both_producers(
        lambda config, name: Producer(client.namesrv, "fault_run", config=config, instance_name=name),
        client,
        options,
    ) as producers:

        async def send(number: int, name: str, sequence: int) -> None:
            producer, turn = producers[number % len(producers)], number + sequence
            await _send(client, producer, name, sequence, turn, options.body_size)

        await send_in_turn(client, options, send)


async def _send(
    client: Client, producer: Producer, name: str, sequence: int, turn: int, body_size: int
) -> None:
    about = {"producer": name, "sequence": sequence, "topic": TOPIC}
    begun_ns = client.notes.note(SendBegun, **about)
    try:
        result = await producer.send(
            Message(TOPIC, body_of(name, sequence, body_size), properties={SHADE: str(sequence % SHADES)}),
            selector=lambda queues, message: queues[turn % len(queues)],
        )
    except SendError as error:
        client.notes.note(Send, begun_ns=begun_ns, **about, **failed(error))
        return
    client.notes.note(
        Send,
        begun_ns=begun_ns,
        broker=result.message_queue.broker_name,
        queue_id=result.message_queue.queue_id,
        queue_offset=result.queue_offset,
        phy_offset=result.phy_offset,
        msg_id=result.msg_id,
        **about,
        **stored(result),
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "messages", producers=32, rate=400)
    parser.add_argument("--body-size", type=int, default=300, help="bytes")


if __name__ == "__main__":
    run_client(produce, _add_options)
