"""Who may read the wall clock: it jumps when somebody sets it, and no timer of a server may fire by that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.server import make_clock

ROOT = Path(__file__).parents[2]
SERVERS_AND_CLIENT = ("broker", "disk", "dledger", "message", "mqclient", "namesrv", "remoting", "store")
READINGS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}
# All others get the time as an argument, or wait by the event loop, whose time is monotonic.
READERS = {
    "dledger/server.py": "make_clock(), which reads it once",
    "mqclient/admin/broker_admin.py": "to show an age",
    "mqclient/consumer/lite_pull_consumer.py": "statistics, and the version of a subscription",
    "mqclient/producer/producer.py": "the time of birth that a message tells",
    "mqclient/producer/transaction_producer.py": "the same",
    "mqclient/consumer/simple_consumer.py": "the version of a subscription",
    "mqclient/consumer/push_consumer.py": "statistics, and the version of a subscription",
    "remoting/certificates.py": "the days of a certificate that it makes",
    "remoting/tls.py": "whether a certificate ends soon",
}


def readers() -> Iterator[str]:
    for room in SERVERS_AND_CLIENT:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name | ast.Attribute)
                    and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr, node.attr)
                    in READINGS
                ):
                    yield str(path.relative_to(ROOT))


def test_no_other_module_reads_the_wall_clock() -> None:
    assert set(readers()) == READERS.keys()


@pytest.mark.parametrize("jump_s", [-7 * 3600, -1, 1, 7 * 3600])
def test_a_wall_clock_that_is_set_while_a_server_runs_moves_none_of_its_timers(
    monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    now_ns = 0
    set_by_ns = 0
    monkeypatch.setattr("dledger.server.time.monotonic_ns", lambda: now_ns)
    monkeypatch.setattr("dledger.server.time.time_ns", lambda: 1_700_000_000_000_000_000 + now_ns + set_by_ns)
    clock = make_clock()
    before_ms = clock()
    set_by_ns = jump_s * 1_000_000_000
    assert clock() == before_ms
    now_ns = 250_000_000
    assert clock() == before_ms + 250
