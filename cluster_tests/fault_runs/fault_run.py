"""A run of real processes under faults, judged at its end: clients, nemeses by a schedule, healing, reading back.

Producers end first; consumers go on until their groups have come to the ends of the queues.

run = FaultRun(group, nemeses, schedule, directory, Load(rate=800))
run.run()        # and run.stop() from another thread, or a signal handler, for an early end
result = run.judge(html)
"""

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fault_runs.fault_firing import Firings
from fault_runs.fault_target import FaultTarget
from fault_runs.leader_watch import LeaderWatch
from local_cluster import ROOT, wait_for
from nemeses.nemesis import Nemesis
from workload import pull_consumers, push_consumers, requests, timers, transactions
from workload.client_process import PRODUCERS, REQUESTS, TIMERS, TOPIC, TRANSACTIONS, ClientProcess
from workload.drain import are_at_ends
from workload.noting import Notes
from workload.producers import SHADE, SHADES
from workload.read_back import ReadBackError, run_read_back
from workload.topic import make_topic

from faults.checkers.availability import OUTAGE_AFTER_MS
from faults.history import FilteredGroup, Healed, HistoryWriter, Kind, Phase, Run, read_history
from faults.judge import Judgement, judge
from faults.report import fault_report, verdict
from faults.schedule import Schedule, pairs_possible
from faults.timeline import Timeline
from mqclient import MQClientError
from verify.report.text_report import Verdict

SERVES_WITHIN_S = 60.0
LEVEL_WITHIN_S = 900.0  # also of a log of gigabytes, which is scrubbed then, on a busy machine
CLIENTS_END_WITHIN_S = 60.0
DRAINED_WITHIN_S = 300.0  # what an outage at the end has left, on a busy machine
GROUPS = pull_consumers.GROUP, push_consumers.GROUP
KINDS: tuple[Kind, ...] = ("transactions", "timers", "filters", "requests")
KIND_TOPICS: Mapping[Kind, str] = {"transactions": transactions.TOPIC, "timers": timers.TOPIC}  # read back
FILTERED = FilteredGroup("fault_run_sql", TOPIC, SHADES, (2, 3, 4))
SQL = f"{SHADE} BETWEEN 2 AND 4"
CALM_S = 3.0  # of clients at work before the first fault, and after the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`rate`: plain messages per second, of all producers. `body_size`: their bytes. `kinds`: what is sent beside."""

    rate: float = 800.0
    producer_processes: int = 2
    producers: int = 32  # in each process, each with one message under way
    body_size: int = 300
    kinds: tuple[Kind, ...] = KINDS

    @property
    def topics(self) -> list[str]:
        """That are read back, and whose messages are to be given to each of GROUPS."""
        return [TOPIC, *(topic for kind, topic in KIND_TOPICS.items() if kind in self.kinds)]

    @property
    def filtered(self) -> tuple[FilteredGroup, ...]:
        return (FILTERED,) if "filters" in self.kinds else ()

    def clients(self, group: FaultTarget, directory: Path) -> Iterator[ClientProcess]:
        """Each of them started; consumers first."""
        dials = [f"--dial={address}={proxy}" for address, proxy in group.client_dials.items()]

        def started(module: str, name: str, *options: str) -> ClientProcess:
            return ClientProcess(module, group.namesrv, directory / f"{name}.jsonl", *dials, *options)

        for module in ("pull_consumers", "push_consumers"):
            yield started(module, module, "--topics", *self.topics)
        if "filters" in self.kinds:
            yield started("push_consumers", "sql_consumers", "--group", FILTERED.group, "--sql", SQL)
        for number in range(self.producer_processes):
            yield started(
                PRODUCERS,
                f"p{number}",
                *("--producers", str(self.producers)),
                *("--rate", str(self.rate / self.producer_processes)),
                *("--body-size", str(self.body_size)),
            )
        for module in (TRANSACTIONS, TIMERS, REQUESTS):
            if module in self.kinds:
                yield started(module, module)


@dataclass(frozen=True, slots=True)
class Result:
    """`trouble`: what of the run itself went wrong, in words; such a run is not good, whatever was found."""

    judgement: Judgement
    replicas: Verdict | None
    trouble: tuple[str, ...]

    @property
    def verdict(self) -> tuple[str, str, str]:
        return verdict(self.judgement, self.replicas)


@dataclass
class FaultRun:
    """One run, in a directory of its own: histories in `history/`, beside them the group's.

    `tell` is called with lines for a person, from several threads.
    """

    group: FaultTarget
    nemeses: Sequence[Nemesis]
    schedule: Schedule
    directory: Path
    load: Load
    tell: Callable[[str], None]
    trouble: list[str] = field(default_factory=list)
    _clients: list[ClientProcess] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _firings: Firings | None = None

    @property
    def histories(self) -> list[Path]:
        return sorted((self.directory / "history").glob("*.jsonl"))

    def stop(self) -> None:
        """What is on is ended and healed, and what there is is judged."""
        self._stop.set()
        if self._firings is not None:
            self._firings.stop()

    def run(self) -> None:
        """From the start of the group to the end of all of its processes. Raises what keeps it from starting: of the
        group ClusterError and the like, AssertionError where it does not serve or no client gets on.
        """
        directory = self.directory / "history"
        directory.mkdir(parents=True)
        with HistoryWriter(directory / "run.jsonl") as writer, contextlib.ExitStack() as down:
            down.callback(self._down)
            notes = Notes(writer)
            self.group.up()
            for topic in (*self.load.topics, *((requests.TOPIC,) if "requests" in self.load.kinds else ())):
                make_topic(self.group.namesrv, SERVES_WITHIN_S, topic)
            notes.note(
                Run,
                seed=self.schedule.seed,
                minutes=self.schedule.run_ms / 60_000,
                target=self.group.name,
                members=self.group.members,
                revision=revision(),
                faults=len(self.schedule.firings),
                groups=GROUPS,
                filtered=self.load.filtered,
                kinds=self.load.kinds,
                pairs=pairs_possible((nemesis.spec for nemesis in self.nemeses), self.group.members),
            )
            with LeaderWatch(self.group, notes, self.trouble.append), self._machine_watched(directory):
                self._under_load(directory, notes)
                if self._has_healed(notes):
                    self._read_back(directory)

    def _under_load(self, directory: Path, notes: Notes) -> None:
        try:
            for client in self.load.clients(self.group, directory):
                self._clients.append(client)
            wait_for(self._are_at_work, SERVES_WITHIN_S, "messages acknowledged and delivered")
            self._stop.wait(CALM_S)
            by_name = {nemesis.spec.name: nemesis for nemesis in self.nemeses}
            self._firings = Firings(self.schedule, by_name, self.group, notes, self.tell, self.trouble.append)
            notes.note(Phase, name="faults")
            if not self._stop.is_set():
                self._firings.run()
            self._heal()
            notes.note(Phase, name="calm")
            # Clients go on for longer than the last faults excuse: what is healed has to serve.
            threading.Event().wait(self._outage_s() + CALM_S)
            self.trouble += [
                f"{client.name} ended before its time" for client in self._clients if client.has_ended
            ]
            notes.note(Phase, name="drain")
            self._end_clients([client for client in self._clients if client.sends])
            self._drain()
            have_stayed = not any(client.has_ended for client in self._clients)
        finally:
            self._end_clients(self._clients)
        if have_stayed:
            notes.note(Phase, name="level")

    def _outage_s(self) -> float:
        outages_ms = (nemesis.spec.outage_ms for nemesis in self.nemeses)
        return max(OUTAGE_AFTER_MS if outage_ms is None else outage_ms for outage_ms in outages_ms) / 1000

    def _drain(self) -> None:
        """A group that does not come to the ends in time has missed something, which is the judge's to say."""
        consuming = [(group, topic) for group in GROUPS for topic in self.load.topics]
        consuming += [(filtered.group, filtered.topic) for filtered in self.load.filtered]
        try:
            wait_for(
                lambda: are_at_ends(self.group.namesrv, consuming), DRAINED_WITHIN_S, "consumers at the ends"
            )
        except AssertionError as error:
            self.tell(str(error))

    @contextlib.contextmanager
    def _machine_watched(self, directory: Path) -> Iterator[None]:
        watch = ClientProcess("machine_watch", self.group.namesrv, directory / "machine.jsonl")
        try:
            yield
        finally:
            if (told := watch.end(CLIENTS_END_WITHIN_S)) is not None:
                self.trouble.append(told)

    def _are_at_work(self) -> bool:
        """Each process of clients: a fault that finds nobody at work shows nothing."""
        return self._stop.is_set() or all(
            client.has_noted(b'"outcome":"ok"' if client.sends else b'"kind":"poll"')
            for client in self._clients
        )

    def _heal(self) -> None:
        for nemesis in self.nemeses:
            self._try(f"{nemesis.spec.name} at the end", nemesis.end)
        self._try("starting what does not run", self.group.revive)

    def _end_clients(self, clients: Sequence[ClientProcess]) -> None:
        self._clients = [client for client in self._clients if client not in clients]
        for client in clients:
            client.ask_to_end()
        for client in clients:
            if (told := client.end(CLIENTS_END_WITHIN_S)) is not None:
                self.trouble.append(told)

    def _has_healed(self, notes: Notes) -> bool:
        self.tell("healed; waiting for all members to come to one level")
        try:
            self.group.level(LEVEL_WITHIN_S)
        except AssertionError as error:
            self.trouble.append(str(error))
            return False
        notes.note(Healed)
        return True

    def _read_back(self, directory: Path) -> None:
        with HistoryWriter(directory / "read_back.jsonl") as writer:
            try:
                count = run_read_back(self.group.namesrv, self.load.topics, Notes(writer))
            except (ReadBackError, MQClientError) as error:
                self.trouble.append(f"reading back: {error}")
                return
        self.tell(f"{count:,} messages read back")

    def _down(self) -> None:
        self._try("ending the processes", self.group.down)

    def _try(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001, told, and what there is is judged
            self.trouble.append(f"{what}: {type(error).__name__}: {error}")

    def judge(self, html: Path) -> Result:
        """Once run() is over. Writes the report, if it can be written. Raises HistoryError, OSError."""
        replicas = self._judge_replicas()
        timeline = Timeline()
        judgement = judge(lambda: read_history(self.histories), timeline)
        page = fault_report(judgement, timeline, replicas)
        self._try("writing the report", lambda: html.write_text(page, encoding="utf-8"))
        return Result(judgement, replicas, tuple(self.trouble))

    def _judge_replicas(self) -> Verdict | None:
        sends = self.directory / "sends.jsonl"
        with sends.open("wb") as all_of_them:
            for path in self.histories:
                with path.open("rb") as history:
                    shutil.copyfileobj(history, all_of_them)
        try:
            return self.group.judge_replicas(sends)
        except Exception as error:  # noqa: BLE001, told, and what there is is judged
            self.trouble.append(f"comparing the replicas: {type(error).__name__}: {error}")
            return None
        finally:
            sends.unlink()


def revision() -> str:
    """Of the checkout, as git describes it; "" where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
