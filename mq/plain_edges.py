"""The records that a plain broker of ours looks at before it starts: the first and the last of each file of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dledger.log.synced_mark import SyncedMark
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.record_layout import RECORD_SIZE_MIN
from store.plain.plain_records import record_size_at
from verify.log.data_file import DataFile


def damage_at_edges(
    files: Sequence[DataFile], mark: SyncedMark, last_pos_before: Callable[[int], int | None]
) -> Iterator[str]:
    """What stops the start: an edge that was durable and is not sound. `last_pos_before`: of the last durable record
    that begins before a position, by the log's own units; None: they do not say, and are made anew.
    """
    if mark.index < 0:
        return
    if not files or files[0].base != mark.begin_pos:
        yield f"no file begins at {mark.begin_pos}, where the log began: restore the directory from a backup"
        return
    for file in files:
        if file.base >= mark.end_pos:
            break
        for pos in {file.base, last_pos_before(min(file.base + file.size, mark.end_pos))} - {None}:
            assert pos is not None
            if not _is_sound(file.path, pos - file.base, pos):
                yield f"{file.path}: the record at {pos} is not sound: restore the directory from a backup"


def _is_sound(path: str, offset: int, pos: int) -> bool:
    with open(path, "rb") as file:
        file.seek(offset)
        head = file.read(RECORD_SIZE_MIN)
        size = record_size_at(head, pos)
        if size is None:
            return False
        record = head + file.read(size - len(head))
    try:
        decode_message(record)
    except MessageDecodeError:
        return False
    return True
