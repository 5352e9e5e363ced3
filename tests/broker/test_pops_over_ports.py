"""The consumer of our client that pops, over a broker on real ports."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest
from test_broker_server import run

from broker.server import Broker
from mqclient import (
    Admin,
    BrokerResponseError,
    ClientClosedError,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    SimpleConsumer,
    sql,
)
from mqclient.sync import SimpleConsumer as SyncSimpleConsumer
from remoting.bodies.bodies import SubscriptionGroupConfig
from remoting.client import RemotingClient

ROOT = Path(__file__).resolve().parents[2]
FIRST = ConsumeFromWhere.FIRST


async def send(namesrv: str, *bodies: bytes, topic: str = "T", tags: str = "") -> None:
    async with Producer(namesrv, "p") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags=tags))


def bodies(messages: list[MessageExt]) -> list[bytes]:
    return sorted(message.body for message in messages)


async def receive(consumer: SimpleConsumer, count: int, **options: float) -> list[MessageExt]:
    found: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += await consumer.receive(**options)
    return found


@pytest.mark.slow
def test_the_example_does_each_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "tasks.py"))["main"]

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await main(namesrv)

    run(tmp_path, scenario)
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed[:-1]) == [
        "print invoice: out of paper",
        "resize cat.png: done",
        "resize dog.png: done",
        "resize owl.png: done",
        "send report: done",
    ]
    assert printed[-1] == "print invoice: done"


@pytest.mark.slow
def test_what_is_acknowledged_never_comes_again_and_the_rest_does(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await send(namesrv, *(b"%d" % number for number in range(10)))
        options = {"invisible_s": 1.0, "consume_from": FIRST}
        async with (
            SimpleConsumer(namesrv, "g", {"T": "*"}, **options) as one,  # type: ignore[arg-type]
            SimpleConsumer(namesrv, "g", {"T": "*"}, **options) as two,  # type: ignore[arg-type]
        ):
            first = await receive(one, 10)
            await one.ack(*first[:5])
            await one.ack(first[5])
            again = await receive(two, 4)
            assert bodies(again) == bodies(first[6:])
            assert {message.reconsume_times for message in again} == {1}
            assert {message.topic for message in again} == {"T"}
            await two.ack(*again)
            assert await one.receive(wait_s=2) == []
        async with Admin(namesrv) as admin:
            progress = await admin.groups.progress("g", "T")
        assert sum(row.diff for row in progress) == 0

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_receive_waits_and_only_wanted_messages_come(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await send(namesrv, b"x", tags="B")
        await send(namesrv, b"x", topic="U")
        wanted = {"T": "A", "U": sql("TAGS = 'A'")}
        async with SimpleConsumer(namesrv, "g", wanted, consume_from=FIRST) as consumer:
            waiting = asyncio.create_task(receive(consumer, 2))
            assert await consumer.receive(wait_s=0) == []
            await send(namesrv, b"t", tags="A")
            await send(namesrv, b"u", topic="U", tags="A")
            assert bodies(await waiting) == [b"t", b"u"]

    run(tmp_path, scenario)


@pytest.mark.slow
def test_fifo_messages_come_in_their_order_and_count_their_attempts(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        async with Producer(namesrv, "p") as producer:
            for number in range(4):
                await producer.send(Message("T", b"%d" % number, sharding_key="one"))
        async with SimpleConsumer(
            namesrv, "g", {"T": "*"}, fifo=True, invisible_s=1, consume_from=FIRST
        ) as consumer:
            first = await consumer.receive(2)
            assert [message.body for message in first] == [b"0", b"1"]
            await consumer.ack(first[1])
            again = await consumer.receive(2)
            assert [(message.body, message.reconsume_times) for message in again] == [(b"0", 1)]
            await consumer.ack(*again)
            (third,) = await consumer.receive(1)
            assert (third.body, third.reconsume_times) == (b"2", 0)
            await consumer.ack(third)
            (last,) = await consumer.receive()
            await consumer.change_invisible(last, 0)
            (last,) = await consumer.receive()
            assert (last.body, last.reconsume_times) == (b"3", 1)
            await consumer.ack(last)

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_program_without_an_event_loop_receives_and_acknowledges(tmp_path: Path) -> None:
    def story(namesrv: str) -> None:
        with SyncSimpleConsumer(namesrv, "g", {"T": "*"}, invisible_s=1, consume_from=FIRST) as consumer:
            (message,) = consumer.receive()
            consumer.change_invisible(message, 0)
            (again,) = consumer.receive()
            assert (again.body, again.reconsume_times) == (b"x", 1)
            consumer.ack(again)
            assert consumer.receive(wait_s=0) == []

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await send(namesrv, b"x")
        await asyncio.to_thread(story, namesrv)

    run(tmp_path, scenario)


@pytest.mark.slow
def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await send(namesrv, b"x")
        for group, subscriptions in (("a b", {"T": "*"}), ("g", {}), ("g", {"a b": "*"}), ("g", {"T": "||"})):
            with pytest.raises(ValueError):  # noqa: PT011  # each in other words
                SimpleConsumer(namesrv, group, subscriptions)
        consumer = SimpleConsumer(namesrv, "off", {"T": "*"})
        with pytest.raises(ClientClosedError):
            await consumer.receive()
        async with Admin(namesrv) as admin:
            config = SubscriptionGroupConfig(group_name="off", consume_enable=False)
            await admin.groups.put(broker.config.broker_addr, config)
        async with consumer:
            with pytest.raises(BrokerResponseError, match="subscription group no permission, off"):
                await consumer.receive()
        async with (
            SimpleConsumer(namesrv, "g", {"T": "*"}, consume_from=FIRST) as consumer,
            LitePullConsumer(namesrv, "h", {"T": "*"}) as other,
        ):
            with pytest.raises(ValueError, match="allowed are 1 to 32"):
                await consumer.receive(33)
            (message,) = await consumer.receive()
            await consumer.ack(message)
            assert other.client_id != consumer.client_id
            message.properties.pop("POP_CK")
            with pytest.raises(ValueError, match="was not popped: it has no handle"):
                await consumer.ack(message)

    run(tmp_path, scenario)
