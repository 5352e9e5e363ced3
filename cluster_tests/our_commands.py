"""`mq` as a user types it, and what it has noted of its sends."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from local_cluster import ROOT


def try_mq(*arguments: str) -> subprocess.CompletedProcess[str]:
    """However it ends."""
    command = [sys.executable, "-m", "mq", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def mq(*arguments: str) -> str:
    """What a command prints that succeeds."""
    done = try_mq(*arguments)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def outcomes(history: Path) -> list[dict[str, Any]]:
    """Of `mq produce --history`, which may be at work: a line that has no end yet does not count."""
    lines = history.read_text().splitlines(keepends=True) if history.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@contextmanager
def running(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """An `mq` command at work; what it prints is in `output`."""
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "mq", *arguments], stdout=file)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
