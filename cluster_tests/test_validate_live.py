"""Replicas that are being written, by members whose leaders are killed, validate without a false finding.

Producers go on all the time. After each kill, and once more when the member is back, the three directories are
validated as they lie, twice: with the history of what was acknowledged so far, and without.
"""

import asyncio
import json
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for

import mqclient
from mq.history import HistoryFile
from pyspark_dledger.runner import LocalRunner
from pyspark_dledger.validation import validate
from pyspark_dledger.validation_report import ValidationReport

pytestmark = pytest.mark.slow

TOPIC = "Live"


class Load:
    """Sends batches until told to stop, and notes each outcome in a history file."""

    def __init__(self, namesrv: str, history: Path) -> None:
        self.acknowledged = 0
        self.stopping = False
        self._namesrv = namesrv
        self._history = history

    async def run(self) -> None:
        config = mqclient.ProducerConfig(retry_times=0, send_timeout_s=2.0)
        with HistoryFile(self._history, TOPIC) as history:
            async with mqclient.Producer(self._namesrv, "live", config=config) as producer:
                number = 0
                while not self.stopping:
                    # A log that grows by some MiB between two validations is enough.
                    await asyncio.sleep(0.02)
                    keys = [f"key-{number + i}" for i in range(50)]
                    number += len(keys)
                    batch = [mqclient.Message(TOPIC, b"y" * 400 + key.encode(), keys=key) for key in keys]
                    for line, outcome in enumerate(await producer.send_batch(batch), number - len(keys)):
                        history.note(line, outcome)
                        self.acknowledged += isinstance(outcome, mqclient.SendResult)


def assert_clean(report: ValidationReport) -> None:
    found = [json.dumps(finding.as_dict()) for finding in report.findings.shown]
    assert report.is_clean, "\n".join(found)


async def kill_and_validate(cluster: LocalCluster, history: Path, kills: int) -> None:
    stores = [node["store_dir"] for node in cluster.nodes().values()]
    load = Load(cluster.namesrv, history)
    running = asyncio.create_task(load.run())

    async def validated() -> ValidationReport:
        return await asyncio.to_thread(validate, stores, runner=LocalRunner())

    for _ in range(kills):
        wanted = load.acknowledged + 500
        await asyncio.to_thread(
            wait_for, lambda at=wanted: load.acknowledged >= at or running.done(), 30, "sends acknowledged"
        )
        assert not running.done(), await running
        leader = await asyncio.to_thread(cluster.leader)
        await asyncio.to_thread(cluster.command, "kill", leader)
        assert_clean(await validated())
        await asyncio.to_thread(cluster.command, "start", leader)
        report = await validated()
        assert_clean(report)
        assert any(replica.is_live for replica in report.replicas)
    load.stopping = True
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


def test_three_kills_leave_no_false_finding(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.up(conf={"mappedFileSizeCommitLog": str(1 << 20)})
    asyncio.run(kill_and_validate(cluster, tmp_path / "history.jsonl", kills=3))


@pytest.mark.long
def test_fifteen_kills_leave_no_false_finding(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.up(conf={"mappedFileSizeCommitLog": str(1 << 20)})
    asyncio.run(kill_and_validate(cluster, tmp_path / "history.jsonl", kills=15))
