"""What nemeses on links share: where they are laid, how it shows, and that each lifts just what it laid.

What shows it is a question to the member at the far end, through the very proxy and the stream of it that is impaired,
beside the same question straight to its Raft port. Members' own figures could not do: they show a link only while it
carries entries, which one between two followers never does. And a question answered by an echo would not have met a
member. The straight one is put before and behind the other, so that neither a member that stands still nor a busy
machine is taken for the fault. That the members' own connections suffer alike is shown by test_link_nemeses.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

from nemeses.nemesis import NemesisError
from proxies.impaired_proxies import Impairment
from proxies.links import Links
from proxies.member_probe import hang_up
from requests import RequestException

from faults.nemesis import NemesisSpec

# A member answers within a millisecond, or some tens of them on a busy machine.
SILENCE_S = 1.0
_ASK_S_MAX = 4.0  # a nemesis whose time is over is asked no longer than this


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the two ways through the proxy by which `dialler` dials `peer`."""

    dialler: str
    peer: str
    is_up: bool

    def __str__(self) -> str:
        return f"{self.dialler} to {self.peer}" if self.is_up else f"answers of {self.peer} to {self.dialler}"


class LinkNemesis(ABC):
    """A Nemesis on some of the directed links of a group; by default on the one that is its target."""

    spec: ClassVar[NemesisSpec]

    def __init__(self, links: Links) -> None:
        self.links = links
        self._laid: list[Impairment] = []
        self._streams: list[Stream] = []
        self._symptoms: dict[Stream, str] = {}

    def begin(self, target: str) -> None:
        self._symptoms = {}
        try:
            directed = self.directed_links(target)
            for sender, receiver in directed:
                self._laid.append(self.impair(sender, receiver))
        except (RequestException, ValueError) as error:
            raise NemesisError(f"{self.spec.name} {target}: {error}") from error
        self._streams = [stream for link in directed for stream in self.streams(*link)]

    def evidence(self) -> str | None:
        """Of every stream that it impairs; each needs to be seen once."""
        unseen = [stream for stream in self._streams if stream not in self._symptoms]
        if unseen:
            with ThreadPoolExecutor(len(unseen)) as pool:
                for stream, symptom in zip(unseen, pool.map(self._symptom_of, unseen), strict=True):
                    if symptom is not None:
                        self._symptoms[stream] = symptom
        if not self._symptoms or len(self._symptoms) < len(self._streams):
            return None
        return "; ".join(f"{stream}: {symptom}" for stream, symptom in self._symptoms.items())

    def end(self) -> None:
        if len(self._symptoms) < len(self._streams):
            self._symptoms = {}
        self._streams = []
        try:
            with ExitStack() as each:
                for impairment in self._laid:
                    each.callback(impairment.lift)
        except RequestException as error:
            raise NemesisError(f"{self.spec.name}: {error}") from error
        self._laid = []

    def directed_links(self, target: str) -> list[tuple[str, str]]:
        """(sender, receiver). Raises ValueError."""
        sender, arrow, receiver = target.partition("->")
        if not arrow or sender == receiver or not {sender, receiver} <= set(self.links.members):
            raise ValueError("no link between two members, like n0->n1")
        return [(sender, receiver)]

    def streams(self, sender: str, receiver: str) -> list[Stream]:
        """Those that an impaired link has impaired."""
        return [Stream(sender, receiver, is_up=True), Stream(receiver, sender, is_up=False)]

    @abstractmethod
    def impair(self, sender: str, receiver: str) -> Impairment: ...

    @abstractmethod
    def symptom(self, stream: Stream) -> str | None:
        """None where it is not seen. Raises OSError for what is not it, either."""

    # -- questions that symptoms are made of

    def answers_late(
        self, stream: Stream, seconds_min: float, *, bytes_up: int = 0, bytes_down: int = 0
    ) -> str | None:
        """An answer that comes, and straight would have come in less than half the time."""

        def question(address: str, seconds_max: float) -> float:
            return self._ask(address, stream.peer, seconds_max, bytes_up=bytes_up, bytes_down=bytes_down)

        return self._is_late(stream, seconds_min, question)

    def closes_late(self, stream: Stream, seconds_min: float) -> str | None:
        return self._is_late(stream, seconds_min, hang_up)

    def is_silent(self, stream: Stream) -> str | None:
        self._ask_straight(stream.peer)
        try:
            self._ask(self._through(stream), stream.peer, SILENCE_S)
        except TimeoutError:
            self._ask_straight(stream.peer)
            return f"no answer in {SILENCE_S} s"
        return None

    def is_closed(self, stream: Stream, *, bytes_up: int = 0, bytes_down: int = 0) -> str | None:
        """Before the answer has come, or so many bytes."""
        self._ask_straight(stream.peer)
        try:
            self._ask(
                self._through(stream), stream.peer, _ASK_S_MAX, bytes_up=bytes_up, bytes_down=bytes_down
            )
        except ConnectionError as error:
            self._ask_straight(stream.peer)
            return type(error).__name__
        return None

    def _is_late(
        self, stream: Stream, seconds_min: float, question: Callable[[str, float], float]
    ) -> str | None:
        straight = self.links.straight[stream.peer]
        before = question(straight, seconds_min / 2)
        took = question(self._through(stream), _ASK_S_MAX)
        if took < seconds_min:
            return None
        behind = question(straight, seconds_min / 2)
        return f"{took:.2f} s, straight {max(before, behind):.2f}"

    def _ask_straight(self, member: str) -> None:
        self._ask(self.links.straight[member], member, SILENCE_S / 2)

    def _ask(
        self, address: str, member: str, seconds_max: float, *, bytes_up: int = 0, bytes_down: int = 0
    ) -> float:
        return self.links.ask(
            address, member, seconds_max=seconds_max, bytes_up=bytes_up, bytes_down=bytes_down
        )

    def _through(self, stream: Stream) -> str:
        return self.links.address(stream.dialler, stream.peer)

    def _symptom_of(self, stream: Stream) -> str | None:
        try:
            return self.symptom(stream)
        except OSError:
            return None
