"""A store that Java's DLedger broker wrote, dispatched by us: units, offsets and times as the real broker says."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_store import DLEDGER_STORE, GOLDEN, unpack_store

from disk.real_disk import RealDisk
from dledger.core.messages import PeerId
from dledger.core.output import Batch
from dledger.core.refusal import Refusal
from dledger.entry import EntryKind, Index, Pos
from dledger.log.config import LogConfig
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.scrubber import Scrubber
from store.get_message import BoundaryType
from store.message_store import MessageStore
from store.replicated_log import OnAppended
from store.store_config import StoreConfig


class ReadOnlyReplica:
    """A log whose every entry is committed and to which nothing is appended."""

    applied_index = Index(-1)
    wait_ack_ms_max = 0

    def __init__(self, log: LogStore) -> None:
        self.log = log
        self.scrubber = Scrubber("", [], NoRuntime().submit, bytes_per_second=0, pause_ms=0, now_ms=0)

    def append(
        self,
        body_sizes: Sequence[int],
        fill: Callable[[Sequence[Pos]], Sequence[bytes]],
        kind: EntryKind,
        on_done: OnAppended | None,
        now_ms: int,
    ) -> Batch | Refusal:
        raise AssertionError

    def members_without(self, feature: str) -> list[PeerId]:
        return []


class NoRuntime:
    def submit(self, job: DiskJob) -> None:
        raise AssertionError

    def reput_wanted(self) -> None:
        """The test calls reput_step() itself."""

    def clock(self) -> int:
        raise AssertionError

    def monotonic_us(self) -> int:
        raise AssertionError

    def call_soon(self, step: Callable[[], None]) -> None:
        raise AssertionError

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        """As reput_wanted()."""


@pytest.fixture(scope="module")
def expected() -> list[dict[str, Any]]:
    with gzip.open(
        GOLDEN / "store" / f"{DLEDGER_STORE}.broker-view.expected.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    directory = tmp_path_factory.mktemp("golden")
    root = unpack_store(DLEDGER_STORE, directory, lambda path: path.startswith(f"{DLEDGER_STORE}/n0/")) / "n0"
    disk = RealDisk()
    ledger = LogStore.open(
        disk,
        LogConfig(directory=str(root / "dledger-n0"), data_file_size=1 << 20),
    )
    config = StoreConfig(
        store_path_root_dir=str(root),
        ledger_directory=str(root / "dledger-n0"),
        store_host=bytes(8),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=10_000,
    )
    store = MessageStore(config, disk, NoRuntime())
    store.start(ReadOnlyReplica(ledger), 0)
    assert store.reads.applied_index == -1, "Java left no checkpoint of ours"
    store.committed(ledger.ledger_end_index)
    while store.reput_step(0):
        pass
    assert store.reads.applied_index == 2110
    return store


def test_every_consume_queue_unit_is_the_one_that_java_made(
    store: MessageStore, expected: list[dict[str, Any]]
) -> None:
    lines = [line for line in expected if line["type"] == "consumequeue"]
    assert len(lines) == len(store.queues)
    for line in lines:
        queue = store.queues.find(line["topic"].encode(), line["queueId"])
        assert queue is not None
        units = [[offset, *(queue.unit(offset) or ())] for offset in range(queue.max_offset)]
        assert units == line["units"], (line["topic"], line["queueId"])


def test_bounds_of_queues_are_java_s(store: MessageStore, expected: list[dict[str, Any]]) -> None:
    for line in expected:
        if line["type"] == "queue":
            topic, queue_id = line["topic"], line["queueId"]
            assert store.reads.min_offset(topic, queue_id) == line["minOffset"]
            assert store.reads.max_offset(topic, queue_id) == line["maxOffset"]


def test_offsets_by_time_are_java_s(store: MessageStore, expected: list[dict[str, Any]]) -> None:
    lines = [line for line in expected if line["type"] == "offset_by_time"]
    assert len(lines) > 200
    wrong = [
        (line, offset)
        for line in lines
        if (
            offset := store.reads.offset_by_time(
                line["topic"], line["queueId"], line["timestamp"], BoundaryType(line["boundary"])
            )
        )
        != line["offset"]
    ]
    assert wrong == []


def test_the_files_are_the_ones_that_java_wrote(store: MessageStore, tmp_path: Path) -> None:
    """Byte for byte, with its file size; a queue of files that Java opens."""
    unpack_store(DLEDGER_STORE, tmp_path, lambda path: path.startswith(f"{DLEDGER_STORE}/n0/consumequeue/"))
    java = {
        path.relative_to(tmp_path / DLEDGER_STORE / "n0"): path.read_bytes()
        for path in (tmp_path / DLEDGER_STORE).rglob("*")
        if path.is_file()
    }
    store.stop()
    store.close(clean=True)
    root = Path(store.config.store_path_root_dir)
    ours = {
        path.relative_to(root): path.read_bytes()
        for path in root.glob("consumequeue/*/*/*")
        if path.is_file()
    }
    # Java makes the next file ahead; it is all zeros.
    assert {path: data for path, data in java.items() if data.strip(b"\0")} == ours
