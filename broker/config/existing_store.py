"""The size of the data files of a store that is there already: it wins over the conf.

Positions follow from it, so it cannot change; RocketMQ does not start with another one in its conf, and since 4.6 it
ignores `mapedFileSizeCommitLog`, so many a file has not the size that its store has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from broker.config.broker_config import BrokerConfig
from broker.config.component_configs import ledger_directory
from broker.config.message_limits import body_size_max
from disk.disk import Disk
from dledger.errors import DLedgerConfigError
from dledger.log.quorum_state import made_with_data_file_size
from remoting.configuration import ConfigError

log = logging.getLogger(__name__)


def with_existing_file_size(config: BrokerConfig, disk: Disk) -> BrokerConfig:
    """`config` with the size of the store's data files, and a warning if that is another one.

    A store of ours says itself what it was made with. Of one that RocketMQ wrote all files must have one size, as they
    do if they are whole; otherwise the conf counts, and whoever opens the log says what is wrong.

    Raises DLedgerConfigError when the other settings do not go with that size. Blocks. Raises DiskError.
    """
    ledger, store = ledger_directory(config), config.store
    files = store.store_path_commit_log if config.dledger is None else f"{ledger}/data"
    size = made_with_data_file_size(disk, ledger) or _size_of_files(disk, files)
    if size is None or size == store.mapped_file_size_commit_log:
        return config
    log.warning(
        "mapedFileSizeCommitLog=%d is taken as %d: the store in %s was made with files of that size",
        store.mapped_file_size_commit_log,
        size,
        files,
    )
    try:
        return replace(
            config,
            store=replace(
                store,
                mapped_file_size_commit_log=size,
                # The default follows from the conf's size, too; larger messages are refused one by one.
                max_message_size=max(1, min(store.max_message_size, body_size_max(size))),
            ),
        )
    except ConfigError as error:
        raise DLedgerConfigError(f"{files} has files of {size} bytes: {error}") from None


def _size_of_files(disk: Disk, directory: str) -> int | None:
    if not disk.is_directory(directory):
        return None
    names = sorted(name for name in disk.list_directory(directory) if len(name) == 20 and name.isdecimal())
    sizes = {_file_size(disk, f"{directory}/{name}") for name in names}
    size = sizes.pop() if len(sizes) == 1 else 0
    return size if size and _follow(list(map(int, names)), size) else None


def _follow(begins: Sequence[int], size: int) -> bool:
    """Each file is named by its first position."""
    return begins == [begins[0] + number * size for number in range(len(begins))] and begins[0] % size == 0


def _file_size(disk: Disk, path: str) -> int:
    file = disk.open(path, read_only=True)
    try:
        return file.size()
    finally:
        file.close()
