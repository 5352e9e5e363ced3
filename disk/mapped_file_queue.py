"""A queue of bytes kept in files of one size, each named by the offset of its first byte (20 digits).

The commit log, the DLedger data and index files and each ConsumeQueue are such queues. Offsets are of the queue;
which of its bytes have been written is the owner's knowledge. Files have their full length from the start, sparse,
because Java refuses files of another length.
"""

from disk.disk import Buffer
from disk.mapped_file import DescriptorCache, MappedFile
from disk.readable import read_what_there_is, unreadable, write_over

_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    return f"{offset:0{_NAME_DIGITS}d}"


class MappedFileQueueError(Exception):
    """The files of a directory do not make a queue; the text names the file and says what was expected."""


class MappedFileQueue:
    """Invariant: files lie end to end without a gap, in order of their offsets."""

    def __init__(self, descriptors: DescriptorCache, directory: str, mapped_file_size: int) -> None:
        assert mapped_file_size > 0
        self.directory = directory
        self.mapped_file_size = mapped_file_size
        self.mapped_files: list[MappedFile] = []
        self._descriptors = descriptors
        self._disk = descriptors.disk

    @property
    def min_offset(self) -> int:
        """First offset covered by a file; 0 when there is none."""
        return self.mapped_files[0].file_from_offset if self.mapped_files else 0

    @property
    def end_offset(self) -> int:
        """First offset behind the last file; 0 when there is none."""
        return self.mapped_files[-1].end_offset if self.mapped_files else 0

    def path_of(self, file_from_offset: int) -> str:
        return f"{self.directory}/{file_name(file_from_offset)}"

    def list_files(self) -> list[int]:
        """Offsets that files of the directory are named by. Other names are not ours and are left alone."""
        names = self._disk.list_directory(self.directory)
        return [
            int(name) for name in names if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
        ]

    def delete_listed_before(self, offset: int) -> None:
        """Before load(): deletes files of the directory that end at or before `offset`, but for the last of all."""
        for file_from_offset in self.list_files()[:-1]:
            if file_from_offset + self.mapped_file_size <= offset:
                self._disk.unlink(self.path_of(file_from_offset))

    def length_of(self, file_from_offset: int) -> int:
        """Before load(): bytes in a file that list_files() names."""
        file = self._disk.open(self.path_of(file_from_offset), read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def read_listed(self, file_from_offset: int, size: int) -> bytes:
        """Before load(): the first bytes of a file that list_files() names, as far as the disk gives them."""
        file = self._disk.open(self.path_of(file_from_offset), read_only=True)
        try:
            return read_what_there_is(file, size, 0)
        finally:
            file.close()

    def make_listed(self, file_from_offset: int) -> None:
        """Before load(): a file of full length, durably, zeros behind what was there of it. Raises DiskError."""
        make_file(self._descriptors, self.directory, file_from_offset, self.mapped_file_size, durable=True)

    def load(self, *, accept_short: bool = False) -> None:
        """Takes the files of the directory. Raises MappedFileQueueError at a gap, or at a file of another length.

        An empty file is one whose creation was cut off by a crash: it gets its length now. With `accept_short` (for
        files that are derived from others) every shorter file does, and the missing bytes read as zeros.
        """
        assert not self.mapped_files, "load() comes first"
        size = self.mapped_file_size
        files: list[MappedFile] = []
        for offset in self.list_files():
            path = self.path_of(offset)
            expected = files[-1].end_offset if files else offset
            if offset != expected or offset % size:
                raise MappedFileQueueError(
                    f"{path}: expected a file that begins at a multiple of {size}"
                    + (f", namely {file_name(expected)} next; is a file missing" if files else "")
                    + ", or was another file size configured before?"
                )
            mapped_file = MappedFile(self._descriptors, path, offset, size)
            length = mapped_file.file().size()
            if length != size:
                if length > size or (length and not accept_short):
                    mapped_file.retire()
                    raise MappedFileQueueError(
                        f"{path}: {length} bytes long, expected {size}: another file size?"
                    )
                mapped_file.file().truncate(size)
                # Else a later write may outlive a power loss that takes the length.
                mapped_file.file().fdatasync()
            files.append(mapped_file)
        self.mapped_files = files

    def find_mapped_file_by_offset(self, offset: int) -> MappedFile | None:
        files = self.mapped_files
        if not files:
            return None
        number = (offset - files[0].file_from_offset) // self.mapped_file_size
        return files[number] if 0 <= number < len(files) else None

    def create_mapped_file(self, file_from_offset: int, *, durable: bool = False) -> MappedFile:
        """Adds the file that begins at `file_from_offset`: the next one, or any multiple of the size if it is the
        first. With `durable` its name and length are on disk when this returns (two syncs, which block).
        """
        make_file(self._descriptors, self.directory, file_from_offset, self.mapped_file_size, durable=durable)
        return self.adopt(file_from_offset)

    def adopt(self, file_from_offset: int) -> MappedFile:
        """Adds a file that make_file() has made ahead."""
        assert file_from_offset % self.mapped_file_size == 0
        assert not self.mapped_files or file_from_offset == self.end_offset
        path = self.path_of(file_from_offset)
        mapped_file = MappedFile(self._descriptors, path, file_from_offset, self.mapped_file_size)
        self.mapped_files.append(mapped_file)
        return mapped_file

    def remake(self, file_from_offset: int) -> None:
        """An empty file comes in the place of one that somebody has taken away. Raises OSError."""
        number = [mapped_file.file_from_offset for mapped_file in self.mapped_files].index(file_from_offset)
        make_file(self._descriptors, self.directory, file_from_offset, self.mapped_file_size, durable=False)
        self.mapped_files[number].retire()
        self.mapped_files[number] = MappedFile(
            self._descriptors, self.path_of(file_from_offset), file_from_offset, self.mapped_file_size
        )

    def read(self, offset: int, size: int) -> bytes:
        """Bytes that may lie across files, for whoever proves them: those that the disk does not give, or that a file
        has lost with its length, or with its name, are unreadable(). Fewer only where the files end.
        """
        first = self.find_mapped_file_by_offset(offset)
        if first is None:
            return b""
        if offset + size <= first.end_offset:
            return _read(first, size, offset)
        parts: list[bytes] = []
        end = min(offset + size, self.end_offset)
        while offset < end:
            mapped_file = self.find_mapped_file_by_offset(offset)
            assert mapped_file is not None
            part_size = min(end, mapped_file.end_offset) - offset
            parts.append(_read(mapped_file, part_size, offset))
            offset += part_size
        return b"".join(parts)

    def write(self, offset: int, data: Buffer) -> None:
        """Writes bytes that may lie across files, all of which must exist, also over what cannot be read."""
        first = self.find_mapped_file_by_offset(offset)
        assert first is not None, f"no file of {self.directory} covers {offset}"
        if offset + len(data) <= first.end_offset:
            write_over(first.file(), data, offset - first.file_from_offset)
            return
        view = memoryview(data)
        while view:
            mapped_file = self.find_mapped_file_by_offset(offset)
            assert mapped_file is not None, f"no file of {self.directory} covers {offset}"
            part = view[: mapped_file.end_offset - offset]
            write_over(mapped_file.file(), part, offset - mapped_file.file_from_offset)
            offset += len(part)
            view = view[len(part) :]

    def make_whole(self, offset: int) -> None:
        """The file that holds `offset` gets its length again if it has lost it. If somebody has taken the file away, an
        empty one takes its place. Raises DiskError.
        """
        mapped_file = self.find_mapped_file_by_offset(offset)
        assert mapped_file is not None, f"no file of {self.directory} covers {offset}"
        if not self._disk.exists(mapped_file.path):
            self.remake(mapped_file.file_from_offset)
        elif mapped_file.file().size() < self.mapped_file_size:
            mapped_file.file().truncate(self.mapped_file_size)

    def detach_from(self, offset: int) -> list[MappedFile]:
        """Takes the files that begin at or behind `offset` out of the queue; the caller unlinks and retires them."""
        keep = sum(1 for mapped_file in self.mapped_files if mapped_file.file_from_offset < offset)
        detached = self.mapped_files[keep:]
        del self.mapped_files[keep:]
        return detached

    def detach_before(self, offset: int) -> list[MappedFile]:
        """As detach_from(), of the files that end at or before `offset`."""
        count = sum(1 for mapped_file in self.mapped_files if mapped_file.end_offset <= offset)
        detached = self.mapped_files[:count]
        del self.mapped_files[:count]
        return detached

    def delete_from(self, offset: int) -> None:
        """Deletes the files that begin at or behind `offset`, the last one first, so that no crash leaves a gap."""
        for mapped_file in reversed(self.detach_from(offset)):
            self._disk.unlink(mapped_file.path)
            mapped_file.retire()

    def delete_before(self, offset: int) -> int:
        """Deletes the files that end at or before `offset`, the first one first. Returns how many."""
        detached = self.detach_before(offset)
        for mapped_file in detached:
            self._disk.unlink(mapped_file.path)
            mapped_file.retire()
        return len(detached)

    def close(self) -> None:
        for mapped_file in self.mapped_files:
            mapped_file.retire()
        self.mapped_files.clear()


def _read(mapped_file: MappedFile, size: int, offset: int) -> bytes:
    try:
        data = read_what_there_is(mapped_file.file(), size, offset - mapped_file.file_from_offset)
    except FileNotFoundError:
        data = b""
    return data if len(data) == size else data + unreadable(size - len(data))


def make_file(
    descriptors: DescriptorCache, directory: str, file_from_offset: int, size: int, *, durable: bool
) -> None:
    """Makes a file of full length, or leaves one as it is that has it already. Safe in any thread.

    Until it is `durable`, a power loss may take the file away together with everything written to it.
    """
    disk = descriptors.disk
    file = disk.open(f"{directory}/{file_name(file_from_offset)}", create=True)
    try:
        if file.size() != size:
            file.truncate(size)
        if durable:
            file.fdatasync()
    finally:
        file.close()
    if durable:
        disk.sync_directory(directory)
