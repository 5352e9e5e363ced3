"""config/*.json of a replica: can the tables be read, and are the groups where their queues have been.

A table counts as unreadable when neither its file nor the .bak of it can be read. One of the two is what a crash of
Java in the middle of a write leaves, and both Java and we go on from the other; so it is a note and no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from store.layout.config_json import ConfigJsonError, parse_config
from verify.findings import Finding, Kind
from verify.replica import Replica
from verify.state.group_offsets import QueueEnds, delay_offset_findings, group_offset_findings

_TOPICS: Final = "topics.json"
_CONSUMER_OFFSETS: Final = "consumerOffset.json"
_DELAY_OFFSETS: Final = "delayOffset.json"
# What must be in a file for it to be the table that its name says.
_TABLES: Final = {
    _TOPICS: "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    _CONSUMER_OFFSETS: "offsetTable",
    _DELAY_OFFSETS: "offsetTable",
    "messageRequestMode.json": "messageRequestModeMap",
}
_APPLIED_INDEX: Final = "pydledgerAppliedIndex"
_BACKUP: Final = ".bak"


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """A unit of work: the exports of one replica."""

    replica: Replica
    queue_ends: QueueEnds


def check_config(unit: ConfigFiles) -> Iterator[Finding]:
    """Raises OSError when the directory cannot be read."""
    for name in _names(unit.replica):
        file, table, faults = _load(unit.replica, name)
        if table is None:
            yield Finding(
                kind=Kind.CONFIG_UNREADABLE,
                replica=unit.replica.name,
                file=f"config/{name}",
                sentence=f"the table cannot be read: {'; '.join(faults)}",
            )
        elif name in (_CONSUMER_OFFSETS, _DELAY_OFFSETS):
            yield from _offset_findings(unit, file, table, is_of_groups=name == _CONSUMER_OFFSETS)


def _offset_findings(
    unit: ConfigFiles, file: str, table: dict[str, Any], *, is_of_groups: bool
) -> Iterator[Finding]:
    applied_index = table.get(_APPLIED_INDEX)
    is_current = not unit.replica.is_live
    if isinstance(applied_index, int):
        is_current = applied_index <= unit.queue_ends.index
    findings = group_offset_findings if is_of_groups else delay_offset_findings
    yield from findings(
        unit.replica.name, f"config/{file}", table["offsetTable"], unit.queue_ends, is_current=is_current
    )


def config_notes(replica: Replica) -> list[str]:
    """Files for which their .bak stands. Raises OSError."""
    notes = []
    for name in _names(replica):
        file, table, faults = _load(replica, name)
        if table is not None and file != name:
            notes.append(f"{replica.name}: config/{file} was read in place of config/{name}: {faults[0]}")
    return notes


def topics_of(replica: Replica) -> set[str] | None:
    """Names in the topic table; None where there is none to read."""
    _, table, _ = _load(replica, _TOPICS)
    return set(table[_TABLES[_TOPICS]]) if table is not None else None


def _names(replica: Replica) -> list[str]:
    """Of the tables that have a file or a .bak."""
    directory = Path(replica.directory) / "config"
    names = {path.name.removesuffix(_BACKUP) for path in directory.glob("*.json*")}
    return sorted(name for name in names if name.endswith(".json"))


def _load(replica: Replica, name: str) -> tuple[str, dict[str, Any] | None, list[str]]:
    """The file that could be read, its content, and what is wrong with those that could not."""
    faults: list[str] = []
    for file in (name, name + _BACKUP):
        try:
            return file, _table(Path(replica.directory) / "config" / file, name), faults
        except FileNotFoundError:
            faults.append(f"there is no {file}")
        except (ConfigJsonError, UnicodeDecodeError, RecursionError, OSError) as error:
            faults.append(f"{file}: {error}")
    return name, None, faults


def _table(path: Path, name: str) -> dict[str, Any]:
    """Raises ConfigJsonError, UnicodeDecodeError, RecursionError, OSError."""
    content = parse_config(path.read_bytes().decode())
    key = _TABLES.get(name)
    if key is not None and not isinstance(content.get(key), dict):
        raise ConfigJsonError(f"it holds no {key}")
    if name == _CONSUMER_OFFSETS and not all(map(_is_offsets, content["offsetTable"].values())):
        raise ConfigJsonError("it holds something else than offsets")
    if name == _DELAY_OFFSETS and not _is_offsets(content["offsetTable"]):
        raise ConfigJsonError("it holds something else than offsets")
    return content


def _is_offsets(queues: object) -> bool:
    return isinstance(queues, dict) and all(
        isinstance(queue_id, int) and isinstance(offset, int) for queue_id, offset in queues.items()
    )
