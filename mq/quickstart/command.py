"""`mq quickstart`: the whole promise in half a minute.

A cluster starts, a file's lines are sent while a consumer group in another process reads along, the leader is killed
with -9 half way and nobody is helped. Then the killed member is started again, and what the clients saw is held against
the replicas' files: the validation of `mq validate`, in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
import uvloop
from rich.progress import Progress, TaskID

from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import ClusterLayout
from mq.cluster_status import cluster_status
from mq.cluster_wait import wait_serving
from mq.console import EXIT_FAILED, print_json, progress, user_errors
from mq.history import HistoryFile
from mq.line_source import LineSource, field_reader
from mq.processes import deferred_interrupts, listening_ports
from mq.quickstart.reader import receipt_count
from mq.quickstart.report import QuickstartReport, compare_receipts, print_report
from mq.quickstart.sender import End, LeaderKill, Ledger, send_lines
from mqclient import Producer, ProducerConfig
from mqclient.client_api import ClientApi
from remoting.bodies.bodies import MASTER_ID
from remoting.client import RemotingClient
from remoting.configuration import TLS_FILE_VARIABLE
from verify.replica import ReplicaError
from verify.report.html_report import html_report
from verify.runner import LocalRunner
from verify.validation import validate
from verify.validation_report import TermRun

TOPIC = "Quickstart"
GROUP = "quickstart_readers"
QUEUES = 8
FIRST_BASE_PORT = 9876
LAST_BASE_PORT = 32_000  # above begin the ports that the kernel gives to outgoing connections
SERVING_TIMEOUT_S = 30.0
SEND_TIMEOUT_S = 15.0
# Nothing new for so long: the reader has what it will get.
READER_SILENT_S = 5.0
CATCH_UP_TIMEOUT_S = 30.0
POLL_S = 0.05
DEFAULT_FILE = Path(__file__).resolve().parents[2] / "examples" / "clock_changes.tsv"


def quickstart(
    file: Annotated[
        Path, typer.Argument(help="Every line is sent; the default is a small real data set.")
    ] = DEFAULT_FILE,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up and say what to try next.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON and nothing else.")] = False,
) -> None:
    """Start a cluster, send a file, kill the leader half way, prove that nothing is lost."""
    os.environ.pop(TLS_FILE_VARIABLE, None)  # this cluster is in plaintext
    with user_errors(ClusterError, ReplicaError):
        lines = count_lines(file)
        if lines < 2:
            raise ClusterError(f"{file} has {lines} lines that are not empty: half way needs 2 at least")
        report = _run(file, lines, keep=keep, show=not as_json)
    if as_json:
        print_json(report.as_dict())
    else:
        print_report(report)
    if not report.holds:
        raise typer.Exit(EXIT_FAILED)


def count_lines(path: Path) -> int:
    """Lines that are not empty, as the sender counts them. Raises OSError, ValueError for one that cannot be sent, and
    ClusterError for what can be read only once.
    """

    async def count(source: LineSource) -> int:
        return sum([len(lines) async for lines in source.chunks()])

    with LineSource(str(path)) as source:
        if source.size is None:
            raise ClusterError(f"{path} is no regular file: it is read twice, so write a pipe's lines to one")
        return asyncio.run(count(source))


def free_base_port() -> int:
    """The first base port, from NameServer's usual one in steps of 100, at which nothing of a cluster is taken."""
    listening = listening_ports()
    for base_port in range(FIRST_BASE_PORT, LAST_BASE_PORT, 100):
        if listening.isdisjoint(ClusterLayout(dir="", base_port=base_port).ports()):
            return base_port
    raise ClusterError(f"no base port between {FIRST_BASE_PORT} and {LAST_BASE_PORT} is free")


def _run(file: Path, lines: int, *, keep: bool, show: bool) -> QuickstartReport:
    run_dir = Path("run").resolve()
    run_dir.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="quickstart-", dir=run_dir))
    bar = progress()
    bar.disable |= not show
    report: QuickstartReport | None = None
    interrupted = False
    try:
        with _terminated_as_interrupted(), bar:
            layout = ClusterLayout(dir=str(directory), base_port=free_base_port())
            report = _Story(layout, file, lines, bar).run()
        report.page = (
            directory / "report.html" if keep or not report.holds else run_dir / "quickstart-report.html"
        )
        report.page.write_text(html_report(report.validation), encoding="utf-8")
        report.kept_in = directory if keep else None
        return report
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if report is None or report.kept_in is None:
            # From here on a second Ctrl-C would leave processes behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            with contextlib.suppress(ClusterError):
                Cluster.load(directory).down()
            if interrupted or (report is not None and report.holds):
                shutil.rmtree(directory)
            else:
                print(f"mq: conf files, logs and data stay in {directory}", file=sys.stderr)


class _Story:
    """The steps, one after the other. Processes it starts are ended by `_run`, the reader by itself."""

    def __init__(self, layout: ClusterLayout, file: Path, lines: int, bar: Progress) -> None:
        self._layout = layout
        self._file = file
        self._lines = lines
        self._bar = bar
        self._receipts = Path(layout.dir) / "receipts"
        self._history_path = Path(layout.dir) / "history.jsonl"
        self._history = HistoryFile(self._history_path, TOPIC)
        self._ledger = Ledger(lines, self._history)
        self._killed = ""

    def run(self) -> QuickstartReport:
        began = time.monotonic()
        bar, lines = self._bar, self._lines
        task = bar.add_task("starting 1 NameServer and 3 brokers", total=None, shown="")
        self._cluster = cluster = Cluster.up(self._layout)
        wait_serving(cluster, SERVING_TIMEOUT_S)
        with self._reader():
            bar.update(task, description="sending", total=lines)
            reading = bar.add_task("receiving", total=lines, shown="")
            with self._history:
                kill = uvloop.run(self._send(lambda: self._show(task, reading)))
            self._wait(
                lambda: self._show(task, reading), self._all_received, READER_SILENT_S, self._receipt_count
            )
        bar.update(task, description=f"{self._killed} is started again and catches up", shown="")
        cluster.start(self._killed)
        committed = self._wait_caught_up()

        def show(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total, shown=f"{done:,} of {total:,}")

        validation = validate(
            [node.store_dir for node in self._layout.nodes],
            runner=LocalRunner(),
            history=self._history_path,
            committed_index=committed,
            on_progress=show,
        )
        runs = validation.replicas[0].term_runs
        ledger = self._ledger
        return QuickstartReport(
            sent=ledger.ended,
            acknowledged=ledger.count(End.ACKNOWLEDGED),
            unknown=ledger.count(End.UNKNOWN),
            refused=ledger.count(End.REFUSED),
            received=compare_receipts(ledger, self._receipts),
            leaders={run.term: self._named(run.leader_host) for run in runs},
            killed=self._killed,
            killed_term=killed_term(runs, kill.address),
            gap_ms=kill.gap_ms,
            committed=committed,
            validation=validation,
            first_trouble=ledger.first_trouble,
            seconds=time.monotonic() - began,
            namesrv=self._layout.namesrv,
        )

    async def _send(self, show: Callable[[], None]) -> LeaderKill:
        default = self._file == DEFAULT_FILE
        keys = field_reader("column:1" if default else "line")
        tags = field_reader("column:2" if default else "none")
        remoting = RemotingClient()
        api = ClientApi(remoting)
        kill = LeaderKill(self._ledger, lambda: self._leader(api), self._kill)
        producer = Producer(
            self._layout.namesrv, "quickstart_sender", config=ProducerConfig(send_timeout_s=SEND_TIMEOUT_S)
        )
        showing = asyncio.create_task(self._show_on(show))
        try:
            await api.create_topic(await self._leader(api), TOPIC, read_queues=QUEUES, write_queues=QUEUES)
            async with producer:
                await send_lines(producer, TOPIC, self._file, keys, tags, self._ledger, kill)
        finally:
            showing.cancel()
            await remoting.close()
        return kill

    async def _leader(self, api: ClientApi) -> str:
        """Its address, as the NameServer has it."""
        info = await api.cluster_info(self._layout.namesrv)
        (broker,) = info.broker_addr_table.values()
        if MASTER_ID not in broker.broker_addrs:
            raise ClusterError("the group has no leader, though nobody was killed yet; see the brokers' logs")
        return broker.broker_addrs[MASTER_ID]

    def _kill(self, address: str) -> str:
        (node,) = (node for node in self._layout.nodes if node.listen == address)
        self._killed = node.id
        self._cluster.kill(node.id)
        return node.id

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        """The consumer group's process. Its own session, so that Ctrl-C is ours to pass on."""
        arguments = [self._layout.namesrv, TOPIC, GROUP, str(self._receipts)]
        process: subprocess.Popen[bytes] | None = None
        try:
            with (Path(self._layout.dir) / "reader.log").open("wb") as log, deferred_interrupts():
                process = subprocess.Popen(
                    [sys.executable, "-m", "mq.quickstart.reader", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            yield
        finally:
            if process is not None:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _receipt_count(self) -> int:
        return receipt_count(self._receipts)

    def _all_received(self) -> bool:
        """Cheap first: duplicates make the count alone no proof."""
        acknowledged = self._ledger.count(End.ACKNOWLEDGED)
        if self._receipt_count() < acknowledged:
            return False
        return not compare_receipts(self._ledger, self._receipts).missing_acknowledged

    def _wait_caught_up(self) -> int:
        """The committed index that every member has reached."""
        committed = -1

        def reached() -> bool:
            nonlocal committed
            values: list[int | None] = [node["committed"] for node in cluster_status(self._cluster)["nodes"]]
            known = [value for value in values if value is not None]
            if len(known) < len(values) or min(known) < max(known):
                return False
            committed = known[0]
            return True

        self._wait(lambda: None, reached, CATCH_UP_TIMEOUT_S, lambda: 0)
        if committed < 0:
            raise ClusterError(f"{self._killed} did not come back; see {self._layout.dir}")
        return committed

    def _wait(
        self,
        show: Callable[[], None],
        reached: Callable[[], bool],
        silent_s: float,
        measure: Callable[[], int],
    ) -> None:
        """Until the goal is reached, or `measure` has not moved for `silent_s`; the report tells what is missing."""
        last, moved_at = measure(), time.monotonic()
        while not reached():
            show()
            now = measure()
            if now != last:
                last, moved_at = now, time.monotonic()
            if time.monotonic() - moved_at > silent_s:
                return
            time.sleep(POLL_S)

    async def _show_on(self, show: Callable[[], None]) -> None:
        while True:
            show()
            await asyncio.sleep(POLL_S)

    def _show(self, sending: TaskID, reading: TaskID) -> None:
        ledger, received = self._ledger, self._receipt_count()
        note = f", {self._killed} killed" if self._killed else ""
        self._bar.update(sending, completed=ledger.ended, shown=f"{ledger.ended:,} of {self._lines:,}{note}")
        self._bar.update(reading, completed=received, shown=f"{received:,}")

    def _named(self, address: str) -> str:
        names = {node.listen: node.id for node in self._layout.nodes}
        return names.get(address, address)


def killed_term(runs: Sequence[TermRun], address: str) -> int:
    """The term that the leader at an address led when another had to take over; 0 if nobody did."""
    return next(
        (
            run.term
            for run, following in itertools.pairwise(runs)
            if run.leader_host == address != following.leader_host
        ),
        0,
    )


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM takes the same way out as Ctrl-C, which ends every process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
