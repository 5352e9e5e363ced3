"""The wall clock of single processes of a cluster, set while they run.

    clocks = shifted_clocks(cluster, library)   # before cluster.up()
    clocks.shift(pid, 3_600_000)
    clocks.shift(pid, 0)

`library` is clock.c, built and preloaded into all processes of the cluster (preload.py). A clock is a process's: the
next one has the host's.
"""

import struct
from pathlib import Path

from local_cluster import LocalCluster
from preloaded.preload import preload

SOURCE = Path(__file__).with_suffix(".c")


class ShiftedClocks:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def shift(self, pid: int, ms: int) -> None:
        """How far its wall clock is before the host's, from its next look on. Raises FileNotFoundError."""
        with (self._directory / str(pid)).open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", ms * 1_000_000))


def shifted_clocks(cluster: LocalCluster, library: Path) -> ShiftedClocks:
    """All processes that the cluster starts from now on have such clocks."""
    directory = cluster.directory / "clocks"
    directory.mkdir(parents=True)
    preload(cluster.environment, library)
    cluster.environment["PYDLEDGER_CLOCK_DIR"] = str(directory.resolve())
    return ShiftedClocks(directory)
