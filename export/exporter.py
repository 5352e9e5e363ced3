"""An export: what the source has behind the last commit goes into files, each with its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from export.columns import BodyChoice, schema_of, selection_of
from export.export_directory import ExportDirectory, ExportError
from export.log_source import LogSource
from export.manifest import ExportedColumn, Manifest
from export.parquet_part import PartWriter
from export.range_facts import RangeFacts
from verify.log.entry_scan import Run
from verify.log.log_walk import LogPlace

FILE_LOG_SIZE: Final = 256 * 1024 * 1024  # bytes of log that make one file, about
OnCommit = Callable[[Manifest], None]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the rows are: None is what the export has had so far, and for a new one all topics with bodies as stored."""

    topic: str | None = None
    body: BodyChoice | None = None


def export(
    directory: ExportDirectory,
    source: LogSource,
    choices: Choices,
    on_commit: OnCommit = lambda manifest: None,
    *,
    file_log_size: int = FILE_LOG_SIZE,
) -> int:
    """Exports what is committed and not exported yet. Returns how many entries that were.

    Raises ExportError, and what the source raises; all commits before that are there and stay.
    """
    last = directory.last
    topic, body = _chosen(choices, last)
    place = _place(directory, source)
    if place is None:
        return 0
    begin, runs = place.index, source.runs(place)
    while place.index < source.committed_index:
        manifest, place = _part(directory, source, place, runs, topic, body, file_log_size)
        directory.commit(manifest)
        on_commit(manifest)
    return place.index - begin


def _chosen(choices: Choices, last: Manifest | None) -> tuple[str, BodyChoice]:
    topic = choices.topic if choices.topic is not None else last.topic if last is not None else ""
    body = choices.body or (last.body if last is not None else "stored")
    if last is not None and last.topic != topic:
        raise ExportError(
            f"this export has {'topic ' + last.topic if last.topic else 'all topics'}: export "
            f"{'topic ' + topic if topic else 'all topics'} into another directory"
        )
    return topic, body


def _place(directory: ExportDirectory, source: LogSource) -> LogPlace | None:
    """Where to go on; None where the log has nothing yet."""
    last = directory.last
    begin = source.begin()
    if last is None:
        return begin
    if last.group != source.group:
        raise ExportError(
            f"{directory.path} is an export of group {last.group}, and this is group {source.group}"
        )
    if begin is not None and begin.index > last.last_index:
        raise ExportError(
            f"entries {last.last_index + 1:,} .. {begin.index:,} are no longer in the log, and {directory.path} ends "
            f"with entry {last.last_index:,}: begin a new export in another directory, and export sooner than the "
            "log expires (fileReservedTime)"
        )
    return last.place


def _part(
    directory: ExportDirectory,
    source: LogSource,
    begin: LogPlace,
    runs: Iterator[Run],
    topic: str,
    body: BodyChoice,
    file_log_size: int,
) -> tuple[Manifest, LogPlace]:
    selection = selection_of(topic, body)
    writer = PartWriter(directory.path, selection, source.group)
    facts = RangeFacts(begin)
    try:
        for run in runs:
            writer.take(run)
            facts.take(run)
            if facts.place.pos - begin.pos >= file_log_size:
                break
        place = facts.place
        assert place.index > begin.index, "a source gives all entries up to its commit, or raises"
        files = writer.finish(begin.index + 1, place.index)
    except BaseException:
        writer.drop()
        raise
    last = directory.last
    manifest = Manifest(
        number=last.number + 1 if last is not None else 0,
        before=directory.last_sha256,
        group=source.group,
        first_index=begin.index + 1,
        last_index=place.index,
        begin_pos=begin.pos,
        end_pos=place.pos,
        terms=facts.terms,
        chain_before=begin.chain,
        chain_after=place.chain,
        digest=facts.digest,
        topic=topic,
        body=body,
        columns=tuple(ExportedColumn(column.name, str(column.type)) for column in schema_of(selection)),
        rows=writer.rows,
        files=files,
        exported_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return manifest, place


def schema_changes(before: Manifest | None, after: Manifest) -> str:
    """What columns came, went, or have another type now; "" for none. A body's format counts as a column's type."""
    if before is None:
        return ""
    was = {column.name: column.type for column in before.columns}
    now = {column.name: column.type for column in after.columns}
    told = [f"+ {name} {kind}" for name, kind in now.items() if name not in was]
    told += [f"- {name}" for name in was if name not in now]
    told += [f"{name} {was[name]} -> {kind}" for name, kind in now.items() if was.get(name, kind) != kind]
    if before.body != after.body and "body" in was and "body" in now:
        told.append(f"body {before.body} -> {after.body}")
    return ", ".join(told)
