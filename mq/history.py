"""What became of each send, on file: a JSON object per line, to hold against the replicas with `mq validate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from mqclient import SendError, SendResult


class HistoryFile:
    """Use it as `with HistoryFile(path, topic) as history`; without a path it takes notes to nowhere."""

    def __init__(self, path: Path | None, topic: str) -> None:
        """Raises OSError when the file cannot be written."""
        self._file = None if path is None else path.open("wb")
        self._path = path
        self._topic = topic

    def __enter__(self) -> HistoryFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Raises OSError, which names the file, for what could not be written."""
        if self._file is not None:
            with self._named():
                self._file.close()

    def note(self, line: int, outcome: SendResult | SendError) -> None:
        """`line`: which of the messages it was, from 1. Raises OSError as `close` does."""
        if self._file is not None:
            with self._named():
                self._file.write(orjson.dumps(send_as_dict(line, self._topic, outcome)) + b"\n")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of writing know only numbers of open files."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error


def send_as_dict(line: int, topic: str, outcome: SendResult | SendError) -> dict[str, Any]:
    """`ok`: acknowledged, so it must be found; `unknown`: may be stored or not; `fail`: surely not stored."""
    if isinstance(outcome, SendResult):
        queue = outcome.message_queue
        return {
            "outcome": "ok",
            "broker": queue.broker_name,
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "queue_offset": outcome.queue_offset,
            "phy_offset": outcome.phy_offset,
            "msg_id": outcome.msg_id,
            "line": line,
        }
    return {
        "outcome": "fail" if outcome.definite else "unknown",
        "topic": topic,
        "line": line,
        "reason": str(outcome),
    }
