"""The server of proxies that is begun anew where it hangs."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

import pytest
from local_cluster import port_block, wait_for
from proxies.impaired_proxies import ImpairedProxies
from proxies.links import SERVER_PORT
from proxies.toxiproxy_server import ToxiproxyServer, running_server
from toxiproxy.exceptions import InvalidToxic

HOST = "127.0.0.1"
PATIENCE_S = 60
# Of a server that stands still; one that answers takes milliseconds, or some hundreds of them on a busy machine.
ANSWER_S = 2.0


@pytest.fixture
def ports() -> Iterator[tuple[int, int, int]]:
    """Of the server and of two proxies."""
    with port_block() as base:
        yield base + SERVER_PORT, base + 1, base + 2


@pytest.fixture
def server(tmp_path: Path, ports: tuple[int, int, int]) -> Iterator[ToxiproxyServer]:
    with running_server(tmp_path / "log", ports[0], ANSWER_S) as made:
        yield made


@pytest.fixture
def echo() -> Iterator[str]:
    """host:port of who sends back what it gets."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=send_back, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def send_back(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            return


def carries(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), 1.0) as connection:
            connection.sendall(b"there and back")
            return bool(connection.recv(1))
    except OSError:
        return False


def stand_still(pid: int) -> None:
    """All threads: one may go on for a while behind the signal."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")

    def states() -> set[str]:
        return {(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads.iterdir()}

    wait_for(lambda: states() == {"T"}, PATIENCE_S, f"a standstill of process {pid}")


def proxies(server: ToxiproxyServer, ports: tuple[int, int, int], echo: str) -> ImpairedProxies[str]:
    names = {"a": "proxy-a", "b": "proxy-b"}
    for name, port in zip(names.values(), ports[1:], strict=True):
        server.create(name, f"{HOST}:{port}", echo)
    return ImpairedProxies(server, names)


def test_one_that_answers_no_more_is_begun_anew_with_all_that_is_laid_on_it(
    server: ToxiproxyServer, ports: tuple[int, int, int], echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    both = proxies(server, ports, echo)
    slow = both.impair({"a": "upstream"}, "latency", latency=1)
    both.impair({"a": "downstream"}, "latency", latency=2)
    down = both.take_down("b")
    assert carries(ports[1])
    first = server.process
    stand_still(first.pid)
    slow.lift()
    assert first.poll() is not None
    assert "begun anew" in caplog.text
    assert server.toxics("proxy-a") == {"latency-1"}
    wait_for(lambda: carries(ports[1]), PATIENCE_S, "a proxy of the new server")
    assert not carries(ports[2])
    down.lift()
    wait_for(lambda: carries(ports[2]), PATIENCE_S, "one that was down")


def test_another_ones_server_is_not_taken_for_its_own(
    server: ToxiproxyServer, ports: tuple[int, int, int], tmp_path: Path
) -> None:
    with (
        pytest.raises(AssertionError, match=f"taken, by process {server.process.pid}"),
        running_server(tmp_path / "second", ports[0], ANSWER_S),
    ):
        pytest.fail("it started")
    assert server.process.poll() is None


def test_a_block_of_ports_is_drawn_only_where_all_of_it_is_free() -> None:
    with port_block() as base:
        pass
    with socket.create_server((HOST, base + SERVER_PORT)), port_block() as other:
        assert other != base


def test_what_is_asked_of_one_that_hangs_is_done_by_the_new_one(
    server: ToxiproxyServer, ports: tuple[int, int, int], echo: str
) -> None:
    both = proxies(server, ports, echo)
    stand_still(server.process.pid)
    both.impair({"a": "upstream", "b": "upstream"}, "latency", latency=1)
    assert server.toxics("proxy-a") == server.toxics("proxy-b") == {"latency-0"}
    stand_still(server.process.pid)
    both.take_down("a")
    assert not carries(ports[1])
    assert carries(ports[2])


def test_a_toxic_that_cannot_be_taken_off_a_connection_that_takes_nothing(
    server: ToxiproxyServer, ports: tuple[int, int, int]
) -> None:
    """toxiproxy's issue 558: it waits for the connection, with all that is asked about the proxy behind it."""
    with ExitStack() as stack, socket.create_server((HOST, 0)) as listener:
        server.create("proxy-a", f"{HOST}:{ports[1]}", f"{HOST}:{listener.getsockname()[1]}")
        one = ImpairedProxies(server, {"a": "proxy-a"})
        sliced = one.impair({"a": "upstream"}, "slicer", average_size=1 << 16, size_variation=0, delay=0)
        with socket.create_connection((HOST, ports[1])) as client:
            stack.enter_context(listener.accept()[0])  # takes nothing
            client.setblocking(False)
            taken_at = monotonic()

            def is_full() -> bool:
                """For a second nothing was taken: a proxy that is late has more room."""
                nonlocal taken_at
                with suppress(BlockingIOError):
                    client.send(bytes(1 << 20))
                    taken_at = monotonic()
                return monotonic() > taken_at + 1

            wait_for(is_full, PATIENCE_S, "buffers that are full")
            first = server.process
            sliced.lift()
            assert server.toxics("proxy-a") == set()
            assert first.poll() is not None


def test_what_it_does_not_know_is_refused_and_leaves_nothing(
    server: ToxiproxyServer, ports: tuple[int, int, int], echo: str
) -> None:
    both = proxies(server, ports, echo)
    first = server.process
    with pytest.raises(InvalidToxic):
        both.impair({"a": "upstream"}, "no such kind")
    assert server.toxics("proxy-a") == set()
    assert server.process is first
