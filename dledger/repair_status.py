"""What a repairer tells of its work."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from dledger.core.messages import PeerId
from dledger.log.faulty_ranges import FaultyRange


class RepairStage(StrEnum):
    """How far the repair of a range is; the first stages are those of every range."""

    NOTING = "noting"  # that it is damaged goes to disk first
    QUEUED = "queued"  # another range has its turn
    PROVING = "proving"  # bytes of peers are read, to see whether they are what lay here
    WRITING = "writing"
    WAITING = "waiting"  # no peer that is connected could give the bytes, or there is no space for them


class RangeStatus(msgspec.Struct, frozen=True):
    """Times in ms of the replica's clock."""

    faulty: FaultyRange
    files: tuple[str, ...]  # names of the data files in which it lies
    since_ms: int | None  # when this process learned of it; None for one that it learned of just now
    stage: RepairStage
    peer: PeerId | None  # whose answer is waited for
    refusals: Mapping[PeerId, str]  # who could not give the bytes in this round, and why
    written_size: int  # bytes of the range that are written already
    retry_ms: int | None  # of a range that waits: when all are asked again, unless one connects before


class RepairStatus(msgspec.Struct, frozen=True):
    """Counts are since the start."""

    repaired_count: int  # ranges
    repaired_size: int  # bytes
    ranges: tuple[RangeStatus, ...]
