"""Leaders that die while a test goes on."""

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from local_cluster import LocalCluster


class LeaderKiller:
    """Within `with`, every `seconds` the leader dies by kill -9 and comes back, `kills` times at most. With `dice` it
    dies at drawn moments, every `seconds` on average. The end raises what went wrong meanwhile.
    """

    def __init__(
        self, cluster: LocalCluster, kills: int, seconds: float, dice: random.Random | None = None
    ) -> None:
        self._cluster = cluster
        self._kills = kills
        self._pause = threading.Event()
        self._seconds = seconds
        self._dice = dice
        self._thread = ThreadPoolExecutor(1)
        self._end: Future[None] = Future()
        self.killed = 0

    def _run(self) -> None:
        while self.killed < self._kills and not self._pause.wait(self._half()):
            leader = self._cluster.leader()
            self._cluster.kill(leader)
            self.killed += 1
            self._cluster.leader()
            self._pause.wait(self._half())
            self._cluster.start(leader)

    def _half(self) -> float:
        """Of the time between two kills, in seconds."""
        return self._seconds / 2 if self._dice is None else self._dice.uniform(0, self._seconds)

    @property
    def is_over(self) -> bool:
        return self._end.done()

    def wait(self) -> None:
        """Returns when all kills are done."""
        self._end.result()

    def __enter__(self) -> None:
        self._end = self._thread.submit(self._run)

    def __exit__(self, *_: object) -> None:
        self._pause.set()
        self._thread.shutdown()
        self._end.result()
        assert self.killed, "no leader was killed"
