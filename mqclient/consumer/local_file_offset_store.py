"""The offsets of one broadcasting consumer, in the file that Java's LocalFileOffsetStore keeps.

`<directory>/<client id>/<group>/offsets.json`, the state before it in `offsets.json.bak`. Either client goes on where
the other one ended. Unlike Java, which writes into the file that counts, every step here leaves a whole state behind:
the new one is on disk before the old one steps aside.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import orjson

from mqclient.errors import LocalOffsetsError, MQClientError
from mqclient.message_queue import MessageQueue
from remoting.bodies.bodies import MessageQueue as MessageQueueBean
from remoting.bodies.bodies import RemotingBody, from_json_value
from remoting.errors import RemotingBodyError
from remoting.fastjson import loads_fastjson

log = logging.getLogger(__name__)

DEFAULT_DIRECTORY = ".rocketmq_offsets"  # in the user's home
VALUES_MAX = (
    100_000_000  # our own file, read in a thread: what was written must be readable, however many queues
)


class OffsetSerializeWrapper(RemotingBody):
    offset_table: dict[MessageQueueBean, int] = msgspec.field(default_factory=dict)


class LocalFileOffsetStore:
    """Invariant: from `load` to `close` no other LocalFileOffsetStore of this machine has the same file.

    Two consumers with one file would each skip what the other one has read.
    """

    def __init__(self, directory: Path | None, client_id: str, group: str) -> None:
        """Raises LocalOffsetsError where no directory is named and the user has no home."""
        self.path = (directory or _default_directory()) / client_id / group / "offsets.json"
        self._backup = self.path.with_name("offsets.json.bak")
        self._temporary = self.path.with_name("offsets.json.tmp")
        self._table: dict[MessageQueue, int] = {}
        self._is_sound = False  # the file, which then may become the backup
        self._directory_fd = -1
        # A write goes on in its thread when its caller is cancelled; the next one must not meet it.
        self._writing = threading.Lock()

    async def load(self) -> None:
        """Raises LocalOffsetsError: another consumer has the file, neither it nor its backup can be read, or nothing
        can be written there.
        """
        loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            # Its thread goes on, and would hold the file for nobody.
            with suppress(LocalOffsetsError):
                await loading
            await self.close()
            raise

    async def read(self, queue: MessageQueue) -> int | None:
        return self._table.get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, MQClientError]:
        if not offsets:
            return {}
        # Queues that are not read now keep their offsets: a topic may come back.
        self._table.update(offsets)
        try:
            await asyncio.to_thread(self._write)
        except OSError as error:
            log.warning("offsets not kept file=%s reason=%s", self.path, error)
            return dict.fromkeys(offsets, LocalOffsetsError(f"{self.path}: {error}"))
        return {}

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _load(self) -> None:
        directory_fd = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            directory_fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            # On the directory, as the files in it are replaced.
            fcntl.flock(directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.access(self.path.parent, os.W_OK | os.X_OK):
                raise PermissionError("nothing can be written there")
            self._read_files()
            self._directory_fd, directory_fd = directory_fd, -1
        except BlockingIOError:
            raise LocalOffsetsError(
                f"{self.path} belongs to another broadcasting consumer that runs here: give each its own instance_name"
            ) from None
        except OSError as error:
            raise LocalOffsetsError(
                f"{self.path}: {error}; local_offset_store_dir names another directory"
            ) from error
        finally:
            if directory_fd >= 0:
                os.close(directory_fd)

    def _read_files(self) -> None:
        faults: list[str] = []
        for path in (self.path, self._backup):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            if not data.strip():
                continue  # Java's first write ended before it wrote anything
            try:
                self._table = _decode(data)
            except RemotingBodyError as error:
                faults.append(f"{path}: {error}")
                continue
            self._is_sound = path == self.path
            if faults:
                log.warning("offsets taken from the backup reason=%s", faults[0])
            return
        if faults:
            raise LocalOffsetsError(
                f"{'; '.join(faults)}: repair the file, or remove it to begin where consume_from says"
            )

    def _write(self) -> None:
        with self._writing:
            if self._directory_fd < 0:
                return  # closed meanwhile
            with self._temporary.open("wb") as file:
                file.write(_encode(dict(self._table)))
                file.flush()
                os.fsync(file.fileno())
            if self._is_sound:
                # Someone may have removed it; then there is nothing to back up.
                with suppress(FileNotFoundError):
                    self.path.replace(self._backup)
            self._temporary.replace(self.path)
            os.fsync(self._directory_fd)
            self._is_sound = True

    def _close(self) -> None:
        with self._writing:
            if self._directory_fd >= 0:
                os.close(self._directory_fd)
                self._directory_fd = -1


def _default_directory() -> Path:
    try:
        return Path.home() / DEFAULT_DIRECTORY
    except RuntimeError as error:
        raise LocalOffsetsError(
            f"no place for offsets: {error} Name one with local_offset_store_dir"
        ) from error


def _decode(data: bytes) -> dict[MessageQueue, int]:
    """Raises RemotingBodyError."""
    value = loads_fastjson(data, values_max=VALUES_MAX)
    wrapper = from_json_value(OffsetSerializeWrapper, value, values_max=VALUES_MAX)
    return {
        MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset
        for queue, offset in wrapper.offset_table.items()
        if offset >= 0  # Java's word for none
    }


def _encode(table: Mapping[MessageQueue, int]) -> bytes:
    """Line by line what fastjson 2 makes of it; queues are keys, so it is no plain JSON."""
    members = [
        b'\n\t\t{\n\t\t\t"brokerName":%b,\n\t\t\t"queueId":%d,\n\t\t\t"topic":%b\n\t\t}:%d'
        % (orjson.dumps(queue.broker_name), queue.queue_id, orjson.dumps(queue.topic), offset)
        for queue, offset in sorted(table.items())
    ]
    return b'{\n\t"offsetTable":{' + b",".join(members) + b"\n\t}\n}"
