"""Looks after what is derived from the log while the member runs: the scrub's walks over it, and mending on demand."""

from collections.abc import Callable

from disk.disk import Disk
from dledger.log.jobs import DiskJob
from store.index.index_file_scrub import ChainScrub, KeyRows
from store.index.index_service import IndexService
from store.java.old_commit_log import OldCommitLog
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_mender import KIND, UnitMender
from store.queues.unit_scrub import OnMended, UnitScrub
from store.replicated_log import ReplicatedLog
from store.reput import Reput
from store.store_config import StoreConfig


class DerivedFiles:
    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        replica: ReplicatedLog,
        old_commit_log: OldCommitLog,
        queues: ConsumeQueueStore,
        reader: MessageReader,
        reput: Reput,
        index: IndexService,
        submit: Callable[[DiskJob], None],
        on_mended: OnMended,
    ) -> None:
        """`on_mended`: for who may remember what a damaged unit said."""

        def walk(kind: str, key_rows: KeyRows | None) -> UnitScrub:
            return UnitScrub(
                kind, config, disk, replica.log, old_commit_log, queues, reader, reput, on_mended, key_rows
            )

        self._unit_scrub = walk("scrub", KeyRows(index))
        self.mender = UnitMender(walk(KIND, None), queues, reader, replica.log.head_size, submit)
        replica.scrubber.add(self._unit_scrub)
        replica.scrubber.add(ChainScrub(disk, index))

    @property
    def units_mended(self) -> int:
        """Since the start."""
        return self._unit_scrub.mended + self.mender.mended

    def begin_anew(self) -> None:
        """The log has: what was derived is void."""
        self._unit_scrub.end_round()
        self.mender.begin_anew()
