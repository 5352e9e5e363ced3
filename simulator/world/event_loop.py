"""Virtual time: events in the order of their time, and of their making where times are equal."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventLoop:
    """Invariant: time never falls, and no two events are ever compared beyond (time, number)."""

    __slots__ = ("_count", "_heap", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._count = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_at(self, at_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (max(at_us, self.now_us), self._count, callback, arguments))

    def call_later(self, delay_us: int, callback: Callable[..., None], *arguments: Any) -> None:
        self.call_at(self.now_us + delay_us, callback, *arguments)

    def run_until(self, end_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Runs events up to `end_us`, or until is_done(), asked after each event. Returns whether it was done."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, callback, arguments = heappop(heap)
            callback(*arguments)
            if is_done is not None and is_done():
                return True
        self.now_us = max(self.now_us, end_us)
        return False
