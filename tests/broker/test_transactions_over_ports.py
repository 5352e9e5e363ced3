"""Transactions of our client over a broker on real ports."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from test_broker_server import run

from broker.server import Broker
from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageIllegalError,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
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
