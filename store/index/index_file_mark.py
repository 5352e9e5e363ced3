"""How far the IndexFiles were surely on disk, remembered apart from them.

Their headers cannot say it: a crash may leave a header from after a flush with slots from before it, and the other
way round.
"""

from typing import Final

import msgspec
import orjson

from disk.disk import Disk
from disk.slots import Slots, SlotsUnreadableError
from store.layout.index_file import EMPTY_INDEX_HEADER, IndexFileShape, IndexHeader

MARK_FILE_NAME: Final = "key-index-mark"


class IndexFileMark(msgspec.Struct, frozen=True):
    """All IndexFiles before `file_name` are full and on disk, and so is this one up to what `header` says."""

    file_name: str = ""  # of the newest file; empty: there is none
    header: IndexHeader = EMPTY_INDEX_HEADER  # of that file
    covered_pos: int = 0  # all keys of records before this position of the log are in the files
    # Keys of the record at this physical offset, and of all before it, are in the files: once is enough.
    last_phy_offset: int = -1
    # Of all files; two shapes may have one size.
    shape: IndexFileShape = msgspec.field(default_factory=IndexFileShape)

    def pack(self) -> bytes:
        return msgspec.json.encode(self)


def unpack_index_file_mark(payload: bytes) -> IndexFileMark:
    """Of a slot's payload."""
    fields = orjson.loads(payload)
    header = IndexHeader(**fields.pop("header"))
    shape = IndexFileShape(**fields.pop("shape"))
    return IndexFileMark(**fields, header=header, shape=shape)


def mark_after_clean_stop(
    mark: IndexFileMark, newest_name: str, newest_header: IndexHeader | None
) -> tuple[IndexFileMark | None, str | None]:
    """Compares the mark with the newest IndexFile that a cleanly stopped store has. Returns the mark, None if a broker
    of Java's has written IndexFiles since; and what is wrong with that file's header.
    """
    if (newest_name, newest_header) == (mark.file_name, mark.header if mark.file_name else None):
        return mark, None
    if (
        newest_name == mark.file_name
        and newest_header
        and newest_header.index_count <= mark.header.index_count
    ):
        # Whoever puts an entry counts it, and nobody takes one away.
        return mark, f"its header is {newest_header}, remembered is {mark.header}"
    return None, None


class IndexFileMarkFile:
    """Two slots on disk. Written by one job at a time; a write that failed may be tried again."""

    def __init__(self, disk: Disk, path: str) -> None:
        """An unreadable file is deleted, as if there had never been one; `unreadable` then says why."""
        self.path = path
        self._directory = path.rpartition("/")[0]
        self.unreadable: str | None = None
        self._disk = disk
        self._slots = self._read()
        self._has_failed = False

    @property
    def mark(self) -> IndexFileMark | None:
        payload = self._slots.payload
        return unpack_index_file_mark(payload) if payload is not None else None

    @property
    def was_damaged(self) -> bool:
        """When it was read, one of the slots was."""
        return self._slots.was_damaged

    def write(self, mark: IndexFileMark) -> None:
        """Blocks on a sync. Raises DiskError."""
        self._disk.make_directory(self._directory)
        if self._has_failed:
            # Slots know no more what is on disk: what they read they write once more before they go on.
            self._slots.close()
            self._slots = self._read()
        self._has_failed = True
        self._slots.write(mark.pack())
        self._has_failed = False

    def make_durable(self) -> None:
        """After a crash: what was read may never have reached the disk, nor may the file's name. Raises DiskError."""
        self._slots.make_durable()

    def close(self) -> None:
        self._slots.close()

    def _read(self) -> Slots:
        try:
            return Slots(self._disk, self.path)
        except SlotsUnreadableError as error:
            self.unreadable = str(error)
            self._disk.unlink(self.path)
            return Slots(self._disk, self.path)
