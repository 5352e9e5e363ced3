"""A start whose synced mark is lost: the begin mark says where the log begins, and who the members are there."""

from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, GENESIS_CHAIN, chain_after, parse_header
from dledger.log.begin_mark import BeginMark, BeginMarkFile
from dledger.log.config import LogConfig
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import SequentialReader
from dledger.log.errors import LedgerDamagedError, what_to_do
from dledger.log.synced_mark import SyncedMark, before_first_entry


def mark_by_the_begin(data: DataFiles, config: LogConfig, begin_file: BeginMarkFile) -> SyncedMark | None:
    """Makes a mark in the place of the lost one, by which the whole log is to be proved. Raises LedgerDamagedError,
    DiskError.

    Returns None where the log begins with entry 0 at position 0, where it does not begin as the begin mark says, and
    where the begin mark does not know the entry before the first one. Then the first entry is taken as it is.
    """
    if begin_file.slots.payload is None:
        return None
    begin, files = begin_file.mark, data.queue.list_files()
    if files and files[0] > begin.begin_pos:
        raise LedgerDamagedError(
            f"{data.queue.path_of(files[0])}: the oldest data file, but the log began at {begin.begin_pos}; "
            "and the synced mark is lost, so that what is missing cannot be repaired. Nothing was changed. "
            f"{what_to_do(config.directory)}"
        )
    is_first = begin.before_begin_index < 0
    is_known = begin.begin_pos > 0 if is_first else begin.before_begin_chain != GENESIS_CHAIN
    if not is_known or not _is_begun(data, begin, files):
        return None
    return before_first_entry(begin, doubted=True)


def check_told_members(config: LogConfig, begin_file: BeginMarkFile, reader: SequentialReader) -> None:
    """Raises LedgerDamagedError where the readable part of the log lacks an entry that says who the members are.

    All that the lost mark said about damage below it is lost as well, so a log that is damaged just ends there. But a
    member that has lost such an entry might lead with an older list of members.
    """
    told = begin_file.mark.membership_indexes
    if told and reader.index < told[-1]:
        raise LedgerDamagedError(
            f"{config.data_directory}: readable up to entry {reader.index} at pos {reader.end_pos} "
            f"({reader.stopped_by or 'nothing follows'}), but entry {told[-1]}, which says who the members "
            "are, was durable; and the synced mark is lost, so that it cannot be repaired. Nothing was "
            f"cut. {what_to_do(config.directory)}"
        )


def _is_begun(data: DataFiles, begin: BeginMark, files: list[int]) -> bool:
    """Whether the first entry lies where the begin mark says, or the log has no entry yet. If the process ended while
    the log was to begin anew, the files may still hold the old log.
    """
    heads = {offset: data.queue.read_listed(offset, ENTRY_HEADER_SIZE) for offset in files}
    head = heads.get(begin.begin_pos, b"")
    if not any(head):
        return not any(map(any, heads.values()))
    header = parse_header(head.ljust(ENTRY_HEADER_SIZE, b"\0"))
    return (header.magic, header.index) == (ENTRY_MAGIC, begin.before_begin_index + 1) and (
        chain_after(head, begin.before_begin_chain) == header.chain_crc
    )
