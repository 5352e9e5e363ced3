"""Transactions of our client over a broker on real ports."""

from __future__ import annotations

import asyncio
import runpy
import threading
from pathlib import Path

import pytest
from test_broker_server import run

from broker.server import Broker
from mqclient import (
    ClientClosedError,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageIllegalError,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from mqclient.sync import LitePullConsumer
from mqclient.sync import TransactionProducer as SyncTransactionProducer
from remoting.client import RemotingClient

ROOT = Path(__file__).resolve().parents[2]
FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


async def bodies(namesrv: str, count: int) -> list[bytes]:
    async with PushConsumer(namesrv, "g", {"T": "*"}, config=FIRST) as consumer:
        found: list[bytes] = []
        async for message in consumer:
            found.append(message.body)
            if len(found) == count:
                return found
    raise AssertionError("the consumer ended")


@pytest.mark.slow
def test_the_example_packs_what_was_booked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "transactions.py"))["main"]

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await main(namesrv)

    run(tmp_path, scenario)
    assert capsys.readouterr().out.splitlines() == [
        "1 apple: COMMIT",
        "2 pears: ROLLBACK",
        "3 plums: UNKNOWN",
        "packed: 1 apple",
        "packed: 3 plums",
    ]


@pytest.mark.slow
def test_the_example_without_an_event_loop_sells_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "transactions_without_asyncio.py"))["main"]

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await asyncio.to_thread(main, namesrv)

    run(tmp_path, scenario)
    assert capsys.readouterr().out.splitlines() == [
        "7 pieces: COMMIT",
        "5 pieces: ROLLBACK",
        "2 pieces: UNKNOWN",
        "sold: 7 2",
    ]


@pytest.mark.slow
def test_without_an_event_loop_the_thread_that_sends_does_its_part_and_another_one_checks(
    tmp_path: Path,
) -> None:
    def story(namesrv: str) -> None:
        threads: list[str] = []
        is_asked = threading.Event()

        def fail(message: Message, transaction_id: str) -> TransactionState:
            threads.append(threading.current_thread().name)
            raise RuntimeError("the database is away")

        def check(message: MessageExt) -> TransactionState:
            threads.append(threading.current_thread().name)
            is_asked.set()
            return TransactionState.ROLLBACK

        with SyncTransactionProducer(namesrv, "p", check=check) as producer:
            result = producer.send_in_transaction(Message("T", b"m"), fail)
            assert (result.state, result.is_ended) == (TransactionState.UNKNOWN, False)
            with pytest.raises(MessageIllegalError):
                producer.send_in_transaction(Message("T", b""), fail)
            assert is_asked.wait(60)
            producer.send(Message("T", b"plain"))
        assert threads == [threading.current_thread().name, "p-check_0"]

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await asyncio.to_thread(story, namesrv)
        assert not [one.name for one in threading.enumerate() if one.name.startswith(("mqclient", "p-"))]
        assert await bodies(namesrv, 1) == [b"plain"]

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_producer_that_is_closed_within_its_transaction_ends_it_by_no_word(tmp_path: Path) -> None:
    def story(namesrv: str) -> None:
        asked: list[bytes] = []

        def check(message: MessageExt) -> TransactionState:
            asked.append(message.body)
            return TransactionState.COMMIT

        producer = SyncTransactionProducer(namesrv, "p", check=check)
        producer.start()

        def close(message: Message, transaction_id: str) -> TransactionState:
            producer.close()
            return TransactionState.ROLLBACK

        with pytest.raises(ClientClosedError) as caught:
            producer.send_in_transaction(Message("T", b"m"), close)
        assert not caught.value.definite
        producer = SyncTransactionProducer(namesrv, "p", check=check, topics=["T"])
        with producer, LitePullConsumer(namesrv, "g", {"T": "*"}, config=FIRST) as consumer:
            found: list[MessageExt] = []
            while not found:
                found = consumer.poll()
        assert ([message.body for message in found], asked) == ([b"m"], [b"m"])

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await asyncio.to_thread(story, namesrv)

    run(tmp_path, scenario)


@pytest.mark.slow
def test_what_one_producer_does_not_know_another_one_of_its_group_is_asked(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        asked: list[tuple[str | None, bytes]] = []

        def unknown(message: Message, transaction_id: str) -> TransactionState:
            raise RuntimeError("the database is away")

        async def check(message: MessageExt) -> TransactionState:
            asked.append((message.uniq_key, message.body))
            return TransactionState.COMMIT

        def unasked(message: MessageExt) -> TransactionState:
            raise AssertionError("it has gone")

        async with TransactionProducer(namesrv, "p", check=unasked) as producer:
            result = await producer.send_in_transaction(Message("T", b"m" * 5000), unknown)
            assert (result.state, result.is_ended) == (TransactionState.UNKNOWN, False)
            with pytest.raises(MessageIllegalError, match="cannot be delayed"):
                await producer.send_in_transaction(Message("T", b"m", delay_level=1), unknown)
        async with TransactionProducer(namesrv, "p", check=check, topics=["T"]):
            assert await bodies(namesrv, 1) == [b"m" * 5000]
        assert asked == [(result.send_result.msg_id, b"m" * 5000)]

    run(tmp_path, scenario)
