"""Nemeses on real processes: what one does, and what it acts on.

What a schedule has to know of a nemesis is its NemesisSpec (faults/nemesis.py). Here is the other half: it is begun at
a target, something other than the command that began it says that it happened, and it is ended. One file each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from faults.nemesis import NemesisSpec

if TYPE_CHECKING:
    from proxies.client_links import ClientLinks
    from proxies.links import Links


class NemesisError(Exception):
    """It could not be begun or ended. The text says why and what is missing."""


class Group(Protocol):
    """The processes that nemeses act on, ours or RocketMQ's own. Calls block; several threads may call at once."""

    members: tuple[str, ...]
    namesrv: str  # where clients ask

    def links(self) -> Links:
        """Between the members; to be asked for before they are started. Skips as a test does where there are none."""

    def client_links(self) -> ClientLinks:
        """From clients to members; likewise."""

    def leader(self) -> str | None:
        """Who serves now; None while nobody does."""

    def pid(self, member: str) -> int | None:
        """None when it does not run. Here and below "namesrv" is the NameServer."""

    def kill(self, member: str) -> None:
        """-9. Returns when it is gone; nothing if it does not run."""

    def start(self, member: str) -> None:
        """Returns once it listens; nothing if it runs."""

    def store_dir(self, member: str) -> Path:
        """Where its log and its derived files lie."""


class Nemesis(Protocol):
    spec: NemesisSpec

    def begin(self, target: str) -> None:
        """`target`: a member, "n0->n1", "group" or "", by the kinds of its spec; of a leader the member that leads now.

        Returns once what it does is in force, within seconds. Raises NemesisError.
        """

    def evidence(self) -> str | None:
        """What shows that it happened, in words for a reader of the report; None while nothing does.

        Asked again and again between begin() and end(), and once more after end().
        """

    def end(self) -> None:
        """Returns once all is as before, within seconds, also after a begin() that failed half-way, or none at all.

        Whether the group has recovered is not its business. Raises NemesisError.
        """
