"""`mq produce`: a message per line."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from mq.console import error_text, fail, print_json, print_table, progress, tell, user_errors
from mq.deliver_time import DeliverTime, deliver_time
from mq.history import HistoryFile
from mq.line_source import FieldReader, LineSource, field_reader
from mq.reachable import check_sendable
from mqclient import (
    Message,
    MessageIllegalError,
    MQClientError,
    Producer,
    ProducerConfig,
    SendError,
    SendPipeline,
    SendResult,
)
from mqclient.producer.pending_send import check_properties

EXIT_INTERRUPTED = 130  # as a shell tells of it
SHOW_INTERVAL_S = 0.1


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
        str,
        typer.Option(
            "-n", "--namesrv", metavar="ADDR", envvar="NAMESRV_ADDR", help="host:port, several with ;"
        ),
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
    delay: Annotated[
        str | None, typer.Option(metavar="D", help="Consumers get it after that: 90s, 15m, 2h, 1d or 500ms.")
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="T", help="Or at that time: 2026-01-31T08:00, local unless it names an offset."),
    ] = None,
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
        if not (0 <= rate < math.inf and 0 < timeout_s < math.inf and retry_times >= 0):  # which nan is not
            raise ValueError(
                "--rate and --retry-times must not be negative, --timeout-s must be above 0, and none of them endless"
            )
        if history is not None and file != "-" and history.exists() and history.samefile(file):
            raise ValueError(f"--history {history} would overwrite the file that is sent: name another")
        config = ProducerConfig(send_timeout_s=timeout_s, retry_times=retry_times)
        producer = Producer(namesrv, group, config=config)
        keys, tags = field_reader(keys_from, separator), field_reader(tags_from, separator)
        when = deliver_time(delay, deliver_at)
        with LineSource(file) as source, HistoryFile(history, topic) as noted:

            def note(number: int, outcome: SendResult | SendError) -> None:
                summary.note(outcome)
                noted.note(number + 1, outcome)

            try:
                trouble = uvloop.run(
                    _send_lines(
                        producer,
                        namesrv,
                        topic,
                        source,
                        keys,
                        tags,
                        when,
                        rate,
                        summary,
                        note,
                        show=not as_json,
                    )
                )
            except KeyboardInterrupt:
                summary.seconds = time.monotonic() - summary.began
                show_summary(summary, as_json=as_json)
                fail("interrupted: of the lines only what is counted here is known", EXIT_INTERRUPTED)
            try:
                noted.close()
            except OSError as error:
                trouble = trouble or error
        if trouble is not None and not summary.ended:
            raise trouble
        if not summary.ended:
            nothing = "has no line that is not empty: nothing was sent"
            if file != "-":
                raise ValueError(f"{file} {nothing}")
            tell(f"standard input {nothing}")  # no failure: a pipe may well bring none
    show_summary(summary, as_json=as_json)
    if isinstance(trouble, ValueError):
        fail(f"{trouble}: neither it nor a line behind it was sent")
    if trouble is not None:
        fail(f"{error_text(trouble)}: of the lines only what is counted here is known")
    if missing := summary.ended - summary.acknowledged:
        fail(
            f"{missing} of {summary.ended} messages were not acknowledged ({summary.unknown} unknown, "
            f"{summary.refused} refused); the first: {summary.first_trouble}"
        )


def show_summary(summary: SendSummary, *, as_json: bool) -> None:
    told = summary.as_dict()
    if as_json:
        print_json(told)
    else:
        columns = ("sent", "acknowledged", "unknown", "refused", "retried", "seconds", "messages_per_s")
        print_table("", columns, [[told[name] for name in columns]])


async def _send_lines(
    producer: Producer,
    namesrv: str,
    topic: str,
    source: LineSource,
    keys: FieldReader,
    tags: FieldReader,
    when: DeliverTime,
    rate: float,
    summary: SendSummary,
    note: Callable[[int, SendResult | SendError], None],
    *,
    show: bool,
) -> Exception | None:
    """Returns what is wrong with a line (ValueError); those before it have their ends then, as they always have. Or
    what ended the sending (MQClientError, OSError): the summary holds what was known until then.
    """
    number = 0
    trouble: Exception | None = None
    bar = progress()
    bar.disable |= not show
    with bar:
        task = bar.add_task("sending", total=source.size, shown="")
        shown_at = 0.0
        async with producer, SendPipeline(producer, note) as pipeline:
            summary.began = time.monotonic()
            try:
                async for lines in source.chunks():
                    if not number:
                        await check_sendable(namesrv, topic)
                    for line in lines:
                        number += 1
                        await pipeline.put(_message(topic, number, line, keys, tags, when))
                        summary.bytes += len(line)
                        if rate:
                            await _keep_pace(summary.began, number, rate)
                        if number % 256 == 0 and (now := time.monotonic()) - shown_at > SHOW_INTERVAL_S:
                            shown_at = now
                            bar.update(task, completed=source.bytes_read, shown=f"{summary.ended:,} messages")
            except (ValueError, MQClientError, OSError) as error:
                trouble = error
            try:
                await pipeline.drain()
            except (MQClientError, OSError) as error:
                trouble = trouble or error
            summary.seconds = time.monotonic() - summary.began
    return trouble


def _message(
    topic: str, number: int, line: bytes, keys: FieldReader, tags: FieldReader, when: DeliverTime
) -> Message:
    """Raises ValueError with the line's number."""
    key, tag = keys(number, line), tags(number, line)
    message = Message(
        topic, line, tags=tag, keys=(key,) if key else (), delay=when.delay, deliver_at=when.deliver_at
    )
    if key or tag:
        try:
            check_properties(message)
        except MessageIllegalError as error:
            raise ValueError(f"line {number}: {error}") from None
    return message


async def _keep_pace(began: float, sent: int, rate: float) -> None:
    ahead_s = began + sent / rate - time.monotonic()
    # Shorter waits than a turn of the loop are made up for by later ones.
    if ahead_s > 0.001:
        await asyncio.sleep(ahead_s)
