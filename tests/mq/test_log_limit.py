"""Lines about connections that anybody may open: one of a kind per interval, and the count of the others."""

import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mq.log_limit import ConnectionLogLimit
from remoting.codes import RequestCode
from remoting.frame.command import request
from tests.free_ports import free_ports

log = logging.getLogger("test")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lines: list[str] = []
        self.addFilter(ConnectionLogLimit(10, lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def bad_frame(number: int) -> None:
    log.warning("bad frame from=%s", number, extra={"per_connection": True})


def test_two_thousand_bad_connections_are_two_lines(lines: Lines) -> None:
    for number in range(2000):
        bad_frame(number)
    assert lines.lines == ["bad frame from=0"]
    lines.now = 10
    log.warning("any other line")
    assert lines.lines[1:] == ["1999 more lines in 10 s like: bad frame from=%s", "any other line"]


def test_each_kind_and_each_interval_has_its_first_line(lines: Lines) -> None:
    bad_frame(1)
    log.warning("link refused", extra={"per_connection": True})
    lines.now = 11
    bad_frame(2)
    assert lines.lines == ["bad frame from=1", "link refused", "bad frame from=2"]


def test_two_kinds_whose_intervals_end_together_are_told_of_once(lines: Lines) -> None:
    for _ in range(3):
        bad_frame(1)
        log.warning("link refused", extra={"per_connection": True})
    lines.now = 11
    log.warning("any other line")
    assert sorted(lines.lines[2:]) == [
        "2 more lines in 10 s like: bad frame from=%s",
        "2 more lines in 10 s like: link refused",
        "any other line",
    ]


def test_other_lines_are_never_kept_back(lines: Lines) -> None:
    for _ in range(3):
        log.warning("vote granted")
    assert lines.lines == ["vote granted"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ("bad frame", b"GET / HTTP/1.1\r\n\r\n"),
        ("bad request", request(RequestCode.REGISTER_BROKER, {"brokerId": "x"}, opaque=1).encode()),
    ],
)
def test_what_a_hundred_connections_say_does_not_make_a_hundred_lines(told: str, sent: bytes) -> None:
    """Of a real process: a line per 10 s, and fewer than half as many as there were connections, however slow it is."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "mq.server_entry", "namesrv", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as namesrv:
        assert namesrv.stderr is not None
        try:
            assert any("namesrv started" in line for line in iter(namesrv.stderr.readline, ""))
            for _ in range(100):
                with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                    client.sendall(sent)
                    with contextlib.suppress(ConnectionResetError):
                        client.recv(1)  # it has been answered, or closed
        finally:
            namesrv.terminate()
        lines = [line for line in namesrv.stderr if f"{told} " in line]
    assert 1 <= len(lines) < 50
