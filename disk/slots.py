"""A small record that survives any crash: two slots in one file, of which one always holds a whole record.

A write goes to the slot that is not the last one synced. Once it is synced, a copy goes to the other slot, unsynced:
damage to one slot later on then uncovers the same record and not the one before it. The copy costs no sync, and the
next write overwrites the copy. Where the record before must not come back even if a power loss has taken the copy and
damage hits the other slot after that, sync_copy() has it synced as well: a vote would be forgotten.
"""

import logging
import struct
import threading
import zlib

import msgspec

from disk.disk import Disk, DiskError, File

log = logging.getLogger(__name__)

SLOT_SIZE = 4096

_SLOT_HEADER = struct.Struct(
    ">4s"  # magic
    "I"  # CRC-32 of all that follows, payload included
    "q"  # sequence, grows by one with each record
    "?3x"  # copy: the other slot held this record durably when this one was written
    "I"  # payload size
)
_MAGIC = b"PyDS"
_CRC_FROM = 8
PAYLOAD_SIZE_MAX = SLOT_SIZE - _SLOT_HEADER.size


class SlotsUnreadableError(Exception):
    """The file is there and neither slot is readable: what it said is lost, which differs from never written."""


class _Slot(msgspec.Struct, frozen=True):
    sequence: int
    copy: bool
    payload: bytes


class Slots:
    """Invariant: at every moment one of the slots holds, durably, the record of the last write() that returned.

    write() blocks on a sync and may be called in any thread; writers take turns.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Reads the file if there is one. Raises SlotsUnreadableError; then delete or restore it by hand."""
        self.path = path
        self.payload: bytes | None = None  # of the newest record; None: never written
        self.was_damaged = False  # when it was read: one slot. The owner should have it written anew
        self.lock = threading.Lock()  # also for callers that must decide and write in one step; see write()
        self._disk = disk
        self._file: File | None = None
        self._sequence = 0
        self._next_slot = 0
        self._durable = False
        if disk.exists(path):
            self._read(disk.open(path))

    def write(self, payload: bytes) -> None:
        """When this returns, `payload` is what any later reader finds. Raises DiskError; then it is that or the one
        before, and after want of space write() may be called again.
        """
        with self.lock:
            self.write_locked(payload)

    def write_locked(self, payload: bytes) -> None:
        """write() for a caller that holds `lock`."""
        assert len(payload) <= PAYLOAD_SIZE_MAX, f"{self.path}: {len(payload)} bytes do not fit into a slot"
        self._make_durable()
        self._sequence += 1
        self.payload = payload
        self._durable = False
        if self._file is None:
            self._create()
        else:
            self._put(self._next_slot)
        self._durable = True

    def make_durable(self) -> None:
        """After a crash, what was read may never have reached the disk. Call before acting on it."""
        with self.lock:
            self._make_durable()

    def sync_copy(self) -> None:
        """When this returns both slots hold the record of the last write(). Raises DiskError."""
        with self.lock:
            self.sync_copy_locked()

    def sync_copy_locked(self) -> None:
        """sync_copy() for a caller that holds `lock`."""
        if self._file is not None:
            self._sync(self._file)

    def mend(self) -> bool:
        """Reads both slots, and writes the record anew if one of them does not hold it. Whether it had to. Blocks; a
        record that is not known to be durable is left to whoever makes it so. Raises DiskError.
        """
        with self.lock:
            if self._file is None or not self._durable:
                return False
            damaged = [
                number for number, slot in enumerate(self._slots_of(self._file)) if not self._is_ours(slot)
            ]
            if not damaged:
                return False
            # Over the damaged one first: the other holds the record until that is synced.
            self._put(damaged[0])
            return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _slots_of(self, file: File) -> list[_Slot | None]:
        file.forget_cached(0, 2 * SLOT_SIZE)
        return [_slot_at(file, number * SLOT_SIZE) for number in (0, 1)]

    def _is_ours(self, slot: _Slot | None) -> bool:
        return slot is not None and (slot.sequence, slot.payload) == (self._sequence, self.payload)

    def _make_durable(self) -> None:
        if self._durable or self.payload is None:
            return
        if self._file is None:
            self._create()  # the first write found no space for it
        else:
            # Whoever made the file may have been ended between the rename and this: its name is not durable by the
            # record being so.
            self._sync_directory()
            self._put(self._next_slot)
        self._durable = True

    def _sync_directory(self) -> None:
        self._disk.sync_directory(self.path.rpartition("/")[0] or ".")

    def _put(self, slot: int) -> None:
        assert self._file is not None
        assert self.payload is not None
        self._file.pwrite(_pack(self._sequence, self.payload, copy=False), slot * SLOT_SIZE)
        self._sync(self._file)
        self._file.pwrite(_pack(self._sequence, self.payload, copy=True), (1 - slot) * SLOT_SIZE)
        self._next_slot = 1 - slot

    def _sync(self, file: File) -> None:
        try:
            file.fdatasync()
        except DiskError:
            # The next write() writes all that counts again, in a file that can be synced.
            file.close()
            self._file = self._disk.open(self.path)
            raise

    def _create(self) -> None:
        # By rename: so a file that exists has held a record, and an unreadable one is damage, not a first start.
        assert self.payload is not None
        temporary = f"{self.path}.tmp"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(2 * SLOT_SIZE)
            file.pwrite(_pack(self._sequence, self.payload, copy=False), 0)
            file.pwrite(_pack(self._sequence, self.payload, copy=False), SLOT_SIZE)
            file.fdatasync()
        finally:
            file.close()
        self._disk.rename(temporary, self.path)
        self._sync_directory()
        self._file = self._disk.open(self.path)

    def _read(self, file: File) -> None:
        self._file = file
        slots = self._slots_of(file)
        newest = _newest(slots)
        if newest is None:
            self.close()
            raise SlotsUnreadableError(f"{self.path}: both slots are unreadable")
        at = slots.index(newest)
        other = slots[1 - at]
        if other is None:
            # Damage, or what a power loss left of a write: either way the other slot holds what counts.
            self.was_damaged = True
            log.warning(
                "a slot is unreadable, the other one counts path=%s slot=%d bytes=%d..%d sequence=%d",
                self.path, 1 - at, (1 - at) * SLOT_SIZE, (2 - at) * SLOT_SIZE - 1, newest.sequence,
            )  # fmt: skip
        self.payload = newest.payload
        self._sequence = newest.sequence
        # Where the record goes once more before it counts: over an unreadable slot, so that this one stays; over
        # itself if the other slot still holds the record before, which is then the one that is surely on disk.
        self._next_slot = 1 - at if other is None or other.sequence == newest.sequence else at


def read_or_drop_slots(disk: Disk, path: str, consequence: str) -> tuple[Slots, str | None]:
    """Those of a file that may be lost. An unreadable one is deleted, and why it is unreadable comes with empty slots;
    `consequence` is said in the log. Raises DiskError.
    """
    try:
        return Slots(disk, path), None
    except SlotsUnreadableError as error:
        log.warning("%s: %s", consequence, error)
        disk.unlink(path)
        return Slots(disk, path), str(error)


def _slot_at(file: File, offset: int) -> _Slot | None:
    try:
        return _unpack(file.pread(SLOT_SIZE, offset))
    except DiskError:
        return None  # what the disk does not give is as good as damaged


def newest_payload(content: bytes) -> bytes | None:
    """Of a file's content, for those who may only look; None when neither slot is readable."""
    newest = _newest([_unpack(content[number * SLOT_SIZE : (number + 1) * SLOT_SIZE]) for number in (0, 1)])
    return newest.payload if newest is not None else None


def _newest(slots: list[_Slot | None]) -> _Slot | None:
    readable = [slot for slot in slots if slot is not None]
    return max(readable, key=lambda slot: (slot.sequence, not slot.copy), default=None)


def _pack(sequence: int, payload: bytes, *, copy: bool) -> bytes:
    covered = _SLOT_HEADER.pack(_MAGIC, 0, sequence, copy, len(payload))[_CRC_FROM:] + payload
    return (_MAGIC + zlib.crc32(covered).to_bytes(4, "big") + covered).ljust(SLOT_SIZE, b"\0")


def _unpack(data: bytes) -> _Slot | None:
    if len(data) < SLOT_SIZE:
        return None
    magic, crc, sequence, copy, size = _SLOT_HEADER.unpack_from(data)
    end = _SLOT_HEADER.size + size
    if magic != _MAGIC or end > SLOT_SIZE or zlib.crc32(data[_CRC_FROM:end]) != crc:
        return None
    return _Slot(sequence, copy, data[_SLOT_HEADER.size : end])
