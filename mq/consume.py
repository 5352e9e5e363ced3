"""`mq consume`: what a consumer group reads, a line per message."""

from __future__ import annotations

import asyncio
import datetime
import math
import signal
import sys
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer
import uvloop

from message.decoder import MessageExt
from mq.console import fail, print_table, progress, user_errors
from mq.reachable import check_leaders, wait_for_leader
from mqclient import (
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    AdminError,
    ConsumeBatch,
    ConsumeFromWhere,
    ConsumerConfig,
    MessageModel,
    MessageSelector,
    PushConsumer,
    RouteNotFoundError,
    sql,
)


class Strategy(StrEnum):
    AVG = "avg"
    CIRCLE = "circle"
    CONSISTENT_HASH = "consistent-hash"


STRATEGIES = {
    Strategy.AVG: AVG,
    Strategy.CIRCLE: AVG_BY_CIRCLE,
    Strategy.CONSISTENT_HASH: CONSISTENT_HASH,
}


@dataclass(slots=True)
class ReadSummary:
    received: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "messages_per_s": round(self.received / max(self.seconds, 1e-9), 1),
        }


def consume(
    namesrv: Annotated[
        str,
        typer.Option(
            "-n", "--namesrv", metavar="ADDR", envvar="NAMESRV_ADDR", help="host:port, several with ;"
        ),
    ],
    topic: Annotated[str, typer.Option(help="May come later than the consumer.")],
    group: Annotated[str, typer.Option(help="Members of one group share the topic's queues.")],
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="first|last|TIME",
            help="Where a group begins that has no offset yet; TIME like 2026-01-31T12:00 or ms since 1970.",
        ),
    ] = "last",
    broadcast: Annotated[
        bool,
        typer.Option(
            "--broadcast", help="Read all queues, whoever else reads; offsets are in ~/.rocketmq_offsets."
        ),
    ] = False,
    strategy: Annotated[
        Strategy, typer.Option(help="Who reads which queues; all members of a group need the same.")
    ] = Strategy.AVG,
    tags: Annotated[str, typer.Option(help="Only these: 'A || B'; * is all.")] = "*",
    sql_expression: Annotated[
        str | None,
        typer.Option("--sql", metavar="EXPRESSION", help="Only these: \"price > 100 AND color = 'red'\"."),
    ] = None,
    count: Annotated[int, typer.Option(help="End after so many messages; 0: never.")] = 0,
    idle_s: Annotated[float, typer.Option(help="End when nothing came for so long; 0: never.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per message, and one with the summary last.")
    ] = False,
) -> None:
    """Read a topic as a member of a group, until --count, --idle-s or Ctrl-C."""
    summary = ReadSummary()
    with user_errors():
        if count < 0 or not 0 <= idle_s < math.inf:  # which nan is not
            raise ValueError("--count and --idle-s must not be negative, nor endless")
        if sql_expression is not None and tags != "*":
            raise ValueError("--tags or --sql, not both: TAGS = 'A' says it in SQL")
        config = replace(
            consumer_config(begin),
            message_model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
            allocate_strategy=STRATEGIES[strategy],
        )
        wanted = tags if sql_expression is None else _selector(sql_expression)
        consumer = PushConsumer(namesrv, group, {topic: wanted}, config=config)

        async def read() -> AdminError | None:
            """Returns why nothing may have come: what was read until then is told all the same."""
            await wait_for_leader(namesrv)
            ended_idle = await _read(consumer, count, idle_s, summary, as_json=as_json)
            if ended_idle and not consumer.topics_without_route:
                try:
                    await check_leaders(namesrv, topic)
                except AdminError as error:
                    return error
            return None

        trouble = uvloop.run(read())
        if consumer.topics_without_route:
            raise RouteNotFoundError(f"no NameServer at {namesrv} told of a topic {topic}: nothing was read")
    if as_json:
        _write({"summary": summary.as_dict()})
    else:
        _show_summary(summary)
    if trouble is not None:
        fail(trouble)


def _selector(expression: str) -> MessageSelector:
    try:
        return sql(expression)
    except ValueError as error:
        raise ValueError(f"--sql {expression!r}: {error}") from None


def _show_summary(summary: ReadSummary) -> None:
    told = summary.as_dict()
    if sys.stdout.isatty():
        print_table("", tuple(told), [list(told.values())])
    else:
        print(" ".join(f"{name}={value}" for name, value in told.items()), file=sys.stderr)


def consumer_config(begin: str) -> ConsumerConfig:
    """What `--from` means. Raises ValueError in words for the one who typed it."""
    if begin in ("first", "last"):
        return ConsumerConfig(consume_from=ConsumeFromWhere[begin.upper()])
    if begin.isdigit():
        timestamp_ms = int(begin)
    else:
        try:
            timestamp_ms = int(datetime.datetime.fromisoformat(begin).timestamp() * 1000)
        except ValueError:
            raise ValueError(f"--from {begin!r}: first, last, 2026-01-31T12:00 or ms since 1970") from None
    return ConsumerConfig(consume_from=ConsumeFromWhere.TIMESTAMP, consume_timestamp_ms=timestamp_ms)


async def _read(
    consumer: PushConsumer, count: int, idle_s: float, summary: ReadSummary, *, as_json: bool
) -> bool:
    """Returns True when it ended because nothing came for `idle_s`."""
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    show = _show_json if as_json else _show_body
    bar = progress()
    bar.disable |= as_json
    with bar:
        task = bar.add_task("reading", total=count or None, shown="")
        ended_idle = False
        async with consumer:
            began = time.monotonic()
            while not (count and summary.received >= count):
                batch = await _next_batch(consumer, interrupted, idle_s)
                if batch is None:
                    ended_idle = not interrupted.is_set()
                    break
                left = count - summary.received if count else len(batch.messages)
                for message in batch.messages[:left]:
                    show(message)
                    summary.received += 1
                    summary.bytes += len(message.body)
                sys.stdout.flush()
                batch.done(left)
                bar.update(task, completed=summary.received, shown=f"{summary.received:,} messages")
            summary.seconds = time.monotonic() - began
    return ended_idle


async def _next_batch(
    consumer: PushConsumer, interrupted: asyncio.Event, idle_s: float
) -> ConsumeBatch | None:
    """None: interrupted, or nothing came in time."""
    take = asyncio.ensure_future(consumer.take())
    stop = asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait({take, stop}, timeout=idle_s or None, return_when=asyncio.FIRST_COMPLETED)
        return take.result() if take.done() and not interrupted.is_set() else None
    finally:
        take.cancel()
        stop.cancel()


def _show_body(message: MessageExt) -> None:
    sys.stdout.buffer.write(message.body + b"\n")


def _show_json(message: MessageExt) -> None:
    _write(
        {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "msg_id": message.uniq_key,
            "offset_msg_id": message.msg_id,
            "keys": message.keys,
            "tags": message.tags,
            "store_timestamp": message.store_timestamp,
            "body": message.body.decode(errors="replace"),
        },
    )


def _write(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
