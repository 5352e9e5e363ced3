"""A validation's result in words: the verdict that text and HTML share, and rows for tables.

Topics, keys and file names come out of stores, which may hold anything: whatever is shown passes `visible` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from verify.findings import INFO_KINDS, Finding, Kind
from verify.log.data_file import Layout
from verify.validation_report import ReplicaSummary, ValidationReport

TEXT_SIZE_MAX = 600


def visible(text: str) -> str:
    """Without what would move a cursor, turn the writing direction or not be UTF-8; cut where it has no end."""
    cut = text if len(text) <= TEXT_SIZE_MAX else text[: TEXT_SIZE_MAX - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut
    )


def counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], count_max: int = 4) -> str:
    """a, b and c; the end of a long list as a number."""
    words = [*words]
    if len(words) > count_max:
        words = [*words[: count_max - 1], f"{len(words) - count_max + 1:,} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def span(first: int | None, last: int | None) -> str:
    """An inclusive range as a reader takes it in; "" for none."""
    if first is None:
        return "" if last is None else f"{last:,}"
    return f"{first:,}" if last is None or last == first else f"{first:,} – {last:,}"


def size(count: float) -> str:
    """Bytes, to three digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence, and a second one for those who read on."""

    is_clean: bool
    headline: str
    detail: str


def verdict(report: ValidationReport) -> Verdict:
    return _clean(report) if report.is_clean else _not_clean(report)


def _clean(report: ValidationReport) -> Verdict:
    replicas = report.replicas
    infos = [f"{kind} ({count:,})" for kind, count in report.findings.totals.items()]
    further = [f"what was found breaks no promise: {listed(infos)}"] if infos else []
    if report.acknowledged:
        further.append(f"all {counted(report.acknowledged_found, 'acknowledged message')} found")
    if not any(replica.entry_count for replica in replicas):
        if any(replica.is_live for replica in replicas):
            further.append("give --committed N, as mq cluster status shows it")
            headline = "Nothing to judge yet: no file of these running replicas calls an entry committed."
            return Verdict(True, headline, _sentence(further))
        return Verdict(
            True, f"Nothing to prove: {_replicas(len(replicas))} without an entry.", _sentence(further)
        )
    if len(replicas) == 1:
        (replica,) = replicas
        sound = (
            counted(replica.entry_count, "sound entry", "sound entries")
            if is_indexed(replica)
            else counted(replica.message_count, "sound message")
        )
        headline = f"Clean: 1 replica with {sound}."
        further.insert(0, "one replica has nothing to be compared with")
    elif not any(is_indexed(replica) for replica in replicas):
        headline = f"Clean: {_replicas(len(replicas))} are equal, byte for byte, as far as they go."
    elif report.common_index < 0:
        headline = f"Clean: {_replicas(len(replicas))}, each sound in itself."
        further.insert(0, "no entry is in all of them")
    else:
        headline = f"Clean: {_replicas(len(replicas))} are equal, byte for byte, up to index {report.common_index:,}."
    if 0 <= report.common_index < report.committed_index:
        further.append(f"the group has committed up to index {report.committed_index:,}")
        further += _why_no_more(report)
    return Verdict(True, headline, _sentence(further))


def _why_no_more(report: ValidationReport) -> Iterator[str]:
    """What kept the validation from looking at all that is committed, in all replicas."""
    behind = [replica for replica in report.replicas if replica.end_index < report.committed_index]
    running = [replica for replica in behind if replica.is_live]
    stopped = [replica for replica in behind if not replica.is_live]
    if running:
        subject = (
            f"{_names(running)} runs, and its" if len(running) == 1 else f"{_names(running)} run, and their"
        )
        yield (
            f"{subject} files told of the commit up to index {_ends(running)} when the validation began: "
            "no more was looked at"
        )
    if stopped:
        log = "the log of {} ends" if len(stopped) == 1 else "the logs of {} end"
        yield f"{log.format(_names(stopped))} at index {_ends(stopped)}"


def _names(replicas: Sequence[ReplicaSummary]) -> str:
    return listed([visible(replica.name) for replica in replicas])


def _ends(replicas: Sequence[ReplicaSummary]) -> str:
    """Each once where they are the same."""
    return listed(list(dict.fromkeys(f"{replica.end_index:,}" for replica in replicas)))


def _not_clean(report: ValidationReport) -> Verdict:
    found = report.findings
    kinds = [str(kind) for kind in Kind if kind not in INFO_KINDS and found.totals.get(kind)]
    count = sum(number for kind, number in found.totals.items() if kind not in INFO_KINDS)
    errors = [finding for finding in found.shown if finding.kind not in INFO_KINDS]
    names = sorted({finding.replica for finding in errors})
    # A shortened list may not name every replica that is concerned, and an error may be in none of them.
    where = "" if found.left_out or "" in names else f" in {listed([visible(name) for name in names])}"
    further = [listed(kinds, 5)]
    if len(report.replicas) > 1 and any(is_indexed(replica) for replica in report.replicas):
        further.append(
            f"all replicas are equal up to index {report.common_index:,}"
            if report.common_index >= 0
            else "no entry is equal in all replicas"
        )
    if report.acknowledged:
        further.append(
            f"{report.acknowledged_found:,} of {report.acknowledged:,} acknowledged messages found"
        )
    return Verdict(False, f"Not clean: {counted(count, 'error')}{where}.", _sentence(further))


def is_indexed(replica: ReplicaSummary) -> bool:
    """A plain CommitLog has neither indexes nor terms; its positions are what there is to tell."""
    return replica.layout != Layout.COMMIT_LOG


def index_span(replica: ReplicaSummary) -> str:
    """ "" for a replica that has no indexes to name."""
    if not replica.entry_count or not is_indexed(replica):
        return ""
    return span(replica.begin_index, replica.end_index)


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else "both replicas" if count == 2 else f"all {count} replicas"


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def place(finding: Finding) -> str:
    """Topic, queue and offset, as far as they apply."""
    parts = [visible(finding.topic)] if finding.topic else []
    if finding.queue_id is not None:
        parts.append(f"queue {finding.queue_id}")
    offsets = span(finding.first_offset, finding.last_offset)
    if offsets:
        parts.append(f"offset {offsets}")
    return " · ".join(parts)


REPLICA_COLUMNS = (
    "replica",
    "state",
    "index",
    "entries",
    "messages",
    "last term",
    "files",
    "log",
    "end chain",
)


def replica_row(replica: ReplicaSummary) -> list[object]:
    return [
        visible(replica.name),
        "live" if replica.is_live else "stopped",
        index_span(replica) or "-",
        replica.entry_count,
        replica.message_count,
        str(replica.end_term) if replica.term_runs else "-",
        replica.file_count,
        size(replica.end_pos - replica.begin_pos),
        f"{replica.chain_crc & 0xFFFFFFFF:08x}" if replica.chain_crc else "-",
    ]


def finding_lines(finding: Finding) -> list[str]:
    """What and where in one line, then the sentence."""
    index = span(finding.first_index, finding.last_index)
    where = [
        visible(finding.replica),
        visible(finding.file),
        f"index {index}" if index else "",
        place(finding),
    ]
    head = f"{finding.severity}: {finding.kind}: {', '.join(filter(None, where))}".removesuffix(": ")
    return [head, visible(finding.sentence)] if finding.sentence else [head]
