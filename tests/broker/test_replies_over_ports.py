"""Requests and replies of our client over a broker on real ports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_broker_server import run

from broker.server import Broker
from mqclient import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer
from mqclient.client_instance import local_ip
from remoting.client import RemotingClient

FIRST = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST, retry_pause_s=0.01, poll_name_server_interval_s=0.05
)


@pytest.mark.slow
def test_requests_are_replied_to_and_replies_wait_for_their_requester(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        async with (
            Producer(namesrv, "askers") as producer,
            PushConsumer(namesrv, "repliers", {"T": "*"}, config=FIRST) as consumer,
        ):

            async def reply_to_all() -> None:
                async for message in consumer:
                    await consumer.reply(message, message.body * 2)

            replying = asyncio.create_task(reply_to_all())
            asked = [producer.request(Message("T", b"%d" % n), timeout_s=20) for n in range(50)]
            replies = await asyncio.gather(*asked)
            assert [reply.body for reply in replies] == [b"%d" % n * 2 for n in range(50)]
            replying.cancel()
            await asyncio.gather(replying, return_exceptions=True)

            later = f"{local_ip()}@later"
            properties = {"REPLY_TO_CLIENT": later, "CORRELATION_ID": "c", "TTL": "20000"}
            await producer.send(Message("T", b"wait", properties=properties))
            while (batch := await consumer.take()) is not None and batch.messages[-1].body != b"wait":
                batch.done()
            assert batch is not None
            answering = asyncio.create_task(consumer.reply(batch.messages[-1], b"here"))
            async with Producer(namesrv, "askers", instance_name="later") as requester:
                # It greets the brokers, and takes what waits for it.
                asking = asyncio.create_task(requester.request(Message("T", b"x"), timeout_s=20))
                await answering
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    run(tmp_path, scenario)
