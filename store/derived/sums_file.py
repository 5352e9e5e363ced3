"""The sums of derived files: what ConsumeQueues and full IndexFiles should be. A file beside each checkpoint.

Earlier releases neither read it nor write it. What it says is only ever a reason to compare units with the log, or to
build the index anew. So a file that is lost, damaged or older than its checkpoint does no harm.
"""

import logging
from typing import Final
from zlib import crc32

import msgpack
import msgspec

from disk.disk import Disk, DiskError
from store.dispatch_request import QueueKey
from store.queues.unit_sums import PackedSums

log = logging.getLogger(__name__)

_VERSION: Final = 1
_CRC_SIZE: Final = 4


class DerivedSums(msgspec.Struct, frozen=True):
    """As of a checkpoint."""

    queues: dict[QueueKey, PackedSums] = {}
    index_files: dict[str, int] = {}  # CRC-32 of full ones, by name

    def pack(self) -> bytes:
        rows = [(*key, *packed) for key, packed in self.queues.items()]
        payload: bytes = msgpack.packb([_VERSION, rows, self.index_files])
        return crc32(payload).to_bytes(_CRC_SIZE, "big") + payload


def sums_path(checkpoint_path: str) -> str:
    return checkpoint_path.replace("applied-state", "derived-sums")


def load_sums(disk: Disk, path: str) -> DerivedSums:
    """None are known where the file is not there, or not as it was written."""
    if not disk.exists(path):
        return DerivedSums()
    sums = _unpack(_read(disk, path))
    if sums is None:
        log.warning("sums are unreadable, they are taken from the units as they stand path=%s", path)
    return sums or DerivedSums()


def _read(disk: Disk, path: str) -> bytes:
    try:
        return disk.read_file(path)
    except DiskError:
        return b""


def _unpack(content: bytes) -> DerivedSums | None:
    payload = content[_CRC_SIZE:]
    if not payload or crc32(payload) != int.from_bytes(content[:_CRC_SIZE], "big"):
        return None
    version, *values = msgpack.unpackb(payload)
    if version != _VERSION:
        return None
    rows, index_files = values
    return DerivedSums({(topic, queue_id): tuple(packed) for topic, queue_id, *packed in rows}, index_files)
