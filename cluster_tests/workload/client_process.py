"""A process of clients: started with its arguments, it works until its standard input ends.

So it ends with whoever started it, however that ends; a Ctrl-C in the terminal is not meant for it.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from workload.noting import Notes

from faults.history import HistoryWriter

TOPIC = "FaultRun"
QUEUES = 8
PRODUCERS = "producers"
TRANSACTIONS = "transactions"
TIMERS = "timers"
REQUESTS = "requests"
SENDERS = PRODUCERS, TRANSACTIONS, TIMERS, REQUESTS
CLUSTER_TESTS = Path(__file__).resolve().parent.parent
ROOT = CLUSTER_TESTS.parent


class ClientProcess:
    """The side that starts one. `history` is its file, beside which it logs."""

    def __init__(self, module: str, namesrv: str, history: Path, *options: str) -> None:
        """`module`: workload.<module>; those of SENDERS end before consumers do. Raises OSError."""
        self.name = history.stem
        self.history = history
        self.sends = module in SENDERS
        self.log = history.with_suffix(".log")
        command = [sys.executable, "-m", f"workload.{module}", namesrv, str(history), self.name, *options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(CLUSTER_TESTS), str(ROOT)])},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def has_noted(self, text: bytes) -> bool:
        """Looks through all of its history, so it is for waiting until something is noted for the first time."""
        return self.history.exists() and text in self.history.read_bytes()

    def ask_to_end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self, seconds: float) -> str | None:
        """What went wrong with it, in words; None if it ended well. Kills it after `seconds`."""
        self.ask_to_end()
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self.name} did not end within {seconds:g} s"
        if status == 0:
            return None
        told = self.log.read_text(errors="replace").splitlines()[-8:]
        return "\n".join([f"{self.name} ended with status {status}:", *told])


@dataclass(frozen=True, slots=True)
class Client:
    """What a process of clients is given. `ending` is set when it shall come to its end."""

    namesrv: str
    name: str
    notes: Notes
    ending: asyncio.Event


def run_client(
    work: Callable[[Client, argparse.Namespace], Awaitable[None]],
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    arguments: Sequence[str] | None = None,
) -> None:
    """The main function of a process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("history", type=Path)
    parser.add_argument("name")
    parser.add_argument("--dial", action="append", default=[], help="ADDRESS=OTHER, which is dialled instead")
    add_options(parser)
    options = parser.parse_args(arguments)
    dials = dict(dial.split("=") for dial in options.dial)

    async def until_input_ends() -> None:
        ending = asyncio.Event()
        with HistoryWriter(options.history) as writer:
            client = Client(options.namesrv, options.name, Notes(writer), ending)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_set_at_end_of_input(ending))
                tasks.create_task(work(client, options))

    with asyncio.Runner(loop_factory=partial(_DiallingLoop, dials)) as runner:
        runner.run(until_input_ends())


class _DiallingLoop(uvloop.Loop):  # type: ignore[misc]
    """What a process dials may lie behind a proxy, and neither its clients nor the routes need to know."""

    def __init__(self, dials: Mapping[str, str]) -> None:
        super().__init__()
        self._dials = dials

    async def create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        host, _, dialled = self._dials.get(address := f"{host}:{port}", address).rpartition(":")
        return await super().create_connection(factory, host, int(dialled), **options)


async def _set_at_end_of_input(ending: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await reader.read()
    finally:
        transport.close()
    ending.set()
