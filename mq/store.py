"""`mq store inspect DIR`: what lies in a store directory, who wrote it, and whether a broker of ours can start on it.

Looks at files' names, heads and ends; nothing is written. `mq store verify DIR` says whether every entry is sound.
`mq store set-term DIR` is the only one that writes: it brings a member back from a term which nobody can have reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from broker.store_lock import StoreLock
from disk.real_disk import RealDisk
from disk.slots import SlotsUnreadableError, newest_payload
from dledger.core.term_bounds import TERM_MAX
from dledger.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    EntryHeader,
    Term,
    parse_header,
)
from dledger.log.java_files import JavaRun, find_java_run
from dledger.log.quorum_state import QUORUM_STATE_FILE_NAME, QuorumState
from dledger.log.synced_mark import MARK_FILE_NAME, unpack_mark
from mq.console import print_json, print_table, user_errors
from mq.plain_edges import damage_at_edges
from store.errors import ConfigFilesDamagedError
from store.java.consume_queue_ends import consume_queue_ends
from store.java.plain_import import PlainImport
from store.layout.config_json import TOPICS
from store.state.config_files import read_config_files
from store.store_config import StoreConfig
from verify.log.data_file import Layout
from verify.replica import Replica, ReplicaError, open_replica

EXIT_NOT_STARTABLE = 10

app = typer.Typer(no_args_is_help=True, help="Look at store directories.")


@app.callback()
def store() -> None:
    """Look at store directories."""


@dataclass(frozen=True, slots=True)
class TermRun:
    term: int
    first_index: int
    last_index: int


@dataclass(kw_only=True, slots=True)
class Inspection:
    """Of one store; `obstacles` are why a broker of ours would not start on it, each with what to do."""

    directory: str
    layout: str
    member: str
    written_by: str  # last: "pydledger" or "java"
    is_running: bool
    stopped_cleanly: bool
    data_file_size: int
    data_file_count: int
    begin_pos: int
    begin_index: int = -1
    end_index: int = -1
    terms: list[TermRun] = field(default_factory=list)
    java_term: int | None = None
    java_committed_index: int | None = None
    was_last_master: bool | None = None
    topics: dict[str, int] = field(
        default_factory=dict
    )  # messages ever stored, by the ends of the ConsumeQueues
    group_count: int | None = None
    offset_count: int | None = None
    obstacles: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@app.command()
def inspect(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A store directory, of Java's broker or ours.")
    ],
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say what lies in a store, and whether a broker of ours can start on it.

    Exit status 0: it can; 10: it cannot, and why; 1 or 2: nothing could be read. Nothing is written.
    """
    with user_errors(ReplicaError):
        found = look_at(directory)
    if json:
        print_json(asdict(found))
    else:
        _print(found)
    if found.obstacles:
        raise typer.Exit(EXIT_NOT_STARTABLE)


@app.command()
def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A store directory, of Java's broker or ours.")
    ],
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Prove each entry of one store sound, and what was derived from it: mq validate DIR --no-spark.

    Exit status 0: clean; 10: findings; 1 or 2: it could not run. Nothing is written.
    """
    from mq.proving.validate import validate  # inspect does without its libraries

    validate([directory], json="-" if json else "", no_spark=True)


@app.command("set-term")
def set_term(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The store of a stopped member.")],
    to: Annotated[
        int,
        typer.Option(
            "--to", min=1, max=TERM_MAX - 1, help="The term to go on from; the same for each member."
        ),
    ],
) -> None:
    """Set the term of a stopped member that took one which cannot have been reached. Its vote is forgotten.

    The new term must be above the term of each member that was not hit (mq cluster status) and above the term of the
    last entry of each member (mq store inspect). Stop all members that were hit before you set the first, and start
    none before all are set: a vote that is forgotten while its leader lives can make two leaders of one term, which
    loses acknowledged messages. To raise a term is safe at any time.
    """
    with user_errors(ReplicaError, SlotsUnreadableError):
        before = _set_term(directory, Term(to))
    print(f"{directory}: term set from {before} to {to}")


def _set_term(directory: Path, term: Term) -> Term:
    """Sets the term on disk and returns the one that was there. Raises ReplicaError, OSError."""
    replica = open_replica(directory)
    ledger = Path(replica.data_directory).parent
    if replica.layout is not Layout.DLEDGER or not (ledger / "pydledger" / QUORUM_STATE_FILE_NAME).exists():
        raise ReplicaError(f"{directory} has no term of ours: only members of a group have one")
    lock = StoreLock(replica.directory)
    try:
        found = look_at(directory)
        last_term = found.terms[-1].term if found.terms else -1
        if term <= last_term:
            raise ReplicaError(
                f"--to {term}: the last entry of {directory} has term {last_term}, take a higher one"
            )
        quorum_state = QuorumState.load(RealDisk(), str(ledger))
        try:
            before = quorum_state.hard_state.curr_term
            if term == before:
                raise ReplicaError(f"--to {term}: {directory} is in that term, and may have voted in it")
            quorum_state.set_term(term)
        finally:
            quorum_state.close()
    finally:
        lock.release()
    return before


def look_at(directory: Path) -> Inspection:
    """Raises ReplicaError, OSError."""
    replica = open_replica(directory)
    root, disk = Path(replica.directory), RealDisk()
    is_dledger = replica.layout is Layout.DLEDGER
    ledger = Path(replica.data_directory).parent
    java_run = find_java_run(disk, str(ledger)) if is_dledger else None
    found = Inspection(
        directory=replica.directory,
        layout=str(replica.layout),
        member=replica.name if is_dledger else "",
        written_by="java" if java_run is not None else "pydledger",
        is_running=replica.is_live,
        stopped_cleanly=replica.stopped_cleanly,
        data_file_size=replica.data_file_size,
        data_file_count=len(replica.data_files),
        begin_pos=replica.begin_pos,
    )
    found.topics = _topics(disk, root)
    for file in replica.renamed_files:
        found.obstacles.append(
            f"{file.path} was renamed: what is in it belongs at {file.base:,}, name it {file.base:020d}"
        )
    if is_dledger:
        _look_at_log(found, replica, ledger)
    else:
        _look_at_plain_log(found, replica, disk)
        found.notes.append("a plain CommitLog: it is for a broker without enableDLegerCommitLog=true")
    if replica.is_live:
        found.obstacles.append("a broker runs on it: stop that first")
    if java_run is not None:
        _look_at_java(found, java_run, ledger)
    try:
        tables = read_config_files(disk, str(root / "config"))
        found.group_count = len(tables.subscription_group_table.configs)
        found.offset_count = len(tables.consumer_offset_table.offsets)
    except ConfigFilesDamagedError as error:
        found.obstacles.append(str(error))
    if java_run is not None and not (root / "config" / TOPICS).exists():
        found.notes.append(
            f"no config/{TOPICS}: topics, groups and offsets come from the member that leads first"
        )
    return found


def _look_at_java(found: Inspection, java_run: JavaRun, ledger: Path) -> None:
    found.java_term, found.java_committed_index = java_run.term, java_run.committed_index
    found.was_last_master = java_run.voted_for == found.member
    if 0 <= found.end_index < java_run.committed_index:
        found.obstacles.append(
            f"it ends with entry {found.end_index}, but Java's checkpoint says that entries up to "
            f"{java_run.committed_index} are committed: take the store of another member, or remove {ledger} wholly"
        )
    if not found.stopped_cleanly:
        found.notes.append(
            "Java's broker did not stop cleanly: what it had not flushed may be missing at the end"
        )
    if found.topics.get("rmq_sys_wheel_timer"):
        found.notes.append(
            "messages with a timer (rmq_sys_wheel_timer): those that are not delivered yet will not be; "
            "let them come due under Java's broker first"
        )


def _look_at_log(found: Inspection, replica: Replica, ledger: Path) -> None:
    sizes = {file.size for file in replica.data_files}
    if len(sizes) > 1:
        found.obstacles.append(f"data files of {len(sizes)} sizes: take them from another member")
    if not replica.data_files:
        return
    first = _header_at(replica.data_files[0].path)
    if first is None:
        if replica.begin_pos > 0:
            found.obstacles.append(f"{replica.data_files[0].path} begins with no entry")
        return
    found.begin_index = first.index
    if first.index == 0 and replica.begin_pos > 0:
        found.notes.append(
            f"a plain commitlog comes before position {replica.begin_pos:,}: its messages are read, but not "
            "replicated; take commitlog/ of the last master to the other members"
        )
    index = _Index(ledger / "index", first.index)
    found.end_index = index.end_index
    found.terms = list(index.term_runs())
    if index.end_index < first.index:
        found.notes.append("index/ does not say where the log ends; it is made anew at the start")


def _look_at_plain_log(found: Inspection, replica: Replica, disk: RealDisk) -> None:
    own = f"{replica.directory}/pydledger"
    config = StoreConfig(store_path_root_dir=replica.directory, ledger_directory=own, store_host=bytes(8))
    if PlainImport(disk, config).is_another_s:
        found.written_by = "java"
        found.notes.append(
            "how many records there are is known when a broker of ours has started on it; mq validate counts them"
        )
        return
    index = _Index(Path(own) / "index", 0)
    found.begin_index, found.end_index = index.first_at(replica.begin_pos), index.end_index
    payload = newest_payload((Path(own) / "pydledger" / MARK_FILE_NAME).read_bytes())
    assert payload is not None, "looked at by PlainImport"
    mark = unpack_mark(payload)

    def last_pos_before(pos: int) -> int | None:
        return index.pos_of(min(index.first_at(pos) - 1, mark.index))

    found.obstacles += damage_at_edges(replica.data_files, mark, last_pos_before)


class _Index:
    """Units of entries, by DLedger's index files."""

    def __init__(self, directory: Path, begin_index: int) -> None:
        self._begin_index = begin_index
        self._files = sorted((int(path.name), path) for path in directory.glob("[0-9]" * 20))
        low, high = (
            begin_index - 1,
            self._files[-1][0] + self._files[-1][1].stat().st_size if self._files else 0,
        )
        high = max(low, high // INDEX_UNIT_SIZE - 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._term(middle) is None:
                high = middle - 1
            else:
                low = middle
        self.end_index = low

    def term_runs(self) -> Iterator[TermRun]:
        first = self._begin_index
        while first <= self.end_index:
            term = self._term(first)
            low, high = first, self.end_index
            while low < high:
                middle = (low + high + 1) // 2
                if self._term(middle) == term:
                    low = middle
                else:
                    high = middle - 1
            yield TermRun(term or 0, first, low)
            first = low + 1

    def first_at(self, pos: int) -> int:
        """The first entry that begins there or behind."""
        low, high = (self._files[0][0] // INDEX_UNIT_SIZE if self._files else 0), self.end_index + 1
        while low < high:
            middle = (low + high) // 2
            unit = self._unit(middle)
            if unit is None or unit[0] < pos:
                low = middle + 1
            else:
                high = middle
        return low

    def pos_of(self, index: int) -> int | None:
        unit = self._unit(index)
        return unit[0] if unit is not None else None

    def _term(self, index: int) -> int | None:
        unit = self._unit(index)
        return unit[1] if unit is not None else None

    def _unit(self, index: int) -> tuple[int, int] | None:
        """Position and term of an entry, None where there is no unit."""
        offset = index * INDEX_UNIT_SIZE
        path = next((path for base, path in reversed(self._files) if base <= offset), None)
        base = next((base for base, _ in reversed(self._files) if base <= offset), 0)
        if path is None:
            return None
        with path.open("rb") as file:
            file.seek(offset - base)
            unit = file.read(INDEX_UNIT_SIZE)
        if len(unit) < INDEX_UNIT_SIZE:
            return None
        magic, pos, _, unit_index, term = INDEX_UNIT.unpack(unit)
        return (pos, term) if (magic, unit_index) == (ENTRY_MAGIC, index) else None


def _header_at(path: str) -> EntryHeader | None:
    with open(path, "rb") as file:
        head = file.read(ENTRY_HEADER_SIZE)
    header = parse_header(head) if len(head) == ENTRY_HEADER_SIZE else None
    return header if header is not None and header.magic == ENTRY_MAGIC else None


def _topics(disk: RealDisk, root: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, _, next_offset in consume_queue_ends(disk, str(root)):
        name = topic.decode(errors="replace")
        counts[name] = counts.get(name, 0) + next_offset
    return counts


def _print(found: Inspection) -> None:
    log = f"entries {found.begin_index:,} to {found.end_index:,}" if found.end_index >= 0 else "no entries"
    rows: list[tuple[str, object]] = [
        ("directory", found.directory),
        ("layout", f"{found.layout} {found.member}".strip()),
        ("written last by", found.written_by),
        (
            "broker",
            "running" if found.is_running else "stopped" if found.stopped_cleanly else "not stopped cleanly",
        ),
        (
            "data files",
            f"{found.data_file_count} of {found.data_file_size:,} bytes, from position {found.begin_pos:,}",
        ),
        ("log", log),
        *((f"term {run.term}", f"entries {run.first_index:,} to {run.last_index:,}") for run in found.terms),
    ]
    if found.java_term is not None:
        rows += [
            ("Java's term", found.java_term),
            ("committed, as Java knows", found.java_committed_index),
            (
                "last master",
                "this member, unless it lost the vote" if found.was_last_master else "another member",
            ),
        ]
    rows += [("groups", found.group_count), ("topics with offsets", found.offset_count)]
    print_table("", ("what", "value"), rows)
    print_table("", ("topic", "messages ever"), sorted(found.topics.items()))
    for note in found.notes:
        print(f"note: {note}")
    for obstacle in found.obstacles:
        print(f"A broker of ours does not start on it: {obstacle}.")
    if not found.obstacles:
        print(
            "A broker of ours starts on it."
            + (" It is taken over in place then." if found.written_by == "java" else "")
        )
