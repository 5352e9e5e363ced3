"""Orders whose messages reach consumers if, and only if, they were booked: transactions.

python examples/transactions.py 127.0.0.1:9876

The second order cannot be booked. The third one is booked, but the program does not say so at once, as if it had been
stopped in between; the broker asks about six seconds later (transactionTimeOut).
"""

import asyncio
import sys

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)

booked: dict[str, str] = {}  # by the transaction's id; a database in earnest, which outlives the program


def book(message: Message, transaction_id: str) -> TransactionState:
    order = message.body.decode()
    if order == "2 pears":
        return TransactionState.ROLLBACK
    booked[transaction_id] = order
    return TransactionState.UNKNOWN if order == "3 plums" else TransactionState.COMMIT


def was_booked(message: MessageExt) -> TransactionState:
    return TransactionState.COMMIT if message.uniq_key in booked else TransactionState.ROLLBACK


async def main(namesrv: str) -> None:
    async with TransactionProducer(namesrv, "bookings", check=was_booked) as producer:
        for order in ("1 apple", "2 pears", "3 plums"):
            result = await producer.send_in_transaction(Message("Bookings", order.encode()), book)
            print(f"{order}: {result.state.name}")
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        async with PushConsumer(namesrv, "warehouse", {"Bookings": "*"}, config=config) as consumer:
            left = len(booked)
            async for message in consumer:
                print(f"packed: {message.body.decode()}")
                left -= 1
                if not left:
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
