"""Processes that die and come back while a test goes on."""

import random
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor

from local_cluster import LocalCluster


class Killer(ABC):
    """Within `with`, something dies and comes back every `seconds`, at most `kills` times. The end raises what
    went wrong meanwhile.
    """

    def __init__(self, kills: int, seconds: float) -> None:
        self._kills = kills
        self._seconds = seconds
        self._has_ended = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._end: Future[None] = Future()
        self.killed = 0

    @abstractmethod
    def _kill(self) -> None:
        """Kills once, and starts what died."""

    def _wait_s(self) -> float:
        """How long to wait before the next kill."""
        return self._seconds

    def _run(self) -> None:
        while self.killed < self._kills and not self._has_ended.wait(self._wait_s()):
            self._kill()
            self.killed += 1

    @property
    def is_over(self) -> bool:
        return self._end.done()

    def wait(self) -> None:
        """Returns when all kills are done."""
        self._end.result()

    def __enter__(self) -> None:
        self._end = self._thread.submit(self._run)

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.shutdown()
        self._end.result()
        assert self.killed, "nothing was killed"


class LeaderKiller(Killer):
    """The leader dies by kill -9. With `dice` at drawn moments, every `seconds` on average."""

    def __init__(
        self, cluster: LocalCluster, kills: int, seconds: float, dice: random.Random | None = None
    ) -> None:
        super().__init__(kills, seconds)
        self._cluster = cluster
        self._dice = dice

    def _kill(self) -> None:
        leader = self._cluster.leader()
        self._cluster.kill(leader)
        self._cluster.leader()
        self._has_ended.wait(self._wait_s())
        self._cluster.start(leader)

    def _wait_s(self) -> float:
        """Half of the time between two kills: the dead one is away for the other half."""
        return self._seconds / 2 if self._dice is None else self._dice.uniform(0, self._seconds)
