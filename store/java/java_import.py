"""What Java's broker left beside the log, taken over once: the tables of config/, and how far queues had come.

The log's entries say where each queue stands, unless all its messages have expired: that is in Java's ConsumeQueues
alone. They are read at the first start, before ours take their place, and kept in a file until a leader has put them
into the log together with the tables. Each member keeps its own; that of the first leader counts.

Java's IndexFiles are not taken over: after a kill it dispatches messages again, and their keys are in them twice, or
not at all. Ours follow from the log.
"""

import logging
import struct
from typing import Final
from zlib import crc32

import msgpack

from disk.disk import Disk, DiskError
from dledger.entry import Index, Term
from dledger.log.java_files import find_java_run
from message.decoder import decode_message
from message.errors import MessageDecodeError
from store.derived.checkpoint_file import replace_file
from store.errors import StoreDamagedError
from store.index.index_file import delete_index_files, index_file_names
from store.java.consume_queue_ends import consume_queue_ends
from store.java.exports import APPLIED_INDEX
from store.layout.config_json import BACKUP, CONSUMER_OFFSETS, TOPICS, parse_config
from store.queues.consume_queue_store import ConsumeQueueStore, QueueRow
from store.state.config_files import read_config_files
from store.state.state_machine import StateMachine
from store.state.state_tables import StateTables
from store.state.tables.consumer_offset_table import TOPIC_GROUP_SEPARATOR, CommitOffset
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

_HEAD = struct.Struct(
    ">4s"  # magic
    "I"  # CRC-32 of what follows
)
_MAGIC = b"PyDJ"
_ARRAY_OF_TWO: Final = b"\x92"
_COPY: Final = "Copy config/ of a member that it ran on, best of its last master, and start this one again"


class JavaImport:
    """For one run of a member."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._config = config
        self._path = f"{config.ledger_directory}/pydledger/java-queues"

    def look(self) -> None:
        """At a start, before any derived file is opened. Blocks. Raises DiskError."""
        java_run = find_java_run(self._disk, self._config.ledger_directory)
        if java_run is None or self._kept_term() == java_run.term:
            return
        index_directory = f"{self._config.store_path_root_dir}/index"
        delete_index_files(self._disk, index_directory, index_file_names(self._disk, index_directory))
        ends = consume_queue_ends(self._disk, self._config.store_path_root_dir)
        rows = [(topic, queue_id, 0, offset) for topic, queue_id, offset in ends]
        log.info("queues of Java kept count=%d term=%d", len(rows), java_run.term)
        payload: bytes = msgpack.packb([java_run.term, rows])
        replace_file(self._disk, self._path, _HEAD.pack(_MAGIC, crc32(payload)) + payload)

    def begin(
        self,
        state: StateMachine,
        queues: ConsumeQueueStore,
        java_term: Term,
        term: Term,
        applied_index: Index,
    ) -> None:
        """As leader, with all entries of Java's applied, the last in `java_term`: has `state` write what was found.

        Raises StoreDamagedError when there is nothing to be found, ConfigFilesDamagedError, DiskError.
        """
        directory = f"{self._config.store_path_root_dir}/config"
        if not any(self._disk.exists(f"{directory}/{name}") for name in (TOPICS, TOPICS + BACKUP)):
            raise StoreDamagedError(
                f"{directory}: no {TOPICS}, so this member cannot say which topics, groups and offsets Java's broker "
                f"had. {_COPY}"
            )
        exported_at = self._exported_at(directory)
        if self._kept_term() < java_term and exported_at is not None and exported_at < state.java_index:
            raise StoreDamagedError(
                f"{directory}: what this member has exported before Java's broker went on elsewhere. {_COPY}"
            )
        tables = read_config_files(self._disk, directory)
        rows = queues.rows()
        known = {(topic, queue_id) for topic, queue_id, _, _ in rows}
        rows += [row for row in self._kept()[1] if (row[0], row[1]) not in known]
        log.info(
            "tables of Java go into the log directory=%s topics=%d groups=%d offsets=%d queues=%d",
            directory,
            len(tables.topic_config_table.configs),
            len(tables.subscription_group_table.configs),
            len(tables.consumer_offset_table.offsets),
            len(rows),
        )
        state.begin_import(tables, rows, self._config.state_record_size_max, term, applied_index)

    def commits_under_java(self, tables: StateTables, last_term: Term) -> list[CommitOffset]:
        """As the first leader since Java's broker ran and stored nothing: how far consumers came meanwhile, beyond
        `tables`. `last_term`: of the last entry before this leader's own.

        Raises ConfigFilesDamagedError, DiskError.
        """
        directory = f"{self._config.store_path_root_dir}/config"
        try:
            kept_term = self._kept_term()
        except StoreDamagedError as error:
            # What it says of queues is in the log by now. Consumers read again what they committed under Java, if Java
            # ran last.
            log.error("nothing is known of offsets committed under Java any more: %s", error)
            return []
        if kept_term < 0 or last_term > kept_term or self._exported_at(directory) is not None:
            return []
        known = tables.consumer_offset_table
        commits = []
        for key, queues in read_config_files(self._disk, directory).consumer_offset_table.offsets.items():
            topic, _, group = key.rpartition(TOPIC_GROUP_SEPARATOR)
            if tables.topic_config_table.get(topic) is not None:
                commits += [
                    CommitOffset(group, topic, queue_id, offset)
                    for queue_id, offset in queues.items()
                    if offset > known.query(group, topic, queue_id)
                ]
        log.info("offsets committed under Java are taken over directory=%s count=%d", directory, len(commits))
        return commits

    def _exported_at(self, directory: str) -> int | None:
        """The applied index of our offsets there. Java's broker writes them anew every few seconds, without it."""
        path = f"{directory}/{CONSUMER_OFFSETS}"
        try:
            content = parse_config(self._disk.read_file(path).decode()) if self._disk.exists(path) else {}
        except (ValueError, RecursionError):
            return None
        exported_at = content.get(APPLIED_INDEX)
        return exported_at if type(exported_at) is int else None

    def _kept_term(self) -> int:
        return self._kept()[0]

    def _kept(self) -> tuple[int, list[QueueRow]]:
        if not self._disk.exists(self._path):
            return -1, []
        try:
            term, rows = msgpack.unpackb(_payload_of(self._disk.read_file(self._path)))
            if type(term) is not int:
                raise ValueError(f"{term!r} is no term")
            return term, [(topic, queue_id, low, high) for topic, queue_id, low, high in rows]
        except (ValueError, TypeError, msgpack.UnpackException, DiskError) as error:
            raise StoreDamagedError(
                f"{self._path}: {error!r}. Remove it: queues whose messages have all expired then begin at 0 again"
            ) from error


def _payload_of(content: bytes) -> bytes:
    """Raises ValueError."""
    if content[:1] == _ARRAY_OF_TWO:
        return content  # as releases before this one wrote it
    if len(content) < _HEAD.size:
        raise ValueError(f"{len(content)} bytes are too few")
    magic, crc = _HEAD.unpack_from(content)
    payload = content[_HEAD.size :]
    if magic != _MAGIC or crc32(payload) != crc:
        raise ValueError("its CRC is another one")
    return payload


def is_sound_record(body: memoryview) -> bool:
    """Whether an entry's body is a whole record, as far as it can tell itself: by its sizes and its body's CRC."""
    try:
        return decode_message(body).store_size == len(body)
    except MessageDecodeError:
        return False
