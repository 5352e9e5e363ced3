"""Tells a consumer group how far a streaming query is, so that `consumerProgress` shows it like any consumer.

The group is written and never read: to reset it moves no query. Spark's own call of a source comes when the next batch
is planned, and so never for the last one; this listens to what Spark says after each batch. It runs in the driver.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from message.names import group_fault
from mqclient.errors import MQClientError
from pyspark_dledger.option_values import OptionError
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.cluster_look import ClusterLook
from pyspark_dledger.wire.common_options import namesrv_addresses
from pyspark_dledger.wire.message_offset import offset_from_json
from pyspark_dledger.wire.queue_range import Queue
from pyspark_dledger.wire.read_errors import ReadTimeoutError

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = (
    10_000  # all listeners of a session wait meanwhile; the next batch commits what this one could not
)


class ProgressCommitter(StreamingQueryListener):
    """Use it as `with ProgressCommitter(namesrv, group, query_name) as committer`, and
    `spark.streams.addListener(committer)`, for a query that has this name by `queryName`.

    The query's sources are told from others by their offsets: it must read from one cluster alone.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        query_name: str,
        *,
        credentials_file: str = "",
        tls_config_file: str = "",
    ) -> None:
        """Files as of the options of messages; what is not given is the environment's. Raises OptionError."""
        if fault := group_fault(group):
            raise OptionError(f"group {group!r}: {fault}")
        cluster = ClusterAccess(namesrv_addresses(namesrv), credentials_file, tls_config_file)
        self._look = ClusterLook(cluster, _TIMEOUT_MS)
        self._group = group
        self._query_name = query_name
        self._committed: dict[Queue, int] = {}
        self._running: set[UUID] = set()  # runs of the query
        self._changed = threading.Condition()  # Spark calls in a thread of its own

    def __enter__(self) -> Self:
        self._look.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            # Spark tells what has happened a moment later: the last batch of a run that has just ended, too.
            with self._changed:
                self._changed.wait_for(lambda: not self._running, _TIMEOUT_MS / 1000)
        self._look.__exit__(kind, error, trace)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        if event.name == self._query_name:
            with self._changed:
                self._running.add(event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        if event.progress.name == self._query_name:
            for source in event.progress.sources:
                self.commit(source.endOffset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        with self._changed:
            self._running.discard(event.runId)
            self._changed.notify_all()

    def commit(self, end_offset: str) -> None:
        """Commits the end of a batch, if it is one of messages. Where that fails, a line in the log says so."""
        reached = _reached(end_offset)
        moved = {queue: offset for queue, offset in reached.items() if self._committed.get(queue) != offset}
        if not moved:
            return
        try:
            self._look.commit(self._group, moved)
        except (MQClientError, ReadTimeoutError) as error:
            log.warning(
                "progress of query %s was not committed to group %s: %s", self._query_name, self._group, error
            )
        else:
            self._committed.update(moved)


def _reached(end_offset: str) -> Mapping[Queue, int]:
    """Empty for the offset of another kind of source."""
    with suppress(ValueError):
        return offset_from_json(json.loads(end_offset)).next or {}
    return {}
