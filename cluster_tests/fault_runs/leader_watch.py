"""Who leads, as the members say: asked again and again, and noted when it changes."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from workload.noting import Notes

from faults.history import LeaderSeen

INTERVAL_S = 0.25


class Led(Protocol):
    members: Sequence[str]

    def led_by(self, member: str) -> tuple[str, int, str] | None: ...


class LeaderWatch:
    """Use it as `with LeaderWatch(group, notes, trouble)`. A thread for each member: one that hangs delays no other."""

    def __init__(self, group: Led, notes: Notes, trouble: Callable[[str], None]) -> None:
        """`trouble` is told, from a thread, of a member that can be watched no longer."""
        self._group = group
        self._notes = notes
        self._trouble = trouble
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(member,)) for member in group.members]

    def __enter__(self) -> "LeaderWatch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, member: str) -> None:
        try:
            self._note_changes(member)
        except Exception as error:  # noqa: BLE001, told: a thread has nobody else to tell
            self._trouble(f"asking {member} who leads: {type(error).__name__}: {error}")

    def _note_changes(self, member: str) -> None:
        before: tuple[str, int, str] | None = None
        while not self._ending.is_set():
            told = self._group.led_by(member)
            if told is not None and told != before:
                broker, term, leader = before = told
                self._notes.note(LeaderSeen, broker=broker, term=term, leader=leader, seen_by=member)
            self._ending.wait(INTERVAL_S)
