"""A manifest: what one commit of an export holds, and how it follows the commit before it.

Manifests are JSON files in `_manifests/` of the export, one per commit, numbered from 0. Readers of Parquet pass over
names that begin with `_`. A manifest names the one before it by its SHA-256, so the last one vouches for all.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import msgspec

from export.columns import BodyChoice
from verify.log.log_walk import LogPlace

VERSION: Final = 1
DIRECTORY: Final = "_manifests"
_NAME: Final = re.compile(r"(\d{10})\.json")


class ManifestError(Exception):
    """A manifest cannot be read, or does not follow the one before it. The text names it."""


class TermBegin(msgspec.Struct, frozen=True):
    term: int
    first_index: int  # of the entries of this term, as far as this commit has them


class ExportedFile(msgspec.Struct, frozen=True):
    name: str  # in the directory of the export
    size: int  # bytes
    rows: int
    sha256: str


class ExportedColumn(msgspec.Struct, frozen=True):
    name: str
    type: str  # as Arrow writes it


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Entries first_index .. last_index of a group's log, all of them, and the files that have them as rows.

    `chain_before` is None where nobody knew it, both chains are in a log of Java, which has none.
    """

    version: int = VERSION
    number: int
    before: str  # SHA-256 of the manifest before this one; "" for the first one
    group: str  # first half of the group's uuid in hex; "" in Java's stores
    first_index: int
    last_index: int
    begin_pos: int  # where the log was read from: the first entry, or a blank in front of it
    end_pos: int  # behind the last entry
    terms: tuple[TermBegin, ...]
    chain_before: int | None
    chain_after: int | None
    digest: str  # the sum of the entries' mmh3 digests (x64, 128 bits), in hex
    topic: str  # rows are of this topic alone; "": of all
    body: BodyChoice
    columns: tuple[ExportedColumn, ...]
    rows: int
    files: tuple[ExportedFile, ...]  # none where no entry was of the topic
    exported_at: str  # ISO 8601, UTC

    @property
    def place(self) -> LogPlace:
        """Where the next commit goes on."""
        return LogPlace(self.last_index, self.terms[-1].term, self.chain_after, self.end_pos)

    @property
    def place_before(self) -> LogPlace:
        """Where this one began. The term before is not told, and any fits."""
        return LogPlace(self.first_index - 1, -1, self.chain_before, self.begin_pos)

    @property
    def range(self) -> str:
        """As sentences name it."""
        return f"entries {self.first_index:,} .. {self.last_index:,}"


def manifest_name(number: int) -> str:
    return f"{number:010}.json"


def manifest_numbers(directory: Path) -> list[int]:
    """Of an export, in order. Raises OSError."""
    names = [path.name for path in (directory / DIRECTORY).iterdir()]
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def read_manifest(directory: Path, number: int) -> tuple[Manifest, str]:
    """And its SHA-256. Raises ManifestError, OSError."""
    path = directory / DIRECTORY / manifest_name(number)
    content = path.read_bytes()
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{path} is no manifest: {error}") from None
    if manifest.version != VERSION:
        raise ManifestError(f"{path} is of version {manifest.version}, and this release knows {VERSION}")
    if manifest.number != number or not manifest.terms or manifest.last_index < manifest.first_index:
        raise ManifestError(f"{path} does not say what a manifest of this number must")
    return manifest, hashlib.sha256(content).hexdigest()


def link_fault(before: Manifest, before_sha256: str, after: Manifest) -> str:
    """Why `after` is not the next commit behind `before`; "" if it is."""
    if after.group != before.group:
        return f"group {after.group} follows group {before.group}"
    if after.first_index != before.last_index + 1:
        word = "gap" if after.first_index > before.last_index + 1 else "overlap"
        return f"{word}: {after.range} follow {before.range}"
    if after.chain_before != before.chain_after:
        return f"chain {after.chain_before} follows chain {before.chain_after}"
    if after.terms[0].term < before.terms[-1].term:
        return f"term {after.terms[0].term} follows term {before.terms[-1].term}"
    if after.begin_pos != before.end_pos:
        return f"position {after.begin_pos} follows position {before.end_pos}"
    if after.before != before_sha256:
        return "the manifest before it was changed since"
    return ""
