"""`mq produce`: a message per line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from mq.console import EXIT_FAILED, print_json, print_table, progress, user_errors
from mq.history import HistoryFile
from mq.line_source import FieldReader, LineSource, field_reader
from mqclient import Message, Producer, ProducerConfig, SendError, SendPipeline, SendResult

SHOW_INTERVAL_S = 0.1
BODY_SIZE_MAX = ProducerConfig().body_size_max


@dataclass(slots=True)
class SendSummary:
    """Ends of sends. `unknown`: no acknowledgement, but perhaps stored; `refused`: surely not stored."""

    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    retried: int = 0
    maybe_duplicate: int = 0
    bytes: int = 0
    seconds: float = 0.0
    first_trouble: str = ""
    began: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> int:
        return self.acknowledged + self.unknown + self.refused

    def note(self, outcome: SendResult | SendError) -> None:
        self.retried += outcome.attempts > 1
        if isinstance(outcome, SendResult):
            self.acknowledged += 1
            self.maybe_duplicate += outcome.maybe_duplicate
            return
        if outcome.definite:
            self.refused += 1
        else:
            self.unknown += 1
        self.first_trouble = self.first_trouble or str(outcome)

    def as_dict(self) -> dict[str, Any]:
        seconds = max(self.seconds, 1e-9)
        return {
            "sent": self.ended,
            "acknowledged": self.acknowledged,
            "unknown": self.unknown,
            "refused": self.refused,
            "retried": self.retried,
            "maybe_duplicate": self.maybe_duplicate,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "messages_per_s": round(self.ended / seconds, 1),
            "first_trouble": self.first_trouble or None,
        }


def produce(
    namesrv: Annotated[
        str, typer.Option("-n", "--namesrv", metavar="ADDR", help="host:port, several with ;")
    ],
    topic: Annotated[str, typer.Option(help="Made by the first message if it does not exist.")],
    file: Annotated[str, typer.Option(metavar="F", help="- is standard input.")] = "-",
    keys_from: Annotated[
        str, typer.Option(metavar="WHERE", help="A message's key: none, line, column:N or json:NAME.")
    ] = "none",
    tags_from: Annotated[str, typer.Option(metavar="WHERE", help="A message's tag, likewise.")] = "none",
    separator: Annotated[str, typer.Option(help="Between columns.", show_default="a tab")] = "\t",
    rate: Annotated[float, typer.Option(help="Messages a second; 0: as fast as it goes.")] = 0,
    group: Annotated[str, typer.Option(help="Producer group.")] = "mq_produce",
    timeout_s: Annotated[float, typer.Option(help="For one message, all tries together.")] = 10.0,
    retry_times: Annotated[
        int, typer.Option(help="Tries after one that ended unknown; may store it twice.")
    ] = 2,
    history: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Note there what became of each send, for mq validate --history."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON and nothing else.")] = False,
) -> None:
    """Send a message per line, and count what became of them."""
    summary = SendSummary()
    with user_errors():
        if rate < 0 or timeout_s <= 0 or retry_times < 0:
            raise ValueError("--rate and --retry-times must not be negative, --timeout-s must be above 0")
        if history is not None and file != "-" and history.exists() and history.samefile(file):
            raise ValueError(f"--history {history} would overwrite the file that is sent: name another")
        config = ProducerConfig(send_timeout_s=timeout_s, retry_times=retry_times)
        producer = Producer(namesrv, group, config=config)
        keys, tags = field_reader(keys_from, separator), field_reader(tags_from, separator)
        with LineSource(file) as source, HistoryFile(history, topic) as noted:

            def note(number: int, outcome: SendResult | SendError) -> None:
                summary.note(outcome)
                noted.note(number + 1, outcome)

            uvloop.run(
                _send_lines(producer, topic, source, keys, tags, rate, summary, note, show=not as_json)
            )
        if file != "-" and not summary.ended:
            raise ValueError(f"{file} has no line that is not empty: nothing was sent")
    report(summary, as_json=as_json)


def report(summary: SendSummary, *, as_json: bool) -> None:
    """Exit status 1 unless every message was acknowledged."""
    told = summary.as_dict()
    if as_json:
        print_json(told)
    else:
        columns = ("sent", "acknowledged", "unknown", "refused", "retried", "seconds", "messages_per_s")
        print_table("", columns, [[told[name] for name in columns]])
        if summary.first_trouble:
            print(f"the first that was not acknowledged: {summary.first_trouble}")
    if summary.acknowledged != summary.ended:
        raise typer.Exit(EXIT_FAILED)


async def _send_lines(
    producer: Producer,
    topic: str,
    source: LineSource,
    keys: FieldReader,
    tags: FieldReader,
    rate: float,
    summary: SendSummary,
    note: Callable[[int, SendResult | SendError], None],
    *,
    show: bool,
) -> None:
    number = 0
    bar = progress()
    bar.disable |= not show
    with bar:
        task = bar.add_task("sending", total=source.size, shown="")
        shown_at = 0.0
        async with producer, SendPipeline(producer, note) as pipeline:
            summary.began = time.monotonic()
            async for lines in source.chunks():
                for line in lines:
                    number += 1
                    if len(line) > BODY_SIZE_MAX:
                        raise ValueError(
                            f"line {number} has {len(line)} bytes, a message holds {BODY_SIZE_MAX} at most"
                        )
                    key = keys(number, line)
                    await pipeline.put(
                        Message(topic, line, tags=tags(number, line), keys=(key,) if key else ())
                    )
                    summary.bytes += len(line)
                    if rate:
                        await _keep_pace(summary.began, number, rate)
                    if number % 256 == 0 and (now := time.monotonic()) - shown_at > SHOW_INTERVAL_S:
                        shown_at = now
                        bar.update(task, completed=source.bytes_read, shown=f"{summary.ended:,} messages")
            await pipeline.drain()
            summary.seconds = time.monotonic() - summary.began


async def _keep_pace(began: float, sent: int, rate: float) -> None:
    ahead_s = began + sent / rate - time.monotonic()
    # Shorter waits than a turn of the loop are made up for by later ones.
    if ahead_s > 0.001:
        await asyncio.sleep(ahead_s)
