"""Which NameServers know the newest topics, and requests whose answers wait for that.

Clients find a topic by the NameServers alone: one that begins as soon as updateTopic is answered must not be told that
there is no such topic. Pure: the shell asks the NameServers, and says here what they answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

# One that says nothing for so long is not waited for again until it has answered.
WAIT_MS: Final = 2000  # tools wait for 5 s, and a follower that passes a request on for 3 s

OnTold = Callable[[str | None], None]  # which NameServers do not know, in a sentence; None: all know


class _Waiting(msgspec.Struct):
    change: int
    until_ms: int
    on_told: OnTold


class ToldNameServers:
    """Invariant: each that waits is called once, as soon as all NameServers know or are known to be away, and after
    WAIT_MS at the latest.
    """

    def __init__(self, addresses: Iterable[str], clock: Callable[[], int]) -> None:
        """`clock`: ms."""
        self._clock = clock
        self.ask_now: Callable[[], None] = lambda: (
            None
        )  # of the shell: registers this broker with all of them, at once
        self.newest_change = 0  # what a registration that is made now tells of
        self._known = dict.fromkeys(addresses, -1)  # the newest change that each has acknowledged
        self._faults: dict[str, str] = {}  # of those that are away
        self._waiting: list[_Waiting] = []

    def changed(self) -> None:
        """A topic, or what this broker is to others, has changed."""
        self.newest_change += 1
        self.ask_now()

    def wait(self, on_told: OnTold) -> None:
        """Calls `on_told` once all know of the newest change, or will not soon; maybe within."""
        self._waiting.append(_Waiting(self.newest_change, self._clock() + WAIT_MS, on_told))
        self.tick()

    def answered(self, address: str, change: int, fault: str | None) -> None:
        """A registration that told of `change` was acknowledged, or met a fault."""
        if fault is None:
            self._known[address] = max(self._known[address], change)
            self._faults.pop(address, None)
        else:
            self._faults[address] = fault.removeprefix(f"{address}: ")
        self.tick()

    def tick(self) -> None:
        now_ms = self._clock()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            unknowing = [address for address, known in self._known.items() if known < one.change]
            if now_ms >= one.until_ms:
                for address in unknowing:
                    self._faults.setdefault(address, f"no answer within {WAIT_MS} ms")
            if all(address in self._faults for address in unknowing):
                one.on_told(self._sentence(unknowing))
            else:
                self._waiting.append(one)

    def _sentence(self, unknowing: list[str]) -> str | None:
        if not unknowing:
            return None
        faults = "; ".join(f"{address} ({self._faults[address]})" for address in unknowing)
        return f"it is done, but not all NameServers know yet; they are told again until they do: {faults}"
