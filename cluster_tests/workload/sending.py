"""What the senders of a fault run have in common: many in one process, each sends one message after the other.

They share two producers. One of them does not try again what ended unknown: of its messages none may be stored twice.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from workload.client_process import QUEUES, Client

from mqclient import Producer, ProducerConfig, SendError, SendResult

P = TypeVar("P", bound=Producer)

RETRIES = (0, 2)


def add_options(parser: argparse.ArgumentParser, what: str, *, producers: int, rate: float) -> None:
    parser.add_argument("--producers", type=int, default=producers)
    parser.add_argument("--rate", type=float, default=rate, help=f"{what} per second, of all of them")
    parser.add_argument("--timeout-s", type=float, default=3.0, help="of one send, all attempts together")


@asynccontextmanager
async def both_producers(
    make: Callable[[ProducerConfig, str], P], client: Client, options: argparse.Namespace
) -> AsyncIterator[list[P]]:
    """Starts and closes them. `make` is given a config and an instance name."""
    async with AsyncExitStack() as stack:
        producers: list[P] = []
        for retries in RETRIES:
            config = ProducerConfig(
                send_timeout_s=options.timeout_s, retry_times=retries, default_topic_queue_nums=QUEUES
            )
            producer = make(config, f"{client.name}-{retries}")
            producers.append(await stack.enter_async_context(producer))
        yield producers


async def send_in_turn(
    client: Client, options: argparse.Namespace, send: Callable[[int, str, int], Awaitable[None]]
) -> None:
    """Has `send` called with number, name and sequence of each of `options.producers`, each time when its turn comes,
    until the client is to end.
    """
    async with asyncio.TaskGroup() as tasks:
        for number in range(options.producers):
            tasks.create_task(_send_in_turn(client, options, send, number))


async def _send_in_turn(
    client: Client,
    options: argparse.Namespace,
    send: Callable[[int, str, int], Awaitable[None]],
    number: int,
) -> None:
    loop = asyncio.get_running_loop()
    interval_s = options.producers / options.rate
    next_s = loop.time() + interval_s * number / options.producers
    sequence = 0
    while not client.ending.is_set():
        # What an outage left out is not made up for: that would be a storm of its own.
        next_s = max(next_s + interval_s, loop.time() - interval_s)
        await asyncio.sleep(next_s - loop.time())
        await send(number, f"{client.name}.{number}", sequence)
        sequence += 1


def stored(result: SendResult) -> dict[str, str | int]:
    """How the send ended, for its record. Refusals before it was stored cannot have stored it as well."""
    return {"outcome": "ok", "attempts": result.attempts if result.maybe_duplicate else 1}


def failed(error: SendError) -> dict[str, str | int]:
    """As stored()."""
    outcome = "fail" if error.definite else "unknown"
    return {"outcome": outcome, "attempts": max(error.attempts, 1), "reason": str(error)}
