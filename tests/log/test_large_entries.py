"""Entries as large as the members of a group take from each other: sound to all that reads them, and repaired."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from log_steps import append, config, run, sync
from test_log_recovery import mark
from test_log_repair import repair_all
from test_log_scrub import scrub

from disk.real_disk import RealDisk
from dledger.entry import (
    BLANK_HEADER_SIZE,
    ENTRY_HEADER_SIZE,
    ENTRY_SIZE_MAX,
    INDEX_UNIT_SIZE,
    Index,
    entry_size_max,
)
from dledger.log.errors import EntryTooLargeError
from dledger.log.log_store import LogStore

FILE_SIZE = 64 << 20
MIB = 1 << 20
SIZES = [4 * MIB, 9 * MIB, 17 * MIB, ENTRY_SIZE_MAX - ENTRY_HEADER_SIZE, 100, 12 * MIB]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[LogStore]]:
    """Of two members with the same entries."""
    logs = [
        LogStore.open(
            RealDisk(),
            config(
                directory=f"{tmp_path}/dledger-n{number}",
                data_file_size=FILE_SIZE,
                index_file_size=20 * INDEX_UNIT_SIZE,
            ),
        )
        for number in range(2)
    ]
    for log in logs:
        for number, size in enumerate(SIZES):
            append(log, [bytes([65 + number]) * size])
        sync(log)
        mark(log)
    yield logs
    for log in logs:
        log.close()


def flip_within(log: LogStore, index: int) -> None:
    pos = log.pos_at(Index(index)) + 3 * MIB
    path = Path(log.config.data_directory) / f"{pos - pos % FILE_SIZE:020d}"
    with path.open("r+b") as file:
        file.seek(pos % FILE_SIZE)
        file.write(b"?")


def test_the_scrub_finds_nothing_wrong_with_large_entries(logs: list[LogStore]) -> None:
    assert scrub(logs[0], size_max=MIB) == []


def test_large_entries_are_read_back_from_disk(logs: list[LogStore]) -> None:
    sizes = [len(logs[0].body_at(Index(index))) for index in range(len(SIZES))]
    assert sizes == SIZES


def test_a_large_entry_that_is_damaged_is_found_and_repaired(logs: list[LogStore]) -> None:
    log, peer = logs
    for index in (1, 3):
        flip_within(log, index)
    findings = scrub(log, size_max=MIB)
    assert [finding.where.split(" pos")[0] for finding in findings] == ["entries 1..1", "entries 3..3"]
    assert log.has_faults
    run(log.note_faults_job(), log.faults_noted)
    repair_all(log, peer)
    assert scrub(log, size_max=MIB) == []


def test_an_entry_above_the_limit_of_all_members_is_refused(logs: list[LogStore]) -> None:
    with pytest.raises(EntryTooLargeError, match=rf"larger than {ENTRY_SIZE_MAX}"):
        logs[0].reserve([ENTRY_SIZE_MAX - ENTRY_HEADER_SIZE + 1])
    assert entry_size_max(FILE_SIZE) == ENTRY_SIZE_MAX
    assert entry_size_max(MIB) == MIB - BLANK_HEADER_SIZE
