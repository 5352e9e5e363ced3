"""`spark.read` and `spark.readStream` of messages: what Spark calls in the driver and in its workers.

The driver plans ranges of queues and a worker reads one for each task. What the driver asks the cluster with is loaded
where it is needed, for workers load this module, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_dledger.option_values import OptionError
from pyspark_dledger.wire.message_offset import MessageOffset, offset_from_json, ranges_between
from pyspark_dledger.wire.message_options import Bound, MessageOptions, Place, PlaceKind
from pyspark_dledger.wire.message_rows import MessageSelection, range_batches
from pyspark_dledger.wire.planning import divided, limited
from pyspark_dledger.wire.proof import Proof, check_proof
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.read_errors import DataLossError
from pyspark_dledger.wire.read_limit import limits_under, read_limit

if TYPE_CHECKING:
    from pyspark_dledger.wire.cluster_look import ClusterLook, QueueBounds


class _RangeReader:
    """What a worker does, the same for batches and streams."""

    def __init__(self, options: MessageOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return iter(())  # Spark's own, where nothing is to be read
        options = self.options
        selection = MessageSelection(options.columns, options.inflate, options.body)
        return range_batches(partition.value, options.pull, selection)

    def _tasks(self, ranges: Sequence[QueueRange]) -> list[InputPartition]:
        return [InputPartition(part) for part in divided(ranges, self.options.sizes)]


class MessageReader(_RangeReader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        """Raises ReadError, MQClientError, OptionError."""
        from pyspark_dledger.wire.cluster_look import ClusterLook

        options = self.options
        with ClusterLook(options.pull.cluster, options.pull.timeout_ms) as look:
            queues = look.queues(options.subscription)
            bounds = look.bounds(queues)
            begins = _resolved(options.starting, bounds, look, late_is_end=options.late_time_is_latest)
            ends = _resolved(options.ending, bounds, look, late_is_end=True)
        ranges = [QueueRange(queue, begins[queue], ends[queue]) for queue in queues]
        for part in ranges:
            if part.start > part.end:
                raise OptionError(
                    f"{part.queue}: the read would begin at offset {part.start} and end at {part.end}"
                )
        return self._tasks(ranges)


class MessageStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one in the process that plans, and others that only read."""

    def __init__(self, options: MessageOptions) -> None:
        super().__init__(options)
        self._open = ExitStack()
        self._look: ClusterLook | None = None
        self._last_ends: Mapping[Queue, int] | None = None  # of an AvailableNow run
        self._seen_ends: Mapping[Queue, int] | None = None  # when the last batch was planned
        self._proof: Mapping[str, Proof] = {}  # of its end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        return read_limit(self.options.limits)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        # What the options mean stands in the first end: docs/adr/0018.
        return MessageOffset().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Raises ReadError, MQClientError, OffsetError, OptionError."""
        options, look = self.options, self._cluster()
        before = offset_from_json(start)
        known = before.next or {}
        bounds = look.bounds(self._queues(look, known))
        # Before the ends are looked at: another cluster explains them.
        _check_proofs(before.proof, look)
        self._proof = _proofs(bounds, look)
        _check_ends(known, bounds)
        self._seen_ends = {queue: bound.end for queue, bound in bounds.items()}
        new = {queue: bound for queue, bound in bounds.items() if queue not in known}
        # A queue that comes later begins at its first message, for that came later, too.
        starting = options.starting if before.next is None else Bound(Place(PlaceKind.EARLIEST))
        begin = _resolved(starting, new, look, late_is_end=options.late_time_is_latest)
        reached = {**known, **begin}
        ranges = [
            QueueRange(queue, reached[queue], max(self._end_of(queue, bound.end), reached[queue]))
            for queue, bound in bounds.items()
        ]
        ranges = limited(ranges, limits_under(limit, options.limits), look.fitting)
        reached.update({part.queue: part.end for part in ranges})
        if before.next is not None and reached == known:
            return start  # to Spark this very text means that there is nothing new
        return MessageOffset(reached, begin, self._proof).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return MessageOffset(self._seen_ends or self._ends_now()).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._last_ends = self._ends_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises OffsetError, LogRewrittenError."""
        last = offset_from_json(end)
        if last.proof != self._proof:  # a driver before this one has planned it
            _check_proofs(last.proof, self._cluster())
        return self._tasks(ranges_between(offset_from_json(start), last))

    def stop(self) -> None:
        self._open.close()

    def _cluster(self) -> ClusterLook:
        if self._look is None:
            from pyspark_dledger.wire.cluster_look import ClusterLook

            pull = self.options.pull
            self._look = self._open.enter_context(ClusterLook(pull.cluster, pull.timeout_ms))
        return self._look

    def _ends_now(self) -> dict[Queue, int]:
        look = self._cluster()
        bounds = look.bounds(look.queues(self.options.subscription))
        return {queue: bound.end for queue, bound in bounds.items()}

    def _queues(self, look: ClusterLook, known: Mapping[Queue, int]) -> list[Queue]:
        """Those that are read now, and those that their topics have lost: a task finds out what is gone with them."""
        last = self._last_ends  # what is there later belongs to the next run
        queues = look.queues(self.options.subscription) if last is None else list(last)
        # A NameServer that has just started does not know each broker. One that it knows has told all of its queues.
        told = {(queue.topic, queue.broker) for queue in queues}
        return sorted({*queues, *(queue for queue in known if (queue.topic, queue.broker) in told)})

    def _end_of(self, queue: Queue, end: int) -> int:
        return end if self._last_ends is None else self._last_ends.get(queue, end)


def _check_ends(known: Mapping[Queue, int], bounds: Mapping[Queue, QueueBounds]) -> None:
    """Raises DataLossError for a queue that has gone back: no failover does that."""
    for queue, reached in known.items():
        if queue in bounds and bounds[queue].end < reached:
            advice = "what has the name now are other messages. Begin a new query with a new checkpoint"
            raise DataLossError("topic made again", queue, bounds[queue].end, reached, advice)


def _check_proofs(proofs: Mapping[str, Proof], look: ClusterLook) -> None:
    """Raises LogRewrittenError where an entry that an offset names is another one now."""
    for broker, proof in proofs.items():
        bounds = look.committed_if_told(broker)
        if bounds is not None:
            check_proof(broker, proof, bounds, look.proof_at)


def _proofs(queues: Iterable[Queue], look: ClusterLook) -> dict[str, Proof]:
    """By broker an entry that is committed now, as the ends are that were asked for before."""
    proofs = {}
    for broker in sorted({queue.broker for queue in queues}):
        bounds = look.committed_if_told(broker)
        if bounds is None:
            continue
        proof = look.proof_at(broker, bounds.committed_index)
        if proof is not None:
            proofs[broker] = proof
    return proofs


def _resolved(
    bound: Bound, bounds: Mapping[Queue, QueueBounds], look: ClusterLook, *, late_is_end: bool
) -> dict[Queue, int]:
    """Offsets of what the options say. `late_is_end`: a time after the last message means the queue's end.

    Raises OptionError, and what ClusterLook raises.
    """
    if missing := sorted(set(bound.named) - set(bounds)):
        raise OptionError(f"{missing[0]} is named by the options and is not among the queues that are read")
    places = {queue: bound.of(queue) for queue in bounds}
    times = [(queue, place.value) for queue, place in places.items() if place.kind is PlaceKind.TIME]
    at_times = look.offsets_at(times)
    offsets = {}
    for queue, (kind, value) in places.items():
        begin, end = bounds[queue]
        match kind:
            case PlaceKind.EARLIEST:
                offsets[queue] = begin
            case PlaceKind.LATEST:
                offsets[queue] = end
            case PlaceKind.OFFSET:
                if not begin <= value <= end:
                    raise OptionError(f"{queue}: offset {value} is not there: it has {begin} to {end}")
                offsets[queue] = value
            case PlaceKind.TIME:
                offsets[queue] = min(at_times[queue], end)
                if offsets[queue] == end and not late_is_end:
                    raise OptionError(
                        f"{queue}: no message is at or after the time {value} ms: "
                        "startingOffsetsByTimestampStrategy=latest begins at its end"
                    )
    return offsets
