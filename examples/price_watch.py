"""Reads only the messages whose properties match: the broker selects them.

python examples/price_watch.py 127.0.0.1:9876
"""

import asyncio
import sys

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer, sql

OFFERS = (
    ("lamp", "40", "red"), ("chair", "120", "blue"), ("table", "310", "red"), ("shelf", "95", "white"),
    ("sofa", "870", "blue"), ("carpet", "150", "green"),
)  # fmt: skip
WANTED = sql("price BETWEEN 100 AND 500 AND color IN ('red', 'blue')")


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "shops") as producer:
        for name, price, color in OFFERS:
            properties = {"price": price, "color": color}
            await producer.send(Message("Offers", name.encode(), properties=properties))

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    async with PushConsumer(namesrv, "watchers", {"Offers": WANTED}, config=config) as consumer:
        seen = 0
        async for message in consumer:
            print(f"{message.body.decode()}: {message.properties['price']}, {message.properties['color']}")
            seen += 1
            if seen == 2:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
