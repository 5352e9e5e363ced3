"""How work is spread: the same functions over the same units of work, in this process or on Spark.

A unit of work is a frozen dataclass that pickles; the function over it is a module-level function that reads files and
yields small results. Results come back in any order, so whoever collects them must not care.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

Unit = TypeVar("Unit")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Runner(Protocol):
    """`on_done` is told after each unit: how many of this call are done. str() says where the work is done."""

    @property
    def parallelism(self) -> int:
        """How many units are worked on at once; plans make some times as many."""
        ...

    def map(
        self,
        work: Callable[[Unit], Iterable[Result]],
        units: Sequence[Unit],
        on_done: Callable[[int], None] = ...,
    ) -> Iterator[Result]:
        """work(unit) for each unit, flattened."""
        ...

    def map_grouped(
        self,
        work: Callable[[Unit], Iterable[tuple[Key, Value]]],
        units: Sequence[Unit],
        judge: Callable[[Key, list[Value]], Iterable[Result]],
        on_done: Callable[[int], None] = ...,
    ) -> Iterator[Result]:
        """All values of one key, from whatever units they come, are judged together. They must fit into memory."""
        ...


class LocalRunner:
    """One unit after the other, here."""

    parallelism = 1

    def __str__(self) -> str:
        return "in process"

    def map(
        self,
        work: Callable[[Unit], Iterable[Result]],
        units: Sequence[Unit],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Result]:
        for done, unit in enumerate(units, 1):
            yield from work(unit)
            on_done(done)

    def map_grouped(
        self,
        work: Callable[[Unit], Iterable[tuple[Key, Value]]],
        units: Sequence[Unit],
        judge: Callable[[Key, list[Value]], Iterable[Result]],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Result]:
        groups: dict[Key, list[Value]] = {}
        for key, value in self.map(work, units, on_done):
            groups.setdefault(key, []).append(value)
        for key, values in groups.items():
            yield from judge(key, values)
