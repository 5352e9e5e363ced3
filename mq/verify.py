"""`mq verify DIR…`: are these replicas sound, and equal?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mq.ack_file import read_acks
from mq.console import EXIT_FAILED, print_json, print_table, user_errors
from mq.replica_files import ReplicaFilesError, Verdict, judge


def verify(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Store directories of one group's members.")
    ],
    committed: Annotated[
        int,
        typer.Option(
            help="Judge up to this index; -1: all that each replica holds. Give it for running members."
        ),
    ] = -1,
    acks: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Acknowledgements that mq produce --acks noted: all must be there."),
    ] = None,
    group: Annotated[str, typer.Option(help="Whose acknowledgements, when they are of several groups.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON and nothing else.")] = False,
) -> None:
    """Read replicas from their files: chain intact, equal, nothing acknowledged missing? Exit status 1 if not."""
    with user_errors(ReplicaFilesError):
        verdict = judge(
            directories,
            committed_index=committed if committed >= 0 else None,
            acknowledged=None if acks is None else read_acks(acks, group),
        )
    if as_json:
        print_json(verdict_as_dict(verdict))
    else:
        print_verdict(verdict)
    if verdict.faults:
        raise typer.Exit(EXIT_FAILED)


def print_verdict(verdict: Verdict) -> None:
    columns = ("replica", "begin", "end", "messages", "last term", "bytes", "chain", "intact")
    rows = [
        [
            str(replica.directory),
            str(replica.begin_index),
            str(replica.end_index),
            replica.message_count,
            str(replica.end_term),
            replica.end_pos - replica.begin_pos,
            f"{replica.chain_crc & 0xFFFFFFFF:08x}",
            not replica.fault,
        ]
        for replica in verdict.replicas
    ]
    print_table("", columns, rows)
    for fault in verdict.faults:
        print(fault)
    if verdict.common_index < 0:
        print("no entry is in all of them: at least one is empty")
    elif not verdict.faults:
        if verdict.acknowledged:
            print(f"{verdict.acknowledged:,} acknowledged records present")
        print(f"equal byte for byte up to index {verdict.common_index}, chain intact")


def verdict_as_dict(verdict: Verdict) -> dict[str, object]:
    return {
        "replicas": [
            {
                "directory": str(replica.directory),
                "begin_index": replica.begin_index,
                "end_index": replica.end_index,
                "end_pos": replica.end_pos,
                "end_term": replica.end_term,
                "chain_crc": replica.chain_crc,
                "messages": replica.message_count,
                "fault": replica.fault or None,
            }
            for replica in verdict.replicas
        ],
        "common_index": verdict.common_index,
        "acknowledged": verdict.acknowledged,
        "missing": list(verdict.missing),
        "faults": verdict.faults,
    }
