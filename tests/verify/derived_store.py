"""Stores whose derived files can be damaged: three replicas that our own members made, and Java's recorded ones.

And the derived checks as a validation runs them: pass 1 over ranges, then the units that are left, in process.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from golden_store import unpack_store
from store_group import CQ_FILE_UNITS, HOST, START_MS, StoreGroup, StoreMember, message

from dledger.entry import EntryHeader, parse_header, seal_entries
from message.sys_flag import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE
from store.put_message import PutMessage
from store.services.delayed_message import delayed
from store.state.table import StateChange
from store.state.table_configs import SubscriptionGroupConfig, TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.subscription_group_table import PutSubscriptionGroup
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig
from verify.derived import DerivedChecks, LogFacts, check, consumers
from verify.findings import Finding, sort_key
from verify.log.entry_scan import Run, scan
from verify.log.entry_scan import up_to as cut_run
from verify.replica import Replica, open_replica, open_replicas
from verify.work import plan

TOPICS = ("Orders", "Payments", "Audit")
QUEUE_COUNT = 2
GROUP = "billing"


def delayed_message(level: int, body: bytes) -> PutMessage:
    waiting = PutMessage(b"Later", 0, body, b"", 0, START_MS, HOST)
    return delayed(waiting, level, 18)


def make_group(directory: Path, *, stop: bool = True) -> StoreGroup:
    """Three terms and some more, at least five data files and as many full states, all kinds of records."""
    group = StoreGroup(directory, 3)
    group.start()
    number = 0
    for _ in range(3):
        leader = group.lead()
        for topic in TOPICS:
            _change(group, leader, PutTopicConfig(TopicConfig(topic, attributes={"note": "x" * 3000})))
        _change(group, leader, PutSubscriptionGroup(SubscriptionGroupConfig(GROUP)))
        for step in range(25):
            batch = [
                message(TOPICS[(number + at) % 3], (number + at) // 3 % QUEUE_COUNT, bytes(700), f"T{at % 3}")
                for at in range(6)
            ]
            batch.append(delayed_message(1 + step % 3, b"later"))
            if step % 5 == 0:
                batch.append(message("Orders", 0, b"half", sys_flag=TRANSACTION_PREPARED_TYPE))
                batch.append(message("Orders", 0, b"undone", sys_flag=TRANSACTION_ROLLBACK_TYPE))
            leader.put(*batch)
            number += 7
            group.run_for(20)
            offset = leader.store.reads.max_offset("Orders", 0) // 2
            _change(group, leader, CommitOffset(GROUP, "Orders", 0, offset))
        _change(group, leader, PutTopicConfig(TopicConfig("Passing")))
        _change(group, leader, DeleteTopic("Passing"))
        group.settle()
        leader.crash()
        group.lead()
        group.start(leader.id)
    leader = group.lead()
    group.settle()
    group.run_for(2000)  # until the last full state is written
    _change(group, leader, CommitOffset(GROUP, "Orders", 0, 36))
    group.settle()
    if stop:
        for member in list(group.members.values()):
            if not member.store.serving:
                member.stop()
        # Alone it does not lead any longer, and what it has is what the others have.
        for member in list(group.members.values()):
            member.stop()
    return group


def _change(group: StoreGroup, leader: StoreMember, change: StateChange) -> None:
    leader.store.propose(change, None, group.now_ms)
    group.run_for(20)


class Stores:
    """Copies of three replicas, to be damaged."""

    def __init__(self, template: Path, directory: Path) -> None:
        self.roots = [directory / name for name in ("n0", "n1", "n2")]
        for root in self.roots:
            shutil.copytree(template / root.name, root)

    def replicas(self) -> list[Replica]:
        return open_replicas(self.roots)

    def findings(self, unit_count: int | None = None) -> list[Finding]:
        return derived_findings(self.replicas(), unit_count=unit_count)


def cut_out(name: str, directory: Path, *, root: str = "") -> Path:
    """A recorded store of Java, with all its files but those that are huge."""
    top = f"{name}/{root}".rstrip("/")

    def wanted(path: str) -> bool:
        return path.startswith(f"{top}/") and not ("/dledger-" in path and "/index/" in path)

    unpack_store(name, directory, wanted)
    return directory / top


def derived_findings(
    replicas: Sequence[Replica],
    *,
    unit_count: int | None = None,
    facts: dict[str, LogFacts] | None = None,
    up_to: int | None = None,
) -> list[Finding]:
    """`facts`: what differs from a sound log, by name of replica. `up_to`: entries behind this index are not read."""
    checks = DerivedChecks(replicas)
    runs: dict[str, list[Run]] = {replica.name: [] for replica in replicas}
    units = plan(replicas, unit_count=unit_count)
    for unit in reversed(units):  # in any order
        listeners = consumers(unit)
        for found in scan(unit):
            run = cut_run(found, up_to) if isinstance(found, Run) else None
            if run is not None:
                runs[unit.replica.name].append(run)
                for listener in listeners:
                    listener.feed(run)
        for listener in listeners:
            for part in listener.finish():
                checks.take(part)
    logs = {replica.name: log_facts(replica, runs[replica.name]) for replica in replicas}
    logs.update(facts or {})
    findings = [finding for unit in checks.units(logs) for finding in check(unit)]
    return sorted([*checks.findings(), *findings], key=sort_key)


def log_facts(replica: Replica, runs: Sequence[Run]) -> LogFacts:
    """Of a sound log; all of it is committed."""
    ordered = sorted(runs, key=lambda run: run.first_pos)
    return LogFacts(
        begin_pos=ordered[0].first_pos,
        end_pos=ordered[-1].next_pos,
        begin_index=ordered[0].first_index,
        end_index=ordered[-1].last_index,
        committed_index=ordered[-1].last_index,
        damaged=(),
        replay_state=replica.name in ("n0", ""),
    )


def facts_of(replica: Replica, **changed: object) -> dict[str, LogFacts]:
    """The facts of a replica's log, some of them other ones."""
    runs = [found for unit in plan([replica]) for found in scan(unit) if isinstance(found, Run)]
    return {replica.name: replace(log_facts(replica, runs), **changed)}  # type: ignore[arg-type]


def entries_of(replica: Replica) -> Iterator[tuple[EntryHeader, bytes]]:
    """Header and body of each entry."""
    for unit in plan([replica]):
        for run in scan(unit):
            if isinstance(run, Run):
                for offset, end in zip(run.offsets, run.ends, strict=True):
                    yield parse_header(run.buffer, offset), run.buffer[offset + run.record_shift : end]


def unit_path(root: Path, topic: str, queue_id: int, offset: int, file_units: int = CQ_FILE_UNITS) -> Path:
    base = offset // file_units * file_units * CQ_UNIT_SIZE
    return root / "consumequeue" / topic / str(queue_id) / f"{base:020d}"


def read_unit(root: Path, topic: str, queue_id: int, offset: int) -> tuple[int, int, int]:
    content = unit_path(root, topic, queue_id, offset).read_bytes()
    phy_offset, size, code = CQ_UNIT.unpack_from(content, offset % CQ_FILE_UNITS * CQ_UNIT_SIZE)
    return phy_offset, size, code


def write_units(root: Path, topic: str, queue_id: int, offset: int, data: bytes) -> None:
    """`data` within one file."""
    path = unit_path(root, topic, queue_id, offset)
    with path.open("r+b") as file:
        file.seek(offset % CQ_FILE_UNITS * CQ_UNIT_SIZE)
        file.write(data)


@cache
def template(directory: Path) -> Path:
    """The replicas of which tests damage copies, made once."""
    make_group(directory)
    return directory


def made_once(factory: pytest.TempPathFactory) -> Path:
    return template(factory.getbasetemp() / "derived-template")


def rewrite_entry(root: Path, index: int, patch: Callable[[bytearray], None]) -> EntryHeader:
    """Changes the record in an entry and makes both its CRCs fit, as who means to would. Returns its header."""
    replica = open_replica(root)
    entries = entries_of(replica)
    before = next(header for header, _ in entries if header.index == index - 1)
    header, body = next(entries)
    changed = bytearray(body)
    patch(changed)
    sealed, _ = seal_entries(
        [bytes(changed)], [header.pos], header.index, header.term, header.kind, before.chain_crc
    )
    file = next(file for file in reversed(replica.data_files) if file.base <= header.pos)
    with open(file.path, "r+b") as opened:
        opened.seek(header.pos - file.base)
        opened.write(b"".join(sealed))
    return header
