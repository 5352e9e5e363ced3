"""What a validation may find, as values: a kind, where it is, one sentence.

Findings of one kind that follow each other are one finding with a range; `count` says how many entries, units or
records it stands for, so that totals stay exact however the list is shortened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final


class Severity(StrEnum):
    INFO = "info"  # what a crash or a lagging member leaves; nothing that was promised is touched
    ERROR = "error"


class Kind(StrEnum):
    """The words of `docs/validation.md`, where each has its cause and its sentence."""

    TORN_TAIL = "torn tail"
    DAMAGED_HEADER = "damaged header"
    BODY_CRC = "body crc"
    CHAIN_CRC = "chain crc"
    GAP = "gap"
    DUPLICATE_INDEX = "duplicate index"
    ORDER = "order"
    NON_MONOTONIC_TERM = "non-monotonic term"
    WRONG_POS = "wrong pos"
    WRONG_FILE_BASE = "wrong file base"
    MISSING_FILE = "missing file"
    STALE_BYTES = "stale bytes after the end"
    COMMITTED_DIVERGENCE = "committed divergence"
    TAIL_DIFFERENCE = "uncommitted tail difference"
    SHORTER_REPLICA = "shorter replica"
    EMPTY_REPLICA = "empty replica"
    COMMIT_BEYOND_END = "commit beyond end"
    BAD_BLANK = "bad blank"
    UNDECODABLE_MESSAGE = "undecodable message"
    CONSUME_QUEUE_WRONG = "consume queue unit wrong"
    CONSUME_QUEUE_MISSING = "consume queue unit missing"
    CONSUME_QUEUE_EXTRA = "consume queue unit extra"
    QUEUE_OFFSET_TWICE = "queue offset given twice"
    KEY_INDEX_WRONG = "key index wrong"
    GROUP_OFFSET = "group offset outside its queue"
    CONFIG_UNREADABLE = "config export unreadable"
    STATE_RECORD = "state record inconsistent"
    LOST_MESSAGE = "lost acknowledged message"
    UNREADABLE_FILE = "unreadable file"


INFO_KINDS: Final = frozenset({Kind.TORN_TAIL, Kind.TAIL_DIFFERENCE, Kind.SHORTER_REPLICA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`replica` is "" where it concerns several. Indexes are inclusive; None where there is none to name.

    `file` is relative to the replica's store directory. `sentence` says what is there and what should be.
    """

    kind: Kind
    replica: str = ""
    file: str = ""
    first_index: int | None = None
    last_index: int | None = None
    topic: str = ""
    queue_id: int | None = None
    first_offset: int | None = None  # queue offsets, inclusive
    last_offset: int | None = None
    count: int = 1
    sentence: str = ""

    def __post_init__(self) -> None:
        # Names in a store may be no UTF-8, and a report must get written whatever is in it.
        for name in ("replica", "file", "topic", "sentence"):
            text = getattr(self, name)
            if not text.isascii():
                object.__setattr__(self, name, text.encode("utf-8", "replace").decode())

    @property
    def severity(self) -> Severity:
        return Severity.INFO if self.kind in INFO_KINDS else Severity.ERROR

    def as_dict(self) -> dict[str, Any]:
        """For JSON. What does not apply is left out."""
        told = {"severity": str(self.severity), **asdict(self), "kind": str(self.kind)}
        return {name: value for name, value in told.items() if value not in ("", None)}


def sort_key(finding: Finding) -> tuple[object, ...]:
    """Errors first, then by place: the same order for the same findings, however they were come by."""
    return (
        finding.severity is Severity.INFO,
        list(Kind).index(finding.kind),
        finding.replica,
        finding.file,
        -1 if finding.first_index is None else finding.first_index,
        finding.topic,
        -1 if finding.queue_id is None else finding.queue_id,
        -1 if finding.first_offset is None else finding.first_offset,
        finding.sentence,
    )


@dataclass(frozen=True, slots=True)
class Findings:
    """`shown` is capped and sorted, `totals` are exact: by kind, how many entries, units or records."""

    shown: tuple[Finding, ...]
    totals: dict[Kind, int]
    left_out: int = 0  # findings, not entries

    @property
    def is_clean(self) -> bool:
        """Infos do not count: they break no promise."""
        return all(kind in INFO_KINDS for kind in self.totals)


def gather(findings: Iterable[Finding], count_max: int) -> Findings:
    """Keeps the first `count_max` in the order of `sort_key`; memory is bounded by twice as many."""
    totals: dict[Kind, int] = {}
    kept: list[Finding] = []
    seen = 0
    for finding in findings:
        totals[finding.kind] = totals.get(finding.kind, 0) + finding.count
        seen += 1
        kept.append(finding)
        if len(kept) > 2 * count_max + 64:
            kept = sorted(kept, key=sort_key)[:count_max]
    shown = tuple(sorted(kept, key=sort_key)[:count_max])
    return Findings(shown, dict(sorted(totals.items())), seen - len(shown))
