"""Where a damaged range is longer than it was known to be: by what lies in front of it, or behind.

Bytes of a peer are proved by the entries around the range. One of these that is damaged itself, or of an earlier
history, proves nobody's bytes; then the range goes on over it.
"""

from typing import Final

from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.log_repair import RangeRepair
from dledger.log.log_store import LogStore

# Entries, read in one turn, of which the last begins within so many bytes behind the damage.
_LOOKED_BEHIND_MAX: Final = 4096
_LOOKED_BEHIND_SIZE_MAX: Final = 4 * 1024 * 1024


class RangeGrowth:
    def __init__(self, log_store: LogStore) -> None:
        self._log = log_store
        # How many entries behind a range were looked at, for those there lead to no peer's.
        self._looked_behind: dict[FaultyRange, int] = {}

    def repair_of(self, faulty: FaultyRange) -> RangeRepair | None:
        """None where the range is another one now, for what lies in front of it is not proved. Raises DiskError."""
        for _ in range(2):
            try:
                return self._log.range_repair(faulty)
            except FaultyEntryError:
                # Damage was found there: by now the entry in front may read, or be of the range.
                if faulty not in self._log.faulty.ranges:
                    return None
        # The entries between it and the range in front follow from that one, and prove nothing before it is repaired,
        # and perhaps they have to be repaired with it.
        number = self._log.faulty.ranges.index(faulty)
        if number:
            self._log.widen(self._log.wider(faulty, self._log.faulty.ranges[number - 1].first_index))
        return None

    def grow_behind(self, faulty: FaultyRange) -> bool:
        """Looks at what lies behind. Returns whether that is damaged by now, so that the range is a longer one.

        It may be of an earlier history: the seam at its end tells, which is looked for farther behind with each call.
        Raises DiskError.
        """
        count = self._looked_behind.pop(faulty, 1)
        last_index = min(
            faulty.last_index + count, self._log.first_index_at(faulty.next_pos + _LOOKED_BEHIND_SIZE_MAX)
        )
        self._log.fault_found(faulty.last_index, last_index)
        wider = self._log.wider_behind(faulty)
        if wider is not None:
            self._log.widen(wider)
        if faulty not in self._log.faulty.ranges:
            return True
        known = self._log.faulty.ranges
        self._looked_behind = {other: n for other, n in self._looked_behind.items() if other in known}
        self._looked_behind[faulty] = min(2 * count, _LOOKED_BEHIND_MAX)
        return False
