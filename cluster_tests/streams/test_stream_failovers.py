"""The stream sources of Spark without Spark, while leaders are killed: no alarm, and each message and entry once.

What Spark would ask of a source is asked here, in one process: an end, its tasks, their rows, again and again. Every
few batches the driver's part is made anew from the offset in its checkpoint, as after a crash.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kill_rounds import TOPIC, Sender, kill_leader
from local_cluster import LocalCluster
from pyspark.sql.datasource import DataSourceStreamReader
from source_batches import Rows, read_batch

from pyspark_dledger.wire.entry_options import entry_options
from pyspark_dledger.wire.entry_source import EntryStreamReader
from pyspark_dledger.wire.message_options import message_options
from pyspark_dledger.wire.message_source import MessageStreamReader

pytestmark = pytest.mark.slow

LIVES = 7  # batches of one driver


class Query:
    """Reads until it is told to end, in a thread. `failure`: what ended it before that."""

    def __init__(self, make: Callable[[], DataSourceStreamReader]) -> None:
        self.rows: Rows = []
        self.failure: BaseException | None = None
        self._make = make
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Query":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def _run(self) -> None:
        checkpoint: str | None = None
        try:
            is_last = False
            while not is_last:
                reader = self._make()
                try:
                    for _ in range(LIVES):
                        is_last = self._is_ending.is_set()
                        checkpoint, rows = read_batch(reader, checkpoint)
                        self.rows += rows
                        if is_last:
                            break
                finally:
                    reader.stop()
        except BaseException as error:  # noqa: BLE001 (it is told where the test waits)
            self.failure = error


@pytest.mark.parametrize("kills", [2, pytest.param(50, marks=pytest.mark.long)])
def test_streams_have_all_once_and_give_no_alarm_while_leaders_are_killed(
    cluster: LocalCluster, tmp_path: Path, kills: int
) -> None:
    cluster.up()
    wire = {"namesrv": cluster.namesrv, "startingOffsets": "earliest", "minPartitions": "3"}

    def messages() -> MessageStreamReader:
        options = {**wire, "subscribePattern": TOPIC}
        return MessageStreamReader(
            message_options(options, ("keys", "queue_id", "queue_offset"), is_stream=True)
        )

    def entries() -> EntryStreamReader:
        options = {**wire, "view": "entries", "readFrom": "follower"}
        return EntryStreamReader(entry_options(options, ("index", "topic", "keys"), is_stream=True))

    with (
        Sender(cluster.namesrv, tmp_path / "history.jsonl", batch_size=10, interval_s=0.02) as sender,
        Query(messages) as of_messages,
        Query(entries) as of_entries,
    ):
        for _ in range(kills):
            sender.wait_acknowledged(100)
            kill_leader(cluster, sender)
        sender.wait_acknowledged(100)
        acknowledged = dict(sender.places)
    assert (of_messages.failure, of_entries.failure) == (None, None)

    places = [(queue, offset) for _, queue, offset in of_messages.rows]
    assert len(set(places)) == len(places), "no offset twice"
    found = {(key, (queue, offset)) for key, queue, offset in of_messages.rows}
    assert [key for key, place in acknowledged.items() if (key, place) not in found] == []

    assert [index for index, _, _ in of_entries.rows] == list(range(len(of_entries.rows))), (
        "in the log's order"
    )
    keys = {key for _, topic, key in of_entries.rows if topic == TOPIC}
    assert acknowledged.keys() - keys == set()
    print(
        f"{len(acknowledged)} acknowledged, {len(places)} messages, {len(of_entries.rows)} entries, {kills} kills"
    )
