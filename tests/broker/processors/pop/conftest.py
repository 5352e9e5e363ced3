"""A broker with five messages, and a client that pops them."""

from pathlib import Path

import pytest
from one_broker import OneBroker
from pops import PopClient


@pytest.fixture
def client(tmp_path: Path) -> PopClient:
    client = PopClient(OneBroker(tmp_path, "timerWheelEnable=false\n"))
    client.send(b"0", b"1", b"2", queue_id=0)
    client.send(b"3", b"4", queue_id=1)
    return client
