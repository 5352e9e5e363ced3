"""A group that reads a queue gets each message of it: offsets are dense, and a group that is to get all gets all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from faults.checkers.checker import Place, Queue, Violation, queue_of
from faults.history import READ_BACK, Assigned, Phase, Poll, QueueEnd, Record, Run

RANGES_PER_QUEUE_MAX: Final = 20
# Offsets. A consumer that a broken broker sends further is named for the skip, and not marked.
_MARKED_MAX: Final = 1 << 28


class PollSkip:
    """Two ways to miss a message: a consumer passes over offsets, or nobody of a group gets one. The second is what
    shows that an offset was committed too early. Of a group of which nobody knows where it begins and ends, it is told
    of what lies between messages that somebody got; of one that is to get everything, of all that was read back.
    """

    name = "poll_skip"

    def __init__(self) -> None:
        # By group, consumer and queue: the offset that comes next, and the record that says so.
        self._expected: dict[tuple[str, str, Queue], tuple[int, Assigned | Poll]] = {}
        self._got: dict[tuple[str, Queue], bytearray] = {}  # by offset
        self._begins: dict[tuple[str, Queue], int] = {}
        self._to_get_all: tuple[str, ...] = ()
        self._filtered: frozenset[str] = frozenset()  # groups that are to miss messages: filtered.py's
        self._stayed = False  # their consumers, until the end
        self._ends: dict[Queue, QueueEnd] = {}  # of reading back

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {
            Run: self._run,
            Assigned: self._assigned,
            Poll: self._poll,
            Phase: self._goes_on,
            QueueEnd: self._queue_end,
        }

    def _run(self, run: Run) -> Iterator[Violation]:
        self._to_get_all = run.groups
        self._filtered = frozenset(filtered.group for filtered in run.filtered)
        return iter(())

    def _goes_on(self, phase: Phase) -> Iterator[Violation]:
        self._stayed = self._stayed or phase.name == "level"
        return iter(())

    def _queue_end(self, end: QueueEnd) -> Iterator[Violation]:
        if end.group == READ_BACK:
            self._ends[queue_of(end)] = end
        return iter(())

    def _assigned(self, assigned: Assigned) -> Iterator[Violation]:
        queue = queue_of(assigned)
        self._expected[assigned.group, assigned.consumer, queue] = (assigned.offset, assigned)
        self._begin(assigned, queue)
        return iter(())

    def _begin(self, record: Assigned | Poll, queue: Queue) -> None:
        key = record.group, queue
        self._begins[key] = min(record.offset, self._begins.get(key, record.offset))

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if poll.group in self._filtered:
            return
        queue = queue_of(poll)
        got = self._got.setdefault((poll.group, queue), bytearray())
        offsets = [delivered.queue_offset for delivered in poll.messages]
        if offsets:
            _reach(got, max(offsets) + 1)
            for offset in offsets:
                if offset < _MARKED_MAX:
                    got[offset] = 1
        self._begin(poll, queue)
        if not poll.in_order:
            return
        key = poll.group, poll.consumer, queue
        expected, said = self._expected.get(key, (poll.offset, poll))
        # What the poll begins with, each of its messages, and where it says to go on: (offset, what comes after it).
        steps = [(poll.offset, poll.offset), *((offset, offset + 1) for offset in offsets)]
        for offset, after in (*steps, (poll.next_offset, poll.next_offset)):
            if offset > expected:
                # What is named here is not named once more as what nobody got.
                _reach(got, offset)
                got[expected:offset] = b"\1" * (min(offset, len(got)) - expected)
                yield self._skipped(
                    queue, expected, offset, f"{poll.consumer} of group {poll.group}", poll, said
                )
            expected = max(expected, after)
        self._expected[key] = (expected, poll)

    def _skipped(
        self, queue: Queue, first: int, end: int, who: str, poll: Poll, said: Assigned | Poll
    ) -> Violation:
        which = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
        return Violation(
            self.name,
            f"{who} was given what follows {which} of {queue}, and not what is there",
            at_ns=poll.at_ns,
            records=(said, poll) if said is not poll else (poll,),
            places=(Place(queue, first),),
        )

    def finish(self) -> Iterator[Violation]:
        to_get_all = self._to_get_all if self._stayed else ()
        for (group, queue), got in self._got.items():
            if group not in to_get_all or queue not in self._ends:
                yield from self._missed(
                    group, queue, _holes(got, self._begins[group, queue]), "and somebody what follows"
                )
        # A group without any poll is a witness that was never there: coverage.py's.
        for group in sorted({group for group, _ in self._got if group in to_get_all}):
            for queue, end in self._ends.items():
                there = self._got.get((READ_BACK, queue), bytearray())
                got = self._got.get((group, queue), bytearray())
                yield from self._missed(
                    group,
                    queue,
                    _not_given(there[: end.max_offset], got, end.min_offset),
                    "and it was there to be read back",
                )

    def _missed(
        self, group: str, queue: Queue, ranges: Iterator[tuple[int, int]], why: str
    ) -> Iterator[Violation]:
        for first, end in itertools.islice(ranges, RANGES_PER_QUEUE_MAX):
            which = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
            yield Violation(
                self.name,
                f"nobody of group {group} was given {which} of {queue}, {why}",
                places=(Place(queue, first), Place(queue, end)),
            )


def _reach(got: bytearray, end: int) -> None:
    got.extend(bytes(max(0, min(end, _MARKED_MAX) - len(got))))


def _holes(got: bytearray, begin: int) -> Iterator[tuple[int, int]]:
    """Ranges of zeros that a one follows; `end` is exclusive."""
    first = got.find(0, begin)
    while first >= 0:
        end = got.find(1, first)
        if end < 0:
            return
        yield first, end
        first = got.find(0, end)


def _not_given(there: bytearray, got: bytearray, begin: int) -> Iterator[tuple[int, int]]:
    """Ranges from `begin` on of ones in `there` that are none in `got`; `end` is exclusive."""
    missing = int.from_bytes(there) & ~int.from_bytes(got[: len(there)].ljust(len(there), b"\0"))
    marks = missing.to_bytes(len(there))
    first = marks.find(1, begin)
    while first >= 0:
        end = marks.find(0, first)
        end = len(marks) if end < 0 else end
        yield first, end
        first = marks.find(1, end)
