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
