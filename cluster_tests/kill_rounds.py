"""Kills under load, and how long nothing was acknowledged: what the long tests and benchmarks/outages.py share.

A sender of our client goes on for a whole run, and notes each outcome in a history that `mq validate` can read. It
never sends anything twice: an attempt whose end nobody knows stays unknown.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from local_cluster import LocalCluster, wait_for

from mq.history import HistoryFile
from mqclient import Message, Producer, ProducerConfig, SendResult
from verify.runner import LocalRunner
from verify.validation import validate
from verify.validation_report import ValidationReport

TOPIC: Final = "Outages"
WAIT_S: Final = 60.0
# After a kill so many acknowledgements are waited for: one of them at most can be the old leader's last.
ACKNOWLEDGEMENTS_AFTER: Final = 50


class Sender:
    """One batch after the other, each `interval_s` after the former one began, or when that has ended.

    Use it as `with Sender(namesrv, history) as sender`; it has a thread and an event loop of its own.
    `acknowledged_s`: monotonic times at which batches ended with an acknowledgement. `places`: by key, queue and offset
    of what was acknowledged.
    """

    def __init__(
        self,
        namesrv: str,
        history: Path,
        *,
        batch_size: int = 1,
        body_size: int = 700,
        interval_s: float = 0.0,
        timeout_s: float = 3.0,
    ) -> None:
        self.history = history
        self.acknowledged_s: list[float] = []
        self.places: dict[str, tuple[int, int]] = {}
        self.failed = 0
        self.unknown = 0
        self._namesrv = namesrv
        self._batch_size = batch_size
        self._body_size = body_size
        self._interval_s = interval_s
        self._config = ProducerConfig(retry_times=0, send_timeout_s=timeout_s)
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> "Sender":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(lambda: condition() or not self._thread.is_alive(), WAIT_S, what)
        assert self._thread.is_alive(), "the sender has failed"

    def wait_acknowledged(self, count: int) -> None:
        """So many messages more than now."""
        wanted = len(self.places) + count
        self.wait(lambda: len(self.places) >= wanted, f"{count} sends acknowledged")

    async def _send(self) -> None:
        number = 0
        with HistoryFile(self.history, TOPIC) as history:
            async with Producer(self._namesrv, "outages", config=self._config) as producer:
                while not self._is_ending.is_set():
                    begun_s = time.monotonic()
                    keys = [str(number + at) for at in range(self._batch_size)]
                    batch = [
                        Message(TOPIC, key.encode().rjust(self._body_size, b"."), keys=key) for key in keys
                    ]
                    outcomes = await producer.send_batch(batch)
                    for line, outcome in enumerate(outcomes, number + 1):
                        history.note(line, outcome)
                        if isinstance(outcome, SendResult):
                            place = (outcome.message_queue.queue_id, outcome.queue_offset)
                            self.places[str(line - 1)] = place
                        elif outcome.definite:
                            self.failed += 1
                        else:
                            self.unknown += 1
                    if any(isinstance(outcome, SendResult) for outcome in outcomes):
                        self.acknowledged_s.append(time.monotonic())
                    number += len(keys)
                    await asyncio.sleep(max(0.0, begun_s + self._interval_s - time.monotonic()))


def kill_leader(cluster: LocalCluster, sender: Sender) -> float:
    """kill -9 of who leads. The longest time between two acknowledgements around it, in seconds.

    At the end all run again.
    """
    leader = cluster.leader(WAIT_S)
    at = len(sender.acknowledged_s) - 1
    killed_at = time.monotonic()
    cluster.kill(leader)
    sender.wait(
        lambda: (
            len(sender.acknowledged_s) > at + ACKNOWLEDGEMENTS_AFTER
            and sender.acknowledged_s[-ACKNOWLEDGEMENTS_AFTER] > killed_at
        ),
        f"sends acknowledged after {leader} was killed",
    )
    gap_s = max(later - earlier for earlier, later in pairwise(sender.acknowledged_s[at:]))
    cluster.start_missing()
    cluster.wait_back(leader)
    return gap_s


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds since just before the first broker was started: until all three listen, which takes Python, its imports
    and recovery; until a client has the first acknowledgement."""

    listening_s: float
    serving_s: float


def kill_all(cluster: LocalCluster, sender: Sender) -> None:
    """kill -9 of all brokers at once; the NameServer lives. Returns when the sender has felt it, so that no
    acknowledgement from before can come any more."""
    ended = sender.failed + sender.unknown
    cluster.kill_all()
    sender.wait(lambda: sender.failed + sender.unknown > ended, "a send that is not acknowledged")


def restart_all(cluster: LocalCluster, sender: Sender) -> Restart:
    """After kill_all()."""
    at = len(sender.acknowledged_s)
    began = time.monotonic()
    cluster.start_missing()
    listening_s = time.monotonic() - began
    sender.wait(lambda: len(sender.acknowledged_s) > at, "a send acknowledged after the restart")
    return Restart(listening_s, sender.acknowledged_s[at] - began)


def validated(cluster: LocalCluster, history: Path) -> ValidationReport:
    """All replicas at rest against each other, themselves and the history of a sender that has ended.

    Afterwards the cluster is down.
    """
    stores = [node["store_dir"] for node in cluster.nodes().values()]
    cluster.level(WAIT_S)
    cluster.down()
    return validate(stores, runner=LocalRunner(), history=history)


def assert_nothing_lost(report: ValidationReport, sender: Sender) -> None:
    assert report.is_clean, [finding.as_dict() for finding in report.findings.shown]
    assert report.acknowledged == report.acknowledged_found == len(sender.places) > 0
