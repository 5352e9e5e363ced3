"""h2spec, the program that tries in 146 cases what an HTTP/2 server must do; built once from its Go module."""

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent
BUILD = SOURCES.parent.parent / ".build" / "h2spec"
PROGRAM = BUILD / "h2spec"


@cache
def why_no_h2spec() -> str | None:
    """Build it. Returns the reason where that cannot be done."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return "go not on PATH"
    BUILD.mkdir(parents=True, exist_ok=True)
    module = "github.com/summerwind/h2spec/cmd/h2spec"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Go's own cache knows whether anything has changed.
        done = subprocess.run(
            [go, "build", "-C", str(SOURCES), "-o", str(PROGRAM), module],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={**os.environ, "GOFLAGS": "-buildvcs=false"},
        )
    return f"h2spec cannot be built: {done.stderr.strip()[-300:]}" if done.returncode else None
