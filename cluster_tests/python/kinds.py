"""Sends, and consumes by filters, with mqclient: `kinds.py namesrv group instance`.

What it is told stands in originals/kinds_client.py, which also drives java/Kinds.java, go/kinds.go and node/kinds.js.
"""

import asyncio
import json
import os
import sys

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    Credentials,
    Message,
    MQClientError,
    Producer,
    ProducerConfig,
    PushConsumer,
    SendStatus,
    sql,
)

NAMESRV, GROUP, INSTANCE = sys.argv[1:]
KEY = os.environ.get("ACCESS_KEY")
CREDENTIALS = Credentials(KEY, os.environ["SECRET_KEY"]) if KEY else None


def tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


async def send(producer: Producer, key: str, topic: str, *words: str) -> None:
    """Words are properties, NAME=VALUE."""
    properties = dict(word.split("=", 1) for word in words)
    result = await producer.send(Message(topic, f"body of {key}".encode(), keys=[key], properties=properties))
    tell(
        event="sent" if result.status is SendStatus.SEND_OK else "failed",
        of="send",
        key=key,
        queue=result.message_queue.queue_id,
        offset=result.queue_offset,
        msg_id=result.msg_id,
    )


async def consume(topic: str, group: str, kind: str, expression: str) -> None:
    config = ConsumerConfig(
        consume_from=ConsumeFromWhere.FIRST, rebalance_interval_s=1, credentials=CREDENTIALS
    )
    wanted = {topic: sql(expression) if kind == "SQL92" else expression}
    async with PushConsumer(NAMESRV, group, wanted, config=config, instance_name=INSTANCE) as consumer:
        tell(event="consuming", group=group)
        async for message in consumer:
            tell(
                event="received",
                group=group,
                key=message.keys,
                body=message.body.decode(),
                tag=message.tags,
                queue=message.queue_id,
                offset=message.queue_offset,
                times=message.reconsume_times,
                born_ms=message.born_timestamp,
                stored_ms=message.store_timestamp,
            )


async def run(producer: Producer, command: str, *words: str) -> None:
    try:
        await (send(producer, *words) if command == "send" else consume(*words))
    except MQClientError as error:
        tell(event="failed", of=command, key=words[0], error=str(error))


async def main() -> None:
    # A key stands for one send, and a busy machine is no failure.
    config = ProducerConfig(retry_times=0, send_timeout_s=20, credentials=CREDENTIALS)
    async with Producer(NAMESRV, GROUP, config=config, instance_name=INSTANCE) as producer:
        tell(event="started")
        running = set()
        while line := await asyncio.to_thread(sys.stdin.readline):
            running.add(asyncio.create_task(run(producer, *line.rstrip("\n").split("\t"))))
        for task in running:
            task.cancel()


asyncio.run(main())
