"""One sector that the disk does not give never keeps a ledger from being opened."""

from pathlib import Path

import pytest
from log_steps import append, config, facts, sync
from test_log_recovery import mark
from worn_disk import WornDisk

from dledger.log.config import LogConfig
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState

COUNT = 50


def settings(directory: Path) -> LogConfig:
    return config(
        directory=f"{directory}/dledger-n0",
        data_file_size=1 << 16,
        index_file_size=1 << 15,
        allocate_step=1 << 16,
        recent_bytes_max=0,
    )


def stopped(disk: WornDisk, log_config: LogConfig, *, marked: int) -> LogStore:
    """A log that was closed after its mark had come to `marked` entries."""
    log = LogStore.open(disk, log_config)
    for number in range(COUNT):
        append(log, [b"%03d" % number * 30])
        if number + 1 == marked:
            sync(log)
            mark(log)
    if marked < COUNT:
        sync(log)
    log.close()
    return log


def wear(disk: WornDisk, path: str, sector: int) -> None:
    disk.bad.setdefault(path, set()).add(sector)


@pytest.mark.parametrize("marked", [COUNT, COUNT // 2])
@pytest.mark.parametrize(
    ("queue", "sector"),
    [("data", 0), ("data", 1), ("data", 3), ("data", 15), ("index", 0), ("index", 1), ("index", 3)],
)
def test_in_a_file_of_the_log(tmp_path: Path, queue: str, sector: int, marked: int) -> None:
    disk, log_config = WornDisk(), settings(tmp_path)
    log = stopped(disk, log_config, marked=marked)
    end_sector = log.ledger_end_pos // 4096
    wear(disk, f"{log_config.directory}/{queue}/{0:020d}", sector)
    again = LogStore.open(disk, log_config)
    if queue == "index" or sector > end_sector or marked == COUNT:
        assert again.ledger_end_index == COUNT - 1
    if queue == "index":
        assert not again.has_faults
    elif sector <= end_sector:
        assert again.has_faults or again.ledger_end_index < COUNT - 1
    append(again, [b"one more"])
    sync(again)
    before = again.ledger_end_index
    again.close()
    assert LogStore.open(disk, log_config).ledger_end_index == before


@pytest.mark.parametrize("name", ["currterm", "checkpoint"])
def test_in_what_is_only_exported(tmp_path: Path, name: str) -> None:
    disk, log_config = WornDisk(), settings(tmp_path)
    log = stopped(disk, log_config, marked=COUNT)
    (tmp_path / "dledger-n0" / "currterm").write_text("voteLeader=\ncurrTerm=2\nwrittenBy=pydledger\n")
    (tmp_path / "dledger-n0" / "checkpoint").write_text("committedIndex=3\nendIndex=40\n")
    wear(disk, f"{log_config.directory}/{name}", 0)
    QuorumState.load(disk, log_config.directory).close()
    assert facts(LogStore.open(disk, log_config))[-1][0] == log.ledger_end_index
