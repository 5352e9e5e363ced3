"""Requests and replies while the leader is killed: each request that is stored gets its reply."""

import asyncio

import pytest
from local_cluster import LocalCluster

from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from mqclient.client_api import ClientApi
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.channel import Channel
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand, response

pytestmark = pytest.mark.slow

FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, poll_name_server_interval_s=0.5)
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
TIMEOUT_S = 60.0
ASKERS = 8
REPLIES_AFTER = 100  # a kill


async def reply_to_all(consumer: PushConsumer) -> None:
    async with asyncio.TaskGroup() as replying:
        async for batch in consumer.batches():
            for message in batch.messages:
                replying.create_task(consumer.reply(message, message.body * 2))


def test_each_request_is_replied_to_while_leaders_are_killed(cluster: LocalCluster) -> None:
    cluster.up()
    asyncio.run(ask_while_leaders_are_killed(cluster))


async def ask_while_leaders_are_killed(cluster: LocalCluster) -> None:
    config = ProducerConfig(retry_times=10)
    replied = 0
    is_ending = asyncio.Event()

    async def ask(producer: Producer, name: bytes) -> None:
        nonlocal replied
        number = 0
        while not is_ending.is_set():
            body = b"%s-%d " % (name, number)
            reply = await producer.request(Message("Questions", body), timeout_s=TIMEOUT_S)
            assert reply.body == body * 2
            number += 1
            replied += 1
            async with progress:
                progress.notify_all()

    async def more(count: int) -> None:
        wanted = replied + count
        async with asyncio.timeout(TIMEOUT_S), progress:
            await progress.wait_for(lambda: replied >= wanted)

    progress = asyncio.Condition()
    async with (
        PushConsumer(cluster.namesrv, "repliers", {"Questions": "*"}, config=FIRST) as consumer,
        Producer(cluster.namesrv, "askers", config=config) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        replying = tasks.create_task(reply_to_all(consumer))
        asking = [tasks.create_task(ask(producer, b"%d" % number)) for number in range(ASKERS)]
        await more(REPLIES_AFTER)
        for _ in range(2):
            leader = await asyncio.to_thread(cluster.leader)
            await asyncio.to_thread(cluster.kill, leader)
            await more(REPLIES_AFTER)
            await asyncio.to_thread(cluster.start, leader)
            await asyncio.to_thread(cluster.wait_back, leader)
        is_ending.set()
        await asyncio.gather(*asking)
        replying.cancel()


@pytest.mark.parametrize("is_killed_again", [False, True], ids=["one leader killed", "the next one, too"])
def test_a_reply_waits_for_a_requester_that_comes_late(cluster: LocalCluster, is_killed_again: bool) -> None:
    """As Java's requesters do, whose heartbeats go to leaders alone, every 30 s. The second leader that is killed has
    the reply waiting; nobody sends it again.
    """
    cluster.up()
    asyncio.run(reply_before_the_requester_comes(cluster, is_killed_again=is_killed_again))


async def reply_before_the_requester_comes(cluster: LocalCluster, *, is_killed_again: bool) -> None:
    pushed: asyncio.Queue[bytes] = asyncio.Queue()

    def on_request(channel: Channel, command: RemotingCommand) -> None:
        assert command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        pushed.put_nowait(bytes(command.body))
        channel.write(response(command).encode())

    heartbeat = HeartbeatData(client_id="late@1", producer_data_set=[ProducerData(group_name="askers")])
    properties = {"REPLY_TO_CLIENT": "late@1", "CORRELATION_ID": "c", "TTL": "60000"}
    requester = RemotingClient(on_request=on_request)
    api = ClientApi(requester)
    try:
        async with (
            asyncio.timeout(2 * TIMEOUT_S),
            PushConsumer(cluster.namesrv, "repliers", {"Questions": "*"}, config=FIRST) as consumer,
            LitePullConsumer(cluster.namesrv, "watchers", {REPLY_TOPIC: "*"}, config=FIRST) as watcher,
            Producer(cluster.namesrv, "askers") as producer,
        ):
            old = await asyncio.to_thread(cluster.leader)
            await api.heartbeat(listen_address(cluster, old), heartbeat)
            await producer.send(Message("Questions", b"how late?", properties=properties))
            batch = await consumer.take()
            assert batch is not None
            await asyncio.to_thread(cluster.kill, old)
            replying = asyncio.create_task(consumer.reply(batch.messages[0], b"very"))
            new = await asyncio.to_thread(cluster.leader)
            while not await watcher.poll():  # it is stored as soon as it has come there
                pass
            assert not replying.done()
            if is_killed_again:
                replying.cancel()
                await asyncio.to_thread(cluster.start, old)
                await asyncio.to_thread(cluster.wait_back, old)
                await asyncio.to_thread(cluster.kill, new)
                new = await asyncio.to_thread(cluster.leader)
            await api.heartbeat(listen_address(cluster, new), heartbeat)
            assert await pushed.get() == b"very"
            if not is_killed_again:
                await replying
    finally:
        await requester.close()


def listen_address(cluster: LocalCluster, name: str) -> str:
    return str(cluster.nodes()[name]["listen"])
