"""What is gone from a cluster ends a query over it, by its name, with queue or log, range and count."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from source_batches import read_batch

from pyspark_dledger.wire.entry_options import entry_options
from pyspark_dledger.wire.entry_source import EntryStreamReader
from pyspark_dledger.wire.message_options import message_options
from pyspark_dledger.wire.message_source import MessageStreamReader
from pyspark_dledger.wire.read_errors import DataLossError, LogRewrittenError

pytestmark = pytest.mark.slow

TOPIC = "Kept"
# Files go as soon as they are full.
SHORT_LIVED = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "10000",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(map(str, range(24))),
    "defaultTopicQueueNums": "1",
}


def messages_of(cluster: LocalCluster, **options: str) -> MessageStreamReader:
    given = {"namesrv": cluster.namesrv, "subscribe": TOPIC, "startingOffsets": "earliest", **options}
    return MessageStreamReader(message_options(given, ("queue_id", "queue_offset"), is_stream=True))


def entries_of(cluster: LocalCluster) -> EntryStreamReader:
    given = {"namesrv": cluster.namesrv, "view": "entries", "startingOffsets": "earliest"}
    return EntryStreamReader(entry_options(given, ("index",), is_stream=True))


@pytest.mark.long  # data files go after a minute at the earliest
def test_expired_messages_and_entries_are_named_and_passed_over_only_by_the_users_wish(
    cluster: LocalCluster,
) -> None:
    cluster.up(conf=SHORT_LIVED)
    produce(cluster, 10)
    of_messages, of_entries = messages_of(cluster), entries_of(cluster)
    after_messages, rows = read_batch(of_messages, None)
    assert len(rows) == 10
    after_entries, entries = read_batch(of_entries, None)
    produce(cluster, 4000)
    leader = cluster.leader()
    wait_for(lambda: cluster.nodes()[leader]["ledger_begin"] > len(entries), 60, "the first files gone")

    with pytest.raises(
        DataLossError, match=rf"^expired: queue 0 of {TOPIC} at RaftNode00 has lost \d+ messages"
    ) as lost:
        read_batch(of_messages, after_messages)
    assert lost.value.start == 10
    assert lost.value.end > 11
    of_messages.stop()
    going_on = messages_of(cluster, failOnDataLoss="false")
    _, rows = read_batch(going_on, after_messages)
    going_on.stop()
    offsets = [offset for _, offset in rows]
    assert offsets == list(range(offsets[0], 4010))
    assert offsets[0] >= lost.value.end

    with pytest.raises(
        DataLossError, match=r"^expired: the log of RaftNode00 has lost \d+ entries"
    ) as lost_entries:
        read_batch(of_entries, after_entries)
    of_entries.stop()
    assert lost_entries.value.start == len(entries)


def test_checkpoint_of_another_log_ends_a_query_over_messages_and_over_entries(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster, 20)
    for make in (messages_of, entries_of):
        reader = make(cluster)
        checkpoint, rows = read_batch(reader, None)
        assert len(rows) >= 20
        (proof,) = json.loads(checkpoint)["proof" if make is messages_of else "reached"].values()
        rewritten = checkpoint.replace(f'"chain": {proof["chain"]}', f'"chain": {proof["chain"] ^ 1}')
        with pytest.raises(LogRewrittenError, match=f"has read entry {proof['index']} of term"):
            read_batch(reader, rewritten)
        reader.stop()

    of_messages = messages_of(cluster)
    checkpoint, _ = read_batch(of_messages, None)
    of_messages.stop()
    cluster.down()
    for node in cluster.nodes().values():
        shutil.rmtree(Path(node["store_dir"]))
    cluster.up()
    produce(cluster, 20)
    of_messages = messages_of(cluster)
    with pytest.raises(LogRewrittenError, match=r"has read group [0-9a-f]{16}, and this is [0-9a-f]{16}"):
        read_batch(of_messages, checkpoint)
    of_messages.stop()


def test_what_waits_in_queues_that_a_topic_has_lost_is_named(cluster: LocalCluster) -> None:
    cluster.up()
    produce(cluster, 40)
    reader = messages_of(cluster)
    checkpoint, _ = read_batch(reader, None)
    set_queues(cluster, 1)
    assert read_batch(reader, checkpoint) == (checkpoint, []), "all of it was read"
    set_queues(cluster, 4)
    produce(cluster, 8)
    set_queues(cluster, 1)
    with pytest.raises(DataLossError, match=f"^queue gone: queue [1-3] of {TOPIC} at RaftNode00 has lost"):
        read_batch(reader, checkpoint)
    reader.stop()


def produce(cluster: LocalCluster, count: int) -> None:
    lines = "".join(f"{number} {'x' * 1000}\n" for number in range(count))
    run(cluster, "produce", "--topic", TOPIC, lines=lines)


def set_queues(cluster: LocalCluster, count: int) -> None:
    run(
        cluster,
        "admin",
        "updateTopic",
        "-c",
        "DefaultCluster",
        "-t",
        TOPIC,
        "-r",
        str(count),
        "-w",
        str(count),
    )


def run(cluster: LocalCluster, *arguments: str, lines: str = "") -> None:
    command = [sys.executable, "-m", "mq", *arguments, "-n", cluster.namesrv]
    subprocess.run(command, input=lines, text=True, check=True, timeout=120, capture_output=True)
