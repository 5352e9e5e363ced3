"""A shop in a program without an event loop: what is sold in its database is told to consumers, and nothing else.

python examples/transactions_without_asyncio.py 127.0.0.1:9876

Each sale is a row of an SQLite database. Sales of more than is there are rolled back, there and at the broker. Of one
the program says nothing, as if it had been stopped behind the commit; the broker asks about six seconds later.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, MessageExt, TransactionState
from mqclient.sync import LitePullConsumer, TransactionProducer

FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


class Shop:
    def __init__(self, file: Path) -> None:
        self._file = file
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE stock (pieces INTEGER CHECK (pieces >= 0))")
            database.execute("CREATE TABLE sales (id TEXT, pieces INTEGER)")
            database.execute("INSERT INTO stock VALUES (10)")

    def sell(self, message: Message, transaction_id: str) -> TransactionState:
        """In the thread that sends: the row of the sale and the message are there, or neither."""
        pieces = int(message.body)
        try:
            with closing(sqlite3.connect(self._file)) as database, database:
                database.execute("INSERT INTO sales VALUES (?, ?)", (transaction_id, pieces))
                database.execute("UPDATE stock SET pieces = pieces - ?", (pieces,))
        except sqlite3.IntegrityError:
            return TransactionState.ROLLBACK
        return TransactionState.UNKNOWN if pieces == 2 else TransactionState.COMMIT

    def was_sold(self, message: MessageExt) -> TransactionState:
        """In a thread of its own, when the broker asks."""
        with closing(sqlite3.connect(self._file)) as database:
            row = database.execute("SELECT 1 FROM sales WHERE id = ?", (message.uniq_key,)).fetchone()
        return TransactionState.COMMIT if row else TransactionState.ROLLBACK


def main(namesrv: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(Path(directory) / "shop.db")
        with TransactionProducer(namesrv, "shop", check=shop.was_sold) as producer:
            for pieces in (7, 5, 2):
                result = producer.send_in_transaction(Message("Sales", b"%d" % pieces), shop.sell)
                print(f"{pieces} pieces: {result.state.name}")
            with LitePullConsumer(namesrv, "accounts", {"Sales": "*"}, config=FIRST) as consumer:
                sold: list[int] = []
                while len(sold) < 2:
                    sold += [int(message.body) for message in consumer.poll()]
                print("sold:", *sold)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
