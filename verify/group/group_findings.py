"""Findings about replicas that are not the same: who holds what, and what the chain says about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from verify.findings import Finding, Kind
from verify.group.compare import Difference
from verify.replica import Replica
from verify.replica_log import ReplicaLog


def difference_findings(
    logs: Sequence[ReplicaLog], differences: Sequence[Difference], committed_index: int
) -> list[Finding]:
    """Above the group's commit a difference is what elections leave, and the members mend it themselves. So is the tail
    of a member that was down while the others went on without it, wherever that is by now.

    What follows from a difference is told with it: the link to the next entry that a change breaks, and the chain's
    values behind one that was sealed. Where the log's own finding names the change, it is told there.
    """
    found: list[Finding] = []
    before: Difference | None = None
    for difference in differences:
        if not logs[0].is_ordered_by_index:
            found.append(_position_finding(logs, difference))
            continue
        if difference.is_chain_only and _is_told_as_consequence(logs, difference, before, found):
            continue
        before = difference
        if _is_stale_tail(difference, logs):
            found.append(_finding(Kind.TAIL_DIFFERENCE, logs, difference))
            continue
        if difference.last > committed_index:
            first = max(difference.first, committed_index + 1)
            part = _part(difference, first, difference.last)
            found.append(_finding(Kind.TAIL_DIFFERENCE, logs, part))
        if difference.first <= committed_index:
            last = min(difference.last, committed_index)
            part = _part(difference, difference.first, last)
            found.append(_finding(Kind.COMMITTED_DIVERGENCE, logs, part))
            _drop_broken_link(logs, part)
    return found


def _is_told_as_consequence(
    logs: Sequence[ReplicaLog], difference: Difference, before: Difference | None, found: list[Finding]
) -> bool:
    """Adds the count of entries to the finding about the one in front of them, if there is one."""
    told = f"; and {difference.count:,} entries after it follow from that: their chain values differ"
    if difference.count == 1:
        told = "; and the entry after it follows from that: its chain value differs"
    if before is not None and before.sides == difference.sides and before.last == difference.first - 1:
        found[-1] = replace(found[-1], sentence=found[-1].sentence + told)
        return True
    for log in _suspects(logs, difference):
        for number, finding in enumerate(log.findings):
            if finding.last_index == difference.first - 1:
                log.findings[number] = replace(finding, sentence=finding.sentence + told)
                return True
    return False


def _suspects(logs: Sequence[ReplicaLog], difference: Difference) -> list[ReplicaLog]:
    """Those in the minority; all where nobody is."""
    largest = difference.sides[0]
    has_majority = len(largest) > len(difference.sides[1])
    return [log for log in logs if not has_majority or log.replica.name not in largest]


def _drop_broken_link(logs: Sequence[ReplicaLog], difference: Difference) -> None:
    """The entry behind a change is not to blame that it does not follow from it: _what_the_chain_says() tells of it."""
    for log in _suspects(logs, difference):
        log.findings[:] = [
            finding
            for finding in log.findings
            if finding.kind is not Kind.CHAIN_CRC
            or finding.first_index != difference.last + 1
            or finding.count > 1
        ]


def shorter_findings(logs: Sequence[ReplicaLog], committed_index: int) -> Iterator[Finding]:
    """A running replica is not asked for more than it had committed. One that holds nothing at all has lost it, unless
    its mark says that it was to begin anew behind what it does not hold."""
    longest = max(logs, key=lambda log: log.last_ordinal)
    for log in logs:
        missing = longest.last_ordinal - log.last_ordinal
        if log.replica.is_live or missing <= 0:
            continue
        name, other = log.replica.name, longest.replica.name
        if log.is_ordered_by_index and log.end_index < 0 <= committed_index and not log.findings:
            yield Finding(
                kind=Kind.EMPTY_REPLICA,
                replica=name,
                first_index=longest.begin_index,
                last_index=committed_index,
                sentence=f"{name} holds no entry; the group has committed up to {committed_index}. A member that has "
                "just joined fills itself when it runs, another one has lost its disk",
            )
        elif log.is_ordered_by_index:
            yield Finding(
                kind=Kind.SHORTER_REPLICA,
                replica=name,
                first_index=log.end_index + 1,
                last_index=longest.end_index,
                count=missing,
                sentence=f"{name} ends at entry {log.end_index}, {other} goes on to {longest.end_index}",
            )
        else:
            sentence = f"{name} ends at position {log.end_pos}, {other} at {longest.end_pos}"
            yield Finding(kind=Kind.SHORTER_REPLICA, replica=name, sentence=sentence)


def unheld_commit(logs: Sequence[ReplicaLog], told: int | None) -> Iterator[Finding]:
    """What the caller knows to be committed and no replica goes up to."""
    end_index = max(log.end_index for log in logs)
    if told is not None and logs[0].is_ordered_by_index and told > end_index:
        yield Finding(
            kind=Kind.COMMIT_BEYOND_END,
            first_index=end_index + 1,
            last_index=told,
            count=told - end_index,
            sentence=f"entries up to {told} are known to be committed; no replica goes beyond {end_index}",
        )


def common_ordinal(logs: Sequence[ReplicaLog], differences: Sequence[Difference]) -> int:
    """The last index that all replicas hold alike, with all before it that they hold; -1: there is none."""
    ends = [log.end_index for log in logs]
    ends += [difference.first - 1 for difference in differences]
    ends += [first - 1 for log in logs for first, _ in log.lost]
    return max(min(ends), -1) if logs[0].is_ordered_by_index else -1


def _is_stale_tail(difference: Difference, logs: Sequence[ReplicaLog]) -> bool:
    """Whether all but the majority hold what a leader of another term wrote and nobody has cut yet.

    Such a tail goes to the end of its log and lies above what its replica itself knows to be committed. An entry of
    the same index and term can only be the same entry.
    """
    main, *others = zip(difference.sides, difference.terms, strict=True)
    if len(main[0]) <= len(logs) // 2:
        return False
    by_name = {log.replica.name: log for log in logs}
    main_end = max(by_name[name].end_index for name in main[0])
    return all(
        term != main[1]
        and difference.first > own_commit(by_name[name].replica)
        and difference.last >= min(by_name[name].end_index, main_end)
        for side, term in others
        for name in side
    )


def own_commit(replica: Replica) -> int:
    """What the replica's own files say is committed."""
    return max(replica.applied_index, replica.java_committed_index, replica.told_committed_index)


def _part(difference: Difference, first: int, last: int) -> Difference:
    if (first, last) == (difference.first, difference.last):
        return difference
    return replace(difference, first=first, last=last, count=last - first + 1)


def _finding(kind: Kind, logs: Sequence[ReplicaLog], difference: Difference) -> Finding:
    by_name = {log.replica.name: log for log in logs}
    odd = _odd_one(difference)
    words = [_who(difference)]
    if difference.is_chain_only:
        words.append("only the chain's value differs")
    elif difference.count > 1:
        words.append(f"all of {difference.count:,} entries differ")
    if kind is Kind.COMMITTED_DIVERGENCE:
        words.append(_what_the_chain_says(difference, by_name))
    return Finding(
        kind=kind,
        replica=odd,
        file=_file_at(by_name[odd], difference) if odd else "",
        first_index=difference.first,
        last_index=difference.last,
        count=difference.count,
        sentence="; ".join(word for word in words if word),
    )


def _position_finding(logs: Sequence[ReplicaLog], difference: Difference) -> Finding:
    by_name = {log.replica.name: log for log in logs}
    odd = _odd_one(difference)
    return Finding(
        kind=Kind.COMMITTED_DIVERGENCE,
        replica=odd,
        file=_file_at(by_name[odd], difference) if odd else "",
        count=difference.count,
        sentence=f"{_who(difference)}, from position {difference.first} to {difference.last}",
    )


def _odd_one(difference: Difference) -> str:
    """The one that stands against several which agree; "" where nobody does."""
    sides = difference.sides
    return sides[1][0] if len(sides) == 2 and len(sides[0]) > len(sides[1]) == 1 else ""


def _who(difference: Difference) -> str:
    terms = set(difference.terms)
    told = []
    for side, term, pos in zip(difference.sides, difference.terms, difference.positions, strict=True):
        names = " and ".join(side)
        verb = "agree" if len(side) > 1 else "stands alone"
        if pos < 0:
            told.append(f"{names} {'have' if len(side) > 1 else 'has'} nothing there")
        else:
            told.append(f"{names} {verb}" + (f" (term {term})" if len(terms) > 1 else ""))
    return ", ".join(told)


def _what_the_chain_says(difference: Difference, by_name: dict[str, ReplicaLog]) -> str:
    """Whether each side's entries follow from what is before them, and what is behind them from these."""
    told = []
    for side in difference.sides:
        log = by_name[side[0]]
        names = " and ".join(side)
        if log.chain_crc == 0:
            continue  # Java's: there is no chain
        broken = any(
            finding.kind is Kind.CHAIN_CRC
            and finding.first_index is not None
            and finding.first_index == difference.last + 1
            for finding in log.findings
        )
        if broken:
            told.append(f"in {names} the next entry does not follow: it was written after another one")
        else:
            told.append(f"in {names} the chain holds")
    return ", ".join(told)


def _file_at(log: ReplicaLog, difference: Difference) -> str:
    pos = difference.positions[1]
    for file in log.replica.data_files:
        if file.base <= pos < file.base + file.size:
            return log.replica.relative(file.path)
    return ""
