"""What nemeses on the messages of a link share.

The stream stays sound whatever they do (frame_stream.py): a member has lost a message, got it twice, or got it behind
the next one. What shows it is the count of the proxy that has done it to messages which the member itself had sent; by
type, so that one can see whether it was the load or the heartbeats. Two followers say nothing to each other while the
group is well: on a link where nothing has met it yet, questions of the run go through the same proxy to the same
member, and are counted as such.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from random import Random
from typing import ClassVar

from nemeses.nemesis import NemesisError
from proxies.frame_proxy import FrameProxies, Meddling
from proxies.frame_stream import Fate
from proxies.links import Links

from faults.nemesis import NemesisSpec

_TYPES = {
    1: "vote requests",
    2: "votes",
    3: "heartbeats",
    4: "answers to heartbeats",
    5: "pushes",
    6: "acknowledgements",
    9: "questions of the run",  # members put none to each other
    10: "answers to questions of the run",
    11: "hand-overs",
    12: "requests for repair",
    13: "repairs",
    14: "questions for the commit",
    15: "answers about the commit",
}
_ASK_S_MAX = 0.5
_ANSWERS = 1_000  # bytes: some ten of them, each to a question of its own


class MessageNemesis:
    """A Nemesis on one directed link, under a share of its messages drawn from a seed."""

    spec: ClassVar[NemesisSpec]
    fate: ClassVar[Fate]
    share: ClassVar[float]

    def __init__(self, links: Links, dice: Random | None = None) -> None:
        """`links`: before their options() are asked for."""
        self._members = links.members
        self._ask = links.ask
        self._link = "", ""
        self._proxies: FrameProxies = links.frames()
        self._dice = dice or Random(0)
        self._meddling: Meddling | None = None
        self._is_on = False

    def begin(self, target: str) -> None:
        sender, arrow, receiver = target.partition("->")
        if not arrow or sender == receiver or not {sender, receiver} <= set(self._members):
            raise NemesisError(f"{self.spec.name} {target}: no link between two members, like n0->n1")
        self._link = sender, receiver
        seed = self._dice.getrandbits(32)
        self._meddling = self._proxies.meddle(sender, receiver, self.fate, share=self.share, seed=seed)
        self._is_on = True

    @property
    def counts(self) -> Counter[int]:
        """Messages that had its fate in its newest firing, by type."""
        return Counter() if self._meddling is None else self._meddling.counts

    def evidence(self) -> str | None:
        if self._is_on and not self.counts:
            with contextlib.suppress(OSError):  # what is lost has no answer
                address = self._proxies.addresses[self._link]
                self._ask(
                    address,
                    self._link[1],
                    seconds_max=_ASK_S_MAX,
                    bytes_down=_ANSWERS,
                )
        counts = self.counts
        if not counts:
            return None
        told = ", ".join(
            f"{count} {_TYPES.get(kind, f'of type {kind}')}" for kind, count in sorted(counts.items())
        )
        return f"{self.fate.value}: {told}"

    def end(self) -> None:
        self._is_on = False
        if self._meddling is not None:
            self._meddling.lift()
