"""What is looked at in the log where Java's DLedger was the last to run, before its entries are sealed, and after."""

import logging

from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, Index
from dledger.log.config import LogConfig
from dledger.log.data_files import DataFiles
from dledger.log.entry_reader import SequentialReader, header_at
from dledger.log.errors import LedgerConfigError, LedgerDamagedError, what_to_do
from dledger.log.index_files import IndexFiles
from dledger.log.java_files import JavaRun
from dledger.log.synced_mark import SyncedMark

log = logging.getLogger(__name__)


def java_begin_index(data: DataFiles, config: LogConfig) -> Index:
    """Which entry files begin with of which nothing is known yet. Raises LedgerDamagedError, DiskError."""
    first_file = data.queue.mapped_files[0]
    header = header_at(data, first_file.file_from_offset)
    is_entry = header.magic == ENTRY_MAGIC and header.pos == first_file.file_from_offset
    if first_file.file_from_offset > 0 and not is_entry:
        raise LedgerDamagedError(
            f"{first_file.path}: begins with no entry (magic {header.magic}, index {header.index}, pos "
            f"{header.pos}). Nothing was changed. If the group has never stored a message behind the old "
            f"plain commitlog, let Java's store one. Otherwise: {what_to_do(config.directory)}"
        )
    return Index(max(header.index, 0)) if is_entry else Index(0)


def has_java_replaced(data: DataFiles, index_files: IndexFiles, mark: SyncedMark) -> bool:
    """Whether Java has cut what lay at our mark, as it may what nobody else had, and went on in its place: its
    entries have no CRCs, or those that a start before this one gave them, and later terms.
    """
    for index in range(mark.index, mark.before_begin_index, -1):
        try:
            pos = index_files.unit(Index(index)).pos
        except LedgerDamagedError:
            continue
        header = header_at(data, pos)
        if (header.magic, header.index, header.pos) == (ENTRY_MAGIC, index, pos):
            return header.term > mark.term or header.chain_crc == header.body_crc == 0
    return False


def refuse_foreign_tail(data: DataFiles, config: LogConfig, reader: SequentialReader) -> None:
    """An entry that would go on here but for its CRC fields, both 0, is no torn write: it must not be cut. Raises
    LedgerConfigError, DiskError.
    """
    header = header_at(data, reader.end_pos)
    if reader.blanks and sum(reader.blanks[-1]) > reader.end_pos:
        header = header_at(data, sum(reader.blanks[-1]))
    if (
        (header.magic, header.index) == (ENTRY_MAGIC, reader.index + 1)
        and header.size == header.body_length + ENTRY_HEADER_SIZE > ENTRY_HEADER_SIZE
        and header.chain_crc == header.body_crc == 0
    ):
        raise LedgerConfigError(
            f"{config.data_directory}: entries from {header.index} on at pos {header.pos} have no CRCs, as "
            f"if Java's DLedger wrote them, but {config.directory}/currterm does not say that it ran here. "
            "Put back the currterm that it left there or, if it ran here and left this one, take the line "
            "writtenBy=pydledger out of it; nothing was cut"
        )


def check_java_end(data: DataFiles, config: LogConfig, java_run: JavaRun, reader: SequentialReader) -> None:
    """What Java knows to be committed must be there. It would itself have cut the rest at its next start. If it
    knows of nothing, only the last data file may have a torn tail. Raises LedgerDamagedError, DiskError.
    """
    contradiction = None
    if reader.index < java_run.committed_index:
        contradiction = f"Java's checkpoint says that entries up to {java_run.committed_index} are committed"
    elif java_run.committed_index < 0:
        end = max([reader.end_pos, *(pos + size for pos, size in reader.blanks)])
        for begin in (file.file_from_offset for file in data.queue.mapped_files):
            header = header_at(data, begin)
            if (header.magic, header.pos) == (ENTRY_MAGIC, begin) and begin > end:
                contradiction = f"the data file at {begin} begins with entry {header.index}"
    if contradiction is not None:
        raise LedgerDamagedError(
            f"{config.data_directory}: readable up to entry {reader.index} at pos {reader.end_pos} "
            f"({reader.stopped_by or 'nothing follows'}), but {contradiction}. Nothing was cut. "
            f"{what_to_do(config.directory)}"
        )
    log.info(
        "entries of Java sealed end=%d/%d committed_by_java=%d",
        reader.term,
        reader.index,
        java_run.committed_index,
    )
