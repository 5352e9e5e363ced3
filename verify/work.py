"""The units of work: a range of one data file of one replica, which one executor reads alone.

An entry belongs to the unit in which its header begins, so units of any number cover each entry exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from verify.log.data_file import DataFile
from verify.replica import Replica

# Small enough for a progress bar and for memory, large enough that a unit's own cost does not show.
UNIT_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DataRange:
    """Bytes start .. end (exclusive) of a file, as offsets in it."""

    replica: Replica
    file: DataFile
    start: int
    end: int


def plan(replicas: Sequence[Replica], *, unit_count: int | None = None) -> list[DataRange]:
    """Ranges of all data files, of UNIT_SIZE_MAX at most; `unit_count`: about so many of about one size."""
    total = sum(file.size for replica in replicas for file in replica.data_files)
    size = UNIT_SIZE_MAX if unit_count is None else max(-(-total // unit_count), 1)
    return [
        DataRange(replica, file, start, end)
        for replica in replicas
        for file in replica.data_files
        for start, end in pairwise([*range(0, file.size, size), file.size])
    ]
