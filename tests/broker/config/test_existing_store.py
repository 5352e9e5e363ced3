"""A store that is there already keeps the size of its data files, whatever the conf says."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace
from one_broker import OneBroker, send_fields

from broker.config.broker_config import BrokerConfig
from broker.config.existing_store import with_existing_file_size
from disk.real_disk import RealDisk
from remoting.codes import RequestCode

SIZE = 1 << 20


def with_size(config: BrokerConfig, size: int) -> BrokerConfig:
    return replace(config, store=replace(config.store, mapped_file_size_commit_log=size))


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_store_of_ours_says_its_size_and_a_warning_tells_of_it(
    tmp_path: Path, is_plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker = OneBroker(tmp_path, f"mapedFileSizeCommitLog={SIZE}\n", is_plain=is_plain)
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m")
    broker.close(clean=True)
    with caplog.at_level(logging.WARNING):
        kept = with_existing_file_size(with_size(broker.config, 2 * SIZE), RealDisk())
    assert kept == broker.config
    assert f"mapedFileSizeCommitLog={2 * SIZE} is taken as {SIZE}" in caplog.text


def test_a_damaged_length_of_a_file_does_not_change_what_the_member_says(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, f"mapedFileSizeCommitLog={SIZE}\n")
    broker.close(clean=True)
    (data,) = (tmp_path / "dledger-n0" / "data").iterdir()
    with data.open("r+b") as file:
        file.truncate(SIZE // 2)
    assert with_existing_file_size(broker.config, RealDisk()) is broker.config


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, SIZE),
        ({0: 300_000}, 300_000),
        ({0: 300_000, 300_000: 300_000}, 300_000),
        ({600_000: 300_000, 900_000: 300_000}, 300_000),
        ({0: 300_000, 300_000: 600_000}, SIZE),  # of two sizes
        ({0: 300_000, 600_000: 300_000}, SIZE),  # one is missing, or all are cut short
        ({0: 0}, SIZE),
    ],
)
def test_of_a_store_of_rocketmq_the_files_count_where_they_agree(
    tmp_path: Path, files: dict[int, int], size: int
) -> None:
    broker = OneBroker(tmp_path / "other", f"mapedFileSizeCommitLog={SIZE}\n", is_plain=True)
    broker.close()
    commit_log = tmp_path / "commitlog"
    commit_log.mkdir()
    for begin, length in files.items():
        (commit_log / f"{begin:020}").write_bytes(bytes(length))
    store = replace(
        broker.config.store, store_path_root_dir=str(tmp_path), store_path_commit_log=str(commit_log)
    )
    kept = with_existing_file_size(replace(broker.config, store=store), RealDisk())
    assert kept.store.mapped_file_size_commit_log == size
