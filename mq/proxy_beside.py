"""A gRPC proxy as a process beside a broker: `mqbroker --enable-proxy`. When one ends, so does the other."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from importlib.util import find_spec
from subprocess import PIPE
from typing import Any, Final

log = logging.getLogger(__name__)

# What the proxy imports and the broker does not.
LIBRARIES: Final = ("hpack", "google.protobuf")
STOP_SECONDS: Final = 10.0  # so long a proxy may take to end once its broker has


def missing_library() -> str | None:
    for name in LIBRARIES:
        try:
            if find_spec(name) is None:
                return name
        except ModuleNotFoundError:  # of a package's part: there is no such package
            return name
    return None


async def beside_proxy(broker: Coroutine[Any, Any, None], arguments: Sequence[str]) -> None:
    """Runs the broker, which ends on SIGTERM, and `mqproxy` with these arguments beside it. Raises SystemExit(1) where
    the proxy has failed, and what the broker raises.
    """
    command = (sys.executable, "-m", "mq.server_entry", "proxy", "--beside", *arguments)
    # Nothing is written into the pipe. It ends with this process, however that ends, and then the proxy does.
    proxy = await asyncio.create_subprocess_exec(*command, stdin=PIPE)
    watching = asyncio.create_task(_watch(proxy))
    try:
        await broker
    finally:
        watching.cancel()
        await _stop(proxy)
    if watching.done() and not watching.cancelled() and watching.result() != 0:
        raise SystemExit(1)


async def _watch(proxy: asyncio.subprocess.Process) -> int:
    """Ends this process, in order, when the proxy has ended. Returns the proxy's exit status."""
    status = await proxy.wait()
    if status == 0:
        log.info("the gRPC proxy was asked to end, so the broker ends, too")
    else:
        reason = "the gRPC proxy has ended with status %d, so the broker ends, too: the proxy's lines say why"
        log.error(reason, status)
    os.kill(os.getpid(), signal.SIGTERM)
    return status


async def _stop(proxy: asyncio.subprocess.Process) -> None:
    if proxy.returncode is not None:
        return
    proxy.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await proxy.wait()
    except TimeoutError:
        log.warning("the gRPC proxy did not end within %g s: it is killed", STOP_SECONDS)
        proxy.kill()
        await proxy.wait()
