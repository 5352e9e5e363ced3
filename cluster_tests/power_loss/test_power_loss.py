"""All brokers lose power at once, again and again, under load: what was acknowledged is still there.

The brokers run under a preloaded shim that journals what a sync made durable (shim.c); they are killed, and restart
from the replayed journals instead of from their directories, whose page cache outlived them. The last test turns the
syncs off and must find losses, or the others would prove nothing.
"""

import asyncio
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from images import JournalReplay, ReplaySummary
from local_cluster import LocalCluster, wait_for
from preload import built

import mqclient

pytestmark = pytest.mark.slow

TOPIC = "PowerLoss"
HERE = Path(__file__).resolve().parent
CONF = {"mappedFileSizeCommitLog": str(16 << 20), "flushDiskType": "SYNC_FLUSH"}


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(HERE / "shim.c", tmp_path_factory.mktemp("shim") / "power_loss_shim.so")


@dataclass
class Load:
    """Sends one after the other in small batches until told to stop; remembers what was acknowledged, and where."""

    namesrv: str
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    stopping: bool = False

    async def run(self, prefix: str) -> None:
        config = mqclient.ProducerConfig(retry_times=0, send_timeout_s=2.0)
        async with mqclient.Producer(self.namesrv, "power_loss", config=config) as producer:
            number = 0
            while not self.stopping:
                keys = [f"{prefix}-{number + i}" for i in range(20)]
                number += len(keys)
                batch = [mqclient.Message(TOPIC, b"x" * 700 + key.encode(), keys=key) for key in keys]
                for key, outcome in zip(keys, await producer.send_batch(batch), strict=True):
                    if isinstance(outcome, mqclient.SendResult):
                        self.acknowledged[key] = (outcome.message_queue.queue_id, outcome.queue_offset)


class PoweredCluster:
    """A cluster whose stores can be put back to what was durable."""

    def __init__(self, cluster: LocalCluster, shim: Path, work: Path, *, syncs: bool) -> None:
        self.cluster = cluster
        self.durable = work / "durable"
        self.journals = work / "journals"
        self.summary = ReplaySummary()
        self._environment = {
            "LD_PRELOAD": str(shim),
            "PYDLEDGER_POWERLOSS_ROOT": str(cluster.directory),
            "PYDLEDGER_POWERLOSS_JOURNAL": str(self.journals),
            **({} if syncs else {"PYDLEDGER_POWERLOSS_NOSYNC": "1"}),
        }
        cluster.up(conf=CONF)
        cluster.leader()
        nodes = cluster.nodes()
        self.stores = {name: Path(node["store_dir"]) for name, node in nodes.items()}
        for name in nodes:
            cluster.stop(name)
        self.durable.mkdir()
        for name, store in self.stores.items():
            copy_tree(store, self.durable / name)

    def power_on(self) -> None:
        self.journals.mkdir()
        self.cluster.environment = self._environment
        self.cluster.up(conf=CONF)
        self.cluster.environment = {}
        self.cluster.leader()

    def power_off(self) -> None:
        pids = {name: node["pid"] for name, node in self.cluster.nodes().items()}
        for name in self.stores:
            self.cluster.kill(name)
        for name, store in self.stores.items():
            replay = JournalReplay(store.resolve(), self.durable / name, self.summary)
            replay.replay(self.journals / str(pids[name]))
            shutil.rmtree(store)
            copy_tree(self.durable / name, store)
        shutil.rmtree(self.journals)

    def start_without_shim(self) -> None:
        self.cluster.up(conf=CONF)
        self.cluster.leader()


def copy_tree(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


async def one_round(powered: PoweredCluster, load: Load, number: int, sends: int) -> None:
    powered.power_on()
    load.stopping = False
    already = len(load.acknowledged)
    running = asyncio.create_task(load.run(f"r{number}"))
    await asyncio.to_thread(
        wait_for, lambda: len(load.acknowledged) >= already + sends, 60, f"{sends} sends acknowledged"
    )
    await asyncio.to_thread(powered.power_off)
    load.stopping = True
    await running


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
    powered = PoweredCluster(cluster, shim, work, syncs=syncs)
    load = Load(cluster.namesrv)
    for number in range(rounds):
        asyncio.run(one_round(powered, load, number, sends=400 + 150 * (number % 7)))
    powered.start_without_shim()
    found = asyncio.run(read_all(cluster.namesrv, set(load.acknowledged)))
    print(
        f"{rounds} power losses: {len(load.acknowledged)} acknowledged, {len(found)} found, {powered.summary}"
    )
    if syncs:
        assert powered.summary.syncs > rounds * 10, "the shim saw next to no syncs: nothing was proven"
        moved = [k for k, place in load.acknowledged.items() if k in found and place not in found[k]]
        assert not moved, f"at another offset than acknowledged: {moved[:5]}"
    return set(load.acknowledged) - set(found)


def test_nothing_acknowledged_is_lost_when_all_lose_power(
    cluster: LocalCluster, shim: Path, tmp_path: Path
) -> None:
    lost = run_rounds(cluster, shim, tmp_path, rounds=2)
    assert not lost, f"{len(lost)} acknowledged messages are gone, first {sorted(lost)[:5]}"


@pytest.mark.long
def test_nothing_acknowledged_is_lost_in_20_power_losses(
    cluster: LocalCluster, shim: Path, tmp_path: Path
) -> None:
    lost = run_rounds(cluster, shim, tmp_path, rounds=20)
    assert not lost, f"{len(lost)} acknowledged messages are gone, first {sorted(lost)[:5]}"


def test_without_syncs_the_same_rounds_do_lose_messages(
    cluster: LocalCluster, shim: Path, tmp_path: Path
) -> None:
    assert run_rounds(cluster, shim, tmp_path, rounds=1, syncs=False), (
        "losing power without syncs lost nothing"
    )
