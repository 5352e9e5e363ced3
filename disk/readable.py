"""Files of which the disk may not give all: what it does not give is damage like other damage, for whoever proves
what he reads.
"""

from collections.abc import Iterator

from disk.disk import Buffer, DiskError, File, NoSpaceError

_SECTOR_SIZE = 4096
_PATTERN = b"\xde\xad\xbe\xef"


def unreadable(size: int) -> bytes:
    """In the place of bytes that the disk does not give: no record passes with them."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


def read_what_there_is(file: File, size: int, offset: int) -> bytes:
    """As pread(); what lies in a sector that cannot be read is unreadable()."""
    try:
        return file.pread(size, offset)
    except DiskError:
        parts = []
        for part_offset, part_size in _sectors(offset, size):
            part = _read(file, part_size, part_offset)
            parts.append(part if part is not None else unreadable(part_size))
        return b"".join(parts)


def write_again(file: File, size: int, offset: int) -> None:
    """What reads, as it reads; a sector that cannot be read is left alone. Raises DiskError."""
    whole = _read(file, size, offset)
    if whole is not None:
        file.pwrite(whole, offset)
        return
    for part_offset, part_size in _sectors(offset, size):
        part = _read(file, part_size, part_offset)
        if part is not None:
            file.pwrite(part, part_offset)


def write_over(file: File, data: Buffer, offset: int) -> None:
    """As pwrite(), also over what cannot be read: the kernel reads a sector of which only a part is written, so one
    that it cannot read is given up as a whole first. Raises DiskError.
    """
    try:
        file.pwrite(data, offset)
    except NoSpaceError:
        raise
    except DiskError:
        last = offset + len(data) - 1
        for edge in sorted({offset - offset % _SECTOR_SIZE, last - last % _SECTOR_SIZE}):
            size = min(_SECTOR_SIZE, file.size() - edge)
            if size > 0 and _read(file, size, edge) is None:
                file.pwrite(bytes(size), edge)
        file.pwrite(data, offset)


def _sectors(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of each sector's part."""
    end = offset + size
    while offset < end:
        part_size = min(end - offset, _SECTOR_SIZE - offset % _SECTOR_SIZE)
        yield offset, part_size
        offset += part_size


def _read(file: File, size: int, offset: int) -> bytes | None:
    try:
        return file.pread(size, offset)
    except DiskError:
        return None
