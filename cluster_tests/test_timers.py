"""Timer messages while leaders are killed: each comes once, none early, and none that was recalled before its time."""

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from killers import LeaderKiller
from local_cluster import LocalCluster, wait_for

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageExt,
    MQClientError,
    Producer,
    ProducerConfig,
    SendError,
    SendResult,
)

pytestmark = pytest.mark.slow

FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, poll_name_server_interval_s=0.5)
COUNT = 3_000
RECALLED_COUNT = 50
TIMEOUT_S = 60.0
ALARMS = "Alarms"
WORKERS = 8
SEND_S = 25  # until they are due: for all of them to be sent


def test_each_timer_comes_once_and_none_early_when_the_leader_is_killed_before(cluster: LocalCluster) -> None:
    cluster.up()
    deliver_at = datetime.now(UTC) + timedelta(seconds=SEND_S)
    asyncio.run(send_and_recall(cluster, deliver_at))
    deliver_ms = deliver_at.timestamp() * 1000
    old = cluster.leader()
    wait_for(lambda: time.time() * 1000 >= deliver_ms - 2_000, SEND_S, "two seconds before the time")
    cluster.kill(old)
    cluster.leader()
    served_ms = time.time() * 1000
    arrived = asyncio.run(consume(cluster))
    assert Counter(message.body for message in arrived) == Counter(b"%d" % number for number in range(COUNT))
    assert min(message.store_timestamp for message in arrived) >= deliver_ms
    last_ms = max(message.store_timestamp for message in arrived)
    print(
        f"the last of {COUNT} came {last_ms - deliver_ms:.0f} ms after its time, "
        f"{last_ms - served_ms:.0f} ms after the next leader served; the leader was killed 2 s before"
    )
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


class Alarms:
    """Timers, of which half are recalled after a part of their time that is drawn, and what is known of each."""

    def __init__(self) -> None:
        self.due_ms: dict[bytes, float] = {}
        self.stored: set[bytes] = set()
        self.recalled: set[bytes] = set()  # acknowledged before its time
        self.doubted: set[bytes] = set()  # nobody knows whether it was stored, or was recalled in time
        self.is_ending = False
        self._dice = random.Random("alarms")
        self._next = 0

    async def work(self, producer: Producer) -> None:
        while not self.is_ending:
            body = b"%d" % self._next
            self._next += 1
            deliver_at = datetime.now(UTC) + timedelta(seconds=self._dice.uniform(1, 5))
            self.due_ms[body] = deliver_at.timestamp() * 1000
            recall_at = time.monotonic() + self._dice.uniform(0, 5)
            try:
                result = await producer.send(Message(ALARMS, body, deliver_at=deliver_at))
            except SendError as error:
                if not error.definite:
                    self.doubted.add(body)
                continue
            self.stored.add(body)
            if self._dice.random() < 0.5:
                await asyncio.sleep(recall_at - time.monotonic())
                await self._recall(producer, body, result.recall_handle)

    async def _recall(self, producer: Producer, body: bytes, handle: str) -> None:
        try:
            await producer.recall(ALARMS, handle)
        except MQClientError:
            self.doubted.add(body)
        else:
            in_time = time.time() * 1000 < self.due_ms[body]
            (self.recalled if in_time else self.doubted).add(body)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_what_is_recalled_in_time_never_comes_while_leaders_are_killed(
    cluster: LocalCluster, kills: int
) -> None:
    cluster.up()
    alarms = Alarms()
    arrived = asyncio.run(set_and_recall(cluster, alarms, kills))
    bodies = Counter(message.body for message in arrived)
    assert [body for body, count in bodies.items() if count > 1] == []
    assert bodies.keys() & alarms.recalled == set()
    assert bodies.keys() <= alarms.stored | alarms.doubted
    assert alarms.stored - alarms.recalled - alarms.doubted - bodies.keys() == set()
    assert [one.body for one in arrived if one.store_timestamp < alarms.due_ms[one.body]] == []
    assert alarms.recalled
    print(f"{len(alarms.stored)} stored, {len(alarms.recalled)} recalled, {len(alarms.doubted)} doubted")
    cluster.level()


async def set_and_recall(cluster: LocalCluster, alarms: Alarms, kills: int) -> list[MessageExt]:
    """Returns what consumers got. Nothing is stored twice, for nothing is tried again."""
    config = ProducerConfig(send_timeout_s=TIMEOUT_S / 6, retry_times=0, default_topic_queue_nums=1)
    async with asyncio.timeout(6 * TIMEOUT_S), Producer(cluster.namesrv, "p", config=config) as producer:
        workers = [asyncio.create_task(alarms.work(producer)) for _ in range(WORKERS)]
        killer = LeaderKiller(cluster, kills, 2.0, random.Random(kills))
        with killer:
            await asyncio.to_thread(killer.wait)
        alarms.is_ending = True
        await asyncio.gather(*workers)
        last_s = max(time.time(), *(due_ms / 1000 for due_ms in alarms.due_ms.values())) + 1
        await producer.send(Message(ALARMS, b"last", deliver_at=datetime.fromtimestamp(last_s, UTC)))
        arrived: list[MessageExt] = []
        async with LitePullConsumer(cluster.namesrv, "c", {ALARMS: "*"}, config=FIRST) as consumer:
            while not any(message.body == b"last" for message in arrived):
                arrived += await consumer.poll()
    return [message for message in arrived if message.body != b"last"]
