"""Steps of a small log in tests: appends, syncs and cuts done at once, and what it tells of its entries."""

from collections.abc import Callable, Sequence

from disk.disk import NoSpaceError
from dledger.entry import (
    EntryKind,
    Index,
    Term,
)
from dledger.log.config import LogConfig
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore

FILE_SIZE = 4096


DATA = "store/dledger-n0/data"


def config(**settings: object) -> LogConfig:
    values: dict[str, object] = {
        "directory": "store/dledger-n0",
        "data_file_size": FILE_SIZE,
        "index_file_size": 640,
        "allocate_step": 1024,
        "recent_bytes_max": 3000,
    }
    return LogConfig(**(values | settings))  # type: ignore[arg-type]


def append(log: LogStore, bodies: Sequence[bytes], term: int = 1) -> None:
    positions = log.reserve([len(body) for body in bodies])
    log.append(bodies, positions, Term(term), EntryKind.MESSAGE)


def fill(log: LogStore, count: int, *, first: int = 0, term: int = 1) -> None:
    for number in range(first, first + count):
        append(
            log, [b"%d-%d " % (number, part) * (number % 17 * 3 + 1) for part in range(number % 3 + 1)], term
        )


def run(job: DiskJob | None, done: Callable[..., object]) -> None:
    assert job is not None
    job.run()
    done(job)


def probe(log: LogStore) -> bool:
    job = log.probe_job()
    try:
        job.run()
    except NoSpaceError as error:
        return log.probe_done(job, error)
    return log.probe_done(job)


def sync(log: LogStore) -> None:
    run(log.sync_job(), log.sync_done)


def cut(log: LogStore, from_index: int) -> None:
    run(log.begin_cut(Index(from_index)), log.cut_done)


def facts(log: LogStore) -> list[tuple[object, ...]]:
    indexes = [Index(index) for index in range(log.ledger_begin_index - 1, log.ledger_end_index + 1)]
    return [
        (index, log.term_at(index), log.chain_at(index))
        + (
            (log.pos_at(index), log.end_pos_at(index), log.first_index_of_term_at(index))
            if index >= log.ledger_begin_index
            else ()
        )
        for index in indexes
    ]
