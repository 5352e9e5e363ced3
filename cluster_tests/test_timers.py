"""Timer messages that are due at once, and the leader is killed two seconds before: each comes once, none early."""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from local_cluster import LocalCluster, wait_for

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    ProducerConfig,
    SendResult,
)

pytestmark = pytest.mark.slow

FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, poll_name_server_interval_s=0.5)
COUNT = 3_000
RECALLED_COUNT = 50
TIMEOUT_S = 60.0
SEND_S = 25  # until they are due: for all of them to be sent


def test_each_timer_comes_once_and_none_early_when_the_leader_is_killed_before(cluster: LocalCluster) -> None:
    cluster.up()
    deliver_at = datetime.now(UTC) + timedelta(seconds=SEND_S)
    asyncio.run(send_and_recall(cluster, deliver_at))
    deliver_ms = deliver_at.timestamp() * 1000
    old = cluster.leader()
    wait_for(lambda: time.time() * 1000 >= deliver_ms - 2_000, SEND_S, "two seconds before the time")
    cluster.kill(old)
    arrived = asyncio.run(consume(cluster))
    assert Counter(message.body for message in arrived) == Counter(b"%d" % number for number in range(COUNT))
    assert min(message.store_timestamp for message in arrived) >= deliver_ms
    late_ms = max(message.store_timestamp for message in arrived) - deliver_ms
    print(f"the last of {COUNT} came {late_ms:.0f} ms after its time; the leader was killed 2 s before")
    cluster.start(old)
    cluster.wait_back(old)
    cluster.level()


async def send_and_recall(cluster: LocalCluster, deliver_at: datetime) -> None:
    config = ProducerConfig(send_timeout_s=TIMEOUT_S)
    async with Producer(cluster.namesrv, "p", config=config) as producer:
        bodies = [*(b"%d" % number for number in range(COUNT)), *[b"recalled"] * RECALLED_COUNT]
        outcomes = await producer.send_batch([Message("Due", body, deliver_at=deliver_at) for body in bodies])
        for outcome in outcomes[COUNT:]:
            assert isinstance(outcome, SendResult)
            await producer.recall("Due", outcome.recall_handle)
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)


async def consume(cluster: LocalCluster) -> list[MessageExt]:
    """All that comes, and what may come behind it."""
    arrived: list[MessageExt] = []
    async with asyncio.timeout(2 * TIMEOUT_S):
        async with LitePullConsumer(cluster.namesrv, "c", {"Due": "*"}, config=FIRST) as consumer:
            while len(arrived) < COUNT:
                arrived += await consumer.poll()
        async with Producer(
            cluster.namesrv, "p", config=ProducerConfig(send_timeout_s=TIMEOUT_S)
        ) as producer:
            # A timer of its own, which comes behind all that was due before.
            await producer.send(Message("Behind", b"end", delay=timedelta(seconds=3)))
        async with LitePullConsumer(
            cluster.namesrv, "c2", {"Due": "*", "Behind": "*"}, config=FIRST
        ) as consumer:
            again: list[MessageExt] = []
            while not any(message.topic == "Behind" for message in again):
                again += await consumer.poll()
    return [message for message in again if message.topic == "Due"]
