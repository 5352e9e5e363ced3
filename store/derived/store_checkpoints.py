"""Takes checkpoints of a running store, and recovers a store from the newest one when it starts."""

import logging

from disk.disk import Disk
from dledger.entry import GENESIS_CHAIN, Index
from dledger.errors import FaultyEntryError
from store.derived.checkpoint_file import Checkpoint, load_checkpoint
from store.derived.sums_file import DerivedSums, load_sums, sums_path
from store.dledger_commit_log import DLedgerCommitLog
from store.java.old_commit_log import OldCommitLog
from store.queues.consume_queue_store import ConsumeQueueStore
from store.replicated_log import Ledger
from store.reput import Reput
from store.state.state_machine import StateMachine
from store.store_config import StoreConfig

log = logging.getLogger(__name__)


class StoreCheckpoints:
    """Invariant: what a checkpoint says of queues and tables is of one applied index, and counts only while the log has
    the very entry with that index.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        ledger: Ledger,
        old_commit_log: OldCommitLog,
        commit_log: DLedgerCommitLog,
        queues: ConsumeQueueStore,
        state: StateMachine,
        reput: Reput,
    ) -> None:
        self._config = config
        self._disk = disk
        self._ledger = ledger
        self._old_commit_log = old_commit_log
        self._commit_log = commit_log
        self._queues = queues
        self._state = state
        self._reput = reput
        self.sums = DerivedSums()  # that the newest checkpoint came with; after recover()

    def recover(self) -> None:
        """Restores queues and tables, and has reput start behind them; without a sound checkpoint it starts with the
        first entry. Blocks. Raises DiskError, StoreDamagedError.
        """
        ledger, reput = self._ledger, self._reput
        found = load_checkpoint(self._disk, f"{self._config.ledger_directory}/pydledger", self._is_of_log)
        path, checkpoint = found if found is not None else ("", None)
        if (
            checkpoint is not None
            and checkpoint.deleted_topics is None
            and self._state.is_in_log(checkpoint.full_state_log)
        ):
            log.warning("checkpoint of an earlier version: ConsumeQueues are built anew from the log, once")
            checkpoint = None
        if checkpoint is not None:
            self.sums = load_sums(self._disk, sums_path(path))
            fault = self._queues.restore(checkpoint.queues, self.sums.queues)
            if fault is None:
                self._state.restore(
                    checkpoint.tables, checkpoint.full_state_log, checkpoint.deleted_topics or []
                )
                self._commit_log.last_store_timestamp = checkpoint.store_timestamp
                reput.start_from(checkpoint.applied_index, checkpoint.confirm_offset)
                log.info("store restored applied_index=%d queues=%d", reput.applied_index, len(self._queues))
                return
            log.warning("ConsumeQueues are damaged, all are built anew from the log fault=%s", fault)
        self._queues.delete_all()
        self._old_commit_log.dispatch_to(self._queues, self._config.delay_levels)
        reput.start_from(Index(ledger.ledger_begin_index - 1), ledger.ledger_begin_pos)

    def _is_of_log(self, index: Index, chain_crc: int) -> bool:
        try:
            return self._ledger.chain_at(index) == chain_crc
        except FaultyEntryError:
            return False

    def capture(self) -> Checkpoint | None:
        """Returns the state as it is now, None if it is not fit for a checkpoint."""
        if not self._state.is_whole:
            return None
        index = self._reput.applied_index
        self._state.settle(index)
        try:
            chain_crc = self._ledger.chain_at(index) if index >= 0 else GENESIS_CHAIN
        except FaultyEntryError:
            return None
        assert chain_crc is not None, "applied entries are in the log"
        self._state.deleted_topics.forget_before(self._ledger.durable_begin_pos)
        return Checkpoint(
            index,
            chain_crc,
            self._reput.confirm_offset,
            self._commit_log.last_store_timestamp,
            self._state.tables.pack(),
            self._state.full_state_log.pack(),
            self._queues.rows(),
            self._state.deleted_topics.pack(),
        )
