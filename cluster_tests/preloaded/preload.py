"""Libraries that are preloaded into brokers to stand between them and the kernel; the product knows nothing of them."""

import shutil
import subprocess
from pathlib import Path

import pytest


def built(source: Path, target: Path) -> Path:
    """The library of one C file; skips the test with the reason where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip(f"no C compiler on PATH: {source.name} cannot be built")
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(target), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return target


def preload(environment: dict[str, str], library: Path, *, last: bool = False) -> None:
    """One more library. It calls those behind it in the end: that of the power loss is the last to hear of a call, so
    that what another one fails has not come to the disk."""
    there = environment.get("LD_PRELOAD", "").split()
    environment["LD_PRELOAD"] = " ".join([*there, str(library)] if last else [str(library), *there])
