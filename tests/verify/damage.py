"""Three replicas to be damaged, and what a validation of them finds, with any number of units."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from made_store import Entry

from dledger.entry import (
    BLANK_HEADER_SIZE,
    EntryHeader,
    EntryKind,
    Pos,
    Term,
    blank,
    parse_header,
    seal_entries,
)
from verify.findings import Finding, Kind
from verify.log.entry_scan import Run, scan
from verify.replica import Replica, open_replica
from verify.runner import LocalRunner
from verify.validation import validate
from verify.validation_report import ValidationReport
from verify.work import plan

UNIT_COUNTS = (1, 2, 16)


class Place(NamedTuple):
    index: int
    pos: int
    end_pos: int


class Found(NamedTuple):
    """What a test says of a finding."""

    kind: Kind
    replica: str = ""
    first_index: int | None = None
    last_index: int | None = None
    count: int = 1


class Replicas:
    """`roots` are n0, n1, … . Damage goes to positions of the log; places are those before any damage."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = list(roots)
        self.places = places_of(open_replica(self.roots[0]))
        self.file_size = open_replica(self.roots[0]).data_file_size

    @property
    def end_pos(self) -> int:
        return self.places[-1].end_pos

    def header(self, name: str, index: int) -> EntryHeader:
        return parse_header(self.read(name, self.places[index].pos, 48))

    def path(self, name: str, pos: int) -> Path:
        """The data file that holds a position."""
        return self._data(name) / f"{pos - pos % self.file_size:020d}"

    def file(self, name: str, pos: int) -> str:
        """As findings name it."""
        return f"dledger-{name}/data/{self.path(name, pos).name}"

    def read(self, name: str, pos: int, size: int) -> bytes:
        with self.path(name, pos).open("rb") as file:
            file.seek(pos % self.file_size)
            return file.read(size)

    def write(self, name: str, pos: int, data: bytes) -> None:
        with self.path(name, pos).open("r+b") as file:
            file.seek(pos % self.file_size)
            file.write(data)

    def flip(self, name: str, pos: int, mask: int = 1) -> None:
        self.write(name, pos, bytes([self.read(name, pos, 1)[0] ^ mask]))

    def rename(self, name: str, number: int, pos: int) -> None:
        """Gives the data file of this number the name of another position."""
        path = self.path(name, number * self.file_size)
        path.rename(path.parent / f"{pos:020d}")

    def reseal(
        self,
        name: str,
        index: int,
        *,
        term: int = 0,
        change: Callable[[bytearray], None] = lambda record: None,
        to_the_end: bool = False,
    ) -> None:
        """Gives an entry another term or record, and CRCs that fit; `to_the_end`: the chain behind it fits as well."""
        chain = self.header(name, index - 1).chain_crc
        for place in self.places[index:] if to_the_end else self.places[index : index + 1]:
            header = self.header(name, place.index)
            record = bytearray(self.read(name, place.pos + 48, place.end_pos - place.pos - 48))
            own_term = header.term
            if place.index == index:
                change(record)
                own_term = Term(term) if term else own_term
            sealed, chain = seal_entries(
                [bytes(record)], [header.pos], header.index, own_term, header.kind, chain
            )
            self.write(name, place.pos, b"".join(sealed))

    def add_stale(self, name: str, count: int, *, index: int, term: int, at_next_file: bool = False) -> None:
        """Puts entries behind the end of a replica's log, as an earlier history may have left them: sound, each
        following the one before it, aligned, with these indexes; only the first does not follow the log's last entry.
        """
        pos = self.end_pos
        if at_next_file:
            pos += -pos % self.file_size
        chain = 0x5EED
        for number in range(count):
            record = Entry(index + number, term, "stale").record(pos)
            if pos % self.file_size + len(record) + 48 + BLANK_HEADER_SIZE > self.file_size:
                left = self.file_size - pos % self.file_size
                self._write_new(name, pos, blank(left))
                pos += left
                record = Entry(index + number, term, "stale").record(pos)
            sealed, chain = seal_entries(
                [record], [Pos(pos)], index + number, Term(term), EntryKind.MESSAGE, chain
            )
            self._write_new(name, pos, b"".join(sealed))
            pos += len(record) + 48

    def _write_new(self, name: str, pos: int, data: bytes) -> None:
        path = self.path(name, pos)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        self.write(name, pos, data)

    def report(self, **options: object) -> ValidationReport:
        """The same for any number of units, or it is an error."""
        reports = [
            validate(self.roots, runner=LocalRunner(), unit_count=count, **options)  # type: ignore[arg-type]
            for count in UNIT_COUNTS
        ]
        assert len({report.findings.shown for report in reports}) == 1
        assert len({tuple(report.findings.totals.items()) for report in reports}) == 1
        return reports[0]

    def findings(self, **options: object) -> list[Finding]:
        return list(self.report(**options).findings.shown)

    def found(self, **options: object) -> list[Found]:
        return [as_found(finding) for finding in self.findings(**options)]

    def _data(self, name: str) -> Path:
        root = next(root for root in self.roots if root.name == name)
        return root / f"dledger-{name}" / "data"


def as_found(finding: Finding) -> Found:
    return Found(finding.kind, finding.replica, finding.first_index, finding.last_index, finding.count)


def places_of(replica: Replica) -> list[Place]:
    """Of a sound log, in order."""
    places: list[Place] = []
    for unit in plan([replica]):
        for run in scan(unit):
            if isinstance(run, Run):
                shift = run.first_pos - run.offsets[0]
                places += [
                    Place(run.first_index + number, start + shift, end + shift)
                    for number, (start, end) in enumerate(zip(run.offsets, run.ends, strict=True))
                ]
    return places
