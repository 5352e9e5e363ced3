"""The two steps of a look at ConsumeQueues: what units some records give, and whether the files hold these units."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from disk.disk import Disk
from dledger.entry import EntryKind
from dledger.log.range_read import RangeRead
from dledger.log.scrub_job import Place, read_from_medium
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from message.key_columns import KeyColumns, scan_keys
from store.dispatch_request import DispatchRequest, dispatch_requests
from store.queues.unit_queue import UnitQueue

ReadRange = Callable[[Place, int], RangeRead]


class UnitRun(msgspec.Struct, eq=False):
    """Units as they should be, one behind the other, all in files."""

    queue: UnitQueue
    number: int  # of the first one
    units: bytes
    is_certain: bool = True  # that these are their numbers
    paths: tuple[str, ...] = ()  # of the files that they lie in, from that of the first one on

    @property
    def count(self) -> int:
        return len(self.units) // self.queue.unit_size


class DispatchAgainJob:
    """Fulfils ScrubJob. Reads some records behind `place` and makes of them what reput made."""

    writes = False

    def __init__(
        self,
        kind: str,
        read_range: ReadRange,
        head_size: int,
        place: Place,
        size_max: int,
        delay_levels: Mapping[int, int],
        *,
        with_keys: bool,
    ) -> None:
        self.kind = kind
        self.place = place
        self.size = 0
        self.read: RangeRead | None = None  # once it has run
        self.missing: str | None = None  # a file of the log that was not there
        self.requests: list[DispatchRequest] = []
        self.keys = KeyColumns()
        self._with_keys = with_keys
        self._read_range = read_range
        self._head_size = head_size
        self._size_max = size_max
        self._delay_levels = delay_levels

    def run(self) -> None:
        try:
            read = self._read_range(self.place, self._size_max)
        except FileNotFoundError as error:
            self.missing = str(error.filename)
            return
        verified = read.verified
        if verified is not None:
            self.size = verified.size
            messages = [
                offset
                for offset, kind in zip(verified.offsets, verified.kinds, strict=True)
                if kind == EntryKind.MESSAGE
            ]
            try:
                columns = scan_records(
                    verified.buffer, messages, shift=self._head_size, delay_levels=self._delay_levels
                )
            except MessageDecodeError as error:
                read = RangeRead(None, self.place, str(error))
            else:
                self.requests = dispatch_requests(columns)
                if self._with_keys:
                    self.keys = scan_keys(columns)
        self.read = read


class CompareUnitsJob:
    """Fulfils ScrubJob. Reads the medium, through descriptors of its own."""

    writes = False

    def __init__(self, kind: str, disk: Disk, runs: Sequence[UnitRun]) -> None:
        self.kind = kind
        self.runs = runs
        self.size = 0
        self.differing: list[tuple[UnitRun, bytes]] = []  # with what was found
        self.missing: list[UnitRun] = []  # with a file that is gone
        self._disk = disk

    def run(self) -> None:
        for run in self.runs:
            try:
                found = self._read(run)
            except FileNotFoundError:
                self.missing.append(run)
                continue
            if found != run.units:
                self.differing.append((run, found))

    def _read(self, run: UnitRun) -> bytes:
        file_size = run.queue.files.mapped_file_size
        offset = run.number * run.queue.unit_size
        end = offset + len(run.units)
        found: list[bytes] = []
        for path in run.paths:
            size = min(end - offset, file_size - offset % file_size)
            # Of thousands of queues, so none stays open.
            file = self._disk.open(path, read_only=True)
            try:
                found.append(read_from_medium(file, size, offset % file_size))
            finally:
                file.close()
            offset += size
            self.size += size
        return b"".join(found)
