"""Work spread over Spark: each unit of work is a task of its own, groups are brought together by a shuffle.

Functions go to the workers by name, so the workers must have this package: locally they do, on a cluster see
docs/pipeline.md. Results come to the driver; they are digests and findings, never entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import AccumulatorParam, InheritableThread
from pyspark.errors.exceptions.captured import CapturedException

if TYPE_CHECKING:
    from pyspark import RDD, Accumulator
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SparkWorkError(Exception):
    """A task failed, and failed again when Spark tried it elsewhere. The text is the worker's own."""


class SparkRunner:
    """Fulfils runner.Runner over a session that somebody else starts and stops."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext

    @property
    def parallelism(self) -> int:
        return self._context.defaultParallelism

    def __str__(self) -> str:
        return f"Spark {self._context.version}, {self._context.master}"

    def map(
        self,
        work: Callable[[Unit], Iterable[Result]],
        units: Sequence[Unit],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Result]:
        """Raises SparkWorkError. Nothing is yielded before all units are done."""
        if units:
            yield from self._collect(lambda done: self._worked(work, units, done), on_done)

    def map_grouped(
        self,
        work: Callable[[Unit], Iterable[tuple[Key, Value]]],
        units: Sequence[Unit],
        judge: Callable[[Key, list[Value]], Iterable[Result]],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Result]:
        """Raises SparkWorkError."""
        if not units:
            return

        def judged(group: tuple[Key, Iterable[Value]]) -> Iterable[Result]:
            return judge(group[0], list(group[1]))

        def plan(done: Accumulator[int]) -> RDD[Result]:
            pairs: RDD[tuple[Key, Value]] = self._worked(work, units, done)
            return pairs.groupByKey(max(2 * self.parallelism, 8)).flatMap(judged)

        yield from self._collect(plan, on_done)

    def _worked(
        self, work: Callable[[Unit], Iterable[Result]], units: Sequence[Unit], done: Accumulator[int]
    ) -> RDD[Result]:
        def worked(part: Iterable[Unit]) -> Iterator[Result]:
            for unit in part:
                yield from work(unit)
                done.add(1)

        return self._context.parallelize(units, len(units)).mapPartitions(worked)

    def _collect(
        self, plan: Callable[[Accumulator[int]], RDD[Result]], on_done: Callable[[int], None]
    ) -> list[Result]:
        """The job runs in a thread, so that `on_done` is called in the caller's, and Ctrl-C ends the tasks too."""
        told: SimpleQueue[int | list[Result] | BaseException] = SimpleQueue()
        done = self._context.accumulator(0, _TellingParam(told.put))
        # It is how the tasks are cancelled.
        job_group = f"validation-{done.aid}"

        def run() -> None:
            try:
                self._context.setJobGroup(job_group, "units of work of a validation", interruptOnCancel=True)
                told.put(plan(done).collect())
            except BaseException as error:  # noqa: BLE001 (it is raised again where the caller is)
                told.put(error)

        InheritableThread(target=run, daemon=True).start()
        try:
            while isinstance(said := told.get(), int):
                on_done(said)
        except BaseException:
            self._context.cancelJobGroup(job_group)
            raise
        if isinstance(said, Py4JJavaError | CapturedException):
            # Their own text needs the JVM, which may be gone when somebody reads it.
            error = SparkWorkError(_reason(str(said)))
            error.add_note(str(said))
            raise error from None
        if isinstance(said, BaseException):
            raise said
        return said


class _TellingParam(AccumulatorParam[int]):
    """A sum whose owner is told of each step. Workers have it without the owner."""

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self._tell = tell

    def __reduce__(self) -> tuple[type[_TellingParam], tuple[()]]:
        return _TellingParam, ()

    def zero(self, value: int) -> int:
        return 0

    def addInPlace(self, value1: int, value2: int) -> int:  # noqa: N802 (Spark's name)
        total = value1 + value2
        if self._tell is not None and value2:
            self._tell(total)
        return total


def _reason(text: str) -> str:
    """The last line of the worker's traceback; what Spark says where no worker spoke."""
    _, found, traceback = text.partition("Traceback (most recent call last):")
    # Behind it is what Spark and Java have to say of it.
    own = re.split(r"\n\s*SQLSTATE|\n+\s+at |\n\nJVM stacktrace", traceback if found else text)[0]
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    return (lines[-1] if found else lines[0]) if lines else text
