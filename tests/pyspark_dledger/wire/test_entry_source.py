"""What Spark asks the driver's part of a stream of entries: ends that are proved, and logs that are others by now."""

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pyspark_dledger.option_values import OptionError
from pyspark_dledger.schema import WIRE_ENTRY_COLUMN_NAMES
from pyspark_dledger.wire.entry_offset import EntryOffset, LogRange, offset_from_json
from pyspark_dledger.wire.entry_options import entry_options
from pyspark_dledger.wire.entry_source import EntryStreamReader
from pyspark_dledger.wire.log_reader import LogTask
from pyspark_dledger.wire.proof import LogBounds, OffsetError, Proof
from pyspark_dledger.wire.read_errors import DataLossError, LogRewrittenError

ALL = ReadAllAvailable()
Offset = dict[str, Any]


class TableLook:
    """Fulfils ClusterLook: by broker the uuid, the first index, the committed one, and where another history begins."""

    def __init__(self, **logs: tuple[str, int, int]) -> None:
        self.logs = {broker: LogBounds(*log) for broker, log in logs.items()}
        self.rewritten_from: dict[str, int] = {}

    def groups(self, names: Collection[str]) -> list[str]:
        return sorted(names or self.logs)

    def committed(self, broker: str) -> LogBounds:
        return self.logs[broker]

    def entries_fitting(self, part: LogRange, size_max: int) -> tuple[int, int]:
        """Each entry has 100 bytes."""
        count = min(max(size_max // 100, 1), part.end - part.start)
        return count, 100 * count

    def proof_at(self, broker: str, index: int) -> Proof | None:
        log = self.logs[broker]
        assert index <= log.committed_index
        if index < log.begin_index - 1:
            return None
        is_other = index >= self.rewritten_from.get(broker, 1 << 60)
        term = -1 if index == log.begin_index - 1 else 2 if is_other else 1
        return Proof(log.group_uuid, index, term, 1000 + index + 5000 * is_other if index >= 0 else 0)


def reader_of(look: TableLook, **options: str) -> EntryStreamReader:
    given = {"namesrv": "127.0.0.1:9876", "view": "entries", **options}
    reader = EntryStreamReader(entry_options(given, WIRE_ENTRY_COLUMN_NAMES, is_stream=True))
    reader._look = look  # type: ignore[assignment]
    return reader


def tasks(reader: EntryStreamReader, start: Offset, end: Offset) -> list[LogTask]:
    start, end = (json.loads(json.dumps(offset)) for offset in (start, end))
    return [task.value for task in reader.partitions(start, end)]


def parts(reader: EntryStreamReader, start: Offset, end: Offset) -> list[LogRange]:
    return [task.part for task in tasks(reader, start, end)]


def test_batches_follow_each_other_with_the_proofs_of_both_ends() -> None:
    look = TableLook(g0=("u0", 0, 9), g1=("u1", 5, 7))
    reader = reader_of(look, startingOffsets="earliest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    zero, one = tasks(reader, reader.initialOffset(), first)
    assert zero == LogTask(LogRange("g0", 0, 10), "u0", Proof("u0", -1, -1, 0), Proof("u0", 9, 1, 1009))
    assert one == LogTask(LogRange("g1", 5, 8), "u1", Proof("u1", 4, -1, 1004), Proof("u1", 7, 1, 1007))
    assert reader.latestOffset(first, ALL) is first
    look.logs["g0"] = LogBounds("u0", 0, 12)
    assert parts(reader, first, reader.latestOffset(first, ALL)) == [LogRange("g0", 10, 13)]


def test_latest_is_what_it_meant_at_the_first_start() -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.logs["g0"] = LogBounds("u0", 0, 12)
    again = reader_of(look)
    assert parts(again, again.initialOffset(), first) == []
    assert parts(again, first, again.latestOffset(first, ALL)) == [LogRange("g0", 10, 13)]


def test_group_that_comes_later_is_read_from_its_first_entry() -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.logs["g1"] = LogBounds("u1", 0, 3)
    assert parts(reader, first, reader.latestOffset(first, ALL)) == [LogRange("g1", 0, 4)]


def test_range_is_divided_and_its_ends_alone_are_proved() -> None:
    reader = reader_of(TableLook(g0=("u0", 0, 9)), startingOffsets="earliest", maxRecordsPerPartition="4")
    found = tasks(reader, reader.initialOffset(), reader.latestOffset(reader.initialOffset(), ALL))
    assert [(task.part.start, task.part.end) for task in found] == [(0, 3), (3, 6), (6, 10)]
    assert [(task.before is not None, task.last is not None) for task in found] == [
        (True, False), (False, False), (False, True),
    ]  # fmt: skip


def test_limit_ends_a_batch_at_a_proved_entry() -> None:
    reader = reader_of(TableLook(g0=("u0", 0, 99)), startingOffsets="earliest", maxOffsetsPerTrigger="30")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(30))
    assert offset_from_json(end).reached == {"g0": Proof("u0", 29, 1, 1029)}


def test_limit_of_bytes_ends_a_batch_at_a_proved_entry() -> None:
    reader = reader_of(TableLook(g0=("u0", 0, 99)), startingOffsets="earliest", maxBytesPerTrigger="3099")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(3099)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(3099))
    assert offset_from_json(end).reached == {"g0": Proof("u0", 29, 1, 1029)}


def test_available_now_ends_where_the_cluster_was_at_its_start() -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    look.logs = {"g0": LogBounds("u0", 0, 20), "g1": LogBounds("u1", 0, 20)}
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert parts(reader, reader.initialOffset(), end) == [LogRange("g0", 0, 10)]


def test_new_leader_that_knows_of_less_is_no_loss() -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.logs["g0"] = LogBounds("u0", 0, 7)
    assert reader.latestOffset(first, ALL) is first


@pytest.mark.parametrize("rewritten_from", [0, 9])
def test_log_that_was_rewritten_ends_the_query(rewritten_from: int) -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.rewritten_from = {"g0": rewritten_from}
    with pytest.raises(
        LogRewrittenError, match="has read entry 9 of term 1 with chain 1009 in group u0, and it is"
    ):
        reader.latestOffset(first, ALL)


def test_other_cluster_ends_the_query() -> None:
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.logs["g0"] = LogBounds("u9", 0, 50)
    with pytest.raises(LogRewrittenError, match="has read group u0, and this is u9"):
        reader.latestOffset(first, ALL)


@pytest.mark.parametrize(("begin", "is_lost"), [(9, False), (10, False), (11, True), (30, True)])
def test_expired_entries_end_the_query(begin: int, is_lost: bool) -> None:
    """Where the entry behind the last one is still there, nothing is lost, and the chain in front of it proves that."""
    look = TableLook(g0=("u0", 0, 9))
    reader = reader_of(look)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    look.logs["g0"] = LogBounds("u0", begin, 50)
    if not is_lost:
        assert parts(reader, first, reader.latestOffset(first, ALL)) == [LogRange("g0", 10, 51)]
        return
    with pytest.raises(
        DataLossError, match=f"expired: the log of g0 has lost .*entr.* 10.*begins at {begin} now"
    ):
        reader.latestOffset(first, ALL)


@pytest.mark.parametrize(
    "value",
    [None, {"v": 1}, {"v": 1, "next": {}}, {"v": 1, "view": "entries", "reached": {"g0": {"index": 3}}}],
)
def test_refuses_the_checkpoint_of_another_view(value: object) -> None:
    with pytest.raises(OffsetError):
        offset_from_json(value)


def test_refuses_ranges_that_nobody_can_read() -> None:
    reader = reader_of(TableLook())
    nine = Proof("u0", 9, 1, 1009)
    for other in (replace(nine, index=8), replace(nine, group_uuid="u9", index=12)):
        with pytest.raises(OffsetError, match="a batch cannot go from"):
            tasks(reader, EntryOffset({"g0": nine}).to_json(), EntryOffset({"g0": other}).to_json())
    with pytest.raises(OffsetError, match="and not where it begins"):
        tasks(reader, EntryOffset({}).to_json(), EntryOffset({"g0": nine}).to_json())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "T"}, "unknown option 'subscribe': there are body, brokers"),
        ({"brokers": ","}, "option brokers is empty"),
        ({"readFrom": "anybody"}, "it is one of leader, follower"),
        ({"startingOffsets": "{}"}, "it is one of latest, earliest"),
    ],
)
def test_refuses_options_that_nobody_can_mean(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        reader_of(TableLook(), **options)
    assert said in str(raised.value)
