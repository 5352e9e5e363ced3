"""Opens what a member has on disk, in the order that forgets nothing."""

from dataclasses import replace

from disk.disk import Disk
from dledger.log.config import LogConfig
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState


def open_ledger(disk: Disk, config: LogConfig) -> tuple[LogStore, QuorumState]:
    """The log and the quorum state, which has taken over the log's doubt durably. Blocks.

    Raises QuorumStateUnreadableError before the log is touched, then whatever LogStore.open() raises.
    """
    quorum_state = QuorumState.load(disk, config.directory)
    try:
        log_store = LogStore.open(disk, config)
    except BaseException:
        quorum_state.close()
        raise
    hard_state = quorum_state.hard_state
    if log_store.doubted:
        if not hard_state.doubted:
            doubted = replace(hard_state, sequence=hard_state.sequence + 1, doubted=True)
            quorum_state.store_job(doubted).run()
        log_store.doubt_saved()
    return log_store, quorum_state
