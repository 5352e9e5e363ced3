"""What Spark asks the driver's part of a stream: start, ends of batches, tasks. The cluster is a table of bounds."""

import json
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pyspark_dledger.option_values import OptionError
from pyspark_dledger.schema import MESSAGE_COLUMN_NAMES
from pyspark_dledger.wire.cluster_look import QueueBounds
from pyspark_dledger.wire.message_options import Subscription, message_options
from pyspark_dledger.wire.message_source import MessageStreamReader
from pyspark_dledger.wire.proof import LogBounds, Proof
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.read_errors import DataLossError, LogRewrittenError

A, B, C = (Queue("T", "g0", number) for number in range(3))
ALL = ReadAllAvailable()
Offset = dict[str, Any]


class TableLook:
    """Fulfils ClusterLook."""

    def __init__(
        self, bounds: dict[Queue, tuple[int, int]], at_times: dict[Queue, int] | None = None
    ) -> None:
        self.table = bounds
        self._at_times = at_times or {}
        self.taken_from_topics: set[Queue] = set()  # the broker has their messages still
        self.log: LogBounds | None = None  # of g0; None: it gives no entries
        self.chain_of_nine = 9

    def committed_if_told(self, broker: str) -> LogBounds | None:
        return self.log

    def proof_at(self, broker: str, index: int) -> Proof | None:
        assert self.log is not None
        if index < self.log.begin_index - 1:
            return None
        return Proof(self.log.group_uuid, index, 1, self.chain_of_nine if index == 9 else index)

    def queues(self, subscription: Subscription) -> list[Queue]:
        return sorted(self.table.keys() - self.taken_from_topics)

    def bounds(self, queues: Collection[Queue]) -> dict[Queue, QueueBounds]:
        return {queue: QueueBounds(*self.table[queue]) for queue in queues}

    def fitting(self, part: QueueRange, size_max: int) -> tuple[int, int]:
        """Each message has 100 bytes."""
        count = min(max(size_max // 100, 1), part.end - part.start)
        return count, 100 * count

    def offsets_at(self, times: Iterable[tuple[Queue, int]]) -> dict[Queue, int]:
        return {queue: self._at_times[queue] for queue, _ in times}


def reader_of(look: TableLook, **options: str) -> MessageStreamReader:
    given = {"namesrv": "127.0.0.1:9876", "subscribe": "T", **options}
    reader = MessageStreamReader(message_options(given, MESSAGE_COLUMN_NAMES, is_stream=True))
    reader._look = look  # type: ignore[assignment]
    return reader


def through_a_checkpoint(offset: Offset) -> Offset:
    return dict(json.loads(json.dumps(offset)))


def tasks(reader: MessageStreamReader, start: Offset, end: Offset) -> list[QueueRange]:
    return [task.value for task in reader.partitions(through_a_checkpoint(start), through_a_checkpoint(end))]


def test_latest_is_what_it_meant_at_the_first_start() -> None:
    look = TableLook({A: (0, 10), B: (3, 7)})
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert tasks(reader, reader.initialOffset(), first) == []

    look.table = {A: (0, 15), B: (3, 8)}
    again = reader_of(look)  # the driver has died before the first commit
    assert tasks(again, again.initialOffset(), first) == []
    second = again.latestOffset(through_a_checkpoint(first), ALL)
    assert tasks(again, first, second) == [QueueRange(A, 10, 15), QueueRange(B, 7, 8)]


def test_first_batch_is_the_same_after_a_restart_with_other_options() -> None:
    look = TableLook({A: (2, 10)})
    reader = reader_of(look, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    again = reader_of(look, startingOffsets="latest")
    assert tasks(again, again.initialOffset(), first) == [QueueRange(A, 2, 10)]


def test_end_is_the_start_itself_where_nothing_is_new() -> None:
    reader = reader_of(TableLook({A: (0, 10)}))
    first = through_a_checkpoint(reader.latestOffset(reader.initialOffset(), ALL))
    assert json.dumps(reader.latestOffset(first, ALL)) == json.dumps(first)


def test_queue_that_comes_later_begins_at_its_first_message_whatever_the_start_was() -> None:
    look = TableLook({A: (0, 10)})
    reader = reader_of(look, startingOffsets="latest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.table |= {B: (0, 4), C: (2, 2)}
    second = reader.latestOffset(first, ALL)
    assert tasks(reader, first, second) == [QueueRange(B, 0, 4)]
    look.table |= {C: (2, 3)}
    assert tasks(reader, second, reader.latestOffset(second, ALL)) == [QueueRange(C, 2, 3)]


def test_topic_that_comes_after_the_start_is_read_whole() -> None:
    look = TableLook({})
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.table = {A: (0, 5)}
    assert tasks(reader, first, reader.latestOffset(first, ALL)) == [QueueRange(A, 0, 5)]


def test_queue_that_is_away_stays_where_it_is() -> None:
    """A NameServer that has just started knows some brokers and not the others."""
    away = Queue("T", "g1", 0)
    look = TableLook({A: (0, 10), away: (0, 10)})
    reader = reader_of(look, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.table = {A: (0, 12)}
    second = reader.latestOffset(first, ALL)
    assert tasks(reader, first, second) == [QueueRange(A, 10, 12)]
    look.table = {A: (0, 12), away: (0, 13)}
    assert tasks(reader, second, reader.latestOffset(second, ALL)) == [QueueRange(away, 10, 13)]


@pytest.mark.parametrize("is_available_now", [False, True])
def test_what_waits_in_a_queue_that_its_topic_has_lost_is_planned_for_a_task_to_name(
    is_available_now: bool,
) -> None:
    look = TableLook({A: (0, 10), B: (0, 10)})
    reader = reader_of(look, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.taken_from_topics = {B}
    if is_available_now:
        reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(first, ALL) is first, "all of it was read"
    look.table = {A: (0, 10), B: (0, 13)}
    assert tasks(reader, first, reader.latestOffset(first, ALL)) == [QueueRange(B, 10, 13)]


def test_batches_have_their_limit_and_lack_nothing() -> None:
    look = TableLook({A: (0, 70), B: (5, 15)})
    reader = reader_of(look, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    offsets = [reader.initialOffset()]
    for _ in range(4):
        offsets.append(through_a_checkpoint(reader.latestOffset(offsets[-1], ReadMaxRows(30))))
    sizes = [sum(item.end - item.start for item in tasks(reader, *pair)) for pair in pairwise(offsets)]
    assert sizes == [30, 30, 20, 0]


def test_batches_have_their_limit_of_bytes_and_lack_nothing() -> None:
    look = TableLook({A: (0, 70), B: (5, 15)})
    reader = reader_of(look, startingOffsets="earliest", maxBytesPerTrigger="3000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(3000)
    offsets = [reader.initialOffset()]
    for _ in range(4):
        offsets.append(through_a_checkpoint(reader.latestOffset(offsets[-1], ReadMaxBytes(3000))))
    sizes = [sum(item.end - item.start for item in tasks(reader, *pair)) for pair in pairwise(offsets)]
    assert sizes == [30, 30, 20, 0]


def test_both_limits_count_though_spark_knows_one_alone() -> None:
    reader = reader_of(
        TableLook({A: (0, 70)}),
        startingOffsets="earliest",
        maxBytesPerTrigger="3000",
        maxOffsetsPerTrigger="7",
    )
    start = reader.initialOffset()
    assert tasks(reader, start, reader.latestOffset(start, ReadMaxBytes(3000))) == [QueueRange(A, 0, 7)]
    assert tasks(reader, start, reader.latestOffset(start, ALL)) == [QueueRange(A, 0, 70)]


def test_available_now_ends_where_the_cluster_was_at_its_start() -> None:
    look = TableLook({A: (0, 10)})
    reader = reader_of(look, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    look.table = {A: (0, 20), B: (0, 9)}
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert tasks(reader, reader.initialOffset(), end) == [QueueRange(A, 0, 10)]
    assert reader.latestOffset(end, ALL) == end


def test_start_may_be_a_time() -> None:
    look = TableLook({A: (0, 10), B: (0, 10)}, {A: 4, B: 10})
    late_is_latest = {"startingOffsetsByTimestampStrategy": "latest"}
    reader = reader_of(look, startingTimestamp="1000", **late_is_latest)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert tasks(reader, reader.initialOffset(), end) == [QueueRange(A, 4, 10)]
    with pytest.raises(OptionError, match="queue 1 of T at g0: no message is at or after the time 1000 ms"):
        reader_of(look, startingTimestamp="1000").latestOffset(reader.initialOffset(), ALL)


@pytest.mark.parametrize(
    ("starting", "said"),
    [
        ({"T": {"g0": {"0": 11}}}, "queue 0 of T at g0: offset 11 is not there: it has 2 to 10"),
        ({"T": {"g0": {"0": 1}}}, "offset 1 is not there"),
        ({"T": {"g0": {"7": 1}}}, "queue 7 of T at g0 is named by the options and is not among"),
    ],
)
def test_start_must_be_there(starting: dict[str, Any], said: str) -> None:
    reader = reader_of(TableLook({A: (2, 10)}), startingOffsets=json.dumps(starting))
    with pytest.raises(OptionError, match=said):
        reader.latestOffset(reader.initialOffset(), ALL)


def test_queue_that_has_gone_back_ends_the_query() -> None:
    """Java's brokers begin a topic that is made again at 0. No failover does that."""
    look = TableLook({A: (0, 10)})
    reader = reader_of(look, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    look.table = {A: (0, 6)}
    with pytest.raises(
        DataLossError, match="topic made again: queue 0 of T at g0 has lost 4 messages, 6 to 9"
    ):
        reader.latestOffset(end, ALL)


def test_offset_proves_the_log_that_was_read() -> None:
    look = TableLook({A: (0, 10)})
    look.log = LogBounds("u0", 0, 9)
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert first["proof"] == {"g0": {"group": "u0", "index": 9, "term": 1, "chain": 9}}
    look.log = LogBounds("u0", 5, 20)
    assert reader.latestOffset(first, ALL) is first, "other topics make no batch"
    look.table = {A: (0, 11)}
    assert reader.latestOffset(first, ALL)["proof"]["g0"]["index"] == 20

    look.chain_of_nine = 8
    with pytest.raises(
        LogRewrittenError, match="has read entry 9 of term 1 with chain 9 in group u0, and it is entry 9"
    ):
        reader.latestOffset(first, ALL)
    look.log = LogBounds("u1", 5, 20)
    with pytest.raises(LogRewrittenError, match="has read group u0, and this is u1"):
        reader.latestOffset(first, ALL)


def test_batch_of_a_driver_that_died_is_planned_again_on_the_same_log_alone() -> None:
    look = TableLook({A: (0, 10)})
    look.log = LogBounds("u0", 0, 9)
    reader = reader_of(look, startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    again = reader_of(look, startingOffsets="earliest")
    assert tasks(again, again.initialOffset(), end) == [QueueRange(A, 0, 10)]
    look.chain_of_nine = 8
    with pytest.raises(LogRewrittenError, match="has read entry 9 of term 1 with chain 9"):
        tasks(again, again.initialOffset(), end)


def test_another_cluster_is_named_before_what_it_lacks() -> None:
    look = TableLook({A: (0, 10)})
    look.log = LogBounds("u0", 0, 9)
    reader = reader_of(look)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    look.table, look.log = {A: (0, 3)}, LogBounds("u1", 0, 2)
    with pytest.raises(LogRewrittenError, match="has read group u0, and this is u1"):
        reader.latestOffset(end, ALL)


def test_nothing_is_proved_by_an_entry_that_has_expired_or_a_broker_that_gives_none() -> None:
    look = TableLook({A: (0, 10)})
    look.log = LogBounds("u0", 0, 9)
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.table = {A: (0, 11)}
    look.log = LogBounds("u0", 30, 40)
    assert reader.latestOffset(first, ALL)["proof"]["g0"]["index"] == 40
    look.log = None
    assert "proof" not in reader.latestOffset(first, ALL)


def test_progress_tells_the_ends_of_the_cluster() -> None:
    reader = reader_of(TableLook({A: (2, 10), B: (0, 0)}))
    assert reader.reportLatestOffset() == {"v": 1, "next": {"T": {"g0": {"0": 10, "1": 0}}}}
