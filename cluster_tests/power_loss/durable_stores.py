"""The disks of a cluster, each of which holds what its member has synced, and not what it has merely written.

    stores = of_cluster(cluster, library)    # before cluster.up()
    cluster.kill("n0")
    stores.lose_power("n0", pid)
    stores.settle("n0")                      # before each start of a member
    cluster.start("n0")

`library` is shim.c, built and preloaded into all processes of the cluster (preload.py).
"""

import filecmp
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from local_cluster import LocalCluster
from power_loss.images import JournalReplay, ReplaySummary
from preloaded.preload import preload

SOURCE = Path(__file__).with_name("shim.c")


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """`changed`, `gone`: files of the store that held something else a moment before, and that were there."""

    replayed: ReplaySummary
    changed: tuple[Path, ...]
    gone: tuple[Path, ...]


class DurableStores:
    """Invariant: `durable`/member is what its disk held when its process began."""

    def __init__(self, cluster_directory: Path) -> None:
        self._cluster_directory = cluster_directory
        self._durable = cluster_directory / "power" / "durable"
        self.journals = cluster_directory / "power" / "journals"
        self.journals.mkdir(parents=True)

    def settle(self, member: str) -> None:
        """Before a start: what earlier processes have written is taken to be on the disk by now, as it may be."""
        if self._store(member).exists():
            mirror(self._store(member), self._of(member))

    def lose_power(self, member: str, pid: int) -> PowerLoss:
        """`pid`: of its last process, which is dead."""
        store, durable, journal = self._store(member), self._of(member), self.journals / str(pid)
        durable.mkdir(parents=True, exist_ok=True)  # the first process of all found nothing
        replayed = JournalReplay(store, durable).replay(journal)
        journal.unlink()
        changed, gone = mirror(durable, store)
        return PowerLoss(replayed, changed, gone)

    def _store(self, member: str) -> Path:
        return self._cluster_directory / member / "store"

    def _of(self, member: str) -> Path:
        return self._durable / member


def of_cluster(cluster: LocalCluster, library: Path) -> DurableStores:
    """All processes that the cluster starts from now on have such disks."""
    cluster.directory.mkdir(parents=True, exist_ok=True)
    stores = DurableStores(cluster.directory.resolve())
    preload(cluster.environment, library, last=True)
    cluster.environment["PYDLEDGER_POWERLOSS_ROOT"] = str(cluster.directory)
    cluster.environment["PYDLEDGER_POWERLOSS_JOURNAL"] = str(stores.journals)
    return stores


def mirror(source: Path, target: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Makes `target` equal to `source`. Which files there had another content or were missing, and which are gone.

    Files of one size and time of change are taken to be equal, so that it costs what was changed since the last time.
    """
    target.mkdir(parents=True, exist_ok=True)
    wanted = {path.relative_to(source): path for path in _walk(source)}
    gone = []
    for path in sorted(_walk(target), reverse=True):  # what is in a directory before the directory
        here = wanted.get(path.relative_to(target))
        if here is not None and here.is_dir() == path.is_dir():
            continue
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
            gone.append(path)
    changed = []
    for name in sorted(wanted):
        path, there = wanted[name], target / name
        if path.is_dir():
            there.mkdir(exist_ok=True)
        elif not there.exists() or not _looks_equal(path, there):
            if there.exists() and filecmp.cmp(path, there, shallow=False):
                shutil.copystat(path, there)
                continue
            subprocess.run(["cp", "-a", "--sparse=always", str(path), str(there)], check=True)
            changed.append(there)
    return tuple(changed), tuple(gone)


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir():
            yield from _walk(path)


def _looks_equal(one: Path, other: Path) -> bool:
    a, b = one.stat(), other.stat()
    return (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)
