"""Wall clocks of members that jump while they run: nobody campaigns, no send fails, nothing comes before its time."""

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_runs.our_group import OurGroup
from local_cluster import wait_for
from nemeses.clock_jump import ClockJump
from proved_load import PATIENCE_S, Load, prove

import mqclient

pytestmark = [pytest.mark.slow, pytest.mark.long]

DELAYED = "Delayed"
DELAY_LEVEL = 2
DELAY_S = 5.0
HOUR_MS = 3_600_000

LOOK_TWICE = """
import datetime, os, sys, time
def look():
    print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
look()
print(os.getpid(), flush=True)
sys.stdin.readline()
look()
"""


class Chosen(random.Random):
    """Draws this sign, and about so many hours."""

    def __init__(self, sign: int) -> None:
        super().__init__(0)
        self._sign = sign

    def choice(self, seq: object) -> int:  # type: ignore[override]
        return self._sign

    def random(self) -> float:
        return 0.8


def test_a_shifted_process_reads_another_wall_clock_and_the_same_monotonic_one(
    our_group: OurGroup,
) -> None:
    clocks = our_group.clocks()
    process = subprocess.Popen(
        [sys.executable, "-c", LOOK_TWICE],
        env=os.environ | our_group.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    begun, begun_here = time.monotonic(), time.time()
    first = [float(word) for word in process.stdout.readline().split()]
    clocks.shift(int(process.stdout.readline()), -2 * HOUR_MS)
    process.stdin.write("\n")
    process.stdin.flush()
    second = [float(word) for word in process.stdout.readline().split()]
    process.communicate()
    took = time.monotonic() - begun
    assert all(begun_here - 0.1 <= told <= begun_here + took + 0.1 for told in first[:3])
    assert all(
        0 <= after - before + 7200 <= took + 0.1 for before, after in zip(first[:3], second[:3], strict=True)
    )
    assert begun <= first[3] <= second[3] <= begun + took


@pytest.mark.parametrize("sign", [1, -1], ids=["forwards", "back"])
def test_clocks_that_jump_move_no_timer(our_group: OurGroup, tmp_path: Path, sign: int) -> None:
    nemesis = ClockJump(our_group, Chosen(sign))
    our_group.up()
    cluster = our_group.cluster
    with Load(cluster, tmp_path / "history.jsonl") as load:
        leader = cluster.leader(PATIENCE_S)
        before = cluster.nodes()
        nemesis.begin("group")
        delayed_s = asyncio.run(delay_of_one(cluster.namesrv))
        wait_for(nemesis.evidence, PATIENCE_S, "lines with another time")
        load.goes_on(20)
        nemesis.end()
        load.goes_on(20)
    evidence = nemesis.evidence() or ""
    assert all(f"{name}: {'+' if sign > 0 else '-'}" in evidence for name in our_group.members), evidence
    assert load.failed == []
    assert delayed_s >= DELAY_S - 0.1
    after = cluster.nodes()
    assert [after[name]["pid"] for name in our_group.members] == [
        before[name]["pid"] for name in our_group.members
    ]
    # A term more would be an election that a clock held.
    assert (cluster.leader(PATIENCE_S), after[leader]["term"]) == (leader, before[leader]["term"])
    prove(cluster, load)


async def delay_of_one(namesrv: str) -> float:
    """Seconds from the send of a delayed message to its delivery."""
    config = mqclient.ConsumerConfig(consume_from=mqclient.ConsumeFromWhere.FIRST)
    async with mqclient.Producer(namesrv, "delayed") as producer:
        begun = time.monotonic()
        await producer.send(mqclient.Message(DELAYED, b"x", delay_level=DELAY_LEVEL))
        async with mqclient.PushConsumer(
            namesrv, "delayed_reader", {DELAYED: "*"}, config=config
        ) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                batch = await consumer.take()
            took = time.monotonic() - begun
            assert batch is not None
            batch.done()
    return took
