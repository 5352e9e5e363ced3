import asyncio
import datetime
import os
from pathlib import Path

import pytest

from mq.consume import consumer_config
from mq.line_source import LineSource, field_reader
from mqclient import ConsumeFromWhere


def read_all(path: str) -> list[bytes]:
    async def read() -> list[bytes]:
        with LineSource(path) as source:
            lines = [line async for chunk in source.chunks() for line in chunk]
            assert source.size is None or source.bytes_read == source.size
            return lines

    return asyncio.run(read())


def test_lines_come_without_their_ends_and_empty_ones_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\ntwo\r\n\r\n three \nlast without an end")
    assert read_all(str(path)) == [b"one", b"two", b" three ", b"last without an end"]


def test_lines_longer_than_a_read_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    long = [b"%d " % i * 100_000 for i in range(3)]
    path.write_bytes(b"\n".join(long))
    assert read_all(str(path)) == long


def test_a_pipe_gives_what_is_there_without_waiting_for_more() -> None:
    async def story() -> None:
        reading, writing = os.pipe()
        with LineSource(f"/dev/fd/{reading}") as source:
            assert source.size is None
            os.write(writing, b"first\nsec")
            chunks = source.chunks()
            assert await anext(chunks) == [b"first"]
            os.write(writing, b"ond\n")
            assert await anext(chunks) == [b"second"]
            os.close(writing)
            assert [chunk async for chunk in chunks] == []
        os.close(reading)

    asyncio.run(story())


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LineSource(str(tmp_path / "none"))
    with pytest.raises(IsADirectoryError):
        LineSource(str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "line", "field"),
    [
        ("none", b"a\tb", ""),
        ("line", b"a\tb", "7"),
        ("column:1", b"a\tb", "a"),
        ("column:2", b"a\tb", "b"),
        ("column:3", b"a\tb", ""),
        ("json:id", b'{"id":"x"}', "x"),
        ("json:id", b'{"id":12}', "12"),
        ("json:id", b'{"other":1}', ""),
        ("json:id", b"[1]", ""),
    ],
)
def test_a_field_is_read_from_where_the_option_says(spec: str, line: bytes, field: str) -> None:
    assert field_reader(spec)(7, line) == field


def test_a_field_option_that_is_none_and_a_line_that_is_no_json_are_told() -> None:
    for spec in ("column:0", "column:x", "json:", "first", "none:1"):
        with pytest.raises(ValueError, match="none, line, column:N, json:NAME"):
            field_reader(spec)
    with pytest.raises(ValueError, match="line 3 is not JSON"):
        field_reader("json:id")(3, b"{")


def test_where_a_group_begins() -> None:
    assert consumer_config("first").consume_from is ConsumeFromWhere.FIRST
    assert consumer_config("last").consume_from is ConsumeFromWhere.LAST
    assert consumer_config("1700000000000").consume_timestamp_ms == 1_700_000_000_000
    moment = datetime.datetime(2026, 1, 31, 12, 0).astimezone()
    assert consumer_config("2026-01-31T12:00").consume_timestamp_ms == moment.timestamp() * 1000
    with pytest.raises(ValueError, match="ms since 1970"):
        consumer_config("yesterday")


def test_of_a_line_that_is_too_long_no_more_is_held_than_shows_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n\n" + b"x" * 10 + b"\r\ntwo\n" + b"y" * 11 + b"\nthree\n")

    async def read(source: LineSource) -> list[bytes]:
        found: list[bytes] = []
        chunks = source.chunks()
        found += await anext(chunks)
        with pytest.raises(ValueError, match="line 4 is longer than 10 bytes, the most"):
            await anext(chunks)
        return found

    with LineSource(str(path), line_size_max=10) as source:
        assert asyncio.run(read(source)) == [b"one", b"x" * 10, b"two"]
    with (
        LineSource("/dev/zero") as endless,
        pytest.raises(ValueError, match="line 1 is longer than 4194304 bytes"),
    ):
        asyncio.run(read_on(endless))


async def read_on(source: LineSource) -> list[list[bytes]]:
    return [chunk async for chunk in source.chunks()]
