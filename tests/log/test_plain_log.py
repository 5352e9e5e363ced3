"""A log of records alone keeps what a log of entries keeps, and what it cannot know it does not cut."""

import logging
from pathlib import Path

import pytest
from crash_disk import CrashDisk
from ledger_model import LedgerModel, play
from log_steps import FILE_SIZE, run, sync

from disk.disk import Disk
from disk.real_disk import RealDisk
from dledger.entry import EntryKind, Index, Pos, Term
from dledger.log.errors import LedgerConfigError, LedgerDamagedError
from message.encoder import encode_record
from message.record_layout import BLANK_HEADER, BLANK_MAGIC
from store.plain.plain_log import PlainLog
from store.plain.plain_log_config import PlainLogConfig
from store.system_message import no_op_message, state_message

COMMIT_LOG = "store/commitlog"
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
STORED_MS = 1_700_000_000_000


def open_log(disk: Disk, root: str = "store", file_size: int = FILE_SIZE) -> PlainLog:
    return PlainLog.open(
        disk,
        PlainLogConfig(
            directory=f"{root}/pydledger",
            commit_log_directory=f"{root}/commitlog",
            abort_file=f"{root}/abort",
            data_file_size=file_size,
            index_file_size=640,
            allocate_step=1024,
            recent_bytes_max=3000,
        ),
    )


def record(number: int, pos: int, size: int) -> bytes:
    """`size` bytes of body, and as many of properties."""
    properties = (b"k%d\x01%d\x02" % (number, number) * size)[:size]
    body = (b"%d." % number * size)[:size]
    return encode_record(
        b"T", 0, 0, number, pos, 0, STORED_MS, HOST, STORED_MS, HOST, 0, 0, body, properties
    )  # fmt: skip


def size_of(number: int, size: int) -> int:
    return len(record(number, 0, size))


class PlainModel(LedgerModel):
    """Of a group of one: nothing is ever cut but by recovery, and each term begins with its no-op."""

    data_directory = COMMIT_LOG

    def open(self) -> PlainLog:
        return open_log(self.disk)

    def append(self, sizes: list[int], new_term: bool) -> None:
        new_term = new_term or not self.entries
        term = (self.entries[-1][0] if self.entries else 0) + new_term
        no_op = no_op_message(Term(term), 0, HOST, STORED_MS)
        numbers = range(self.number, self.number + len(sizes))
        self.number += len(sizes)
        # Half of a size each for body and properties.
        halves = [min(max(size // 2, 1), 1990) for size in sizes]
        lengths = [size_of(number, half) for number, half in zip(numbers, halves, strict=True)]
        positions = self.log.reserve([no_op.size] * new_term + lengths)
        bodies = [no_op.encode(positions[0], STORED_MS)] if new_term else []
        bodies += [
            record(number, pos, half)
            for number, half, pos in zip(numbers, halves, positions[new_term:], strict=True)
        ]
        head_kind = EntryKind.NO_OP if new_term else None
        self.log.append(bodies, positions, Term(term), EntryKind.MESSAGE, head_kind)
        self.entries += [(term, body) for body in bodies]

    def begin_cut(self, share: float) -> None:
        pass


def test_short_histories_keep_what_was_durable() -> None:
    logging.disable()
    try:
        models = [play(seed, PlainModel) for seed in range(15)]
    finally:
        logging.disable(logging.NOTSET)
    assert sum(model.number for model in models) > 200


@pytest.mark.slow
def test_long_histories_keep_it_too_and_meet_every_fault() -> None:
    logging.disable()
    try:
        models = [play(seed, PlainModel) for seed in range(150)]
    finally:
        logging.disable(logging.NOTSET)
    assert sum(model.doubts for model in models) > 50
    assert sum(model.number for model in models) > 5000


def filled(disk: Disk, count: int = 40, *, marked: bool = True) -> PlainLog:
    log = open_log(disk)
    no_op = no_op_message(Term(1), 0, HOST, STORED_MS)
    log.append([no_op.encode(Pos(0), STORED_MS)], log.reserve([no_op.size]), Term(1), EntryKind.NO_OP)
    for number in range(1, count):
        (pos,) = log.reserve([size_of(number, 150)])
        log.append([record(number, pos, 150)], [pos], Term(1), EntryKind.MESSAGE)
    if marked:
        sync(log)
        run(log.mark_job(0), log.mark_done)
    return log


def file_of(pos: int) -> str:
    return f"{COMMIT_LOG}/{pos - pos % FILE_SIZE:020d}"


def facts(log: PlainLog) -> list[tuple[int, int | None]]:
    begin, end = log.ledger_begin_index, log.ledger_end_index
    return [(log.pos_at(Index(i)), log.term_at(Index(i))) for i in range(begin, end + 1)]


def without_ours(disk: CrashDisk) -> None:
    """As if RocketMQ had written it."""
    for path in disk.paths():
        if "/pydledger/" in path:
            disk.unlink(path)


def test_a_file_ends_with_the_blank_that_java_writes() -> None:
    disk = CrashDisk()
    log = filled(disk)
    last = log.first_file_last_index
    assert last is not None
    end_pos = log.end_pos_at(last)
    content = bytes(disk.content(file_of(0)))
    assert BLANK_HEADER.unpack_from(content, end_pos) == (FILE_SIZE - end_pos, BLANK_MAGIC)
    assert log.pos_at(Index(last + 1)) == FILE_SIZE


@pytest.mark.parametrize("where", ["first", "last", "file start", "before the blank", "blank"])
def test_damage_below_the_mark_stops_the_broker_and_nothing_is_cut(where: str) -> None:
    disk = CrashDisk()
    log = filled(disk)
    last = log.first_file_last_index
    assert last is not None
    pos = {
        "first": 0,
        "last": log.pos_at(log.ledger_end_index),
        "file start": FILE_SIZE,
        "before the blank": log.pos_at(last),
        "blank": log.end_pos_at(last) - 100,
    }[where]
    disk.content(file_of(pos))[pos % FILE_SIZE + 100] ^= 1
    before = {path: bytes(disk.content(path)) for path in disk.paths() if path.startswith(COMMIT_LOG)}
    with pytest.raises(LedgerDamagedError, match="Restore the directory from a backup"):
        open_log(disk)
    assert {path: bytes(disk.content(path)) for path in before} == before


def test_a_damaged_unit_of_the_first_record_refuses_that_to_who_reads_it() -> None:
    disk = CrashDisk()
    log = filled(disk)
    (unit_file, *_) = (path for path in disk.paths() if "/index/" in path)
    disk.content(unit_file)[0:4] = b"abcd"
    with pytest.raises(LedgerDamagedError, match="no sound unit for entry 0"):
        list(log.batches_from(Index(0), Index(5), 1000))


def test_a_file_that_is_gone_from_the_beginning_stops_the_broker() -> None:
    disk = CrashDisk()
    filled(disk)
    disk.unlink(file_of(0))
    with pytest.raises(LedgerDamagedError, match="no file begins at 0"):
        open_log(disk)


@pytest.mark.parametrize("loss", ["all", "first", "damage"])
def test_units_that_are_lost_are_made_anew_from_the_records(loss: str) -> None:
    disk = CrashDisk()
    before = facts(filled(disk))
    units = [path for path in disk.paths() if "/pydledger/index/" in path]
    if loss == "damage":
        disk.content(units[0])[5 * 32 + 8] ^= 1
        disk.content(units[0])[0 * 32 + 8] ^= 1
    for path in units if loss == "all" else units[: loss == "first"]:
        disk.unlink(path)
    assert facts(open_log(disk)) == before


def test_files_of_another_size_are_refused() -> None:
    disk = CrashDisk()
    filled(disk)
    with pytest.raises(LedgerConfigError, match="configure the old one"):
        open_log(disk, file_size=8192)


def test_files_of_rocketmq_s_of_another_size_are_refused_with_what_to_configure() -> None:
    disk = CrashDisk()
    filled(disk)
    without_ours(disk)
    with pytest.raises(LedgerConfigError, match=r"4096 bytes long.*mappedFileSizeCommitLog"):
        open_log(disk, file_size=8192)


def test_what_rocketmq_wrote_is_taken_as_it_is() -> None:
    disk = CrashDisk()
    log = filled(disk)
    before = facts(log)
    without_ours(disk)
    content = {path: bytes(disk.content(path)) for path in disk.paths()}
    again = open_log(disk)
    assert [pos for pos, _ in facts(again)] == [pos for pos, _ in before]
    assert {path: bytes(disk.content(path)) for path in content} == content
    assert again.durable_index == again.ledger_end_index


def test_a_log_of_rocketmq_s_whose_first_files_expired_begins_with_the_first_that_is_left() -> None:
    disk = CrashDisk()
    log = filled(disk)
    last = log.first_file_last_index
    assert last is not None
    before = facts(log)[last + 1 :]
    without_ours(disk)
    disk.unlink(file_of(0))
    again = open_log(disk)
    assert (again.ledger_begin_index, again.ledger_begin_pos) == (0, FILE_SIZE)
    assert [pos for pos, _ in facts(again)] == [pos for pos, _ in before]
    assert facts(open_log(disk)) == facts(again)


@pytest.mark.parametrize("in_last_file", [True, False])
def test_damage_in_a_log_that_rocketmq_closed_is_refused(in_last_file: bool) -> None:
    disk = CrashDisk()
    log = filled(disk)
    pos = log.pos_at(Index(log.ledger_end_index - 1 if in_last_file else 3))
    without_ours(disk)
    disk.content(file_of(pos))[pos % FILE_SIZE + 100] ^= 1
    with pytest.raises(LedgerDamagedError, match=f"no sound record at {pos} "):
        open_log(disk)


def test_the_torn_tail_of_a_crash_of_rocketmq_is_cut() -> None:
    disk = CrashDisk()
    log = filled(disk)
    pos = log.pos_at(Index(log.ledger_end_index - 1))
    without_ours(disk)
    disk.open("store/abort", create=True)
    disk.content(file_of(pos))[pos % FILE_SIZE + 100] ^= 1
    again = open_log(disk)
    assert again.ledger_end_pos == pos
    assert not any(disk.content(file_of(pos))[pos % FILE_SIZE :])


@pytest.mark.parametrize("bytes_in_sector", range(5))
def test_a_record_without_properties_may_end_with_zeros_in_a_sector_of_its_own(bytes_in_sector: int) -> None:
    disk = CrashDisk()
    log = filled(disk, 3)
    (pos,) = log.reserve([1])
    size = 512 - (pos + len(bare_record(pos, 0))) % 512 + bytes_in_sector
    log.append(
        [bare_record(pos, size)], log.reserve([len(bare_record(pos, size))]), Term(1), EntryKind.MESSAGE
    )
    end_pos = log.ledger_end_pos
    assert end_pos % 512 == bytes_in_sector
    assert open_log(disk).ledger_end_pos == end_pos


def bare_record(pos: int, size: int) -> bytes:
    return encode_record(b"T", 0, 0, 1, pos, 0, STORED_MS, HOST, STORED_MS, HOST, 0, 0, b"." * size, b"")


def test_a_record_says_itself_what_it_is(tmp_path: Path) -> None:
    disk = RealDisk()
    log = open_log(disk, str(tmp_path))
    no_op, state = no_op_message(Term(7), 0, HOST, 1), state_message(b"state", 0, HOST, 1)
    positions = log.reserve([no_op.size])
    log.append([no_op.encode(positions[0], 1)], positions, Term(7), EntryKind.NO_OP)
    positions = log.reserve([state.size, size_of(1, 9)])
    bodies = [state.encode(positions[0], 1), record(1, positions[1], 9)]
    log.append(bodies, positions, Term(7), EntryKind.MESSAGE, EntryKind.STATE)
    log.close()
    for path in (tmp_path / "pydledger" / "index").iterdir():
        path.unlink()
    (tmp_path / "pydledger" / "pydledger" / "synced-mark").unlink()
    again = open_log(disk, str(tmp_path))
    (batch,) = again.batches_from(Index(0), Index(2), 1 << 20)
    assert again.kinds_of(batch) == [EntryKind.NO_OP, EntryKind.STATE, EntryKind.MESSAGE]
    assert again.term_at(Index(2)) == 7
    assert [again.body_size_at(pos) for pos in (*positions, 1)] == [state.size, size_of(1, 9), None]
    again.close()
