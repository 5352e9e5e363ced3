"""RocketMQ's abort file: there while a broker runs, and after a stop that was not clean."""

from typing import Final

from disk.disk import Disk
from store.store_config import StoreConfig

ABORT_FILE: Final = "abort"


def mark_running(disk: Disk, config: StoreConfig) -> bool:
    """Makes the abort file, and removes what only a clean stop may leave. Whether the last stop was clean."""
    root = config.store_path_root_dir
    disk.make_directory(root)
    stopped_cleanly = not disk.exists(_path(config))
    java_checkpoint = f"{config.ledger_directory}/checkpoint"
    if disk.exists(java_checkpoint):
        disk.unlink(java_checkpoint)
        disk.sync_directory(config.ledger_directory)
    if stopped_cleanly:
        disk.open(_path(config), create=True).close()
    disk.sync_directory(root)  # whoever made the file before may have been ended before this
    return stopped_cleanly


def mark_stopped(disk: Disk, config: StoreConfig) -> None:
    """The last step of a clean stop."""
    disk.unlink(_path(config))
    disk.sync_directory(config.store_path_root_dir)


def _path(config: StoreConfig) -> str:
    return f"{config.store_path_root_dir}/{ABORT_FILE}"
