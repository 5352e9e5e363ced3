"""`mq validate --follow`: the replicas of a group that runs, compared as they commit, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mq.console import print_json
from verify.group.follow import ComparedRange, GroupFollower
from verify.report.text_report import counted, finding_lines, listed

# Members tell their files of the commit each second.
_PAUSE_S: Final = 1.0
_METRICS: Final = (
    ("pydledger_replicas_proved_equal_index", "gauge", "All replicas are equal up to this entry."),
    ("pydledger_replicas_compared_index", "gauge", "Replicas were compared up to this entry."),
    ("pydledger_replicas_compared_findings_total", "counter", "Faults and differences that were named."),
)


def follow(directories: Sequence[Path], metrics: Path | None, *, as_json: bool) -> bool:
    """Returns whether all that was compared is sound and equal. Raises ReplicaError, OSError."""
    follower = GroupFollower(directories)
    ended = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: ended.set())
    try:
        told = ""
        while not ended.is_set() and not follower.is_over:
            compared = follower.look()
            if metrics is not None:
                _write_metrics(metrics, follower)
            if compared is not None:
                print_range(compared, follower, as_json=as_json)
                continue
            if follower.held_up != told and not as_json:
                told = follower.held_up
                print(f"waiting: {told}" if told else "all that is committed was compared", flush=True)
            ended.wait(_PAUSE_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print_summary(follower, as_json=as_json)
    return not follower.findings


def print_range(compared: ComparedRange, follower: GroupFollower, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "first_index": compared.first_index,
                "last_index": compared.last_index,
                "replicas": compared.replicas,
                "proved_index": follower.proved_index,
                "findings": [finding.as_dict() for finding in compared.findings],
                "remarks": compared.remarks,
            }
        )
        return
    for remark in compared.remarks:
        print(remark)
    for finding in compared.findings:
        print(*finding_lines(finding), sep="\n    ")
    if not compared.findings:
        names = listed(compared.replicas)
        print(f"entries {compared.first_index:,} .. {compared.last_index:,}: equal in {names}", flush=True)


def print_summary(follower: GroupFollower, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "clean": not follower.findings,
                "begin_index": follower.begin_index,
                "proved_index": follower.proved_index,
                "compared_index": follower.compared_index,
                "finding_count": len(follower.findings),
                "held_up": follower.held_up,
            }
        )
        return
    if follower.proved_index < follower.begin_index:
        proved = "Nothing is proved"
    else:
        proved = f"Proved equal: entries {follower.begin_index:,} .. {follower.proved_index:,}"
    if not follower.findings:
        print(f"{proved} of {listed(follower.names)}.")
        return
    found = counted(len(follower.findings), "finding")
    print(f"Not clean: {found}. {proved}; compared up to {follower.compared_index:,}.")


def _write_metrics(path: Path, follower: GroupFollower) -> None:
    """For the textfile collector of Prometheus' node exporter, which must never see half a file."""
    values = (follower.proved_index, follower.compared_index, len(follower.findings))
    lines = []
    for (name, kind, meaning), value in zip(_METRICS, values, strict=True):
        lines += [
            f"# HELP {name} {meaning}",
            f"# TYPE {name} {kind}",
            f'{name}{{group="{follower.group}"}} {value}',
        ]
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.replace(path)
