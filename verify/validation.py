"""A validation from start to end: plan, pass 1, the log of each replica, the comparison, what follows from the logs.

Only the driver's side: entries are read by the work functions, wherever the runner has them run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, combinations
from pathlib import Path

from verify import derived
from verify.findings import Finding, gather
from verify.group.compare import (
    Agreement,
    Difference,
    RangeJudge,
    Reread,
    SumTable,
    holding_of,
    is_same,
    join,
    reread,
)
from verify.group.group_findings import (
    common_ordinal,
    difference_findings,
    own_commit,
    shorter_findings,
    unheld_commit,
)
from verify.history_check import Ack, FoundAcks, acks_of, lost_messages, read_history
from verify.log.data_file import Layout
from verify.log.entry_faults import Examined, Region, examine
from verify.log.log_judge import judge_log
from verify.log.log_layout import LogLine, lay_out, regions, units_to_repeat
from verify.log.log_part import LogPart, range_bits
from verify.pass_one import CheckUnit, Part, check_unit
from verify.replica import EVERYTHING, Replica, ReplicaError, open_replicas
from verify.replica_log import ReplicaLog
from verify.runner import Runner
from verify.validation_report import ReplicaSummary, ValidationReport
from verify.work import DataRange, plan

# What is being done, how many units of it are done, of how many.
OnProgress = Callable[[str, int, int], None]


def validate(
    directories: Sequence[str | Path],
    *,
    runner: Runner,
    history: Path | None = None,
    broker: str = "",
    committed_index: int | None = None,
    findings_max: int = 200,
    unit_count: int | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> ValidationReport:
    """Reads the replicas of one group, and nothing but reads.

    `history`: a producer's record of its sends, of which those to `broker` are held against the logs.
    `committed_index`: what the caller knows to be committed; the files may know of more. `unit_count`: about into how
    many units the work is cut. Raises ReplicaError, HistoryError, OSError.
    """
    # First, so that the files of running replicas hold all that it tells of.
    acks = read_history(history, broker) if history is not None else []
    run = _Validation(directories, runner, on_progress)
    return run.report(
        acks=acks,
        committed_index=committed_index,
        findings_max=findings_max,
        unit_count=unit_count,
    )


class _Validation:
    def __init__(self, directories: Sequence[str | Path], runner: Runner, on_progress: OnProgress) -> None:
        self._began = datetime.now(UTC)
        self._clock = time.monotonic()
        self._runner = runner
        self._on_progress = on_progress
        self._replicas = _with_common_size(open_replicas(directories))
        _check_one_group(self._replicas)
        self._read_to: dict[str, int | None] = {}

    def report(
        self, *, acks: Sequence[Ack], committed_index: int | None, findings_max: int, unit_count: int | None
    ) -> ValidationReport:
        self._read_to = {replica.name: _read_to(replica, committed_index) for replica in self._replicas}
        units = plan(self._replicas, unit_count=unit_count)
        parts = self._pass_one(units, acks)
        logs = self._judge_logs(units, parts)
        sums, holdings_bits = self._sums(logs, parts)
        differences, agreements = self._compare(logs, sums, holdings_bits, units, parts)
        committed = -1  # a plain CommitLog has no indexes
        if logs[0].is_ordered_by_index:
            committed = _committed_index(logs, sums, agreements, committed_index)
        derived_checks, derived_findings = self._derived(logs, parts, differences, committed)
        compared = difference_findings(logs, differences, committed)
        found = [part for of_unit in parts for part in of_unit if isinstance(part, FoundAcks)]
        # A running replica's log goes on behind what is judged of it.
        ends = {log.replica.name: EVERYTHING if log.replica.is_live else log.end_pos for log in logs}
        lost = list(lost_messages(acks, found, ends, committed_index=committed))
        findings = gather(
            chain(
                chain.from_iterable(log.findings for log in logs),
                compared,
                shorter_findings(logs, committed),
                unheld_commit(logs, committed_index),
                derived_findings,
                lost,
            ),
            findings_max,
        )
        return ValidationReport(
            replicas=tuple(self._summary(log) for log in logs),
            findings=findings,
            committed_index=committed,
            common_index=common_ordinal(logs, differences),
            queue_count=derived_checks.queue_count,
            acknowledged=len(acks),
            acknowledged_found=len(acks) - len(lost),
            began_at=self._began.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self._clock,
            runner=str(self._runner),
            unit_count=len(units),
            notes=tuple(dict.fromkeys(derived_checks.notes)),
        )

    # -- pass 1 ------------------------------------------------------------------------------------------------

    def _pass_one(self, units: list[DataRange], acks: Sequence[Ack]) -> list[list[Part]]:
        """By unit. A unit that took a body's bytes for entries is read once more, from where its first entry begins."""
        parts: list[list[Part]] = [[] for _ in units]
        wanted = list(enumerate(units))
        while wanted:
            work = [
                CheckUnit(number, unit, self._read_to[unit.replica.name], acks_of(acks, unit))
                for number, unit in wanted
            ]
            for number, _ in wanted:
                parts[number] = []
            for number, part in self._runner.map(check_unit, work, self._progress("reading", len(work))):
                parts[number].append(part)
            wanted = []
            for replica in self._replicas:
                numbers = _numbers_of(units, replica)
                again = units_to_repeat(
                    [units[number] for number in numbers], [_log_part(parts[number]) for number in numbers]
                )
                wanted += [(numbers[place], unit) for place, unit in again]
            for number, unit in wanted:
                units[number] = unit
        return parts

    def _judge_logs(self, units: Sequence[DataRange], parts: Sequence[list[Part]]) -> list[ReplicaLog]:
        lines: list[LogLine] = []
        for replica in self._replicas:
            numbers = _numbers_of(units, replica)
            lines.append(lay_out(replica, [_log_part(parts[number]) for number in numbers]))
        wanted = [_batched(list(regions(line))) for line in lines]
        looks = list(chain.from_iterable(wanted))
        examined: dict[str, list[Examined]] = {replica.name: [] for replica in self._replicas}
        for found in self._runner.map(examine, looks, self._progress("looking closer", len(looks))):
            examined[found.replica].append(found)
        return [
            judge_log(line, examined[line.replica.name], read_to=self._read_to[line.replica.name])
            for line in lines
        ]

    # -- pass 2 ------------------------------------------------------------------------------------------------

    def _sums(self, logs: Sequence[ReplicaLog], parts: Sequence[list[Part]]) -> tuple[SumTable, int]:
        bits = range_bits(self._replicas[0].layout)
        sums = SumTable([holding_of(log) for log in logs], bits)
        for of_unit in parts:
            part = _log_part(of_unit)
            sums.add(part.replica, part.sums)
        return sums, bits

    def _compare(
        self,
        logs: Sequence[ReplicaLog],
        sums: SumTable,
        bits: int,
        units: Sequence[DataRange],
        parts: Sequence[list[Part]],
    ) -> tuple[list[Difference], list[Agreement]]:
        keys = sums.differing() if len(logs) > 1 else frozenset()
        wanted = [
            Reread(unit, held, self._read_to[unit.replica.name])
            for unit, of_unit in zip(units, parts, strict=True)
            if (held := keys & _log_part(of_unit).sums.keys())
        ]
        judge = RangeJudge(
            tuple(holding_of(log) for log in logs), bits, max((log.end_term for log in logs), default=-1)
        )
        differences: list[Difference] = []
        agreements: list[Agreement] = []
        for result in self._runner.map_grouped(
            reread, wanted, judge, self._progress("comparing", len(wanted))
        ):
            if isinstance(result, Agreement):
                agreements.append(result)
            else:
                differences.append(result)
        return list(_joined(differences, by_index=logs[0].is_ordered_by_index)), agreements

    # -- what follows from the logs ----------------------------------------------------------------------------

    def _derived(
        self,
        logs: Sequence[ReplicaLog],
        parts: Sequence[list[Part]],
        differences: Sequence[Difference],
        committed: int,
    ) -> tuple[derived.DerivedChecks, Iterator[Finding]]:
        checks = derived.DerivedChecks(self._replicas)
        for part in chain.from_iterable(parts):
            if not isinstance(part, LogPart | FoundAcks):
                checks.take(part)
        replayed: list[ReplicaLog] = []
        facts: dict[str, derived.LogFacts] = {}
        for log in logs:
            is_known = any(_is_like(log, other, differences) for other in replayed)
            if not is_known:
                replayed.append(log)
            facts[log.replica.name] = derived.LogFacts(
                begin_pos=log.begin_pos,
                end_pos=log.end_pos,
                end_index=log.end_index,
                begin_index=log.begin_index,
                committed_index=min(committed, log.end_index),
                damaged=tuple(sorted(log.damaged)),
                replay_state=not is_known,
            )
        units = checks.units(facts)
        found = self._runner.map(derived.check, units, self._progress("checking what follows", len(units)))
        return checks, chain(checks.findings(), found)

    # -- report ------------------------------------------------------------------------------------------------

    def _summary(self, log: ReplicaLog) -> ReplicaSummary:
        replica = log.replica
        return ReplicaSummary(
            name=replica.name,
            group=replica.group,
            directory=replica.directory,
            layout=str(replica.layout),
            is_live=replica.is_live,
            begin_index=log.begin_index,
            end_index=log.end_index,
            begin_pos=log.begin_pos,
            end_pos=log.end_pos,
            chain_crc=log.chain_crc,
            entry_count=log.entry_count,
            message_count=log.message_count,
            file_count=len(replica.data_files),
            data_file_size=replica.data_file_size,
            bytes_read=log.bytes_read,
            committed_index=own_commit(replica),
            term_runs=tuple(log.term_runs),
            damaged=log.damaged_ranges,
        )

    def _progress(self, stage: str, total: int) -> Callable[[int], None]:
        self._on_progress(stage, 0, total)
        return lambda done: self._on_progress(stage, done, total)


def _read_to(replica: Replica, committed_index: int | None) -> int | None:
    """A stopped replica is read to its end, a running one to what it had committed when the validation began."""
    if not replica.is_live or replica.layout is Layout.COMMIT_LOG:
        return None
    own = own_commit(replica)
    return own if committed_index is None else max(own, committed_index)


def _with_common_size(replicas: Sequence[Replica]) -> list[Replica]:
    """A replica whose only data file was cut short, and that has no mark, learns from the others how long it was."""
    sure = {replica.data_file_size for replica in replicas if replica.mark is not None}
    sure = sure or {replica.data_file_size for replica in replicas if len(replica.data_files) > 1}
    sure = sure or {max(replica.data_file_size for replica in replicas)}
    if len(sure) > 1:
        return list(replicas)
    size = sure.pop()
    return [
        replace(replica, data_file_size=size)
        if replica.mark is None and len(replica.data_files) <= 1 and replica.data_file_size < size
        else replica
        for replica in replicas
    ]


def _check_one_group(replicas: Sequence[Replica]) -> None:
    """Raises ReplicaError unless they can be replicas of one group."""
    # Each with each: between two that do not fit may stand one that does not say what it is.
    for one, other in combinations(replicas, 2):
        if one.layout is not other.layout:
            raise ReplicaError(
                f"{one.directory} is a {one.layout} store, {other.directory} a {other.layout} one"
            )
        if one.group and other.group and one.group != other.group:
            raise ReplicaError(
                f"{one.directory} belongs to group {one.group}, {other.directory} to {other.group}: "
                "validate each group by itself"
            )
        if one.data_file_size != other.data_file_size and one.data_files and other.data_files:
            raise ReplicaError(
                f"{one.directory} has data files of {one.data_file_size} bytes, {other.directory} of "
                f"{other.data_file_size}: they are not of one group"
            )


def _numbers_of(units: Sequence[DataRange], replica: Replica) -> list[int]:
    return [number for number, unit in enumerate(units) if unit.replica.name == replica.name]


def _log_part(parts: Sequence[Part]) -> LogPart:
    return next(part for part in parts if isinstance(part, LogPart))


def _batched(found: list[Region], size: int = 64) -> list[tuple[Region, ...]]:
    return [tuple(found[start : start + size]) for start in range(0, len(found), size)]


def _joined(differences: list[Difference], *, by_index: bool) -> Iterator[Difference]:
    """Those that go on over the end of a range of digests, as one."""
    kept: Difference | None = None
    for difference in sorted(differences, key=lambda one: (one.first, one.sides)):
        if (
            kept is not None
            and is_same(kept, difference)
            and (difference.first == kept.last + 1 or not by_index)
        ):
            kept = join(kept, difference)
            continue
        if kept is not None:
            yield kept
        kept = difference
    if kept is not None:
        yield kept


def _is_like(log: ReplicaLog, other: ReplicaLog, differences: Sequence[Difference]) -> bool:
    """Whether replaying `other` says all that replaying `log` would."""
    if log.damaged or other.damaged or log.end_index > other.end_index or log.begin_index < other.begin_index:
        return False
    for difference in differences:
        side = next((side for side in difference.sides if log.replica.name in side), ())
        if side and other.replica.name not in side:
            return False
    return True


def _committed_index(
    logs: Sequence[ReplicaLog], sums: SumTable, agreements: Sequence[Agreement], told: int | None
) -> int:
    """As far as the files of all replicas tell: what one of them says of itself, what a majority holds of the newest
    term, what the caller knows."""
    newest = max((log.end_term for log in logs), default=-1)
    by_name = {log.replica.name: log for log in logs}
    own = [own_commit(log.replica) for log in logs]
    agreed = [agreement.ordinal for agreement in agreements]
    equal = sums.last_equal(by_name, newest)
    return max(*own, *agreed, equal, -1 if told is None else told)
