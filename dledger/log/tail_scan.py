"""What lies behind the end of a ledger's files, where everything should be zero."""

from collections.abc import Iterable

from disk.mapped_file import MappedFile
from disk.readable import read_what_there_is
from dledger.log.entry_reader import SequentialReader

_CHUNK_SIZE = 1024 * 1024
# Unsynced bytes lie close behind the last sound entry: at most what may be pending lies between.
_TAIL_SCAN_SIZE = 64 * 1024 * 1024


def junk_behind(files: Iterable[MappedFile], reader: SequentialReader) -> tuple[int, bool]:
    """(position behind the last byte that is not zero, whether it may be the rest of entries).

    A blank with nothing behind it is not: the crash came between a batch's two files. It is cut all the same,
    for a smaller entry may still go where the larger one did not fit.
    """
    junk_end, torn = 0, reader.stopped_by is not None
    for mapped_file in files:
        start = max(reader.end_pos, mapped_file.file_from_offset)
        if (start, mapped_file.end_offset - start) in reader.blanks:
            junk_end = max(junk_end, mapped_file.end_offset)
        elif start < mapped_file.end_offset:
            last = last_byte(mapped_file, start - mapped_file.file_from_offset)
            if last >= 0:
                junk_end, torn = mapped_file.file_from_offset + last + 1, True
    return junk_end, torn


def last_byte(mapped_file: MappedFile, start: int) -> int:
    """Offset in the file of the last byte from `start` on that is not zero, or that the disk does not give; -1 if there
    is none. Ends at a long run of zeros.
    """
    last = -1
    offset = start
    zeros = bytes(_CHUNK_SIZE)
    while offset < mapped_file.file_size and offset - max(last, start) < _TAIL_SCAN_SIZE:
        size = min(_CHUNK_SIZE, mapped_file.file_size - offset)
        chunk = read_what_there_is(mapped_file.file(), size, offset)
        if not chunk:
            break
        if chunk != zeros[: len(chunk)]:
            last = offset + len(chunk.rstrip(b"\0")) - 1
        offset += len(chunk)
    return last
