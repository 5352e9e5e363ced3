"""Pops while leaders are killed: each message ends acknowledged or in the dead letter topic, none is lost, and none is
given out after its acknowledgement.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from killers import LeaderKiller
from local_cluster import LocalCluster

from mqclient import (
    AckError,
    Admin,
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MQClientError,
    Producer,
    ProducerConfig,
    SendError,
    SimpleConsumer,
)
from remoting.bodies.bodies import SubscriptionGroupConfig

pytestmark = pytest.mark.slow

TOPIC, GROUP, DEAD = "Tasks", "workers", "%DLQ%workers"
CONSUMERS = 4
ACKED_SHARE = 0.6
RETRIES_MAX = 2  # so that some are forgotten each time
INVISIBLE_S = 2.0
QUIET_MAX = 5  # longer than a message is invisible
LIMIT_S = 300.0
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, poll_name_server_interval_s=0.5)


@dataclass
class Tasks:
    """What became of each number, as producer and consumers know it."""

    stored: set[bytes] = field(default_factory=set)
    doubted: set[bytes] = field(default_factory=set)  # maybe stored
    acked: set[bytes] = field(default_factory=set)
    maybe_acked: set[bytes] = field(default_factory=set)
    again: list[bytes] = field(default_factory=list)  # given out after their acknowledgement
    is_ending: bool = False  # then all are acknowledged


@pytest.mark.parametrize(
    ("count", "kills"), [(1000, 3), pytest.param(20_000, 20, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_each_popped_message_ends_once_while_leaders_are_killed(
    cluster: LocalCluster, count: int, kills: int
) -> None:
    cluster.up()
    tasks = Tasks()
    dead = asyncio.run(story(cluster, tasks, count, kills))
    assert tasks.again == []
    assert tasks.stored - tasks.acked - tasks.maybe_acked - dead == set()
    assert dead & tasks.acked == set()
    assert dead or kills < 20, "it goes on for long enough that some are forgotten each time"
    print(f"{len(tasks.stored)} stored, {len(tasks.acked)} acknowledged, {len(dead)} dead")
    cluster.level()


async def story(cluster: LocalCluster, tasks: Tasks, count: int, kills: int) -> set[bytes]:
    """Returns what is dead."""
    dice = random.Random(kills)
    async with asyncio.timeout(LIMIT_S):
        async with Admin(cluster.namesrv) as admin:
            for leader in await admin.brokers.leaders(""):
                config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=RETRIES_MAX)
                await admin.groups.put(leader, config)
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(send(cluster.namesrv, tasks, count))
            workers = [group.create_task(work(cluster.namesrv, tasks, dice)) for _ in range(CONSUMERS)]
            await asyncio.to_thread(kill_leaders, cluster, kills)
            await sender
            tasks.is_ending = True
            await asyncio.gather(*workers)
        return await dead_letters(cluster.namesrv)


def kill_leaders(cluster: LocalCluster, kills: int) -> None:
    with (killer := LeaderKiller(cluster, kills, 2.0, random.Random(kills))):
        killer.wait()


async def send(namesrv: str, tasks: Tasks, count: int) -> None:
    async with Producer(namesrv, "p", config=ProducerConfig(send_timeout_s=10.0)) as producer:
        for number in range(count):
            body = b"%d" % number
            try:
                await producer.send(Message(TOPIC, body))
            except SendError as error:
                if not error.definite:
                    tasks.doubted.add(body)
            else:
                tasks.stored.add(body)


async def work(namesrv: str, tasks: Tasks, dice: random.Random) -> None:
    """Until the end some are forgotten, and come again."""
    async with SimpleConsumer(
        namesrv, GROUP, {TOPIC: "*"}, invisible_s=INVISIBLE_S, consume_from=FIRST.consume_from
    ) as consumer:
        quiet = 0  # in a row, receives that found nothing at the end
        while quiet < QUIET_MAX:
            try:
                messages = await consumer.receive(8, wait_s=1.0)
            except MQClientError:
                continue
            quiet = quiet + 1 if tasks.is_ending and not messages else 0
            tasks.again += [message.body for message in messages if message.body in tasks.acked]
            wanted = [message for message in messages if tasks.is_ending or dice.random() < ACKED_SHARE]
            began = asyncio.get_running_loop().time()
            try:
                await consumer.ack(*wanted)
            except AckError as error:
                tasks.maybe_acked.update(message.body for message in error.messages)
                wanted = [message for message in wanted if message not in error.messages]
            # One that took longer than the message was invisible may have come too late.
            is_in_time = asyncio.get_running_loop().time() - began < INVISIBLE_S / 2
            (tasks.acked if is_in_time else tasks.maybe_acked).update(message.body for message in wanted)


async def dead_letters(namesrv: str) -> set[bytes]:
    found: set[bytes] = set()
    async with LitePullConsumer(namesrv, "reader", {DEAD: "*"}, config=FIRST) as consumer:
        while messages := await consumer.poll(3.0):
            found.update(message.body for message in messages)
    return found
