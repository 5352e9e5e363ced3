"""The job that brings units of ConsumeQueues to their files, in another thread."""

from collections.abc import Sequence

import msgspec

from disk.disk import Disk, File
from disk.mapped_file import MappedFile
from disk.readable import write_over
from store.queues.unit_queue import UnitQueue


class _Part(msgspec.Struct):
    """Bytes for one file, which the job makes if `held` is None."""

    queue: UnitQueue
    file_from_offset: int
    offset_in_file: int
    data: bytes | memoryview
    held: MappedFile | None
    file: File | None


class ConsumeQueueFlushJob:
    """Fulfils DiskJob. Each file is synced before it is left, so units count as flushed only if the whole job did."""

    __slots__ = ("_disk", "_parts", "flushed_to")
    kind = "flush-consume-queue"

    def __init__(self, disk: Disk, queues: Sequence[UnitQueue]) -> None:
        self._disk = disk
        self._parts: list[_Part] = []
        self.flushed_to: list[tuple[UnitQueue, int]] = []  # what settle() may be followed by
        for queue in queues:
            number, units = queue.unflushed()
            self._add_parts(queue, number * queue.unit_size, memoryview(units))
            self.flushed_to.append((queue, number + len(units) // queue.unit_size))

    def run(self) -> None:
        for part in self._parts:
            if part.file is None:
                self._write_new_file(part)
            else:
                # What cannot be read there any more is units that were flushed before, and is mended.
                write_over(part.file, part.data, part.offset_in_file)
                part.file.fdatasync()

    def settle(self, *, succeeded: bool) -> None:
        """In the store's thread, once run() has ended: lets the files go and takes up new ones."""
        for part in self._parts:
            if part.held is not None:
                part.held.release()
            elif succeeded:
                part.queue.files.adopt(part.file_from_offset)

    def _add_parts(self, queue: UnitQueue, offset: int, data: memoryview) -> None:
        files = queue.files
        while data:
            file_from_offset = offset - offset % files.mapped_file_size
            size = min(len(data), file_from_offset + files.mapped_file_size - offset)
            held = files.find_mapped_file_by_offset(offset)
            self._parts.append(
                _Part(
                    queue,
                    file_from_offset,
                    offset - file_from_offset,
                    data[:size],
                    held,
                    held.hold() if held is not None else None,
                )
            )
            offset += size
            data = data[size:]

    def _write_new_file(self, part: _Part) -> None:
        files = part.queue.files
        disk = self._disk
        disk.make_directory(files.directory)
        file = disk.open(files.path_of(part.file_from_offset), create=True)
        try:
            # A file of that name is what a crash or a power loss has left of an earlier life of the queue.
            file.truncate(0)
            file.truncate(files.mapped_file_size)
            file.pwrite(part.data, part.offset_in_file)
            file.fdatasync()
        finally:
            file.close()
        disk.sync_directory(files.directory)
