"""Is an export whole, unchanged, and what the replicas hold? Reads, never writes.

Three looks: manifests follow each other without gap and overlap; files have the sums and rows that their manifests say;
and, where replicas are given, the log as they have it makes the same rows, value by value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from export.columns import place_of
from export.manifest import (
    DIRECTORY,
    Manifest,
    ManifestError,
    link_fault,
    manifest_name,
    manifest_numbers,
    read_manifest,
)
from export.parquet_part import parts_in, read_part, schema_of_part
from export.range_facts import RangeFacts
from export.table_log import formats_of, open_table
from pyspark_dledger.entry_columns import Selection, run_batches
from pyspark_dledger.schema import SchemaError, check_names
from verify.log.entry_scan import Run
from verify.log.log_part import SUM_MASK
from verify.log.log_walk import LogBrokenError, LogPlace, begin_of, walk_from
from verify.replica import Replica

_VALUE_SHOWN: Final = 60  # characters
OnProgress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Compared:
    """With one replica. Indexes are of entries, inclusive; -1: none."""

    replica: str
    first_index: int = -1
    last_index: int = -1
    entries: int = 0
    remark: str = ""  # what of the export its log does not have, or not yet


@dataclass(slots=True)
class ExportReport:
    """Without `faults` the export is what it says, and equal to each replica as far as `compared` says."""

    directory: str
    group: str = ""
    commits: int = 0
    first_index: int = -1
    last_index: int = -1
    rows: int = 0
    size: int = 0  # bytes of its files
    last_manifest: str = ""  # SHA-256: it vouches for all before it
    faults: list[str] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)


def check_export(
    directory: Path,
    replicas: Sequence[Replica] = (),
    on_progress: OnProgress = lambda stage, done, total: None,
) -> ExportReport:
    """Raises ManifestError where there is no export; ExportError, OSError for what cannot be read at all.

    An export may run beside it: what is committed meanwhile is not looked at, and no fault.
    """
    report = ExportReport(str(directory))
    manifests = _manifests(directory, report)
    parts = parts_in(directory)
    sound: list[Manifest] = []
    for done, manifest in enumerate(manifests):
        on_progress("files", done, len(manifests))
        faults = list(_file_faults(directory, manifest))
        report.faults += faults
        if not faults:
            sound.append(manifest)
    for replica in replicas:
        report.compared.append(_compare(directory, sound, replica, report.faults, on_progress))
    tables = [open_table(directory, table_format) for table_format in formats_of(directory)]
    # An export writes a file before its manifest, and tables after it. So what parts and tables have by now is in
    # manifests that are read now.
    newest = _manifests(directory, ExportReport(report.directory))
    for name in sorted(parts - {file.name for manifest in newest for file in manifest.files}):
        report.faults.append(
            f"{name}: no manifest names this file, and readers of the directory take its rows for the export's; "
            "if a killed export left it, the next one deletes it"
        )
    for table in tables:
        report.faults += table.faults(newest, manifests[-1].number if manifests else -1)
    return report


# -- manifests -------------------------------------------------------------------------------------------------


def _manifests(directory: Path, report: ExportReport) -> list[Manifest]:
    try:
        numbers = manifest_numbers(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise ManifestError(f"{directory} is no export: there is no {DIRECTORY} in it") from None
    if not numbers:
        raise ManifestError(f"{directory} is an export without a commit: nothing was exported into it yet")
    found: list[Manifest] = []
    before: tuple[Manifest, str] | None = None
    for number in range(numbers[-1] + 1):
        where = f"{DIRECTORY}/{manifest_name(number)}"
        try:
            read = read_manifest(directory, number)
        except FileNotFoundError:
            report.faults.append(f"{where}: the manifest is not there")
            before = None
            continue
        except ManifestError as error:
            report.faults.append(str(error))
            before = None
            continue
        manifest, sha256 = read
        fault = link_fault(*before, manifest) if before is not None else ""
        if before is None and number == 0 and manifest.before:
            fault = "the first manifest names one before it"
        if fault:
            report.faults.append(f"{where}: {fault}")
        found.append(manifest)
        report.last_manifest = sha256
        before = read
    if found:
        report.group, report.commits = found[0].group, len(found)
        report.first_index, report.last_index = found[0].first_index, found[-1].last_index
        report.rows = sum(manifest.rows for manifest in found)
        report.size = sum(file.size for manifest in found for file in manifest.files)
    return found


# -- files -----------------------------------------------------------------------------------------------------


def _file_faults(directory: Path, manifest: Manifest) -> Iterator[str]:
    for file in manifest.files:
        path = directory / file.name
        try:
            with path.open("rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
                size = opened.tell()
        except OSError as error:
            yield f"{file.name}: {error.strerror}; it has {manifest.range}"
            return
        if (size, sha256) != (file.size, file.sha256):
            told = f"{size:,} bytes instead of {file.size:,}" if size != file.size else "other bytes"
            yield f"{file.name}: the file was changed: {told}; it has {manifest.range}"
            return
    try:
        fault = _row_fault(directory, manifest)
    except pa.ArrowException as error:
        fault = f"it cannot be read: {error}"
    if fault:
        yield f"{manifest.files[0].name if manifest.files else manifest.range}: {fault}"


def _row_fault(directory: Path, manifest: Manifest) -> str:
    """That the rows are those of the manifest's range: by their indexes, and of all topics by their digests too."""
    index, rows, digest = manifest.first_index - 1, 0, 0
    for file in manifest.files:
        schema = schema_of_part(directory / file.name)
        types = dict(zip(schema.names, schema.types, strict=True))
        if schema.names != [column.name for column in manifest.columns] or (
            (types.get("index"), types.get("digest")) != (pa.int64(), pa.binary())
        ):
            return "its columns are not those that the manifest says"
        for batch in read_part(directory / file.name, ("index", "digest")):
            rows += batch.num_rows
            if batch.column("index").null_count or batch.column("digest").null_count:
                return "rows without an index or a digest"
            for row_index in batch.column("index").to_pylist():
                if row_index <= index:
                    return f"row of entry {row_index:,} behind row of entry {index:,}"
                index = row_index
            digest += sum(int.from_bytes(value, "little") for value in batch.column("digest").to_pylist())
    if rows != manifest.rows:
        return f"{rows:,} rows instead of {manifest.rows:,}"
    if index > manifest.last_index:
        return f"row of entry {index:,}, and the manifest says {manifest.range}"
    if not manifest.topic:
        count = manifest.last_index - manifest.first_index + 1
        if rows != count:
            return f"{rows:,} rows for {count:,} entries"
        if f"{digest & SUM_MASK:032x}" != manifest.digest:
            return f"digest {digest & SUM_MASK:032x}, and the manifest says {manifest.digest}"
    return ""


# -- replicas --------------------------------------------------------------------------------------------------


def _compare(
    directory: Path,
    manifests: Sequence[Manifest],
    replica: Replica,
    faults: list[str],
    on_progress: OnProgress,
) -> Compared:
    compared = Compared(replica.name)
    begin = begin_of(replica)
    begin_index = begin.index + 1 if begin is not None else 0
    for done, manifest in enumerate(manifests):
        on_progress(f"against {replica.name}", done, len(manifests))
        if replica.group != manifest.group:
            faults.append(f"{replica.name} is of group {replica.group}, the export of group {manifest.group}")
            break
        if manifest.first_index < begin_index:
            compared.remark = f"its log begins with entry {begin_index:,}"
            continue
        if manifest.last_index > replica.known_committed_index:
            compared.remark = f"it knows no commit behind entry {replica.known_committed_index:,}"
            break
        if fault := _difference(directory, manifest, replica):
            faults.append(f"{replica.name}, {manifest.range}: {fault}")
            continue
        if compared.first_index < 0:
            compared.first_index = manifest.first_index
        compared.last_index = manifest.last_index
        compared.entries += manifest.last_index - manifest.first_index + 1
    if compared.remark and not compared.entries:
        faults.append(f"{replica.name}: nothing of the export can be compared with it: {compared.remark}")
    return compared


def _difference(directory: Path, manifest: Manifest, replica: Replica) -> str:
    try:
        names = check_names(column.name for column in manifest.columns)
    except SchemaError as error:
        return f"this release cannot make the rows: {error}"
    selection = Selection(names, topic=manifest.topic or None, inflate=manifest.body == "inflated")
    rows = _Rows(read_part(directory / file.name, names) for file in manifest.files)
    facts = RangeFacts(manifest.place_before)
    try:
        for run in walk_from(replica, facts.place, manifest.last_index):
            facts.take(run)
            if fault := _run_difference(run, rows, selection, manifest.group):
                return fault
    except (LogBrokenError, OSError) as error:
        return f"the replica cannot be read: {error}"
    except pa.ArrowException as error:
        return f"the files cannot be read: {error}"
    if not rows.is_at_end:
        return "the files have rows that the replica has not"
    if facts.digest != manifest.digest:
        return "its entries have another digest"
    if facts.place != manifest.place:
        return f"the range ends {_ending(facts.place)}, and the manifest says {_ending(manifest.place)}"
    if facts.terms != manifest.terms:
        return "its terms are not those that the manifest says"
    return ""


def _ending(place: LogPlace) -> str:
    return f"at position {place.pos} in term {place.term} with chain {place.chain}"


def _run_difference(run: Run, rows: _Rows, selection: Selection, group: str) -> str:
    for batch in run_batches(run, place_of(group), selection):
        wanted = pa.Table.from_batches([batch])
        found = rows.take(batch.num_rows)
        if found.num_rows < batch.num_rows:
            return "the replica has rows that the files have not"
        if not found.equals(wanted):
            return _first_difference(found, wanted)
    return ""


def _first_difference(found: pa.Table, wanted: pa.Table) -> str:
    places = []
    for name in wanted.column_names:
        try:
            in_file, in_log = found[name].to_pylist(), wanted[name].to_pylist()
        except UnicodeDecodeError:
            return f"column {name}: the file has text that is no UTF-8"
        number = next(
            (at for at, pair in enumerate(zip(in_file, in_log, strict=True)) if pair[0] != pair[1]), -1
        )
        if number >= 0:
            places.append((number, name, in_file[number], in_log[number]))
    number, name, in_file, in_log = min(places, key=lambda place: place[0])
    index = wanted["index"][number].as_py()
    return f"entry {index:,}, column {name}: {_shown(in_file)} in the file, {_shown(in_log)} in the log"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_SHOWN else text[:_VALUE_SHOWN] + "…"


class _Rows:
    """Rows of files, taken in any numbers."""

    def __init__(self, files: Iterator[Iterator[pa.RecordBatch]]) -> None:
        self._batches = (batch for batches in files for batch in batches)
        self._rest: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.Table:
        """Fewer at the end."""
        taken: list[pa.RecordBatch] = []
        while count > 0 and (batch := self._next()) is not None:
            taken.append(batch.slice(0, count))
            self._rest = batch.slice(count) if batch.num_rows > count else None
            count -= taken[-1].num_rows
        return pa.Table.from_batches(taken)

    @property
    def is_at_end(self) -> bool:
        self._rest = self._next()
        return self._rest is None

    def _next(self) -> pa.RecordBatch | None:
        """The first batch with rows, the rest of one that was taken from before others."""
        batch, self._rest = self._rest, None
        while batch is None or not batch.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return None
        return batch
