"""RocketMQ's tables, read from config/*.json: what a store has that no program of ours has written.

Java writes each file in place, with the one before as .bak, and goes on from the .bak where the file is empty or
damaged; so does this. Exports of ours are read the same way.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from disk.disk import Disk
from store.errors import ConfigFilesDamagedError
from store.layout.config_json import (
    BACKUP,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    SUBSCRIPTION_GROUPS,
    TOPICS,
    parse_config,
)
from store.state.state_tables import StateTables
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig

log = logging.getLogger(__name__)


def read_config_files(disk: Disk, directory: str) -> StateTables:
    """The tables of `directory`, a store's config/; those of which there is no file are empty.

    Raises ConfigFilesDamagedError when neither a file nor its .bak can be read; DiskError.
    """
    tables = StateTables()
    for name, take in _TABLES.items():
        _read_table(disk, f"{directory}/{name}", tables, take)
    return tables


def _read_table(
    disk: Disk, path: str, tables: StateTables, take: Callable[[StateTables, Mapping[Any, Any]], None]
) -> None:
    faults = []
    for candidate in (path, path + BACKUP):
        if not disk.exists(candidate):
            continue
        try:
            take(tables, parse_config(disk.read_file(candidate).decode()))
        except (ValueError, RecursionError) as error:
            faults.append(f"{candidate}: {error}")
            continue
        if faults:
            log.warning("%s was read in place of a damaged file: %s", candidate, faults[0])
        return
    if faults:
        raise ConfigFilesDamagedError(
            f"{'; '.join(faults)}. Take the file from config/ of another member or of a backup, or remove it and its "
            f"{BACKUP} to begin without what it said"
        )


def _take_topics(tables: StateTables, content: Mapping[Any, Any]) -> None:
    configs = [TopicConfig.from_json(values) for values in _map(content, "topicConfigTable").values()]
    table = tables.topic_config_table
    table.data_version = _data_version(content)
    table.configs = {config.topic_name: config for config in configs}


def _take_subscription_groups(tables: StateTables, content: Mapping[Any, Any]) -> None:
    groups = _map(content, "subscriptionGroupTable")
    configs = [SubscriptionGroupConfig.from_json(values) for values in groups.values()]
    # 4.9 does not know it.
    forbidden = _map(content, "forbiddenTable") if "forbiddenTable" in content else {}
    bits = {group: _numbers(topics, str) for group, topics in forbidden.items()}
    table = tables.subscription_group_table
    table.data_version = _data_version(content)
    table.configs = {config.group_name: config for config in configs}
    table.forbidden = {group: topics for group, topics in bits.items() if topics}


def _take_consumer_offsets(tables: StateTables, content: Mapping[Any, Any]) -> None:
    offsets = {key: _numbers(queues, int) for key, queues in _map(content, "offsetTable").items()}
    table = tables.consumer_offset_table
    table.data_version = _data_version(content)
    table.offsets = {key: queues for key, queues in offsets.items() if queues}


def _take_delay_offsets(tables: StateTables, content: Mapping[Any, Any]) -> None:
    offsets = _numbers(_map(content, "offsetTable"), int)
    table = tables.delay_offset_table
    table.data_version = _data_version(content)
    table.offsets = offsets


_TABLES: Final = {
    TOPICS: _take_topics,
    SUBSCRIPTION_GROUPS: _take_subscription_groups,
    CONSUMER_OFFSETS: _take_consumer_offsets,
    DELAY_OFFSETS: _take_delay_offsets,
}


def _map(content: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    """Raises ValueError: without it this is not the file that its name says."""
    value = content.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"it holds no {name}")
    return value


def _numbers(values: object, key_type: type) -> dict[Any, int]:
    """A map of numbers without those below 0, which say the same as none."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r:.80} is no map")
    for key, number in values.items():
        if type(key) is not key_type or type(number) is not int:
            raise ValueError(f"{key!r:.80}: {number!r:.80} is no number of a queue, level or topic")
    return {key: number for key, number in values.items() if number >= 0}


def _data_version(content: Mapping[Any, Any]) -> DataVersion:
    """4.9 keeps none for offsets."""
    version = content.get("dataVersion")
    if not isinstance(version, Mapping):
        return DataVersion()
    counter, timestamp = version.get("counter"), version.get("timestamp")
    if type(counter) is not int or type(timestamp) is not int:
        raise ValueError(f"a dataVersion of {version!r:.80}")
    return DataVersion(counter, timestamp)
