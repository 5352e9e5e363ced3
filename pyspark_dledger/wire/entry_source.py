"""`spark.read` and `spark.readStream` of the logs of groups, entry by entry, each log in its order.

As message_source.py, which says what runs where; here an offset is an entry, with the proof that it was this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_dledger.entry_columns import Place, Selection, run_batches
from pyspark_dledger.wire.entry_offset import EntryOffset, LogRange, offset_from_json, proved_ranges
from pyspark_dledger.wire.entry_options import EntryOptions
from pyspark_dledger.wire.log_reader import LogReader, LogTask
from pyspark_dledger.wire.planning import TriggerLimits, divided, limited
from pyspark_dledger.wire.proof import LogBounds, Proof, check_proof
from pyspark_dledger.wire.read_errors import DataLossError
from pyspark_dledger.wire.read_limit import limits_under, read_limit

if TYPE_CHECKING:
    from pyspark_dledger.wire.cluster_look import ClusterLook

_UUID_SHOWN = 16  # hex digits, as in the table of files


class _LogRangeReader:
    """What a worker does, the same for batches and streams."""

    def __init__(self, options: EntryOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # Spark's own, where nothing is to be read
        options, task = self.options, partition.value
        selection = Selection(options.columns, topic=options.topic, inflate=options.inflate)
        place = Place("", task.group_uuid[:_UUID_SHOWN], "", broker=task.part.broker)
        with closing(LogReader(options.log, task)) as reader:
            for run in reader.runs():
                yield from run_batches(run, place, selection)

    def _tasks(self, start: EntryOffset, end: EntryOffset) -> list[InputPartition]:
        """Raises OffsetError."""
        found = proved_ranges(start, end)
        proofs = {part.broker: (before, last) for part, before, last in found}
        tasks = []
        for part in divided([part for part, _, _ in found], self.options.sizes):
            before, last = proofs[part.broker]
            tasks.append(
                LogTask(
                    part,
                    last.group_uuid,
                    before if part.start == before.index + 1 else None,
                    last if part.end == last.index + 1 else None,
                )
            )
        return [InputPartition(task) for task in tasks]


class EntryReader(_LogRangeReader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        """Raises ReadError, MQClientError."""
        from pyspark_dledger.wire.cluster_look import ClusterLook

        options = self.options
        with ClusterLook(options.log.cluster, options.log.timeout_ms) as look:
            bounds = {broker: look.committed(broker) for broker in look.groups(options.brokers)}
            return self._tasks(EntryOffset(), _end_of(EntryOffset(), bounds, look, options, TriggerLimits()))


class EntryStreamReader(_LogRangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one in the process that plans, and others that only read."""

    def __init__(self, options: EntryOptions) -> None:
        super().__init__(options)
        self._open = ExitStack()
        self._look: ClusterLook | None = None
        self._last_bounds: dict[str, LogBounds] | None = None  # of an AvailableNow run

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        return read_limit(self.options.limits)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return EntryOffset().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Raises ReadError, MQClientError, OffsetError."""
        look, before = self._cluster(), offset_from_json(start)
        bounds = self._last_bounds if self._last_bounds is not None else self._bounds()
        limits = limits_under(limit, self.options.limits)
        end = _end_of(before, bounds, look, self.options, limits)
        return start if end.reached == before.reached else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        look = self._cluster()
        reached = {}
        for broker, bound in self._bounds().items():
            proof = look.proof_at(broker, bound.committed_index)
            if proof is not None:
                reached[broker] = proof
        return EntryOffset(reached).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._last_bounds = self._bounds()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises OffsetError."""
        return self._tasks(offset_from_json(start), offset_from_json(end))

    def stop(self) -> None:
        self._open.close()

    def _bounds(self) -> dict[str, LogBounds]:
        look = self._cluster()
        return {broker: look.committed(broker) for broker in look.groups(self.options.brokers)}

    def _cluster(self) -> ClusterLook:
        if self._look is None:
            from pyspark_dledger.wire.cluster_look import ClusterLook

            log = self.options.log
            self._look = self._open.enter_context(ClusterLook(log.cluster, log.timeout_ms))
        return self._look


def _end_of(
    start: EntryOffset,
    bounds: dict[str, LogBounds],
    look: ClusterLook,
    options: EntryOptions,
    limits: TriggerLimits,
) -> EntryOffset:
    """Where a batch ends that begins at `start`. Raises ReadError where the log is not the one that was read."""
    known = start.reached or {}
    begin = {
        broker: _begin_of(broker, bound, look, at_end=options.begins_at_end and start.reached is None)
        for broker, bound in bounds.items()
        if broker not in known
    }
    reached = {**known, **begin}
    ranges = []
    for broker, bound in bounds.items():
        last = reached[broker]
        if broker in known:
            _check(broker, last, bound, look)
        # A leader that has just been elected may not know yet what is committed.
        ranges.append(LogRange(broker, last.index + 1, max(bound.committed_index, last.index) + 1))
    for part in limited(ranges, limits, look.entries_fitting):
        reached[part.broker] = _proof_at(part.broker, part.end - 1, look)
    return EntryOffset(reached, begin)


def _begin_of(broker: str, bound: LogBounds, look: ClusterLook, *, at_end: bool) -> Proof:
    return _proof_at(broker, bound.committed_index if at_end else bound.begin_index - 1, look)


def _proof_at(broker: str, index: int, look: ClusterLook) -> Proof:
    proof = look.proof_at(broker, index)
    if proof is None:
        advice = "it has expired while the batch was planned"
        raise DataLossError("expired", f"the log of {broker}", index, index + 1, advice)
    return proof


def _check(broker: str, last: Proof, bound: LogBounds, look: ClusterLook) -> None:
    """Raises ReadError where `last`, which was read, is another entry now, or the one behind it has expired."""
    check_proof(broker, last, bound, look.proof_at)
    if bound.begin_index > last.index + 1:
        advice = f"the log begins at {bound.begin_index} now. Begin a new query with a new checkpoint"
        raise DataLossError("expired", f"the log of {broker}", last.index + 1, bound.begin_index, advice)
