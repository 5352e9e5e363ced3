"""How much of what waits a batch takes, and how its ranges become tasks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.queue_range import QueueRange

Range = TypeVar("Range", QueueRange, LogRange)


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """None: a task for each range."""

    partitions_min: int | None = None
    records_max: int | None = None


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Of one batch of a stream. None: whatever waits."""

    count_max: int | None = None  # messages, or entries
    size_max: int | None = None  # bytes of them, as they are stored


Fitting = Callable[[Range, int], tuple[int, int]]
"""(range, bytes) -> how many messages from its start on have no more bytes, one at least, and the bytes of these."""


def limited(ranges: Sequence[Range], limits: TriggerLimits, fitting: Fitting[Range]) -> list[Range]:
    """What a batch takes. `fitting` is asked only where there is a limit of bytes."""
    waiting = [item for item in ranges if item.start < item.end]
    if limits.count_max is not None:
        waiting = _limited_by_count(waiting, limits.count_max)
    return waiting if limits.size_max is None else _limited_by_size(waiting, limits.size_max, fitting)


def _limited_by_count(waiting: list[Range], count_max: int) -> list[Range]:
    """Not more than `count_max` messages (or entries): of each queue (or log) a share of what waits in it, and at least
    one. Where there are more queues than messages allowed, others have their turn as the offsets go on.
    """
    total = sum(item.end - item.start for item in waiting)
    if total <= count_max:
        return waiting
    if count_max < len(waiting):
        first = sum(item.start for item in waiting) % len(waiting)
        chosen = (waiting[first:] + waiting[:first])[:count_max]
        return sorted(item._replace(end=item.start + 1) for item in chosen)
    spare, rest = count_max - len(waiting), total - len(waiting)
    taken = []
    for item in waiting:
        # What rounding leaves over goes to the queues that follow.
        more = item.end - item.start - 1
        share = spare * more // rest if rest else 0
        spare, rest = spare - share, rest - more
        taken.append(item._replace(end=item.start + 1 + share))
    return taken


def _limited_by_size(waiting: list[Range], size_max: int, fitting: Fitting[Range]) -> list[Range]:
    """Of each queue (or log) a share of the bytes, as large as its share of what waits, but one message at least: a
    message that is larger than its queue's share must be read, too.
    """
    spare, rest = size_max, sum(item.end - item.start for item in waiting)
    taken = []
    for item in waiting:
        # What a queue leaves over of its share goes to those that follow.
        length = item.end - item.start
        count, size = fitting(item, spare * length // rest)
        spare, rest = max(spare - size, 0), rest - length
        taken.append(item._replace(end=item.start + count))
    return taken


def divided(ranges: Sequence[Range], sizes: TaskSizes) -> list[Range]:
    """Ranges of about one size each, a task for each: none above `records_max`, and `partitions_min` at least, if
    there are as many messages."""
    total = sum(item.end - item.start for item in ranges)
    size = sizes.records_max or max(total, 1)
    if sizes.partitions_min is not None:
        size = min(size, max(total // sizes.partitions_min, 1))
    parts = []
    for item in ranges:
        length = item.end - item.start
        if not length:
            continue
        count = -(-length // size)
        cuts = [item.start + length * number // count for number in range(count + 1)]
        parts += [item._replace(start=start, end=end) for start, end in pairwise(cuts)]
    return parts
