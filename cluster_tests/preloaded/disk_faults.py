"""Faults of the disks under the brokers of a cluster, set and lifted while they run.

    disks = faulty_disks(cluster, library)   # before cluster.up()
    disks["n0"].hang_syncs()
    wait_for(lambda: disks["n0"].counts()["sync_hung"], 10, "a sync that hangs")
    disks["n0"].lift()

`library` is disk_faults.c, built and preloaded into all processes of the cluster (preload.py). A fault is the disk's,
not the process's: it stays when the member is killed and started again. It counts from the next call on; a call that
hangs goes on when that fault is lifted. Faults add up, and lift() ends all of them.

What the disk was seen to do since it was last without faults is counted by kind, whether or not the process lives:

    sync_hung, sync_delayed, sync_failed, write_hung, write_failed, no_space, read_failed, page_rewritten
"""

import time
from collections import Counter
from pathlib import Path

from local_cluster import LocalCluster
from preloaded.preload import preload

SOURCE = Path(__file__).with_suffix(".c")


class DiskFaults:
    """The disk of one member."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the member's own, right below that of the cluster."""
        self._directory = directory
        self._control = directory / "disk-faults"
        self._done = directory / "disk-faults.done"
        self._faults: list[str] = []
        self._felt_before: Counter[str] = Counter()

    def hang_syncs(self) -> None:
        """No fsync or fdatasync comes back."""
        self._add("hang_syncs")

    def hang_writes(self) -> None:
        """No write comes back. A broker writes on its event loop, so it stands still as a whole."""
        self._add("hang_writes")

    def delay_syncs(self, ms: int) -> None:
        self._add(f"delay_syncs {ms}")

    def fail_syncs(self, under: Path | None = None) -> None:
        """EIO; with `under` where files lie in that directory."""
        self._add(self._under("fail_syncs", under))

    def fail_writes(self, under: Path | None = None) -> None:
        """EIO, likewise."""
        self._add(self._under("fail_writes", under))

    def no_space(self, after_bytes: int = 0) -> None:
        """ENOSPC for whatever needs a new block, once the process has got `after_bytes` of them; what has its blocks
        can be written. A write that fits in part is cut short, as the kernel does it."""
        self._add(f"no_space {time.monotonic_ns()} {after_bytes}")

    def fail_reads(self, file: Path, offset: int = 0, size: int | None = None) -> None:
        """EIO for the pages of a file that begin in `size` bytes from `offset` on, and for writes of a part of one.
        A page that is written as a whole can be read from then on, until the process ends."""
        end = offset + (size if size is not None else file.stat().st_size)
        self._add(f"fail_reads {offset} {end} {file.relative_to(self._directory)}")

    def _under(self, fault: str, directory: Path | None) -> str:
        return fault if directory is None else f"{fault} {directory.relative_to(self._directory)}/"

    def lift(self) -> None:
        self._faults = []
        self._write()

    def counts(self) -> Counter[str]:
        """Calls that came to feel each kind of fault, since the disk was last without any."""
        return self._felt() - self._felt_before

    def _felt(self) -> Counter[str]:
        if not self._done.exists():
            return Counter()
        return Counter(line.split(" ", 1)[0] for line in self._done.read_text().splitlines())

    def _add(self, fault: str) -> None:
        if not self._faults:
            self._felt_before = self._felt()
        self._faults.append(fault)
        self._write()

    def _write(self) -> None:
        text = "".join(f"{fault}\n" for fault in self._faults)
        temporary = self._control.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self._control)


def faulty_disks(cluster: LocalCluster, library: Path) -> dict[str, DiskFaults]:
    """By member; all processes that the cluster starts from now on have such disks."""
    cluster.directory.mkdir(parents=True, exist_ok=True)
    preload(cluster.environment, library)
    cluster.environment["PYDLEDGER_DISKFAULTS_ROOT"] = str(cluster.directory)
    directory = cluster.directory.resolve()
    return {f"n{number}": DiskFaults(directory / f"n{number}") for number in range(3)}
