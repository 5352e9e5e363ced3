"""config/*.json as RocketMQ keeps them, so that Java and every tool for it finds the tables where they belong.

Exports only: the truth is in the log, and nothing here is read back.
"""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

from disk.disk import Disk
from dledger.entry import Index
from store.checkpoint_file import replace_file
from store.layout.config_json import (
    BACKUP,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    SUBSCRIPTION_GROUPS,
    TOPICS,
    data_version,
    render_config,
)
from store.state.state_tables import StateTables
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig

# A field of our own in each file. Java's reader skips what it does not know, and its writer leaves it out.
APPLIED_INDEX: Final = "pydledgerAppliedIndex"

Versions = tuple[DataVersion, DataVersion, DataVersion, DataVersion]


def versions_of(tables: StateTables) -> Versions:
    return (
        tables.topic_config_table.data_version,
        tables.subscription_group_table.data_version,
        tables.consumer_offset_table.data_version,
        tables.delay_offset_table.data_version,
    )


class ExportJob:
    """Fulfils DiskJob: writes the tables that changed since the last export, each file with its predecessor as .bak."""

    __slots__ = (
        "_applied_index",
        "_delay_offsets",
        "_directory",
        "_disk",
        "_forbidden",
        "_groups",
        "_offsets",
        "_topics",
        "versions",
        "written",
    )
    kind = "export"

    def __init__(
        self,
        disk: Disk,
        directory: str,
        tables: StateTables,
        applied_index: Index,
        exported: Versions | None,
    ) -> None:
        """Copies what it needs of the tables. `exported`: versions of the files as they are, None if unknown."""
        self._disk = disk
        self._directory = directory
        self._applied_index = applied_index
        self.written: dict[str, int] = {}  # CRC-32 by path, once it has run
        self.versions = versions_of(tables)
        topics_changed, groups_changed, offsets_changed, delay_offsets_changed = (
            exported is None or old != new
            for old, new in zip(exported or self.versions, self.versions, strict=True)
        )
        self._topics: dict[str, TopicConfig] | None = None
        self._groups: dict[str, SubscriptionGroupConfig] | None = None
        self._forbidden: dict[str, dict[str, int]] = {}
        self._offsets: dict[str, dict[int, int]] | None = None
        self._delay_offsets: dict[int, int] | None = None
        if topics_changed:
            self._topics = dict(tables.topic_config_table.configs)
        if groups_changed:
            self._groups = dict(tables.subscription_group_table.configs)
            forbidden = tables.subscription_group_table.forbidden
            self._forbidden = {group: dict(bits) for group, bits in forbidden.items()}
        if offsets_changed:
            offsets = tables.consumer_offset_table.offsets
            self._offsets = {key: dict(queues) for key, queues in offsets.items()}
        if delay_offsets_changed:
            self._delay_offsets = dict(sorted(tables.delay_offset_table.offsets.items()))

    def run(self) -> None:
        self._disk.make_directory(self._directory)
        topic_version, group_version, offset_version, delay_offset_version = self.versions
        if self._topics is not None:
            topics = {topic: config.to_json() for topic, config in self._topics.items()}
            self._write(TOPICS, topic_version, {"topicConfigTable": topics})
        if self._groups is not None:
            groups = {group: config.to_json() for group, config in self._groups.items()}
            table = {"forbiddenTable": self._forbidden, "subscriptionGroupTable": groups}
            self._write(SUBSCRIPTION_GROUPS, group_version, table)
        if self._offsets is not None:
            self._write(CONSUMER_OFFSETS, offset_version, {"offsetTable": self._offsets})
        if self._delay_offsets is not None:
            self._write(DELAY_OFFSETS, delay_offset_version, {"offsetTable": self._delay_offsets})

    def _write(self, name: str, version: DataVersion, table: Mapping[str, object]) -> None:
        content = {
            "dataVersion": data_version(version.counter, version.timestamp),
            **table,
            APPLIED_INDEX: self._applied_index,
        }
        path = f"{self._directory}/{name}"
        rendered = render_config(content).encode()
        replace_file(self._disk, path, rendered, backup=path + BACKUP)
        self.written[path] = crc32(rendered)
