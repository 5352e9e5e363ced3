"""Where an export has a log from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from export.export_directory import ExportError
from verify.log.data_file import Layout
from verify.log.entry_scan import Run
from verify.log.log_walk import LogBrokenError, LogPlace, begin_of, place_after, walk_from
from verify.replica import Replica


class LogSource(Protocol):
    """One group's log. `committed_index`: the last entry that may be exported, -1 for none."""

    group: str  # first half of the group's uuid in hex; "" in Java's stores
    committed_index: int

    def begin(self) -> LogPlace | None:
        """In front of the oldest entry; None where there is none."""
        ...

    def runs(self, place: LogPlace) -> Iterator[Run]:
        """All entries behind `place`, up to the commit, each proved to follow the one before. Raises what says why it
        cannot."""
        ...


class ReplicaSource:
    """The files of one group's members, or of one of them. What one cannot give another may: where an entry of one
    replica is damaged, the next replica goes on from there. Nothing is read behind a replica's own commit.
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        """Raises ExportError where they are not replicas of one group."""
        for replica in replicas:
            if replica.layout is not Layout.DLEDGER:
                raise ExportError(
                    f"{replica.directory} is a plain CommitLog: only the log of a group has a commit to export up to"
                )
            if replica.group != replicas[0].group:
                raise ExportError(
                    f"{replicas[0].directory} belongs to group {replicas[0].group}, {replica.directory} to "
                    f"{replica.group}: export each group into a directory of its own"
                )
        self._replicas = sorted(replicas, key=lambda replica: -replica.known_committed_index)
        self.group = replicas[0].group
        self.committed_index = self._replicas[0].known_committed_index

    def begin(self) -> LogPlace | None:
        begins = [place for replica in self._replicas if (place := begin_of(replica)) is not None]
        return min(begins, key=lambda place: place.index, default=None)

    def runs(self, place: LogPlace) -> Iterator[Run]:
        """Raises LogBrokenError, OSError, ExportError for entries that no replica has any more."""
        trouble: LogBrokenError | OSError | None = None
        for replica in self._replicas:
            begin = begin_of(replica)
            if begin is None or begin.index > place.index:
                continue
            try:
                for run in walk_from(replica, place, replica.known_committed_index):
                    yield run
                    place = place_after(run)
            except (LogBrokenError, OSError) as error:
                trouble = trouble or error
            if place.index >= self.committed_index:
                return
        if trouble is not None:
            raise trouble
        raise ExportError(f"entry {place.index + 1:,} is no longer in the log of any of the replicas given")
