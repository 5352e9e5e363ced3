"""What a start finds of IndexFiles: our own files as the mark says, or those of a broker of Java's.

IndexFiles are derived from the log. What cannot be right is refused, with all that is newer, and the log is read again
from where the rest ends.
"""

import logging

import msgspec

from disk.disk import Disk, DiskError
from disk.mapped_file import DescriptorCache
from disk.readable import read_what_there_is
from store.index.index_file import (
    IndexFile,
    fault_of_file,
    index_file_names,
    roll_back,
)
from store.index.index_file_mark import IndexFileMark, mark_after_clean_stop
from store.layout.index_file import (
    EMPTY_INDEX_HEADER,
    INDEX_HEADER_SIZE,
    IndexFileShape,
    IndexHeader,
    parse_index_header,
)

log = logging.getLogger(__name__)


class RecoveredIndexFiles(msgspec.Struct, frozen=True):
    index_files: list[IndexFile]  # oldest first
    mark: IndexFileMark  # what is true of them
    refused: list[str]  # names of files to be deleted, once that mark is durable


def recover_index_files(
    descriptors: DescriptorCache,
    directory: str,
    shape: IndexFileShape,
    mark: IndexFileMark | None,
    *,
    stopped_cleanly: bool,
) -> RecoveredIndexFiles:
    """Blocks. Raises DiskError."""
    disk = descriptors.disk
    names = index_file_names(disk, directory)
    headers = {name: _read_header(disk, f"{directory}/{name}") for name in names}
    if mark is None and not stopped_cleanly:
        if names:
            log.warning(
                "the broker did not stop cleanly and no mark says what is in the IndexFiles: built anew"
            )
        return RecoveredIndexFiles([], IndexFileMark(shape=shape), names)
    newest = names[-1] if names else ""
    header_fault: str | None = None
    if mark is not None and stopped_cleanly:
        mark, header_fault = mark_after_clean_stop(mark, newest, headers.get(newest))
        if mark is None:
            # It says in the files how far it came.
            log.info("IndexFiles were written by another broker since the last stop of this one")
    if mark is not None and mark.shape != shape:
        log.warning(
            "IndexFiles have maxHashSlotNum=%d maxIndexNum=%d, the conf says %d and %d: all are built anew",
            mark.shape.slot_count, mark.shape.index_count_max, shape.slot_count, shape.index_count_max,
        )  # fmt: skip
        return RecoveredIndexFiles([], IndexFileMark(shape=shape), names)
    refused: list[str] = []
    if mark is not None:
        refused = [name for name in names if name > mark.file_name]
        names = [name for name in names if name <= mark.file_name]
        if mark.file_name in headers:
            headers[mark.file_name] = mark.header
    elif names and 0 <= headers[newest].index_count <= 1:
        refused = [names.pop()]  # Java made it ahead: nothing is in it

    index_files: list[IndexFile] = []
    is_whole = True
    for at, name in enumerate(names):
        index_file = IndexFile(descriptors, directory, name, shape, headers[name])
        fault = _fault_of(index_file, index_files[-1] if index_files else None)
        if fault is None and mark is not None and name == mark.file_name and not stopped_cleanly:
            fault = _rolled_back(index_file)
        if fault is None and name == newest:
            fault = header_fault
        if fault is not None:
            log.warning(
                "IndexFile cannot be right, built anew from the log, with %d newer ones path=%s fault: %s",
                len(names) - at - 1, index_file.mapped_file.path, fault,
            )  # fmt: skip
            index_file.delete()
            refused += names[at:]
            is_whole = False
            break
        index_files.append(index_file)
    found = index_files[-1] if index_files else None
    if mark is not None and mark.file_name == (found.name if found is not None else ""):
        return RecoveredIndexFiles(index_files, mark, refused)
    mark_of_found = _mark_of(found, shape, is_whole=is_whole and mark is None)
    return RecoveredIndexFiles(index_files, mark_of_found, refused)


def _mark_of(newest: IndexFile | None, shape: IndexFileShape, *, is_whole: bool) -> IndexFileMark:
    if newest is None:
        return IndexFileMark(shape=shape)
    end = newest.header.end_phy_offset
    # The last message's keys may go on in the next file, which is gone.
    return IndexFileMark(newest.name, newest.header, end, end if is_whole else end - 1, shape)


def _fault_of(index_file: IndexFile, before: IndexFile | None) -> str | None:
    header = index_file.header
    try:
        fault = fault_of_file(index_file.mapped_file.file(), index_file.shape, header)
    except DiskError as error:
        fault = str(error)
    if fault is None and before is not None and header.begin_phy_offset < before.header.end_phy_offset:
        return (
            f"its header begins at physical offset {header.begin_phy_offset}, "
            f"the file before ends at {before.header.end_phy_offset}"
        )
    return fault


def _rolled_back(index_file: IndexFile) -> str | None:
    try:
        roll_back(index_file.mapped_file.file(), index_file.shape, index_file.header)
    except DiskError as error:
        return error.strerror
    return None


def _read_header(disk: Disk, path: str) -> IndexHeader:
    file = disk.open(path, read_only=True)
    try:
        data = read_what_there_is(file, INDEX_HEADER_SIZE, 0)
    finally:
        file.close()
    return parse_index_header(data) if len(data) == INDEX_HEADER_SIZE else EMPTY_INDEX_HEADER
