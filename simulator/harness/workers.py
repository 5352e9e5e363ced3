"""Seeds run in several processes, and their results come in the order of the seeds.

Each process has a connection of its own: whichever ends, and wherever, holds nothing that another one waits for.
"""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from simulator.harness.run import Result

# So many seeds of each process are given out ahead: a long one does not keep the others waiting at once.
_AHEAD = 8


class WorkerDiedError(Exception):
    """A process ended by itself or by somebody else's hand, and what its seed was worth is not known."""


def _work(run: Callable[[int], Result], connection: Connection, others: list[Connection]) -> None:
    # A signal goes to all processes of a terminal or a service; the one that counts heeds it, and ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # As long as a copy of the other end is open here, nobody would see that the one that counts is gone.
    for other in others:
        other.close()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            seed = connection.recv()
            result: Result | Exception
            try:
                result = run(seed)
            except Exception as error:  # noqa: BLE001 (raised where the results are taken)
                result = error
            connection.send(result)


class _Workers:
    """As a context: when it is left, no process is."""

    def __init__(self, run: Callable[[int], Result], count: int) -> None:
        self._run = run
        self._count = count
        self._processes: dict[Connection, BaseProcess] = {}
        self._seeds: dict[Connection, int] = {}  # under way

    def __enter__(self) -> "_Workers":
        context = multiprocessing.get_context("fork")
        for _ in range(self._count):
            mine, its = context.Pipe()
            process = context.Process(target=_work, args=(self._run, its, [*self._processes, mine]))
            self._processes[mine] = process
            process.start()
            its.close()
        return self

    def __exit__(self, *exception: object) -> None:
        started = [process for process in self._processes.values() if process.pid is not None]
        for process in started:
            process.kill()
        for process in started:
            process.join()
        for connection in self._processes:
            connection.close()

    @property
    def idle(self) -> list[Connection]:
        return [connection for connection in self._processes if connection not in self._seeds]

    def give(self, connection: Connection, seed: int) -> None:
        self._seeds[connection] = seed
        try:
            connection.send(seed)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._died(connection) from error

    def take(self) -> list[tuple[int, Result]]:
        """What has ended by now; waits until something has."""
        taken = []
        for connection in wait(list(self._seeds)):
            assert isinstance(connection, Connection), "nothing else was asked for"
            try:
                result = connection.recv()
            except (EOFError, ConnectionResetError) as error:
                raise self._died(connection) from error
            if isinstance(result, Exception):
                raise result
            taken.append((self._seeds.pop(connection), result))
        return taken

    def _died(self, connection: Connection) -> WorkerDiedError:
        process, seed = self._processes[connection], self._seeds[connection]
        process.join()
        return WorkerDiedError(
            f"the process of seed {seed} ended (exit code {process.exitcode}): if the kernel ended it for want of "
            "memory, run again with fewer --jobs"
        )


def results_of(
    run: Callable[[int], Result], seeds: Iterable[int], jobs: int
) -> Generator[Result, None, None]:
    """`seeds` may be endless: no more are taken than are under way. Closing the iterator ends the processes.

    Raises WorkerDiedError.
    """
    if jobs == 1:
        yield from map(run, seeds)
        return
    remaining = iter(seeds)
    order: deque[int] = deque()
    ended: dict[int, Result] = {}
    with _Workers(run, jobs) as workers:
        while True:
            for connection in workers.idle:
                if len(order) < jobs * _AHEAD and (seed := next(remaining, None)) is not None:
                    workers.give(connection, seed)
                    order.append(seed)
            if not order:
                return
            ended.update(workers.take())
            while order and order[0] in ended:
                yield ended.pop(order.popleft())
