"""Validation and decoding of a group's stores, in MB/s: in this process and on Spark with one core and with two.

Makes three equal replicas of N entries with the entry codec, and their ConsumeQueues, reads them in each way, and
prints a table. A megabyte is
10^6 bytes of log, all replicas together. `MB/s` is by the clock, after Spark's own start-up and one warm-up read;
`MB/s/core` is by CPU time of all processes that took part, JVM included, which a busy machine disturbs less. `MiB` is
the peak of what is resident in all of them together, pages that they share counted once (Pss). Only rows of one run may
be compared.

    .venv/bin/python benchmarks/validate.py [--entries 1000000] [--size 1024] [--growth]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dledger.entry import BLANK_HEADER_SIZE, EntryKind, blank, seal_entries
from message.encoder import encode_record
from message.message_id import pack_host
from message.properties import encode_properties
from message.tags import tags_code
from pyspark_dledger.entry_columns import Selection
from pyspark_dledger.entry_rows import unit_batches
from pyspark_dledger.schema import COLUMN_NAMES
from pyspark_dledger.spark_runner import SparkRunner
from pyspark_dledger.spark_session import spark_session
from store.layout.consume_queue_unit import CQ_FILE_UNITS, CQ_UNIT, CQ_UNIT_SIZE
from store.layout.directories import CONSUME_QUEUES
from verify import validation
from verify.replica import open_replicas
from verify.runner import LocalRunner, Runner
from verify.work import plan

FILE_SIZE = 256 * 1024 * 1024
HOST = pack_host("127.0.0.1:10911")
TERMS = 3
TOPIC = "Orders"
QUEUES = 4
TAGS = 8
BATCH = 4096
WARM_UP = 100_000  # entries
GROWTH = (100_000, 1_000_000, 5_000_000)
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figures:
    """Of one way over all replicas. Seconds; bytes of log; bytes resident."""

    name: str
    entries: int
    log_size: int
    seconds: float
    cpu_seconds: float
    resident: int

    def row(self) -> str:
        megabytes = self.log_size / 1e6
        return (
            f"| {self.name} | {self.entries:,} | {megabytes / self.seconds:.0f} | {megabytes / self.cpu_seconds:.0f} | "
            f"{1e6 * self.cpu_seconds / self.entries:.1f} | {self.resident / 2**20:.0f} |"
        )


HEAD = "| | entries | MB/s | MB/s/core | µs/entry | MiB |\n|---|---|---|---|---|---|"


def make_replicas(root: Path, count: int, size: int) -> list[Path]:
    """Three store directories, equal byte for byte; an entry has `size` bytes, its header included, 256 at least."""
    data = root / "n0" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    body = b"b" * (size - 48 - len(_record(0, 0, b"")))
    pos, chain, index = 0, 0, 0
    units: list[list[bytes]] = [[] for _ in range(QUEUES)]
    while index < count:
        # A whole file at a time.
        with (data / f"{pos:020d}").open("wb") as file:
            while index < count and FILE_SIZE - pos % FILE_SIZE > BATCH * size + BLANK_HEADER_SIZE:
                batch = range(index, min(index + BATCH, count))
                positions = [pos + number * size for number in range(len(batch))]
                records = [
                    _record(number, at + 48, body) for number, at in zip(batch, positions, strict=True)
                ]
                term = 1 + index * TERMS // count
                for number, at, record in zip(batch, positions, records, strict=True):
                    unit = CQ_UNIT.pack(at + 48, len(record), tags_code(f"Tag{number % TAGS}"))
                    units[number % QUEUES].append(unit)
                parts, chain = seal_entries(records, positions, index, term, EntryKind.MESSAGE, chain)
                file.write(b"".join(parts))
                pos += len(batch) * size
                index = batch.stop
            if index < count:
                left = FILE_SIZE - pos % FILE_SIZE
                file.write(blank(left))
                pos += left
            file.truncate(FILE_SIZE)
    for queue_id, of_queue in enumerate(units):
        write_queue(root / "n0" / CONSUME_QUEUES / TOPIC / str(queue_id), of_queue)
    for name in ("n1", "n2"):
        shutil.copytree(data, root / name / f"dledger-{name}" / "data")
        shutil.copytree(root / "n0" / CONSUME_QUEUES, root / name / CONSUME_QUEUES)
    return [root / name for name in ("n0", "n1", "n2")]


def write_queue(directory: Path, units: list[bytes]) -> None:
    directory.mkdir(parents=True)
    for start in range(0, len(units), CQ_FILE_UNITS):
        content = b"".join(units[start : start + CQ_FILE_UNITS])
        path = directory / f"{start * CQ_UNIT_SIZE:020d}"
        path.write_bytes(content.ljust(CQ_FILE_UNITS * CQ_UNIT_SIZE, b"\0"))


def _record(number: int, phy_offset: int, body: bytes) -> bytes:
    properties = {
        "UNIQ_KEY": f"7F000001{number:024X}",
        "WAIT": "true",
        "TAGS": f"Tag{number % TAGS}",
        "KEYS": f"k{number:010}",
    }
    return encode_record(
        TOPIC.encode(),
        number % QUEUES,
        0,
        number // QUEUES,
        phy_offset,
        0,
        1_700_000_000_000 + number,
        HOST,
        1_700_000_000_001 + number,
        HOST,
        0,
        0,
        body,
        encode_properties(properties),
    )


class Watch(threading.Thread):
    """This process and all that it started: CPU time since the beginning, and the most that was resident."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.resident = 0
        self._ended = threading.Event()
        self._cpu_before = cpu_seconds()

    def run(self) -> None:
        while not self._ended.wait(0.5):
            self.resident = max(self.resident, sum(map(_resident, family())))

    def end(self) -> float:
        """CPU seconds."""
        self._ended.set()
        self.join()
        self.resident = max(self.resident, sum(map(_resident, family())))
        return cpu_seconds() - self._cpu_before


def family() -> list[int]:
    """This process and its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds() -> float:
    """Of the family, its children that have ended included."""
    ticks = 0
    for pid in family():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure(name: str, entries: int, log_size: int, work: Callable[[], object]) -> None:
    watch = Watch()
    watch.start()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    cpu = watch.end()
    print(Figures(name, entries, log_size, seconds, cpu, watch.resident).row(), flush=True)


def validate(directories: list[Path], runner: Runner) -> None:
    report = validation.validate(directories, runner=runner)
    if not report.is_clean:
        raise SystemExit(
            f"the stores were made clean, and are found to be otherwise: {report.findings.shown[:3]}"
        )


def decode_here(directories: list[Path]) -> None:
    for unit in plan(open_replicas(directories)):
        for _ in unit_batches(unit, Selection(COLUMN_NAMES)):
            pass


@contextmanager
def stores(entries: int, size: int, directory: Path | None) -> Iterator[tuple[list[Path], int]]:
    """Replicas, and the bytes of log that they hold together."""
    with tempfile.TemporaryDirectory(prefix="pydledger-benchmark-", dir=directory) as name:
        directories = make_replicas(Path(name), entries, size)
        log_size = 3 * entries * size
        yield directories, log_size


def measure_all(entries: int, size: int, directory: Path | None, masters: list[str], *, local: bool) -> None:
    with stores(entries, size, directory) as (directories, log_size):
        count = 3 * entries
        if local:
            measure("validate, in process", count, log_size, partial(validate, directories, LocalRunner()))
            measure("columns, in process", count, log_size, partial(decode_here, directories))
        for master in masters:
            with spark_session(master, app_name="benchmark") as session:
                reader = session.read.format("dledger")
                # The workers are started, and the JVM has seen the code once.
                warm_up = reader.option("index_to", str(WARM_UP)).load(str(directories[0]))
                warm_up.write.format("noop").mode("overwrite").save()
                reader = session.read.format("dledger")
                validate_there = partial(validate, directories, SparkRunner(session))
                measure(f"validate, {master}", count, log_size, validate_there)
                for body in ("none", "stored"):
                    writer = reader.option("body", body).load(list(map(str, directories))).write
                    name = f"DataFrame{'' if body == 'none' else ' with bodies'}, {master}"
                    measure(name, count, log_size, writer.format("noop").mode("overwrite").save)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000, help="of each replica")
    parser.add_argument(
        "--size",
        type=int,
        default=1024,
        choices=range(256, 65536),
        metavar="BYTES",
        help="bytes of an entry, its header included",
    )
    parser.add_argument("--dir", type=Path, help="where the stores are made; 3 x entries x size bytes")
    parser.add_argument("--growth", action="store_true", help=f"{GROWTH} entries instead, two cores")
    args = parser.parse_args()
    print(HEAD, flush=True)
    if args.growth:
        for entries in GROWTH:
            measure_all(entries, args.size, args.dir, ["local[2]"], local=False)
    else:
        measure_all(args.entries, args.size, args.dir, ["local[1]", "local[2]"], local=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
