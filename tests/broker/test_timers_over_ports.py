"""Timer messages of our client over a broker on real ports."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_broker_server import run

from broker.server import Broker
from mqclient import BrokerResponseError, Message, Producer
from remoting.client import RemotingClient

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_example_prints_what_comes_in_its_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "examples" / "reminders.py"))["main"]

    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        await main(namesrv)

    run(tmp_path, scenario)
    assert capsys.readouterr().out.splitlines()[-3:] == ["call back: recalled", "drink", "stretch"]


@pytest.mark.slow
def test_what_cannot_be_recalled_is_said(tmp_path: Path) -> None:
    async def scenario(client: RemotingClient, broker: Broker, namesrv: str) -> None:
        async with Producer(namesrv, "p") as producer:
            now = await producer.send(Message("T", b"now", deliver_at=datetime.now(UTC) - timedelta(days=1)))
            assert now.recall_handle == ""
            with pytest.raises(ValueError, match="is no recall handle"):
                await producer.recall("T", now.recall_handle)
            later = await producer.send(Message("T", b"later", delay=timedelta(hours=1)))
            await producer.send(Message("Other", b"x"))
            with pytest.raises(BrokerResponseError, match="topic not match"):
                await producer.recall("Other", later.recall_handle)
            await producer.recall("T", later.recall_handle)

    run(tmp_path, scenario)
