"""A group with an SQL expression is given the messages that match, all of them and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from faults.checkers.checker import Place, Queue, Violation, message_of, queue_of
from faults.checkers.numbered import Flags, Numbered
from faults.history import READ_BACK, FilteredGroup, Phase, Poll, Record, Run

_THERE: Final = 1
_GIVEN: Final = 2
_NAMED: Final = 4


class Filtered:
    """Which messages match is told by their sequences. What is missing is judged by what was read back."""

    name = "filtered"

    def __init__(self) -> None:
        self._groups: tuple[FilteredGroup, ...] = ()
        self._stayed = False  # their consumers, until the end
        self._places = Numbered[tuple[str, Queue]]()  # by group
        self._states = Flags()

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Run: self._run, Phase: self._goes_on, Poll: self._poll}

    def _run(self, run: Run) -> Iterator[Violation]:
        self._groups = run.filtered
        return iter(())

    def _goes_on(self, phase: Phase) -> Iterator[Violation]:
        self._stayed = self._stayed or phase.name == "level"
        return iter(())

    def _poll(self, poll: Poll) -> Iterator[Violation]:
        for filtered in self._groups:
            if poll.topic != filtered.topic or poll.group not in (filtered.group, READ_BACK):
                continue
            queue = queue_of(poll)
            for delivered in poll.messages:
                if not delivered.producer:
                    continue  # phantom.py's
                place = self._places.pack((filtered.group, queue), delivered.queue_offset)
                matches = filtered.takes(delivered.sequence)
                if poll.group == filtered.group:
                    if not matches and self._states.add_first(place, _NAMED):
                        yield Violation(
                            self.name,
                            f"group {poll.group} was given message {message_of(delivered)} at "
                            f"{Place(queue, delivered.queue_offset)}, which its expression does not match",
                            at_ns=poll.at_ns,
                            messages=(message_of(delivered),),
                        )
                    self._states.add(place, _GIVEN)
                elif matches:
                    self._states.add(place, _THERE)

    def finish(self) -> Iterator[Violation]:
        if not self._stayed:
            return
        for packed, state in self._states.items():
            if state & _THERE and not state & _GIVEN:
                (group, queue), offset = self._places.unpack(packed)
                place = Place(queue, offset)
                yield Violation(
                    self.name,
                    f"nobody of group {group} was given what is at {place}, which its expression matches",
                    places=(place,),
                )
