"""One broker per store: the `lock` file that RocketMQ's own broker takes too, so neither opens what the other runs."""

from __future__ import annotations

import fcntl
import os


class StoreLockedError(OSError):
    """Another process runs on this store."""


class StoreLock:
    """fcntl lock of byte 0, length 1, of <root>/lock; it ends with the process at the latest."""

    def __init__(self, store_path_root_dir: str) -> None:
        """The directory must exist. Raises StoreLockedError."""
        path = f"{store_path_root_dir}/lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreLockedError(
                error.errno,
                f"another broker runs on this store ({path} is locked): stop that one, or name another directory",
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)
