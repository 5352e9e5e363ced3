"""`spark.read.format("dledger")`: recorded stores of Java say what the real system said, options, pushdown."""

from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from entry_rows_store import make_log
from golden_message import INFLATABLE, said
from golden_store import DLEDGER_STORE, NODES, SINGLE_STORES, expected
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from message.sys_flag import COMPRESSED_FLAG, clear_compressed_flag, compression_type
from pyspark_dledger.data_source import EntryReader, OptionError, read_options
from pyspark_dledger.schema import BODY, COLUMN_NAMES, SchemaError

pytestmark = [pytest.mark.slow, pytest.mark.spark]
Rows = list[dict[str, Any]]
ALL = (*COLUMN_NAMES, BODY.name)


def load(spark: SparkSession, *directories: Path, **options: str) -> DataFrame:
    return spark.read.format("dledger").options(**options).load(list(map(str, directories)))


def rows(frame: DataFrame) -> Rows:
    table: Rows = frame.toArrow().to_pylist()
    return table


def milliseconds(value: Any) -> int:
    return round(value.timestamp() * 1000)


def seen(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the words of an `expected` message."""
    words: dict[str, Any] = {
        "topic": row["topic"],
        "queueId": row["queue_id"],
        "queueOffset": row["queue_offset"],
        "commitLogOffset": row["phy_offset"],
        "storeSize": row["message_size"],
        "bornTimestamp": milliseconds(row["born_timestamp"]),
        "bornHost": "/" + row["born_host"],
        "storeTimestamp": milliseconds(row["store_timestamp"]),
        "storeHost": "/" + row["store_host"],
        "sysFlag": clear_compressed_flag(row["sys_flag"]),
        "flag": row["flag"],
        "tags": row["tags"],
        "keys": row["keys"],
        "properties": dict(row["properties"]),
        "bodyCRC": row["message_body_crc"],
        "stored_body_len": row["body_size"],
        "msgId": row["msg_id"],
        "uniqKey": row["uniq_key"],
        "reconsumeTimes": row["reconsume_times"],
        "preparedTransactionOffset": row["prepared_transaction_offset"],
        "body_len": len(row["body"]),
        "body_sha1": sha1(row["body"]).hexdigest(),
    }
    return words


def check_message(row: dict[str, Any], line: dict[str, Any]) -> None:
    words = seen(row)
    assert {**words, "stored_body_crc32": row["message_body_crc"]} == said(
        line, {**words, "stored_body_crc32": row["message_body_crc"]}
    )


def test_every_inflation_is_installed_where_tests_run() -> None:
    assert all(INFLATABLE.values())


@pytest.mark.parametrize("partitions", ["1", "5"])
def test_a_java_dledger_store_says_what_dledger_said(
    spark: SparkSession, golden_directory: Callable[[str], Path], partitions: str
) -> None:
    directories = [golden_directory(DLEDGER_STORE) / node for node in NODES]
    frame = load(spark, *directories, body="inflated", partitions=partitions)
    assert frame.columns == list(ALL)
    by_replica: dict[str, Rows] = {}
    for row in rows(frame.orderBy("replica", "pos")):
        by_replica.setdefault(row["replica"], []).append(row)
    assert list(by_replica) == list(NODES)
    for node, read in by_replica.items():
        lines = expected(f"{DLEDGER_STORE}.{node}")["entry"]
        assert len(read) == len(lines)
        for row, line in zip(read, lines, strict=True):
            entry = (row["index"], row["term"], row["pos"], row["size"], row["chain_crc"], row["body_crc"])
            names = ("index", "term", "pos", "size", "chainCrc", "bodyCrc")
            assert entry == tuple(line[name] for name in names)
            assert (row["kind"], row["fault"]) == ("message", None)
            check_message(row, line["message"])
    digests = [[row["digest"] for row in read] for read in by_replica.values()]
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize("store", SINGLE_STORES)
def test_a_java_commit_log_says_what_rocketmq_said(
    spark: SparkSession, golden_directory: Callable[[str], Path], store: str
) -> None:
    frame = load(spark, golden_directory(store), body="inflated")
    lines = expected(store)["msg"]
    end = expected(store)["meta"][0]["commitlog_max_offset"]
    read = rows(frame.where(frame.pos < end).orderBy("pos"))
    assert len(read) == len(lines)
    for row, line in zip(read, lines, strict=True):
        assert (row["index"], row["term"], row["kind"], row["fault"]) == (None, None, None, None)
        assert row["pos"] == line["commitLogOffset"]
        check_message(row, line)


def test_bodies_are_as_stored_unless_they_are_to_be_inflated(
    spark: SparkSession, golden_directory: Callable[[str], Path]
) -> None:
    frame = load(spark, golden_directory(DLEDGER_STORE) / "n0", columns="pos,sys_flag,body_size,body")
    compressed = [row for row in rows(frame) if row["sys_flag"] & COMPRESSED_FLAG]
    assert {compression_type(row["sys_flag"]) for row in compressed} == set(INFLATABLE)
    assert all(len(row["body"]) == row["body_size"] for row in compressed)


def test_damage_is_told_beside_its_entry(spark: SparkSession, tmp_path: Path) -> None:
    log = make_log(tmp_path / "store")
    log.flip(log.positions[40] + 48 + 95)
    log.flip(log.positions[80] + 36)
    log.write(log.positions[81], bytes(20))
    for partitions in ("1", "2", "16"):
        frame = load(spark, log.root, partitions=partitions)
        faulty = rows(frame.where("fault is not null").select("index", "fault").orderBy("index"))
        assert faulty == [{"index": 40, "fault": "body crc"}, {"index": 80, "fault": "chain crc"}]
        assert frame.count() == 119, "an entry without a header has no row"


def test_options_choose_columns_topic_and_indexes(spark: SparkSession, tmp_path: Path) -> None:
    log = make_log(tmp_path / "store")
    frame = load(spark, log.root, columns="topic, index", topic="Payments", index_from="50", index_to="60")
    assert frame.columns == ["topic", "index"]
    assert [row["index"] for row in rows(frame.orderBy("index"))] == [51, 54, 57, 60]


@pytest.mark.parametrize(
    ("said", "options", "last"),
    [("41", {}, 119), ("41", {"until": "committed"}, 41), ("41", {"until": "committed", "index_to": "9"}, 9)],
)
def test_entries_that_may_still_be_cut_are_left_out_by_wish(
    tmp_path: Path, said: str, options: dict[str, str], last: int
) -> None:
    log = make_log(tmp_path / "store")
    (log.root / "dledger-n0" / "checkpoint").write_text(f"endIndex=119\ncommittedIndex={said}\n")
    reader = EntryReader(read_options({"path": str(log.root), "columns": "index", **options}))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    found = [index for batch in batches for index in batch.column(0).to_pylist()]
    assert sorted(found) == list(range(last + 1))


def test_a_schema_of_ones_own_names_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    log = make_log(tmp_path / "store", count=6)
    reader = spark.read.format("dledger").schema("`index` bigint, topic string")
    assert rows(reader.load(str(log.root)).where("topic = 'Payments'")) == [
        {"index": 0, "topic": "Payments"},
        {"index": 3, "topic": "Payments"},
    ]


def test_filters_are_pushed_down_where_spark_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    log = make_log(tmp_path / "store")
    plain, pushed = (
        load(spark, log.root, columns="index,topic", pushdown=value) for value in ("false", "true")
    )
    condition = "index >= 30 and index < 45 and topic = 'Payments' and index % 2 = 0"
    results = [rows(frame.where(condition).orderBy("index")) for frame in (plain, pushed)]
    assert results[0] == results[1]
    assert [row["index"] for row in results[1]] == [30, 36, 42]
    plans = [
        frame.where(condition)._jdf.queryExecution().executedPlan().toString() for frame in (plain, pushed)
    ]
    assert [">= 30" in plan for plan in plans] == [True, False], (
        "Spark filters what was not taken off its hands"
    )


def test_an_entry_that_cannot_be_read_has_no_topic_with_pushdown_either(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = make_log(tmp_path / "store", 8)
    log.flip(log.positions[5] + 48 + 4)  # the record's magic
    # Spark would leave nulls out by a filter of its own, which it infers.
    spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
    try:
        frame = load(spark, log.root, columns="index,topic", pushdown="true")
        assert [row["index"] for row in rows(frame.where("topic = 'Payments'").orderBy("index"))] == [0, 3, 6]
    finally:
        spark.conf.unset("spark.sql.constraintPropagation.enabled")


def test_a_directory_without_a_replica_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is no replica: expected"):
        load(spark, tmp_path).count()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no directory is given"),
        ({"path": "d", "colums": "pos"}, "unknown option 'colums': there are body, columns"),
        ({"path": "d", "body": "gzip"}, "one of none, stored, inflated"),
        ({"path": "d", "index_from": "-1"}, "a whole number of at least 0"),
        ({"path": "d", "until": "now"}, "it is one of end, committed"),
        ({"path": "d", "view": "messages"}, "view messages is read from a cluster"),
        ({"path": "d", "partitions": "0"}, "a whole number of at least 1"),
        ({"path": "d", "pushdown": "yes"}, "it is one of false, true"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_options(options)


def test_columns_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(SchemaError, match="'indx' is no column: columns are replica, group"):
        read_options({"path": "d", "columns": "indx"})


def test_columns_that_spark_cannot_read_are_told_by_their_option(spark: SparkSession) -> None:
    options = {"namesrv": "127.0.0.1:9", "subscribe": "T", "bodyFormat": "json", "bodySchema": "id BIGIN"}
    with pytest.raises(ParseException, match=r"option bodySchema \*/ id BIGIN>"):
        spark.read.format("dledger").options(**options).load()
