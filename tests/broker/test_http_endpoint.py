"""The HTTP port against clients that speak something else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import uvloop

from broker.http.http_endpoint import CONNECTIONS_MAX, HttpEndpoint, Status

pytestmark = pytest.mark.slow  # aiohttp takes its time to import


def answers(status: Callable[[], Status], *requests: bytes) -> list[bytes]:
    async def main() -> list[bytes]:
        endpoint = HttpEndpoint("127.0.0.1", 0, status, str)
        await endpoint.start()
        told = []
        for request in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            writer.write(request)
            async with asyncio.timeout(20):
                told.append(await reader.read())
            writer.close()
            await writer.wait_closed()
        await endpoint.close()
        return told

    return uvloop.run(main())


def test_what_is_no_request_is_answered_400_and_leaves_nothing_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    no_requests = (
        b"\x00\x01garbage" * 100 + b"\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n\r\n",
        b"\xff" * 5_000,
    )
    told = answers(dict, *no_requests)
    assert [answer.split(b"\r\n")[0] for answer in told] == [b"HTTP/1.0 400 Bad Request"] * 3
    assert caplog.text == ""


def test_more_than_any_request_has_ends_the_connection_unread(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        endpoint = HttpEndpoint("127.0.0.1", 0, dict, str)
        await endpoint.start()
        async with asyncio.timeout(20):
            for _ in range(2):  # while aiohttp is being imported, and after
                reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
                with contextlib.suppress(ConnectionError):
                    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 4_000_000)
                    assert await reader.read() == b""
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
                writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                assert (await reader.read()).endswith(b"ok\n")
                writer.close()
                await writer.wait_closed()
        await endpoint.close()

    uvloop.run(main())
    assert caplog.text == ""


def test_idle_connections_make_room_for_one_that_asks() -> None:
    async def main() -> None:
        endpoint = HttpEndpoint("127.0.0.1", 0, dict, str)
        await endpoint.start()
        connections = []
        async with asyncio.timeout(20):
            for number in range(CONNECTIONS_MAX + 1):
                reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
                connections.append((reader, writer))
                if number in (0, CONNECTIONS_MAX):
                    writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
                    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await connections[0][0].read()  # to its end
        assert [reader.at_eof() for reader, _ in connections[1:]] == [False] * CONNECTIONS_MAX
        for _, writer in connections:
            writer.close()
            await writer.wait_closed()
        await endpoint.close()

    uvloop.run(main())


def test_a_defect_of_ours_is_logged_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    def status() -> Status:
        raise ZeroDivisionError

    (answer,) = answers(status, b"GET /status HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 500 ")
    assert "ZeroDivisionError" in caplog.text
