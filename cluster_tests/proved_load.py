"""Sends that go on while something is broken, and the proof at the end that nothing acknowledged is lost."""

import asyncio
import json
import threading
from itertools import pairwise
from pathlib import Path

from local_cluster import LocalCluster, wait_for

from mq.history import HistoryFile
from mqclient import Message, Producer, SendError, SendPipeline, SendResult
from verify.runner import LocalRunner
from verify.validation import validate

TOPIC = "ProvedLoad"
BODY = b"x" * 3_000
IN_FLIGHT = 2
# For what takes a second or two by itself: on a machine with other work it may take a hundred times as long.
PATIENCE_S = 180


class Load:
    """Sends for as long as it is told to, a few messages at a time, and notes each outcome in a history file."""

    def __init__(self, cluster: LocalCluster, history: Path, *, timeout_s: float = 20.0) -> None:
        self.places: set[tuple[int, int]] = set()  # queue and offset of what was acknowledged
        self.failed: list[SendError] = []
        self.history = history
        self._namesrv = cluster.namesrv
        self._timeout_s = timeout_s
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> "Load":
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    @property
    def acknowledged(self) -> int:
        return len(self.places)

    def goes_on(self, count: int = 100) -> None:
        """Waits until so many more are acknowledged."""
        wanted = self.acknowledged + count
        wait_for(lambda: self.acknowledged >= wanted, PATIENCE_S, f"{count} more sends acknowledged")

    def is_refused(self, count: int = IN_FLIGHT) -> None:
        """Waits until so many more have failed, each of them tried for as long as it may take."""
        wanted = len(self.failed) + count
        wait_for(lambda: len(self.failed) >= wanted, PATIENCE_S, f"{count} more sends refused")

    async def _send(self) -> None:
        with HistoryFile(self.history, TOPIC) as history:

            def ended(number: int, outcome: SendResult | SendError) -> None:
                history.note(number, outcome)
                if isinstance(outcome, SendResult):
                    self.places.add((outcome.message_queue.queue_id, outcome.queue_offset))
                else:
                    self.failed.append(outcome)

            async with Producer(self._namesrv, "proved_load") as producer:
                pipeline = SendPipeline(
                    producer, ended, batch_size_max=1, in_flight_max=IN_FLIGHT, timeout_s=self._timeout_s
                )
                async with pipeline:
                    while not self._is_ending.is_set():
                        number = pipeline.count
                        await pipeline.put(Message(TOPIC, BODY + b"%d" % number, keys=f"key-{number}"))


def prove(cluster: LocalCluster, load: Load) -> None:
    """Nothing acknowledged is missing, the replicas are equal byte by byte, and they validate."""
    cluster.level(PATIENCE_S)
    stores = [Path(node["store_dir"]) for node in cluster.nodes().values()]
    report = validate(stores, runner=LocalRunner(), history=load.history)
    assert report.is_clean, [json.dumps(finding.as_dict()) for finding in report.findings.shown]
    assert report.acknowledged == report.acknowledged_found == load.acknowledged
    # What a consumer has committed last may come between the one and the other.
    wait_for(
        lambda: are_equal([data_files(store) for store in stores]), PATIENCE_S, "data files that are equal"
    )


def data_files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(store.glob("dledger-*/data/*"))}


def are_equal(stores: list[dict[str, bytes]]) -> bool:
    """A file that was made ahead is as good as none."""
    return all(
        one.get(name, bytes(len(other.get(name, b"")))) == other.get(name, bytes(len(one.get(name, b""))))
        for one, other in pairwise(stores)
        for name in one.keys() | other.keys()
    )
