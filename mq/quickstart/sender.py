"""The quick start's sender: every line of a file, the leader killed half way, and what became of each line."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from enum import IntEnum
from pathlib import Path
from zlib import crc32

from message.message_id import decode_offset_message_id
from mq.history import HistoryFile
from mq.line_source import FieldReader, LineSource
from mq.quickstart.reader import LINE_PROPERTY
from mqclient import Message, Producer, SendError, SendPipeline, SendResult


class End(IntEnum):
    NONE = 0
    ACKNOWLEDGED = 1
    UNKNOWN = 2
    REFUSED = 3


class Ledger:
    """What the sender knows of each line, by its number: its end and the CRC-32 of its bytes.

    Where it was stored is in the history, for the validation.
    """

    def __init__(self, lines: int, history: HistoryFile) -> None:
        self._history = history
        self.ends = bytearray(lines)
        self.body_crcs = array("I", [0]) * lines
        self.ended = 0
        self.first_trouble = ""

    def note(self, line: int, outcome: SendResult | SendError) -> None:
        self.ended += 1
        self._history.note(line + 1, outcome)
        if isinstance(outcome, SendResult):
            self.ends[line] = End.ACKNOWLEDGED
            return
        self.ends[line] = End.REFUSED if outcome.definite else End.UNKNOWN
        self.first_trouble = self.first_trouble or str(outcome)

    def count(self, end: End) -> int:
        return self.ends.count(end)


class LeaderKill:
    """Kills the leader when told to, and times how long the next acknowledged send takes.

    `find` gives the leader's address; `kill` ends the member at that address and returns its id. After the strike,
    `address` and `member` name it.
    """

    def __init__(
        self, ledger: Ledger, find: Callable[[], Awaitable[str]], kill: Callable[[str], str]
    ) -> None:
        self._ledger = ledger
        self._find = find
        self._kill = kill
        self._killed_at = 0.0
        self.address = ""
        self.member = ""
        self.gap_ms: float | None = None

    def note(self, line: int, outcome: SendResult | SendError) -> None:
        self._ledger.note(line, outcome)
        if self.address and self.gap_ms is None and isinstance(outcome, SendResult):
            # Acknowledgements that the dead leader had sent before may still arrive: they bear its address.
            address, _ = decode_offset_message_id(outcome.offset_msg_id)
            if address != self.address:
                self.gap_ms = (time.monotonic() - self._killed_at) * 1000

    async def strike(self) -> None:
        self.address = await self._find()
        self._killed_at = time.monotonic()
        self.member = await asyncio.to_thread(self._kill, self.address)


async def send_lines(
    producer: Producer,
    topic: str,
    path: Path,
    keys: FieldReader,
    tags: FieldReader,
    ledger: Ledger,
    kill: LeaderKill,
) -> None:
    """Strikes once half of the lines are on their way; returns when every line has its end."""
    half = len(ledger.ends) // 2
    with LineSource(str(path)) as source:
        async with SendPipeline(producer, kill.note) as pipeline:
            number = 0
            async for lines in source.chunks():
                for line in lines:
                    if number == half:
                        await kill.strike()
                    key = keys(number + 1, line)
                    ledger.body_crcs[number] = crc32(line)
                    await pipeline.put(
                        Message(
                            topic,
                            line,
                            tags=tags(number + 1, line),
                            keys=(key,),
                            properties={LINE_PROPERTY: str(number)},
                        )
                    )
                    number += 1
