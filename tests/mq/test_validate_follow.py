"""`mq validate --follow` as it is typed: a line per range, and the proof in the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, NODES, unpack_store
from typer.testing import CliRunner

from mq.front_door import make_app


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    root = unpack_store(DLEDGER_STORE, tmp_path, lambda path: "/index/" not in path)
    return [str(root / node) for node in NODES]


def flip(store: str, byte: int) -> None:
    (data,) = Path(store).glob("dledger-*/data")
    path = min(data.iterdir())
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def followed(stores: list[str], *arguments: str) -> tuple[list[str], int]:
    """What it printed, and its exit status: interrupted once it has told of a range."""
    command = [sys.executable, "-m", "mq", "validate", "--follow", *stores, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        lines += process.stdout.readlines()
        return [line.rstrip("\n") for line in lines], process.wait(60)


@pytest.mark.slow
def test_ranges_are_told_and_in_the_end_what_is_proved(stores: list[str], tmp_path: Path) -> None:
    figures = tmp_path / "figures.prom"
    lines, status = followed(stores, "--metrics", str(figures))
    assert status == 0
    assert lines[0] == "entries 0 .. 2,110: equal in n0, n1 and n2"
    assert lines[-1] == "Proved equal: entries 0 .. 2,110 of n0, n1 and n2."
    told = figures.read_text()
    assert 'pydledger_replicas_proved_equal_index{group=""} 2110\n' in told
    assert 'pydledger_replicas_compared_findings_total{group=""} 0\n' in told


@pytest.mark.slow
def test_a_flipped_bit_is_named_and_ends_with_status_10(stores: list[str]) -> None:
    flip(stores[1], 300)
    lines, status = followed(stores, "--json", "-")
    assert status == 10
    first, *_, last = map(json.loads, lines)
    (finding,) = first["findings"]
    assert (finding["replica"], finding["first_index"], finding["severity"]) == ("n1", 0, "error")
    assert (last["clean"], last["proved_index"], last["compared_index"]) == (False, -1, 2110)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--follow", "--history", "h"], "--history does not go with --follow"),
        (["--follow", "--master", "local[1]"], "--master does not go with --follow"),
        (["--follow", "--json", "f"], "with --follow it is --json -"),
        (["--follow", "--metrics", "{store}/f"], "is in a replica, which is only read"),
        (["--metrics", "f"], "--metrics are figures of --follow"),
    ],
)
def test_wrong_input_gives_one_line(stores: list[str], arguments: list[str], said: str) -> None:
    told = [text.format(store=stores[0]) for text in arguments]
    done = CliRunner().invoke(make_app(), ["validate", *stores, *told])
    assert done.exit_code == 1, done.output
    (line,) = done.stderr.splitlines()
    assert said in line
