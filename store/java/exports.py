"""config/*.json as RocketMQ keeps them, so that Java and every tool for it finds the tables where they belong.

Exports only: the truth is in the log, and nothing here is read back.
"""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from disk.disk import Disk
from dledger.entry import Index
from store.derived.checkpoint_file import replace_file
from store.layout.config_json import BACKUP, CONSUMER_OFFSETS, data_version, render_config
from store.state.state_tables import StateTables
from store.state.table_configs import DataVersion

# A field of our own in each file. Java's reader skips what it does not know, and its writer leaves it out.
APPLIED_INDEX: Final = "pydledgerAppliedIndex"

Versions = dict[str, DataVersion]


def versions_of(tables: StateTables) -> Versions:
    """By file."""
    return {table.config_file: table.data_version for table in tables.in_config_files}


class ExportJob:
    """Fulfils DiskJob: writes the tables that changed since the last export, each file with its predecessor as .bak."""

    __slots__ = ("_applied_index", "_changed", "_directory", "_disk", "versions", "written")
    kind = "export"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        tables: StateTables,
        applied_index: Index,
        exported: Versions | None,
        *,
        is_hand_over: bool = False,
    ) -> None:
        """Copies what it needs of the tables. `exported`: versions of the files as they are, None if unknown.
        `is_hand_over`: RocketMQ may have the store next. It does not know what is in flight, so groups that pop are to
        begin with the oldest such message.
        """
        self._disk = disk
        self._directory = directory
        self._applied_index = applied_index
        self.written: dict[str, int] = {}  # CRC-32 by path, once it has run
        self.versions = versions_of(tables)
        self._changed: dict[str, Callable[[], dict[str, object]]] = {
            table.config_file: table.export()
            for table in tables.in_config_files
            if exported is None or exported[table.config_file] != table.data_version
        }
        if is_hand_over and CONSUMER_OFFSETS in self._changed:
            self._changed[CONSUMER_OFFSETS] = tables.consumer_offset_table.export_from(
                tables.pop_table.oldest()
            )

    def run(self) -> None:
        self._disk.make_directory(self._directory)
        for name, exported in self._changed.items():
            version = self.versions[name]
            content = {
                "dataVersion": data_version(version.counter, version.timestamp),
                **exported(),
                APPLIED_INDEX: self._applied_index,
            }
            path = f"{self._directory}/{name}"
            rendered = render_config(content).encode()
            replace_file(self._disk, path, rendered, backup=path + BACKUP)
            self.written[path] = crc32(rendered)
