"""What of a member's files dledger scrubs by itself; the embedder adds what it keeps beside the log."""

from collections.abc import Callable

from dledger.config import DLedgerConfig
from dledger.log.jobs import DiskJob
from dledger.log.log_scrub import LogScrub
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.log.scrub_walk import ScrubWalk
from dledger.log.slot_scrub import SlotScrub
from dledger.scrubber import Scrubber


def scrubber_of(
    config: DLedgerConfig,
    log_store: LogStore,
    quorum_state: QuorumState,
    submit: Callable[[DiskJob], None],
    now_ms: int,
) -> Scrubber:
    walks: list[ScrubWalk] = [SlotScrub((quorum_state.slots, *log_store.record_slots))]
    if log_store.head_size:
        # Else the log is a plain CommitLog: its entries have no header of ours, and there is no peer.
        walks.append(LogScrub(log_store))
    return Scrubber(
        f"[{config.self_id}]",
        walks,
        submit,
        bytes_per_second=config.scrub_bytes_per_second,
        pause_ms=config.scrub_pause_ms,
        now_ms=now_ms,
    )
