"""Every member is stopped and started, one after the other, under load: no send fails, for leaders hand over first."""

import asyncio
import threading
import time
from itertools import pairwise
from statistics import median

import pytest
from local_cluster import LocalCluster

from mqclient import Admin, Message, Producer, SendError, SendPipeline, SendResult

pytestmark = pytest.mark.slow

TOPIC = "RollingTopic"
MEMBERS = ("n0", "n1", "n2")
# The acknowledgements set the pace: two requests are on their way at any time.
BATCH_SIZE = 4
IN_FLIGHT = 2 * BATCH_SIZE
SEND_TIMEOUT_S = 10.0
# Handed over, a leader is missed for two round trips, two syncs and a look at the NameServer; killed, for the time in
# which its connections close, and paused for an election timeout.
PAUSE_MS_MAX = 1_000


class Load:
    """Sends one message after the other, and remembers when each of them was acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged_s: list[float] = []
        self.duplicates = 0
        self.failed: list[str] = []
        self._namesrv = namesrv
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    async def _send(self) -> None:
        async with Producer(self._namesrv, "rolling") as producer:
            pipeline = SendPipeline(
                producer,
                self._ended,
                batch_size_max=BATCH_SIZE,
                in_flight_max=IN_FLIGHT,
                timeout_s=SEND_TIMEOUT_S,
            )
            async with pipeline:
                while not self._is_ending.is_set():
                    await pipeline.put(Message(TOPIC, b"%d" % pipeline.count))

    def _ended(self, number: int, outcome: SendResult | SendError) -> None:
        if isinstance(outcome, SendResult):
            self.acknowledged_s.append(time.monotonic())
            self.duplicates += outcome.maybe_duplicate
        else:
            self.failed.append(f"{number}: {outcome}")

    def pause_ms(self, from_s: float, until_s: float) -> float:
        """The longest time between two acknowledgements of which one or both lie within."""
        within = [at for at in self.acknowledged_s if from_s - 0.1 <= at <= until_s + 0.1]
        return 1000 * max((later - earlier for earlier, later in pairwise(within)), default=until_s - from_s)


async def _stored_count(namesrv: str) -> int:
    async with Admin(namesrv) as admin:
        return sum(row.max for row in await admin.topics.status(TOPIC))


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.long)])
def test_a_rolling_restart_under_load_fails_no_send(
    cluster: LocalCluster, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.up()
    cluster.leader()
    pauses_ms = []
    with Load(cluster.namesrv) as load:
        for _ in range(rounds):
            for name in MEMBERS:
                leads = cluster.leader() == name
                stopped_s = time.monotonic()
                cluster.stop(name)
                ended_s = time.monotonic()
                cluster.start(name)
                cluster.wait_back(name)
                if leads:
                    pauses_ms.append(load.pause_ms(stopped_s, ended_s))
    handed_over = sum(
        path.read_text().count("leadership handed over") for path in cluster.directory.glob("*/*.log")
    )
    acknowledged = len(load.acknowledged_s)
    with capsys.disabled():
        print(
            f"\nrolling restart x{rounds}: {acknowledged} sends, {len(load.failed)} failed, {load.duplicates} "
            f"perhaps twice; {len(pauses_ms)} leaders stopped, {handed_over} handed over, pauses "
            f"median {median(pauses_ms):.0f} ms, worst {max(pauses_ms):.0f} ms"
        )
    assert load.failed == []
    assert handed_over == len(pauses_ms) >= rounds
    assert max(pauses_ms) < PAUSE_MS_MAX
    cluster.level()
    stored = asyncio.run(_stored_count(cluster.namesrv))
    assert acknowledged <= stored <= acknowledged + load.duplicates
