"""Spark reads topics of a cluster of three over the wire: in batches, in streams, and while leaders are killed."""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kill_rounds import TOPIC, Sender, kill_leader
from local_cluster import LocalCluster, wait_for
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from mqclient import Admin, AdminError, Message, Producer
from pyspark_dledger.progress_committer import ProgressCommitter
from pyspark_dledger.spark_session import spark_session
from remoting.bodies.topic_bodies import TopicConfig

pytestmark = [pytest.mark.slow, pytest.mark.spark]

QUEUES = 4
PLACE = ["queue_id", "queue_offset", "body"]
SPARK_CONF = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
Places = dict[bytes, tuple[int, int]]  # by body: queue and offset


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]", app_name="pydledger cluster tests", conf=SPARK_CONF) as session:
        yield session


def test_batch_reads_what_topics_hold_from_and_to_where_it_is_told(
    spark: SparkSession, shared_namesrv: str
) -> None:
    for topic in ("Batch1", "Batch2"):
        make_topic(shared_namesrv, topic)
    first, second = (
        send(shared_namesrv, "Batch1", bodies(0, 500)),
        send(shared_namesrv, "Batch2", bodies(0, 50)),
    )

    both = read(spark, shared_namesrv, subscribe="Batch1,Batch2").orderBy("topic", "queue_id", "queue_offset")
    assert {row["topic"] for row in rows(both)} == {"Batch1", "Batch2"}
    assert places(both.where("topic = 'Batch1'")) == first
    assert places(both.where("topic = 'Batch2'")) == second
    assert places(read(spark, shared_namesrv, subscribePattern="Batch[2-9]")) == second
    row = rows(both.where("topic = 'Batch1' and body = binary('7')"))[0]
    assert (row["keys"], row["tags"], row["body_size"]) == ("k7", "odd", 1)

    cut = {"0": 3, "1": -2, "2": -1}
    begin, end = {"Batch1": {row["broker"]: cut}}, {"Batch1": {row["broker"]: {"0": 9, "1": 5}}}
    part = read(
        spark,
        shared_namesrv,
        subscribe="Batch1",
        startingOffsets=json.dumps(begin),
        endingOffsets=json.dumps(end),
    )
    assert places(part) == {
        body: (queue, offset)
        for body, (queue, offset) in first.items()
        if (queue == 0 and 3 <= offset < 9) or (queue == 1 and offset < 5) or queue == 3
    }
    assigned = json.dumps({"Batch1": {row["broker"]: [1, 3]}})
    odd = read(spark, shared_namesrv, assign=assigned, tags="odd", minPartitions="7", columns=",".join(PLACE))
    assert odd.rdd.getNumPartitions() >= 7
    assert places(odd) == {
        body: place for body, place in first.items() if place[0] in (1, 3) and int(body) % 2
    }


def test_batch_begins_and_ends_at_times(spark: SparkSession, shared_namesrv: str) -> None:
    make_topic(shared_namesrv, "Times", queues=1)
    send(shared_namesrv, "Times", bodies(0, 5))
    times = [row["store_timestamp"] for row in rows(read(spark, shared_namesrv, subscribe="Times"))]
    at_ms = round(max(times).timestamp() * 1000) + 1
    wait_for(lambda: time.time() * 1000 > at_ms, 5, "a clock that has gone on")
    later = send(shared_namesrv, "Times", bodies(5, 9))
    assert places(read(spark, shared_namesrv, subscribe="Times", startingTimestamp=str(at_ms))) == later
    before = read(spark, shared_namesrv, subscribe="Times", endingTimestamp=str(at_ms))
    assert sorted(places(before)) == bodies(0, 5)
    with pytest.raises(PySparkException, match="no message is at or after the time"):
        read(spark, shared_namesrv, subscribe="Times", startingTimestamp=str(at_ms + 10**9)).count()


def test_bodies_are_values_by_a_schema_and_bad_ones_are_kept(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    make_topic(shared_namesrv, "Formats", queues=1)
    good = [json.dumps({"id": number, "at": "2024-01-02T03:04:05Z"}).encode() for number in range(20)]
    sent = [*good, b'{"id": "x"}', b"\xff"]
    send_messages(shared_namesrv, (Message("Formats", body) for body in sent))
    by_schema = {"bodyFormat": "json", "bodySchema": "id BIGINT NOT NULL, at TIMESTAMP, m MAP<STRING, INT>"}
    frame = read(spark, shared_namesrv, subscribe="Formats", **by_schema)
    found = rows(frame.selectExpr("body.id", "date_format(body.at, 'HH:mm') AS time", "_corrupt"))
    assert [(row["id"], row["time"]) for row in found] == [(number, "03:04") for number in range(20)] + [
        (None, None)
    ] * 2
    assert [row["_corrupt"] for row in found] == [None] * 20 + [b'{"id": "x"}', b"\xff"]
    text = read(spark, shared_namesrv, subscribe="Formats", bodyFormat="utf8").orderBy("queue_offset")
    assert [row["body"] for row in rows(text)] == [*(body.decode() for body in good), '{"id": "x"}', None]
    with pytest.raises(PySparkException, match="the body at offset 20 is not as bodyFormat=json reads it"):
        read(spark, shared_namesrv, subscribe="Formats", columns="body", **by_schema).count()
    with pytest.raises(PySparkException, match=r"NONSENSE"):
        read(spark, shared_namesrv, subscribe="Formats", bodyFormat="json", bodySchema="id NONSENSE")
    stream = Stream(
        spark, shared_namesrv, tmp_path, subscribe="Formats", startingOffsets="earliest",
        columns="body,_corrupt", **by_schema,
    )  # fmt: skip
    assert sum(stream.run()) == 22
    assert stream.read().where("body.id >= 10 AND _corrupt IS NULL").count() == 10


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, shared_namesrv: str, tmp_path: Path) -> None:
    make_topic(shared_namesrv, "Stream")
    sent = send(shared_namesrv, "Stream", bodies(0, 100))
    stream = Stream(
        spark,
        shared_namesrv,
        tmp_path,
        subscribe="Stream",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="30",
    )
    assert stream.run() == [30, 30, 30, 10]
    assert stream.places() == sent
    assert sum(stream.run()) == 0
    sent |= send(shared_namesrv, "Stream", bodies(100, 120))
    make_topic(shared_namesrv, "Stream", queues=QUEUES + 2)  # the new queues begin at their first message
    sent |= send(shared_namesrv, "Stream", bodies(120, 160))
    assert max(queue for queue, _ in sent.values()) > QUEUES
    assert sum(stream.run()) == 60
    assert stream.places() == sent


def test_start_is_found_again_after_a_restart_before_the_first_commit(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    """What «latest» meant is in the first end: messages that came since are not skipped."""
    make_topic(shared_namesrv, "Pinned")
    send(shared_namesrv, "Pinned", bodies(0, 20))
    stream = Stream(spark, shared_namesrv, tmp_path, subscribe="Pinned")
    with pytest.raises(StreamingQueryException, match="on purpose"):
        stream.fail()
    sent = send(shared_namesrv, "Pinned", bodies(20, 45))
    assert sum(stream.run()) == 25
    assert stream.places() == sent


def test_batch_that_is_done_again_has_the_same_rows(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    make_topic(shared_namesrv, "Again")
    sent = send(shared_namesrv, "Again", bodies(0, 50))
    stream = Stream(spark, shared_namesrv, tmp_path, subscribe="Again", startingOffsets="earliest")
    assert sum(stream.run()) == 50
    stream.lose_commit(0)
    sent |= send(shared_namesrv, "Again", bodies(50, 70))
    stream.run()
    assert stream.places() == sent, "the file sink knows the batch, and leaves it out"


def test_topic_that_is_made_again_ends_the_query(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    # RocketMQ's brokers begin at 0 again.
    make_topic(shared_namesrv, "Gone")
    send(shared_namesrv, "Gone", bodies(0, 40))
    stream = Stream(spark, shared_namesrv, tmp_path, subscribe="Gone", startingOffsets="earliest")
    stream.run()
    send(shared_namesrv, "Gone", bodies(40, 60))  # which the query has not read when they are deleted
    delete_topic(shared_namesrv, "Gone")
    make_topic(shared_namesrv, "Gone")
    send(shared_namesrv, "Gone", bodies(60, 80))
    with pytest.raises(
        StreamingQueryException,
        match=r"topic made again: queue \d of Gone at \S+ has lost 5 messages, (10 to 14|5 to 9)",
    ):
        stream.run()


def test_group_shows_how_far_a_query_is_the_last_batch_included(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    make_topic(shared_namesrv, "Lag")
    send(shared_namesrv, "Lag", bodies(0, 50))
    stream = Stream(spark, shared_namesrv, tmp_path, subscribe="Lag", startingOffsets="earliest")
    with ProgressCommitter(shared_namesrv, "spark-lag", "lagging") as committer:
        spark.streams.addListener(committer)
        stream.run("lagging")
    spark.streams.removeListener(committer)
    assert lags(shared_namesrv, "spark-lag", "Lag") == [0] * QUEUES
    # By its route Java's mqadmin finds who knows the group's progress.
    wait_for(lambda: has_route(shared_namesrv, "%RETRY%spark-lag"), 30, "the group's retry topic")
    send(shared_namesrv, "Lag", bodies(50, 58))
    assert sum(lags(shared_namesrv, "spark-lag", "Lag")) == 8


def test_entries_over_the_wire_are_those_in_the_files_of_a_replica(
    spark: SparkSession, shared_cluster: LocalCluster, shared_namesrv: str, tmp_path: Path
) -> None:
    if shared_namesrv != shared_cluster.namesrv:
        pytest.skip("RocketMQ's brokers give no entries")
    make_topic(shared_namesrv, "Entries")
    sent = send(shared_namesrv, "Entries", bodies(0, 30))
    options = {
        "view": "entries",
        "startingOffsets": "earliest",
        "columns": "index,term,kind,topic,digest,body",
    }
    stream = Stream(
        spark, shared_namesrv, tmp_path, readFrom="follower", maxOffsetsPerTrigger="200", **options
    )
    stream.run()
    sent |= send(shared_namesrv, "Entries", bodies(30, 40))
    stream.run()
    found = rows(stream.read().orderBy("index"))
    assert [row["index"] for row in found] == list(range(len(found)))
    assert sorted(row["body"] for row in found if row["topic"] == "Entries") == sorted(sent)
    shared_cluster.level()
    store = str(shared_cluster.directory / "n1" / "store")
    filed = spark.read.format("dledger").option("columns", "index,digest").load([store])
    digests = {row["index"]: row["digest"] for row in rows(filed)}
    assert {row["index"]: row["digest"] for row in found} == {at: digests[at] for at in range(len(found))}


def test_rows_become_messages(spark: SparkSession, shared_namesrv: str) -> None:
    make_topic(shared_namesrv, "Rows")
    numbers = spark.range(200, numPartitions=3).selectExpr(
        "cast(id as string) body", "concat('k', id) keys", "if(id % 2 = 0, 'even', 'odd') tags",
        "concat('s', id % 5) sharding_key", "map('third', cast(id div 3 as string)) properties",
    )  # fmt: skip
    write = numbers.write.format("dledger").mode("append").options(namesrv=shared_namesrv, topic="Rows")
    write.save()
    found = rows(read(spark, shared_namesrv, subscribe="Rows"))
    assert sorted(row["body"] for row in found) == sorted(bodies(0, 200))
    assert len({row["uniq_key"] for row in found}) == 200
    for row in found:
        number = int(row["body"])
        assert (row["keys"], row["tags"]) == (f"k{number}", "odd" if number % 2 else "even")
        assert dict(row["properties"])["third"] == str(number // 3)
    queues = {(number % 5, row["queue_id"]) for row in found if (number := int(row["body"])) >= 0}
    assert len(queues) == 5, "rows with one key are in one queue"


def test_repeated_batch_of_a_stream_has_the_same_ids(
    spark: SparkSession, shared_namesrv: str, tmp_path: Path
) -> None:
    for topic in ("From", "To"):
        make_topic(shared_namesrv, topic)
    send(shared_namesrv, "From", bodies(0, 60))
    stream = Stream(spark, shared_namesrv, tmp_path, subscribe="From", startingOffsets="earliest")
    for _ in range(2):
        query = stream.frame().select("body", "keys").writeStream.format("dledger").queryName("copy")
        options = {"namesrv": shared_namesrv, "topic": "To", "checkpointLocation": str(stream.checkpoint)}
        query.options(**options).trigger(availableNow=True).start().awaitTermination()
        stream.lose_commit(0)
    found = rows(read(spark, shared_namesrv, subscribe="To"))
    assert {row["body"] for row in found} == set(bodies(0, 60))
    assert (len(found), len({row["uniq_key"] for row in found})) == (120, 60)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_stream_has_each_acknowledged_message_once_while_leaders_are_killed(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, kills: int
) -> None:
    cluster.up()
    make_topic(cluster.namesrv, TOPIC)
    stream = Stream(spark, cluster.namesrv, tmp_path / "stream", subscribe=TOPIC, startingOffsets="earliest")
    with Sender(cluster.namesrv, tmp_path / "history.jsonl", batch_size=20, interval_s=0.02) as sender:
        query = stream.writer().trigger(processingTime="0 seconds").start(str(stream.table))
        for _ in range(kills):
            sender.wait_acknowledged(200)
            kill_leader(cluster, sender)
        sender.wait_acknowledged(200)
        assert query.isActive, query.exception()
    query.processAllAvailable()
    query.stop()
    found = [(row["keys"], (row["queue_id"], row["queue_offset"])) for row in rows(stream.read())]
    assert len({place for _, place in found}) == len(found), "no offset twice"
    missing = {key: place for key, place in sender.places.items() if (key, place) not in set(found)}
    assert missing == {}
    print(f"{len(sender.places)} acknowledged, {len(found)} rows, {kills} leaders killed")


class Stream:
    """A query from a topic into a table of files, again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, namesrv: str, directory: Path, **options: str) -> None:
        self.table = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self._spark = spark
        columns = ",".join(["keys", *PLACE])
        self._options = {"namesrv": namesrv, "columns": columns, **options}

    def frame(self) -> DataFrame:
        return self._spark.readStream.format("dledger").options(**self._options).load()

    def writer(self) -> DataStreamWriter:
        return self.frame().writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))

    def run(self, name: str = "pydledger") -> list[int]:
        """Rows of each batch until all is read that is there now."""
        query = self.writer().queryName(name).trigger(availableNow=True).start(str(self.table))
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    def fail(self) -> None:
        """The first batch is planned, and not committed."""

        def raising(frame: DataFrame, number: int) -> None:
            raise RuntimeError("on purpose")

        query = self.writer().foreachBatch(raising).start()
        query.awaitTermination()

    def lose_commit(self, number: int) -> None:
        for path in (self.checkpoint / "commits").glob(f"*{number}*"):
            path.unlink()

    def read(self) -> DataFrame:
        return self._spark.read.parquet(str(self.table))

    def places(self) -> Places:
        return places(self.read())


def make_topic(namesrv: str, topic: str, queues: int = QUEUES) -> None:
    async def make() -> None:
        async with Admin(namesrv) as admin:
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for group in (await admin.brokers.clusters()).broker_addr_table.values():
                await admin.topics.put(group.broker_addrs[0], config)

    asyncio.run(make())


def delete_topic(namesrv: str, topic: str) -> None:
    async def delete() -> None:
        async with Admin(namesrv) as admin:
            for cluster in (await admin.brokers.clusters()).cluster_addr_table:
                await admin.topics.delete(topic, cluster)

    asyncio.run(delete())


def send(namesrv: str, topic: str, numbers: list[bytes]) -> Places:
    def message(body: bytes) -> Message:
        tags = "odd" if int(body) % 2 else "even"
        return Message(topic, body, tags=tags, keys=f"k{int(body)}")

    return send_messages(namesrv, map(message, numbers))


def send_messages(namesrv: str, messages: Iterable[Message]) -> Places:
    async def sent() -> Places:
        found = {}
        async with Producer(namesrv, "spark-tests") as producer:
            for message in messages:
                result = await producer.send(message)
                found[bytes(message.body)] = (result.message_queue.queue_id, result.queue_offset)
        return found

    return asyncio.run(sent())


def has_route(namesrv: str, topic: str) -> bool:
    async def route() -> bool:
        async with Admin(namesrv) as admin:
            return bool(await admin.topics.route(topic))

    try:
        return asyncio.run(route())
    except AdminError:
        return False


def lags(namesrv: str, group: str, topic: str) -> list[int]:
    async def progress() -> list[int]:
        async with Admin(namesrv) as admin:
            return [row.diff for row in await admin.groups.progress(group, topic)]

    try:
        return asyncio.run(progress())
    except AdminError:
        return []  # the group is not there yet


def read(spark: SparkSession, namesrv: str, **options: str) -> DataFrame:
    return spark.read.format("dledger").option("namesrv", namesrv).options(**options).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return table


def places(frame: DataFrame) -> Places:
    """Fails where a body is there twice."""
    found = [(row["body"], (row["queue_id"], row["queue_offset"])) for row in rows(frame.select(PLACE))]
    assert len(dict(found)) == len(found)
    return dict(found)


def bodies(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]
