"""What happens to orders: each order's events in their order, and those that cannot be booked come again later.

python examples/orders.py 127.0.0.1:9876
"""

import asyncio
import sys

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer, SendError

EVENTS = [(order, event) for event in ("created", "paid", "shipped") for order in ("1001", "1002", "1003")]


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "shop") as producer:
        # One sharding key, one queue, one order. Each message has an outcome of its own.
        messages = [
            Message("Orders", f"{order} {event}".encode(), keys=order, sharding_key=order)
            for order, event in EVENTS
        ]
        outcomes = await producer.send_batch(messages)
        for (order, event), outcome in zip(EVENTS, outcomes, strict=True):
            if isinstance(outcome, SendError):
                print(f"{order} {event}: {'not stored' if outcome.definite else 'unknown'} ({outcome})")

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, max_reconsume_times=3)
    booked = refused = 0
    async with PushConsumer(namesrv, "ledger", {"Orders": "*"}, config=config) as consumer:
        while booked + refused < len(EVENTS) and (batch := await consumer.take()) is not None:
            # The second time it goes well: the first one is for show.
            failed = [m for m in batch.messages if b"1002 paid" in m.body and not m.reconsume_times]
            for message in batch.messages:
                print(f"{message.body.decode()}: {'comes again' if message in failed else 'booked'}")
            refused += len(failed)
            booked += len(batch.messages) - len(failed)
            await consumer.send_back(batch, failed, delay_level=1)
    print(f"{booked} booked, {refused} to come again in a second")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
