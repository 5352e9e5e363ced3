"""How far the ConsumeQueues of a replica must have units of what its log holds."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from store.layout.checkpoint import parse_checkpoint
from verify.log.data_file import Layout
from verify.replica import EVERYTHING, Replica


@dataclass(frozen=True, slots=True)
class UnitsBound:
    """Units of entries behind `index` are not compared. Those of records with a later `store_timestamp` (ms) may be
    missing."""

    index: int
    store_timestamp: int = EVERYTHING


def units_bound(replica: Replica) -> UnitsBound:
    """How far the files of this replica must hold units. Raises OSError."""
    is_settled = replica.stopped_cleanly and not replica.is_live
    if is_ours(replica):
        # A clean stop leaves Java's checkpoint too, whose index is the applied one.
        exported = replica.java_committed_index if is_settled else -1
        return UnitsBound(max(replica.applied_index, exported))
    if is_settled and replica.layout is Layout.COMMIT_LOG:
        return UnitsBound(EVERYTHING)
    if is_settled and replica.java_committed_index >= 0:
        return UnitsBound(replica.java_committed_index)
    return UnitsBound(EVERYTHING, _checkpoint_timestamp(replica))


def is_ours(replica: Replica) -> bool:
    """Whether a member of ours has kept the ConsumeQueues, if only last."""
    return replica.mark is not None or replica.applied_index >= 0


def _checkpoint_timestamp(replica: Replica) -> int:
    """Units of records up to this store time (ms) were on disk, as Java's checkpoint says; 0 if nothing says."""
    try:
        return parse_checkpoint((Path(replica.directory) / "checkpoint").read_bytes()).min_timestamp
    except (FileNotFoundError, struct.error):
        return 0
