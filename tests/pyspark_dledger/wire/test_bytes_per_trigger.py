"""How many messages, or entries, a number of bytes is: as brokers tell the sizes, and as a query of Spark has it."""

from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from answering import answering
from pyspark.sql import SparkSession
from secured_cluster import BROKER, TOPIC, SecuredCluster, secured_cluster
from socket_broker import QUEUE, SocketBroker, record

from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.cluster_look import ClusterLook
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.entry_options import LogOptions
from pyspark_dledger.wire.log_reader import LogReader, LogTask
from pyspark_dledger.wire.message_rows import MessageSelection, range_batches
from pyspark_dledger.wire.message_sender import MessageSender, SendOptions, SinkMessage
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from remoting.bodies.admin_bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, response

COUNT = 2500  # more than brokers tell of at once
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        bodies = (b"x" * (1 + number % 97) for number in range(COUNT))
        messages = (SinkMessage(TOPIC, "", "UNIQ_KEY\x01k\x02", body) for body in bodies)
        with closing(MessageSender(SendOptions(running.access(), "p", TIMEOUT_MS))) as sender:
            sender.send(messages)
        yield running


def fit(sizes: list[int], size_max: int) -> tuple[int, int]:
    """As it is meant."""
    count = max(sum(total <= size_max for total in accumulate(sizes)), 1)
    return count, sum(sizes[:count])


@pytest.mark.slow
@pytest.mark.parametrize("size_max", [0, 1000, 100_000, 1 << 30])
def test_messages_that_fit_are_counted(cluster: SecuredCluster, size_max: int) -> None:
    part = QueueRange(Queue(TOPIC, BROKER, 0), 10, COUNT)
    options = PullOptions(cluster=cluster.access(), timeout_ms=TIMEOUT_MS)
    batches = range_batches(part, options, MessageSelection(("message_size",), inflate=False))
    sizes = [size for batch in batches for size in batch.column(0).to_pylist()]
    with ClusterLook(cluster.access(), TIMEOUT_MS) as look:
        assert look.fitting(part, size_max) == fit(sizes, size_max)


@pytest.mark.slow
@pytest.mark.parametrize("size_max", [0, 1000, 100_000, 1 << 30])
def test_entries_that_fit_are_counted(cluster: SecuredCluster, size_max: int) -> None:
    access = cluster.access("root")
    with ClusterLook(access, TIMEOUT_MS) as look:
        bounds = look.committed(BROKER)
        part = LogRange(BROKER, bounds.begin_index + 3, bounds.committed_index + 1)
        options = LogOptions(cluster=access, timeout_ms=TIMEOUT_MS, followers_first=False)
        places: list[int] = []
        with closing(LogReader(options, LogTask(part, bounds.group_uuid, None, None))) as reader:
            for run in reader.runs():
                places += [run.first_pos + int(offset) for offset in run.offsets]
        places.append(run.next_pos)
        sizes = [after - before for before, after in pairwise(places)]
        assert look.entries_fitting(part, size_max) == fit(sizes, size_max)


@pytest.mark.slow
@pytest.mark.spark
def test_batches_of_a_stream_have_no_more_bytes(
    cluster: SecuredCluster, spark: SparkSession, tmp_path: Path
) -> None:
    access = cluster.access()
    options = {
        "namesrv": cluster.namesrv, "credentialsFile": access.credentials_file,
        "tlsConfigFile": access.tls_config_file, "subscribe": TOPIC, "startingOffsets": "earliest",
        "columns": "queue_offset,message_size", "maxBytesPerTrigger": "300000",
    }  # fmt: skip
    query = (
        spark.readStream.format("dledger").options(**options).load()
        .writeStream.format("memory").queryName("bytes_per_trigger").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path)).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    rows = spark.sql("SELECT * FROM bytes_per_trigger ORDER BY queue_offset").collect()
    assert [row.queue_offset for row in rows] == list(range(COUNT))
    counts = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    sizes = [row.message_size for row in rows]
    wanted = []
    while sizes:
        wanted.append(fit(sizes, 300_000)[0])
        sizes = sizes[wanted[-1] :]
    assert counts == wanted


class TellingBroker(SocketBroker):
    """Tells units of its queue: by offset what they are of, with sizes of 100 bytes each."""

    units: dict[int, int]
    begin = 0

    def answer(self, command: RemotingCommand) -> RemotingCommand | None:
        if command.code != RequestCode.QUERY_CONSUME_QUEUE:
            return super().answer(command)
        if self.troubles:
            return response(command, self.troubles.pop(0) or 0, "as told")
        fields = command.ext_fields
        first = max(int(fields["index"]), self.begin)
        found = [end for end in sorted(set(self.units.values())) if end > first][: int(fields["count"])]
        data = [ConsumeQueueData(physic_offset=end, physic_size=100, tags_code=0) for end in found]
        body = QueryConsumeQueueResponseBody(self.begin, max(self.units.values()), data)
        return response(command, body=body.encode())


def told(broker: TellingBroker, part: QueueRange, size_max: int) -> tuple[int, int]:
    with (
        answering(broker.answer) as broker.address,
        ClusterLook(ClusterAccess((broker.address,)), 10_000) as look,
    ):
        return look.fitting(part, size_max)


def test_what_has_expired_has_no_bytes() -> None:
    broker = TellingBroker([record(0, b"")])
    broker.units, broker.begin = {offset: offset + 1 for offset in range(20)}, 5
    assert told(broker, QueueRange(QUEUE, 2, 20), 300) == (6, 300)
    assert told(broker, QueueRange(QUEUE, 1, 4), 300) == (3, 0)


def test_messages_of_an_inner_batch_count_as_the_batch_each() -> None:
    """Brokers tell of batches without the number of their messages: fewer are taken, and never more bytes."""
    broker = TellingBroker([record(0, b"")])
    broker.units = {offset: offset - offset % 4 + 4 for offset in range(20)}
    assert told(broker, QueueRange(QUEUE, 0, 20), 300) == (3, 300)
    assert told(broker, QueueRange(QUEUE, 0, 20), 1 << 30) == (20, 2000)


def test_broker_that_does_not_know_the_range_yet_is_asked_again() -> None:
    broker = TellingBroker([record(0, b"")])
    broker.units = {offset: offset + 1 for offset in range(20)}
    broker.troubles = [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert told(broker, QueueRange(QUEUE, 0, 20), 300) == (3, 300)
