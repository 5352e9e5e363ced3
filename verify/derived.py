"""Everything that follows from the log, checked against it: ConsumeQueues, IndexFiles, state, config exports.

Consumers see the log in pass 1, in the workers; their parts are taken here, on the driver. Once the whole log is known,
units() says what is left to look at, each a unit of work for check().
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from message.names import is_system_topic
from store.layout.directories import BATCH_CONSUME_QUEUES, CONSUME_QUEUES
from verify.findings import Finding
from verify.index.index_file_check import check_index_file
from verify.index.index_file_plan import IndexFilePlan, plan_index_files
from verify.log.data_file import Layout
from verify.queues.consume_queue_check import ConsumeQueueCheck
from verify.queues.queue_extras import QueueExtras, Ranges, find_extras, names_of_directories, plan_extras
from verify.queues.queue_files import topic_directory
from verify.queues.queue_findings import QueuePart, queue_findings
from verify.queues.units_bound import is_ours
from verify.replica import Replica, min_offsets_of
from verify.state.config_check import ConfigFiles, check_config, config_notes, topics_of
from verify.state.group_offsets import QueueEnds
from verify.state.state_check import StateEntries, StatePlaces, StateReplay, plan_replay, replay
from verify.work import DataRange

DerivedPart = QueuePart | StatePlaces
DerivedUnit = QueueExtras | IndexFilePlan | StateReplay | ConfigFiles


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What is known of one replica's log after pass 1. Positions are of entries, or of records in a CommitLog."""

    begin_pos: int
    end_pos: int  # behind the last entry that was read
    end_index: int  # -1 in a CommitLog
    begin_index: int  # likewise
    committed_index: int  # state is replayed up to here
    # Positions that should be entries and are none: damage, missing files, and (end_pos, EVERYTHING) where the
    # replica's own files say that the log once went further.
    damaged: Ranges
    replay_state: bool  # False: the same log is replayed from another replica


def consumers(unit: DataRange) -> list[ConsumeQueueCheck | StateEntries]:
    """For pass 1, each to be fed the runs of the range in order of position. Raises OSError."""
    if unit.replica.layout is Layout.COMMIT_LOG:
        return [ConsumeQueueCheck(unit.replica)]
    return [ConsumeQueueCheck(unit.replica), StateEntries(unit.replica)]


def check(unit: DerivedUnit) -> Iterator[Finding]:
    """The work on one unit of DerivedChecks.units(). Raises OSError."""
    match unit:
        case QueueExtras():
            return find_extras(unit)
        case IndexFilePlan():
            return check_index_file(unit)
        case StateReplay():
            return replay(unit)
        case ConfigFiles():
            return check_config(unit)


class DerivedChecks:
    """The driver's side."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.queue_count = 0  # ConsumeQueues compared with the log; known after units()
        self.notes: list[str] = []  # likewise
        self._replicas = replicas
        self._unreadable: list[Finding] = []  # IndexFiles; known after units()
        self._queue_parts: dict[str, list[QueuePart]] = {replica.name: [] for replica in replicas}
        self._deleted: dict[str, Set[bytes]] = {}
        self._state_places: dict[str, list[StatePlaces]] = {replica.name: [] for replica in replicas}

    def take(self, part: DerivedPart) -> None:
        """A result of pass 1; they come in any order."""
        match part:
            case QueuePart():
                self._queue_parts[part.replica].append(part)
            case StatePlaces():
                self._state_places[part.replica].append(part)

    def units(self, logs: Mapping[str, LogFacts]) -> list[DerivedUnit]:
        """What is left to do; `logs` by name of replica. Raises OSError."""
        units: list[DerivedUnit] = []
        explained: dict[str, dict[tuple[bytes, int], Ranges]] = {}
        for replica in self._replicas:
            log = logs[replica.name]
            # What lies behind the log's end is no part of it.
            parts = [part for part in self._queue_parts[replica.name] if part.pos < log.end_pos]
            self._queue_parts[replica.name] = parts
            explained[replica.name] = queues = _explained(parts)
            self.queue_count += len(queues)
            undecodable = [(fault.pos, fault.next_pos) for part in parts for fault in part.record_faults]
            damaged = _merged([*log.damaged, *undecodable])
            unreadable = {str(Path(path).parent) for part in parts for path, _ in part.unreadable}
            units += plan_extras(replica, queues, log.begin_pos, damaged, unreadable)
            index_files, notes, unreadable_files = plan_index_files(
                replica, log.begin_pos, log.end_pos, damaged
            )
            units += index_files
            self._unreadable += unreadable_files
            self.notes += [*notes, *config_notes(replica)]
            if log.begin_index == 0 and log.begin_pos and replica.layout is Layout.DLEDGER:
                self.notes.append(f"{replica.name}: a plain commitlog came before position {log.begin_pos:,}")
            self._deleted[replica.name] = deleted = _deleted_topics(replica, {topic for topic, _ in queues})
            names = sorted(topic.decode("utf-8", "replace") for topic in deleted)
            self.notes += [
                f"{replica.name}: topic {name} was deleted: its queues are not missed" for name in names
            ]
        ends = self._queue_ends(logs, explained)
        for replica in self._replicas:
            log = logs[replica.name]
            units.append(ConfigFiles(replica, ends))
            if log.replay_state and replica.layout is Layout.DLEDGER:
                units.append(
                    plan_replay(
                        replica,
                        self._state_places[replica.name],
                        begins_whole=log.begin_index == 0,
                        up_to=log.committed_index,
                        end_pos=log.end_pos,
                        damaged=log.damaged,
                        queue_ends=ends,
                    )
                )
        return units

    def findings(self) -> Iterator[Finding]:
        """Of pass 1, and of what could not be looked at; after units()."""
        yield from self._unreadable
        for replica in self._replicas:
            parts, deleted = self._queue_parts[replica.name], self._deleted[replica.name]
            yield from queue_findings(replica, parts, deleted, min_offsets_of(replica))

    def _queue_ends(
        self, logs: Mapping[str, LogFacts], explained: Mapping[str, Mapping[tuple[bytes, int], Ranges]]
    ) -> QueueEnds:
        ends: dict[tuple[str, int], int] = {}
        for queues in explained.values():
            for (topic, queue_id), ranges in queues.items():
                key = topic.decode("utf-8", "replace"), queue_id
                ends[key] = max(ends.get(key, 0), ranges[-1][1])
        # Behind damage in the longest log a queue may have had messages that no other log has.
        longest = max((log.end_pos for log in logs.values()), default=0)
        sound = [log for log in logs.values() if not log.damaged and log.end_pos == longest]
        return QueueEnds(
            ends,
            is_sure=bool(sound),
            unknown_are_empty=any(log.begin_pos == 0 for log in sound),
            index=max((log.end_index for log in logs.values()), default=-1),
        )


def _deleted_topics(replica: Replica, topics: Set[bytes]) -> Set[bytes]:
    """Java's deleteTopic takes the queues away, and leaves the messages in the log."""
    kept = None if is_ours(replica) else topics_of(replica)
    if kept is None:
        return frozenset()
    present = {
        name
        for kind in (CONSUME_QUEUES, BATCH_CONSUME_QUEUES)
        for name in names_of_directories(f"{replica.directory}/{kind}")
    }
    return {
        topic
        for topic in topics
        if topic_directory(topic) not in present
        and (name := topic.decode("utf-8", "replace")) not in kept
        and not is_system_topic(name)
    }


def _explained(parts: Sequence[QueuePart]) -> dict[tuple[bytes, int], Ranges]:
    """By queue, the offsets that the log has messages for."""
    ranges: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for part in parts:
        for topic, queue_id, first, end in part.explained:
            ranges.setdefault((topic, queue_id), []).append((first, end))
    return {key: _merged(queue) for key, queue in ranges.items()}


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Sorted and apart from each other, as a search for the one that holds a number takes them to be."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((first, end))
    return tuple(merged)
