"""A gRPC proxy as a process beside a broker: `mqbroker --enable-proxy`. It ends with the broker, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

# What the proxy imports and the broker does not.
LIBRARIES: Final = ("hpack", "google.protobuf")
_PR_SET_PDEATHSIG: Final = 1


def missing_library() -> str | None:
    for name in LIBRARIES:
        try:
            if find_spec(name) is None:
                return name
        except ModuleNotFoundError:  # of a package's part: there is no such package
            return name
    return None


@contextmanager
def proxy_beside(arguments: Sequence[str]) -> Iterator[None]:
    """Runs `mqproxy` with these arguments while the block runs."""
    command = [sys.executable, "-m", "mq.server_entry", "proxy", "--beside", str(os.getpid()), *arguments]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def end_with(parent: int) -> None:
    """Has the kernel end this process with its parent, which may be killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(0)  # it has ended before it could be asked for
