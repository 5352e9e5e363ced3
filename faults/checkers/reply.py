"""Whoever asks is given the reply to that request, and no other's. That none came in time breaks no promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.checkers.checker import MessageName, Violation, message_of
from faults.history import Record, Request


class Reply:
    name = "reply"

    def takes(self) -> Mapping[type[Record], Callable[[Any], Iterator[Violation]]]:
        return {Request: self._ended}

    def finish(self) -> Iterator[Violation]:
        return iter(())

    def _ended(self, request: Request) -> Iterator[Violation]:
        replied_to = MessageName(request.reply_producer, request.reply_sequence)
        if request.outcome == "ok" and replied_to != message_of(request):
            yield Violation(
                self.name,
                f"request {message_of(request)} was given the reply to {replied_to}",
                at_ns=request.at_ns,
                messages=(message_of(request), replied_to),
            )
