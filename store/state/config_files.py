"""RocketMQ's tables, read from config/*.json: what a store has that no program of ours has written.

Java writes each file in place, with the one before as .bak, and goes on from the .bak where the file is empty or
damaged; so does this. Exports of ours are read the same way.
"""

import logging
from typing import Final

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
from store.layout.timer_check_point import TIMER_CHECK
from store.state.state_tables import StateTables
from store.state.table import ConfigFileTable
from store.state.table_configs import DataVersion

log = logging.getLogger(__name__)

# Those by which a broker of RocketMQ's that had the store is known: it writes them while it runs.
CONFIG_FILES: Final = (TOPICS, SUBSCRIPTION_GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS)


def read_config_files(disk: Disk, directory: str) -> StateTables:
    """The tables of `directory`, a store's config/; those of which there is no file are empty.

    Raises ConfigFilesDamagedError when neither a file nor its .bak can be read; DiskError.
    """
    tables = StateTables()
    for table in tables.in_config_files:
        _read_table(disk, f"{directory}/{table.config_file}", table)
    if disk.exists(path := f"{directory}/{TIMER_CHECK}"):
        tables.timer_table.read_check_point(disk.read_file(path))
    return tables


def _read_table(disk: Disk, path: str, table: ConfigFileTable) -> None:
    faults = []
    for candidate in (path, path + BACKUP):
        if not disk.exists(candidate):
            continue
        try:
            content = parse_config(disk.read_file(candidate).decode())
            table.read_config(content)
            table.data_version = DataVersion.from_json(content.get("dataVersion"))
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
