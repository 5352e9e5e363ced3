"""The quick start's consumer, a process of its own: notes every message that its group receives.

`python -m mq.quickstart.reader NAMESRV TOPIC GROUP FILE`, until SIGTERM. The file holds one RECEIPT per message, in
the order of receipt; messages received twice are in it twice.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import uvloop

from mqclient import ConsumeFromWhere, ConsumerConfig, PushConsumer

RECEIPT = struct.Struct(
    ">q"  # number of the line, from the message's property
    "q"  # physical offset
    "I"  # CRC-32 of the body
)
LINE_PROPERTY = "line"


async def read(namesrv: str, topic: str, group: str, path: Path) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    with path.open("wb") as file:
        async with PushConsumer(namesrv, group, {topic: "*"}, config=config) as consumer:
            reading = asyncio.create_task(_note_all(consumer, file))
            await asyncio.wait(
                {reading, asyncio.create_task(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
        await reading


async def _note_all(consumer: PushConsumer, file: BinaryIO) -> None:
    async for batch in consumer.batches():
        file.write(
            b"".join(
                [
                    RECEIPT.pack(
                        int(message.properties[LINE_PROPERTY]), message.phy_offset, crc32(message.body)
                    )
                    for message in batch.messages
                ]
            )
        )
        file.flush()


def receipts(path: Path) -> Iterator[tuple[int, int, int]]:
    """(line, physical offset, CRC-32 of the body) of each message received so far."""
    raw = path.read_bytes()
    return RECEIPT.iter_unpack(raw[: len(raw) - len(raw) % RECEIPT.size])


def receipt_count(path: Path) -> int:
    return path.stat().st_size // RECEIPT.size if path.exists() else 0


if __name__ == "__main__":
    uvloop.run(read(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
