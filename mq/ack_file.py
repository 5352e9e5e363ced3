"""What a sender was promised, on file: a line per acknowledgement, to hold against the replicas later.

Columns: group (broker name), physical offset, message id; separated by tabs.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from mqclient import SendResult


class AckFile:
    """Use it as `with AckFile(path) as acks`; without a path it takes notes to nowhere."""

    def __init__(self, path: Path | None) -> None:
        """Raises OSError when the file cannot be written."""
        self._file = None if path is None else path.open("w", encoding="ascii")

    def __enter__(self) -> AckFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, result: SendResult) -> None:
        if self._file is not None:
            self._file.write(f"{result.message_queue.broker_name}\t{result.phy_offset}\t{result.msg_id}\n")


def read_acks(path: Path, group: str = "") -> dict[int, bytes]:
    """Physical offset to message id of one group's acknowledgements.

    Raises ValueError when the file is none, or holds several groups and none of them was chosen.
    """
    by_group: dict[str, dict[int, bytes]] = {}
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), 1):
        columns = line.split("\t")
        if len(columns) != 3 or not columns[1].isdigit():
            raise ValueError(
                f"{path}:{number} is no acknowledgement: expected group, physical offset and message id"
            )
        by_group.setdefault(columns[0], {})[int(columns[1])] = columns[2].encode()
    if not group and len(by_group) > 1:
        raise ValueError(
            f"{path} has acknowledgements of {', '.join(sorted(by_group))}: choose one with --group"
        )
    if group and group not in by_group:
        raise ValueError(f"{path} has no acknowledgement of {group}")
    return by_group.get(group, {}) if group else next(iter(by_group.values()), {})
