"""Replicas that are being written, by members whose leaders are killed, validate without a false finding.

Producers go on beside all of it. After each kill, and once more when the member is back, the three directories are
validated as they lie, twice: with the history of what was acknowledged so far, and without. And they are compared range
by range as they commit, which names nothing either.
"""

import asyncio
import json
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for

import mqclient
from mq.history import HistoryFile
from verify.group.follow import GroupFollower
from verify.runner import LocalRunner
from verify.validation import validate
from verify.validation_report import ValidationReport

pytestmark = pytest.mark.slow

TOPIC = "Live"


class Load:
    """Sends batches for as long as fewer are acknowledged than allowed, and notes each outcome in a history file."""

    def __init__(self, cluster: LocalCluster, history: Path) -> None:
        self.acknowledged = 0
        self._cluster = cluster
        self._history = history
        self._allowed = 0
        self._changed = asyncio.Event()
        self._stopping = False

    def allow(self, count: int) -> None:
        """So many more than are acknowledged now: what is written beside a validation stays some MiB."""
        self._allowed = self.acknowledged + count
        self._changed.set()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        config = mqclient.ProducerConfig(retry_times=0, send_timeout_s=2.0)
        with HistoryFile(self._history, TOPIC) as history:
            async with mqclient.Producer(self._cluster.namesrv, "live", config=config) as producer:
                number = 0
                while not self._stopping:
                    if self.acknowledged >= self._allowed:
                        self._changed.clear()
                        await self._changed.wait()
                        continue
                    keys = [f"key-{number + i}" for i in range(50)]
                    batch = [mqclient.Message(TOPIC, b"y" * 400 + key.encode(), keys=key) for key in keys]
                    outcomes = await producer.send_batch(batch)
                    for line, outcome in enumerate(outcomes, number):
                        history.note(line, outcome)
                        self.acknowledged += isinstance(outcome, mqclient.SendResult)
                    number += len(keys)
                    if not isinstance(outcomes[-1], mqclient.SendResult):
                        await asyncio.to_thread(self._cluster.leader)


def assert_clean(report: ValidationReport) -> None:
    found = [json.dumps(finding.as_dict()) for finding in report.findings.shown]
    assert report.is_clean, "\n".join(found)


async def kill_and_validate(cluster: LocalCluster, history: Path, kills: int) -> None:
    stores = [node["store_dir"] for node in cluster.nodes().values()]
    loop = asyncio.get_running_loop()
    load = Load(cluster, history)
    running = asyncio.create_task(load.run())

    async def validated_under_load() -> ValidationReport:
        def load_goes_on(*_: object) -> None:
            loop.call_soon_threadsafe(load.allow, 500)

        return await asyncio.to_thread(validate, stores, runner=LocalRunner(), on_progress=load_goes_on)

    async def sent(count: int) -> None:
        wanted = load.acknowledged + count
        await asyncio.to_thread(
            wait_for, lambda: load.acknowledged >= wanted or running.done(), 30, "sends acknowledged"
        )
        assert not running.done(), running.exception()

    follower = GroupFollower(stores)

    def follow_on() -> None:
        while follower.look() is not None:
            assert follower.findings == []

    for _ in range(kills):
        load.allow(2_000)  # more than is waited for, so that it goes on beside the kill
        await sent(500)
        leader = await asyncio.to_thread(cluster.leader)
        await asyncio.to_thread(cluster.kill, leader)
        assert_clean(await validated_under_load())
        await asyncio.to_thread(follow_on)
        await asyncio.to_thread(cluster.start, leader)
        report = await validated_under_load()
        assert_clean(report)
        assert any(replica.is_live for replica in report.replicas)
        await asyncio.to_thread(follow_on)
    load.stop()
    await running
    await asyncio.to_thread(cluster.level)
    # What a crash left behind is still there in the files of those killed: nothing of it may look like damage.
    report = await asyncio.to_thread(validate, stores, runner=LocalRunner(), history=history)
    assert_clean(report)
    cluster.down()
    report = await asyncio.to_thread(validate, stores, runner=LocalRunner(), history=history)
    assert_clean(report)
    assert not any(replica.is_live for replica in report.replicas)
    assert report.acknowledged == report.acknowledged_found == load.acknowledged
    assert len(report.replicas[0].term_runs) > kills
    follow_on()
    assert follower.proved_index == report.common_index


@pytest.mark.parametrize("kills", [2, pytest.param(15, marks=pytest.mark.long)])
def test_kills_leave_no_false_finding(cluster: LocalCluster, tmp_path: Path, kills: int) -> None:
    cluster.up(conf={"mappedFileSizeCommitLog": str(1 << 20)})
    asyncio.run(kill_and_validate(cluster, tmp_path / "history.jsonl", kills))
