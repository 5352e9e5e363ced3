"""Sends reminders that arrive at their time, and recalls one of them.

python examples/reminders.py 127.0.0.1:9876
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "reminders") as producer:
        at = datetime.now(UTC) + timedelta(seconds=2)
        await producer.send(Message("Reminders", b"stretch", deliver_at=at))
        await producer.send(Message("Reminders", b"drink", delay=timedelta(seconds=1)))
        result = await producer.send(Message("Reminders", b"call back", delay=timedelta(seconds=3)))
        await producer.recall("Reminders", result.recall_handle)
        print("call back: recalled")

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    async with PushConsumer(namesrv, "readers", {"Reminders": "*"}, config=config) as consumer:
        seen = 0
        async for message in consumer:
            print(message.body.decode())
            seen += 1
            if seen == 2:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
