"""Messages whose flags say what their bodies are not. Each is handed over as it was stored, and the next ones, too."""

import asyncio
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
import zstandard
from fake_group import FIRST, HOST, FakeGroup

from message.encoder import encode_record
from message.received_messages import received_messages
from mqclient import LitePullConsumer, PushConsumer

LZ4 = bytes.fromhex(
    "04224d1860707320000000156101001562010015630100051d0015611d0015621d00806320676f6c64656e00000000"
)

# Name, sysFlag, body, what the warning says.
UNTRUE = [
    ("no ZLIB", 0x301, b"plain text", "ZLIB"),
    ("no ZLIB, by a client that sets no type", 0x1, b"plain text", "ZLIB"),
    ("cut ZLIB", 0x301, zlib.compress(b"x" * 100)[:-3], "is cut"),
    ("no LZ4", 0x101, b"plain text", "LZ4"),
    ("cut LZ4", 0x101, LZ4[:-6], "is cut"),
    ("no ZSTD", 0x201, b"plain text", "ZSTD"),
    ("cut ZSTD", 0x201, zstandard.compress(b"x" * 100_000)[:-4], "is cut"),
    ("a type that nobody has defined", 0x701, b"plain text", "0x701"),
    ("no inner batch", 0xC0, b"plain text", "batch"),
    ("an inner batch that is not compressed as it says", 0x3C1, b"plain text", "ZLIB"),
]
BY_NAME = pytest.mark.parametrize(
    ("sys_flag", "body", "reason"), [u[1:] for u in UNTRUE], ids=[u[0] for u in UNTRUE]
)


def record(queue_offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    place = (0, 0, queue_offset, 1000 * queue_offset)
    return encode_record(b"T", *place, sys_flag, 0, HOST, 0, HOST, 0, 0, body, b"")


@BY_NAME
def test_a_body_that_is_not_what_its_flag_says_is_handed_over_as_it_was_stored(
    sys_flag: int, body: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, untrue, after = received_messages(
        record(0, b"before") + record(1, body, sys_flag) + record(2, zlib.compress(b"after"), 0x301)
    )
    assert (before.body, after.body, after.sys_flag) == (b"before", b"after", 0x300)
    assert (untrue.body, untrue.sys_flag, untrue.queue_offset) == (body, sys_flag, 1)
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert reason in warning.getMessage()


@pytest.mark.parametrize("sys_flag", [0x101, 0x201])
def test_without_the_library_the_warning_names_the_extra_that_has_it_once(
    sys_flag: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("message.compression.import_module", missing)
    found = received_messages(b"".join(record(number, b"?", sys_flag) for number in range(32)))
    assert [message.body for message in found] == [b"?"] * 32
    (warning,) = caplog.records
    assert "32 messages" in warning.getMessage()
    assert "pip install 'pydledger[compression]'" in warning.getMessage()


def run(story: Callable[[FakeGroup], Coroutine[Any, Any, None]]) -> None:
    async def with_group() -> None:
        async with FakeGroup() as group, asyncio.timeout(20):
            queue = group.queues["T", 0]
            for _, sys_flag, body, _ in UNTRUE:
                queue.append(record(len(queue), body, sys_flag))
            queue.append(record(len(queue), b"the last"))
            await story(group)

    uvloop.run(with_group())


BODIES = [*(body for _, _, body, _ in UNTRUE), b"the last"]


def test_a_push_consumer_passes_them_and_commits() -> None:
    async def story(group: FakeGroup) -> None:
        async with PushConsumer(group.address, "g", {"T": "*"}, config=FIRST) as consumer:
            batch = await consumer.take()
            assert batch is not None
            assert [message.body for message in batch.messages] == BODIES
            batch.done()
        assert group.offsets["g", "T", 0] == len(BODIES)

    run(story)


def test_a_lite_pull_consumer_passes_them() -> None:
    async def story(group: FakeGroup) -> None:
        async with LitePullConsumer(group.address, "g", {"T": "*"}, config=FIRST) as consumer:
            bodies: list[bytes] = []
            while len(bodies) < len(BODIES):
                bodies += [message.body for message in await consumer.poll(20)]
            assert bodies == BODIES

    run(story)
