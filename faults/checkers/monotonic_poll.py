"""A consumer that was not told to go back never comes to an offset where it has been."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import Place, Queue, Violation, queue_of
from faults.history import Assigned, Poll, Record


class MonotonicPoll:
    """Within one assignment; a rebalance begins anew where the group has committed."""

    name = "monotonic_poll"

    def __init__(self) -> None:
        self._reached: dict[tuple[str, str, Queue], tuple[int, Poll]] = {}

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Assigned: self._assigned, Poll: self._poll}

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _assigned(self, assigned: Assigned) -> Iterator[Violation]:
        self._reached.pop((assigned.group, assigned.consumer, queue_of(assigned)), None)
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        if not poll.in_order:
            return
        queue = queue_of(poll)
        key = poll.group, poll.consumer, queue
        reached, before = self._reached.get(key, (poll.offset, poll))
        back = None
        for delivered in poll.messages:
            if delivered.queue_offset < reached and back is None:
                back = f"was given offset {delivered.queue_offset}"
            reached = max(reached, delivered.queue_offset + 1)
        if poll.next_offset < reached and back is None:
            back = f"was told to go on at {poll.next_offset}"
        if back is not None:
            yield Violation(
                self.name,
                f"{poll.consumer} of group {poll.group}, which had read {queue} up to offset {reached - 1}, {back}",
                at_ns=poll.at_ns,
                records=(before, poll) if before is not poll else (poll,),
                places=(Place(queue, poll.offset),),
            )
        self._reached[key] = (max(poll.next_offset, poll.offset), poll)
