"""A cluster whose brokers can lose power: their stores are put back to what was durable when they died.

They run under a preloaded shim that journals what a sync made durable (shim.c); their directories, whose page cache
outlived them, are replaced by the replayed journals (images.py).
"""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from images import JournalReplay, ReplaySummary
from local_cluster import LocalCluster


class PoweredCluster:
    """A cluster that was never up is formed, and rests. From prepare() to power_off() starts are under the shim."""

    def __init__(
        self, cluster: LocalCluster, shim: Path, work: Path, conf: dict[str, str], *, syncs: bool
    ) -> None:
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
        cluster.up(conf=conf)
        self.stores = {name: Path(node["store_dir"]).resolve() for name, node in cluster.nodes().items()}
        for name in self.stores:
            cluster.stop(name)
        self.durable.mkdir()
        for name, store in self.stores.items():
            copy_tree(store, self.durable / name)

    def prepare(self) -> None:
        """The next start is under the shim, with journals of its own."""
        self.journals.mkdir()
        self.cluster.environment = self._environment

    def power_off(self) -> None:
        """All brokers die at once; what they had not synced is gone."""
        pids = {name: self.cluster.pid(name) for name in self.stores}
        self.cluster.kill_all()
        self.cluster.environment = {}
        for name, store in self.stores.items():
            replay = JournalReplay(store, self.durable / name, self.summary)
            replay.replay(self.journals / str(pids[name]))
        with ThreadPoolExecutor(len(self.stores)) as pool:
            list(pool.map(self._put_back, self.stores))
        shutil.rmtree(self.journals)

    def _put_back(self, name: str) -> None:
        shutil.rmtree(self.stores[name])
        copy_tree(self.durable / name, self.stores[name])


def copy_tree(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
