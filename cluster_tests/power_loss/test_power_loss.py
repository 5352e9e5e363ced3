"""All brokers lose power at once, again and again, under load: what was acknowledged is still there.

The brokers are killed, and restart from what their syncs made durable instead of from their directories, whose page
cache outlived them (powered_cluster.py). The last test turns the syncs off and must find losses, or the others would
prove nothing. How long the restarts take is measured by benchmarks/outages.py.
"""

import asyncio
from pathlib import Path

import pytest
from kill_rounds import TOPIC, Sender, assert_nothing_lost, restart_all, validated
from local_cluster import LocalCluster
from powered_cluster import PoweredCluster
from preloaded.preload import built

import mqclient

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
CONF = {"mappedFileSizeCommitLog": str(16 << 20), "flushDiskType": "SYNC_FLUSH"}


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(HERE / "shim.c", tmp_path_factory.mktemp("shim") / "power_loss_shim.so")


async def read_all(namesrv: str, expected: set[str]) -> dict[str, set[tuple[int, int]]]:
    """key -> where it is stored; ends once all `expected` keys were seen, or when nothing new comes for 5 s."""
    config = mqclient.ConsumerConfig(consume_from=mqclient.ConsumeFromWhere.FIRST)
    found: dict[str, set[tuple[int, int]]] = {}
    async with mqclient.PushConsumer(namesrv, "power_loss_reader", {TOPIC: "*"}, config=config) as consumer:
        while expected:
            try:
                async with asyncio.timeout(5):
                    batch = await consumer.take()
            except TimeoutError:
                break
            assert batch is not None
            for message in batch.messages:
                found.setdefault(message.properties["KEYS"], set()).add(
                    (message.queue_id, message.queue_offset)
                )
                expected.discard(message.properties["KEYS"])
            batch.done()
    return found


def run_rounds(cluster: LocalCluster, shim: Path, work: Path, rounds: int, *, syncs: bool = True) -> set[str]:
    """Keys acknowledged and gone after `rounds` power losses."""
    powered = PoweredCluster(cluster, shim, work, CONF, syncs=syncs)
    with Sender(cluster.namesrv, work / "history.jsonl", batch_size=20) as sender:
        for number in range(rounds):
            powered.prepare()
            restart_all(cluster, sender)
            sender.wait_acknowledged(400 + 150 * (number % 7))
            powered.power_off()
    cluster.start_missing()
    cluster.leader()
    found = asyncio.run(read_all(cluster.namesrv, set(sender.places)))
    print(f"{rounds} power losses: {len(sender.places)} acknowledged, {len(found)} found, {powered.summary}")
    if syncs:
        assert powered.summary.syncs > rounds * 10, "the shim saw next to no syncs: nothing was proven"
        moved = [key for key, place in sender.places.items() if key in found and place not in found[key]]
        assert not moved, f"at another offset than acknowledged: {moved[:5]}"
        assert_nothing_lost(validated(cluster, sender.history), sender)
    return set(sender.places) - set(found)


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_when_all_lose_power(
    cluster: LocalCluster, shim: Path, tmp_path: Path, rounds: int
) -> None:
    lost = run_rounds(cluster, shim, tmp_path, rounds)
    assert not lost, f"{len(lost)} acknowledged messages are gone, first {sorted(lost)[:5]}"


def test_without_syncs_the_same_rounds_do_lose_messages(
    cluster: LocalCluster, shim: Path, tmp_path: Path
) -> None:
    assert run_rounds(cluster, shim, tmp_path, rounds=1, syncs=False), (
        "losing power without syncs lost nothing"
    )
