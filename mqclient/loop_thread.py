"""An event loop in a thread of its own, for callers in other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from mqclient.errors import ClientClosedError

T = TypeVar("T")


class LoopThread:
    """Invariant: whatever is submitted ends; what is under way when the loop ends is cancelled."""

    def __init__(self, name: str) -> None:
        # A daemon: a program that forgets to close its client must still be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()  # nothing is submitted while the loop ends
        self._started = threading.Event()
        self._ending: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def start(self) -> None:
        """Raises RuntimeError the second time: threads start once."""
        self._thread.start()
        self._started.wait()

    @property
    def is_open(self) -> bool:
        return self._loop is not None and not self._is_closed

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Raises ClientClosedError."""
        with self._lock:
            if self._is_closed or self._loop is None:
                work.close()
                raise ClientClosedError(
                    "closed" if self._is_closed else "not started: use `with`, or start()"
                )
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the loop and waits."""
        return self.result(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Submits what the caller will wait for. Raises ClientClosedError."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("called from the client's own thread, which would wait for itself")
        return self.submit(work)

    def result(self, future: Future[T]) -> T:
        """Waits for it. A caller that is interrupted while it waits takes the work back."""
        try:
            return future.result()
        except CancelledError:
            # It may have got as far as a broker.
            error = ClientClosedError("closed while this was under way, with unknown outcome")
            error.definite = False
            raise error from None
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, function: Callable[..., T], *arguments: object) -> T:
        """As `call`, for a function that does not wait but belongs to the loop."""

        async def work() -> T:
            return function(*arguments)

        return self.call(work())

    def close(self) -> None:
        """Ends the loop, and what is still under way in it."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or self._loop is None or self._ending is None:
            return
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())  # which cancels all tasks that are left
        finally:
            self._started.set()  # without a loop where none could be made

    async def _main(self) -> None:
        self._ending = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started.set()
        await self._ending.wait()
