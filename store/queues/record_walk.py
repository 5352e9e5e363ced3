"""A walk over the records of the log, to make again what is derived from them. Where a plain log comes first, the walk
goes over its records and then over the log's.
"""

from collections.abc import Callable, Sequence

from dledger.entry import EntryKind, Index, Pos, Term, VerifiedRange
from dledger.log.range_read import RangeRead
from dledger.log.scrub_job import Place
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from store.dispatch_request import DispatchRequest, dispatch_requests
from store.java.old_commit_log import OldCommitLog
from store.replicated_log import Ledger
from store.reput import Reput
from store.store_config import StoreConfig


class RecordWalk:
    """Fulfils DiskJob: each run reads some more records, between prepare() and settle(). It ends behind the last one
    that is dispatched, or where the log is damaged (`fault`).
    """

    kind = "mend-consume-queue"

    def __init__(
        self, config: StoreConfig, ledger: Ledger, old_commit_log: OldCommitLog, reput: Reput
    ) -> None:
        self.fault: str | None = None
        self._config = config
        self._ledger = ledger
        self._old = old_commit_log
        self._reput = reput
        self._is_in_old = False  # in the plain log that comes first
        self._place = ledger.begin_place()
        self._read_behind: Callable[[Place, int], RangeRead] = ledger.read_behind
        self._end_pos = 0  # of what may be read
        self._size_max = 0
        self._requests: list[DispatchRequest] = []

    def begin_at(self, phy_offset: int | None) -> None:
        """With the record there; None: with the first one."""
        old, ledger = self._old, self._ledger
        if phy_offset is None:
            phy_offset = old.begin_pos if old.end_pos else 0
        self._is_in_old = phy_offset < old.end_pos
        pos = phy_offset - ledger.head_size
        if self._is_in_old:
            self._place = Place(Index(-1), Term(-1), Pos(phy_offset), None)
        elif pos > ledger.ledger_begin_pos:
            before = Index(ledger.first_index_at(pos) - 1)
            self._place = Place(before, Term(-1), Pos(pos), None, is_proven=False)

    @property
    def is_over(self) -> bool:
        is_at_end = not self._is_in_old and self._place.end_pos >= self._reput.confirm_offset
        return is_at_end or self.fault is not None

    def prepare(self, size_max: int) -> None:
        """To read about `size_max` bytes."""
        self._read_behind, self._end_pos = self._ledger.read_behind, self._reput.confirm_offset
        if self._is_in_old:
            self._read_behind, self._end_pos = self._old.read_behind, self._old.end_pos
        self._size_max = size_max

    def run(self) -> None:
        """In another thread. A single read ends with its file, and files may be small."""
        self._requests = []
        start = self._place.end_pos
        while self._place.end_pos < min(start + self._size_max, self._end_pos):
            fault = self._read_some()
            if fault is not None:
                # What lies in front of it counts; then the next run meets it again.
                self.fault = fault if self._place.end_pos == start else None
                return

    def _read_some(self) -> str | None:
        """Returns why it cannot."""
        size_max = min(self._size_max, self._end_pos - self._place.end_pos)
        try:
            read = self._read_behind(self._place, size_max)
            if read.fault is None and read.verified is not None:
                self._requests += self._requests_of(read.verified)
        except FileNotFoundError as error:
            return f"{error.filename} is gone"
        except MessageDecodeError as error:
            return str(error)
        if read.fault is None:
            self._place = read.behind
        return read.fault

    def _requests_of(self, verified: VerifiedRange) -> Sequence[DispatchRequest]:
        """Raises MessageDecodeError."""
        kinds = zip(verified.offsets, verified.kinds, strict=True)
        messages = [offset for offset, kind in kinds if kind == EntryKind.MESSAGE]
        head_size = 0 if self._is_in_old else self._ledger.head_size
        levels = self._config.delay_levels
        return dispatch_requests(
            scan_records(verified.buffer, messages, shift=head_size, delay_levels=levels)
        )

    def settle(self) -> Sequence[DispatchRequest]:
        """What the records give that it has read."""
        begin = self._ledger.begin_place()
        if self._is_in_old:
            if self._place.end_pos >= self._old.end_pos:
                self._is_in_old, self._place = False, begin
        elif self._place.is_before(begin):
            self.fault = "the log begins behind it now"
        return self._requests
