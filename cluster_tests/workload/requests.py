"""Requesters, and a group that replies to them, in one process. The reply names the request that it is for."""

import argparse
import asyncio
import contextlib
import time

from workload.bodies import body_of, name_in
from workload.client_process import Client, run_client
from workload.sending import add_options, send_in_turn

from faults.history import Request
from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MQClientError,
    Producer,
    PushConsumer,
    SendError,
)

TOPIC = "FaultRunRequests"
CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, rebalance_interval_s=5.0, pull_suspend_s=5.0)


async def ask(client: Client, options: argparse.Namespace) -> None:
    async with (
        PushConsumer(client.namesrv, "fault_run_repliers", {TOPIC: "*"}, config=CONFIG) as consumer,
        Producer(client.namesrv, "fault_run_requests") as producer,
    ):
        replying = asyncio.create_task(_reply_to_all(consumer))

        async def send(number: int, name: str, sequence: int) -> None:
            await _ask(client, producer, name, sequence, options.timeout_s)

        await send_in_turn(client, options, send)
        replying.cancel()


async def _ask(client: Client, producer: Producer, name: str, sequence: int, timeout_s: float) -> None:
    begun_ns = time.monotonic_ns()
    outcome, reason, replied_to = "ok", "", ("", -1)
    try:
        reply = await producer.request(Message(TOPIC, body_of(name, sequence, 0)), timeout_s=timeout_s)
        replied_to = name_in(reply.body)
    except MQClientError as error:
        outcome, reason = "fail" if isinstance(error, SendError) and error.definite else "unknown", str(error)
    client.notes.note(
        Request,
        begun_ns=begun_ns,
        producer=name,
        sequence=sequence,
        outcome=outcome,
        reply_producer=replied_to[0],
        reply_sequence=replied_to[1],
        reason=reason,
    )


async def _reply_to_all(consumer: PushConsumer) -> None:
    async with asyncio.TaskGroup() as replying:
        async for batch in consumer.batches():
            for message in batch.messages:
                replying.create_task(_reply(consumer, message))


async def _reply(consumer: PushConsumer, message: MessageExt) -> None:
    with contextlib.suppress(MQClientError):  # whoever asked may have given up
        await consumer.reply(message, message.body)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "requests", producers=8, rate=10)
    parser.set_defaults(timeout_s=10.0)  # a request's, until its reply is there


if __name__ == "__main__":
    run_client(ask, _add_options)
