"""Transactions while leaders are killed at drawn moments, between half, end and delivery as it happens: each ends as
its producer said, once.
"""

import asyncio
import random
from collections import Counter

import pytest
from killers import LeaderKiller
from local_cluster import LocalCluster

from mqclient import (
    Admin,
    AdminError,
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    ProducerConfig,
    SendError,
    TransactionProducer,
    TransactionState,
)

pytestmark = pytest.mark.slow

CONF = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "1000"}
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, poll_name_server_interval_s=0.5)
CONFIG = ProducerConfig(send_timeout_s=10.0, default_topic_queue_nums=1)
TOPIC = "Bookings"
WORKERS = 4
LIMIT_S = 240.0


def verdict_of(body: bytes) -> TransactionState:
    return TransactionState.ROLLBACK if int(body) % 3 == 1 else TransactionState.COMMIT


class Bookings:
    """What became of each number, as its producer knows it."""

    def __init__(self) -> None:
        self.prepared: set[bytes] = set()
        self.doubted: set[bytes] = set()  # nobody heard whether it was prepared
        self.asked = 0
        self.is_ending = False
        self._next = 0

    def execute(self, message: Message, transaction_id: str) -> TransactionState:
        """Each third number is not told at once."""
        return TransactionState.UNKNOWN if int(message.body) % 3 == 2 else verdict_of(message.body)

    def check(self, message: MessageExt) -> TransactionState:
        self.asked += 1
        return verdict_of(message.body)

    async def work(self, producer: TransactionProducer) -> None:
        while not self.is_ending:
            body = b"%d" % self._next
            self._next += 1
            try:
                await producer.send_in_transaction(Message(TOPIC, body), self.execute)
            except SendError as error:
                if not error.definite:
                    self.doubted.add(body)
            else:
                self.prepared.add(body)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_each_transaction_ends_as_its_producer_said_once_while_leaders_are_killed(
    cluster: LocalCluster, kills: int
) -> None:
    cluster.up(conf=CONF)
    bookings = Bookings()
    bodies = Counter(asyncio.run(story(cluster, bookings, kills)))
    assert [body for body, count in bodies.items() if count > 1] == []
    rolled_back = [body for body in bodies if verdict_of(body) is TransactionState.ROLLBACK]
    assert rolled_back == []
    assert bodies.keys() <= bookings.prepared | bookings.doubted
    lost = {body for body in bookings.prepared if verdict_of(body) is TransactionState.COMMIT} - bodies.keys()
    assert lost == set()
    assert bookings.asked
    print(f"{len(bookings.prepared)} prepared, {len(bookings.doubted)} doubted, {bookings.asked} questions")
    cluster.level()


async def story(cluster: LocalCluster, bookings: Bookings, kills: int) -> list[bytes]:
    """Returns what consumers got."""
    async with asyncio.timeout(LIMIT_S):
        async with TransactionProducer(
            cluster.namesrv, "bookings", check=bookings.check, config=CONFIG
        ) as producer:
            await producer.send(Message(TOPIC, b"first"))
            workers = [asyncio.create_task(bookings.work(producer)) for _ in range(WORKERS)]
            await asyncio.to_thread(kill_leaders, cluster, kills)
            bookings.is_ending = True
            await asyncio.gather(*workers)
            await ended(cluster)
            await producer.send(Message(TOPIC, b"last"))
        found: list[bytes] = []
        async with LitePullConsumer(cluster.namesrv, "c", {TOPIC: "*"}, config=FIRST) as consumer:
            while b"last" not in found:
                found += [message.body for message in await consumer.poll()]
    return [body for body in found if body.isdigit()]


def kill_leaders(cluster: LocalCluster, kills: int) -> None:
    killer = LeaderKiller(cluster, kills, 2.0, random.Random(kills))
    with killer:
        killer.wait()


async def ended(cluster: LocalCluster) -> None:
    """Returns when no transaction is undecided."""
    async with Admin(cluster.namesrv) as admin:
        while True:
            try:
                leaders = await admin.brokers.leaders("")
                told = [await admin.messages.pending_transactions(leader) for leader in leaders]
            except AdminError:
                continue
            if told and not any(pending.total for pending in told):
                return
