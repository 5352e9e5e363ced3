"""Asks for prices and waits for the replies: requests over messages.

python examples/request_reply.py 127.0.0.1:9876
"""

import asyncio
import sys

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    Producer,
    PushConsumer,
    RequestTimeoutError,
    SendError,
)

PRICES = {"apple": 40, "pear": 55, "quince": 90}


async def reply_to_all(consumer: PushConsumer) -> None:
    async for message in consumer:
        fruit = message.body.decode()
        try:
            await consumer.reply(message, f"{fruit}: {PRICES[fruit]} cents".encode())
        except SendError as error:
            # The requester may have given up, or ended: after its request's time to live nobody waits.
            print(f"no reply for {fruit}: {error}")


async def main(namesrv: str) -> None:
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    async with (
        PushConsumer(namesrv, "price-lists", {"Prices": "*"}, config=config) as consumer,
        Producer(namesrv, "price-askers") as producer,
    ):
        replying = asyncio.create_task(reply_to_all(consumer))
        for fruit in PRICES:
            try:
                reply = await producer.request(Message("Prices", fruit.encode()), timeout_s=10)
            except RequestTimeoutError as error:
                print(error)  # it may be worked on all the same, now or later
            else:
                print(reply.body.decode())
        replying.cancel()
        await asyncio.gather(replying, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
