"""What a plain store brings along that RocketMQ wrote: its tables, and where its queues end.

The log says itself what lies in it, config/*.json what the tables are. These are read once, before anything in the
store is changed, and kept in a file of ours as the state behind the last record that was there. So is what RocketMQ has
left when it had the store in between: then all that we kept of the log is void, and the store is taken over anew. Whose
config/*.json are shows in a field that is in our exports alone.
"""

import logging
from typing import Any, Final
from zlib import crc32

import msgpack
import msgspec

from disk.disk import Disk
from disk.slots import newest_payload
from dledger.entry import Index
from dledger.log.quorum_state import QuorumState
from dledger.log.synced_mark import MARK_FILE_NAME
from store.derived.checkpoint_file import CHECKPOINT_NAMES, replace_file
from store.errors import StoreConfigError, StoreDamagedError
from store.index.index_file_mark import MARK_FILE_NAME as INDEX_FILE_MARK_NAME
from store.java.consume_queue_ends import consume_queue_ends
from store.java.exports import APPLIED_INDEX
from store.layout.config_json import BACKUP, parse_config
from store.queues.consume_queue_store import QueueRow
from store.replicated_log import Ledger
from store.state.config_files import CONFIG_FILES, read_config_files
from store.store_config import StoreConfig

log = logging.getLogger(__name__)

IMPORTED_NAME: Final = "imported-state"
# There from before the first look at a store that is RocketMQ's until its state is kept.
PENDING_NAME: Final = "import-pending"
_VERSION: Final = 1
_NO_INDEX: Final = Index(-1)


class ImportedState(msgspec.Struct, frozen=True):
    """Behind the entry `last_index`, the last one that RocketMQ wrote or may have read."""

    last_index: Index = _NO_INDEX
    tables: list[Any] = msgspec.field(default_factory=list)  # StateTables.pack()
    # Also of queues whose messages have all expired: their offsets must not begin anew.
    queues: list[QueueRow] = msgspec.field(default_factory=list)
    # CRCs of the files that the tables were read from.
    config_crcs: dict[str, int] = msgspec.field(default_factory=dict)


def refuse_plain_store(disk: Disk, config: StoreConfig, commit_log_directory: str) -> None:
    """Before a member of a group begins a log: config/ and the ConsumeQueues of a plain one would be lost to it. Raises
    StoreConfigError, DiskError.
    """
    has_log = disk.list_directory(f"{config.ledger_directory}/data")
    if not has_log and disk.list_directory(commit_log_directory):
        raise StoreConfigError(
            f"{commit_log_directory} is the log of a plain broker: say enableDLegerCommitLog=false, or give this "
            "member a storePathRootDir of its own. If the log of this member's group came behind it, move it away "
            "until the others have filled that again"
        )


class PlainImport:
    """prepare() before the log is opened, take_over() with it."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._config = config
        self._own_directory = f"{config.ledger_directory}/pydledger"
        self._path = f"{self._own_directory}/{IMPORTED_NAME}"
        self._pending_path = f"{self._own_directory}/{PENDING_NAME}"

    @property
    def has_log_of_ours(self) -> bool:
        """A broker of ours has had the store. Raises DiskError."""
        path = f"{self._own_directory}/{MARK_FILE_NAME}"
        return self._disk.exists(path) and newest_payload(self._disk.read_file(path)) is not None

    @property
    def is_pending(self) -> bool:
        """A takeover was begun and not ended. Raises DiskError."""
        return self._disk.exists(self._pending_path)

    @property
    def is_another_s(self) -> bool:
        """RocketMQ's broker was the last to have the store. Raises StoreDamagedError, DiskError."""
        return self.is_pending or not self.has_log_of_ours or bool(self._changed_files(self._read()))

    def prepare(self) -> None:
        """Notes that the store is to be taken over, if it is, and removes what we knew of its log before. Raises
        StoreConfigError, StoreDamagedError, DiskError.
        """
        disk, root = self._disk, self._config.store_path_root_dir
        for name in disk.list_directory(root):
            if name.startswith("dledger-") and disk.list_directory(f"{root}/{name}/data"):
                raise StoreConfigError(
                    f"{root}/{name} is the log of a member of a DLedger group: say enableDLegerCommitLog=true, or give "
                    "this broker a storePathRootDir of its own"
                )
        if not self.is_another_s:
            return
        if not self.is_pending:
            disk.make_directory(self._own_directory)
            disk.open(self._pending_path, create=True).close()
            disk.sync_directory(self._own_directory)
        if self.has_log_of_ours:
            changed = self._changed_files(self._read())
            log.warning("another broker had this store, it is taken over anew files=%s", ",".join(changed))
        self._remove_files(f"{self._config.ledger_directory}/index")
        for name in (*CHECKPOINT_NAMES, MARK_FILE_NAME, INDEX_FILE_MARK_NAME):
            if disk.exists(f"{self._own_directory}/{name}"):
                disk.unlink(f"{self._own_directory}/{name}")
        disk.sync_directory(self._own_directory)
        # A log that has entries is not opened without one.
        quorum_state = QuorumState.load(disk, self._config.ledger_directory)
        quorum_state.store_job(quorum_state.hard_state).run()
        quorum_state.close()

    def take_over(self, ledger: Ledger) -> ImportedState:
        """The state that the log begins with, or that its older part has left. Raises ConfigFilesDamagedError,
        StoreDamagedError, DiskError.
        """
        disk = self._disk
        known = self._read()
        if not self.is_pending:
            return known
        root = self._config.store_path_root_dir
        tables = read_config_files(disk, f"{root}/config")
        queues = {(topic, queue_id): end for topic, queue_id, _, end in known.queues}
        for topic, queue_id, end in consume_queue_ends(disk, root):
            queues[topic, queue_id] = max(end, queues.get((topic, queue_id), 0))
        imported = ImportedState(
            ledger.ledger_end_index,
            tables.pack(),
            [(topic, queue_id, end, end) for (topic, queue_id), end in queues.items()],
            self._config_crcs(),
        )
        values = [_VERSION, imported.last_index, imported.tables, imported.queues, imported.config_crcs]
        payload: bytes = msgpack.packb(values, unicode_errors="surrogateescape")
        replace_file(disk, self._path, crc32(payload).to_bytes(4, "big") + payload)
        # RocketMQ 5.5 indexes tags, too: a file that it began and this broker went on with would be neither's.
        self._remove_files(f"{root}/index")
        disk.unlink(self._pending_path)
        disk.sync_directory(self._own_directory)
        log.info(
            "store taken over last_index=%d topics=%d groups=%d queues=%d",
            imported.last_index,
            len(tables.topic_config_table.configs),
            len(tables.subscription_group_table.configs),
            len(imported.queues),
        )
        return imported

    def _remove_files(self, directory: str) -> None:
        disk = self._disk
        for name in disk.list_directory(directory):
            if not disk.is_directory(f"{directory}/{name}"):
                disk.unlink(f"{directory}/{name}")
        if disk.is_directory(directory):
            disk.sync_directory(directory)

    def _read(self) -> ImportedState:
        if not self._disk.exists(self._path):
            return ImportedState()
        content = self._disk.read_file(self._path)
        payload = content[4:]
        if crc32(payload).to_bytes(4, "big") != content[:4]:
            raise StoreDamagedError(
                f"{self._path} is damaged: restore it from a backup, or remove {self._config.ledger_directory}: then "
                "topics, groups and offsets are read from config/ again"
            )
        version, index, tables, queues, crcs = msgpack.unpackb(payload, unicode_errors="surrogateescape")
        if version != _VERSION:
            raise StoreDamagedError(f"{self._path} is of version {version}, which this version does not know")
        return ImportedState(Index(index), tables, [tuple(row) for row in queues], crcs)

    def _changed_files(self, known: ImportedState) -> list[str]:
        """Those of config/ that neither we have written nor were there when the store was taken over. Our first export
        makes a backup of what was there.
        """
        return [
            name
            for name, crc in self._config_crcs().items()
            if crc not in (known.config_crcs.get(name), known.config_crcs.get(name.removesuffix(BACKUP)))
            and self._is_of_another(name)
        ]

    def _config_crcs(self) -> dict[str, int]:
        disk, directory = self._disk, f"{self._config.store_path_root_dir}/config"
        names = [name + suffix for name in CONFIG_FILES for suffix in ("", BACKUP)]
        return {
            name: crc32(disk.read_file(f"{directory}/{name}"))
            for name in names
            if disk.exists(f"{directory}/{name}")
            and (not name.endswith(BACKUP) or not disk.exists(f"{directory}/{name.removesuffix(BACKUP)}"))
        }

    def _is_of_another(self, name: str) -> bool:
        try:
            content = self._disk.read_file(f"{self._config.store_path_root_dir}/config/{name}").decode()
            return APPLIED_INDEX not in parse_config(content)
        except (ValueError, RecursionError):
            return False  # damage says nothing about who had the store
