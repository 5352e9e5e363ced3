"""Proxies of toxiproxy that several faults are laid on at once, each taken off by itself."""

import itertools
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Generic, TypeVar

from proxies.toxiproxy_server import ToxiproxyServer

Key = TypeVar("Key", bound=Hashable)


class Impairment:
    """One fault. Others beside it stay when this is lifted."""

    def __init__(self, *undo: Callable[[], None]) -> None:
        """`undo`: each does nothing once it has been done."""
        self._undo = undo

    def lift(self) -> None:
        """Once is enough, unless it raises: then again. Nothing after heal()."""
        with ExitStack() as each:
            for undo in self._undo:
                each.callback(undo)


class ImpairedProxies(Generic[Key]):
    """Several threads may call at once. Raises what toxiproxy's client does, a RequestException."""

    def __init__(self, server: ToxiproxyServer, names: Mapping[Key, str]) -> None:
        """`names`: of the server's proxies."""
        self._server = server
        self._names = names
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._toxics: set[tuple[Key, str]] = set()
        self._downs: dict[Key, set[int]] = {key: set() for key in names}

    def address(self, key: Key) -> str:
        """host:port that it listens on."""
        return self._server.listen(self._names[key])

    @property
    def addresses(self) -> dict[Key, str]:
        return {key: self.address(key) for key in self._names}

    def impair(self, ways: Mapping[Key, str], kind: str, **attributes: int) -> Impairment:
        """`ways`: "upstream" or "downstream" of each of these proxies; `kind` and its attributes are toxiproxy's."""
        name = f"{kind}-{next(self._numbers)}"
        impairment = Impairment(*(partial(self._remove, key, name) for key in ways))
        with ExitStack() as failing:
            failing.callback(impairment.lift)
            for key, stream in ways.items():
                with self._lock:
                    self._toxics.add((key, name))
                    self._server.add_toxic(
                        self._names[key], name, kind=kind, stream=stream, attributes=attributes
                    )
            failing.pop_all()
        return impairment

    def take_down(self, key: Key) -> Impairment:
        """Its connections close, and it takes no new ones."""
        number = next(self._numbers)
        impairment = Impairment(partial(self._raise, key, number))
        with ExitStack() as failing:
            failing.callback(impairment.lift)
            with self._lock:
                self._downs[key].add(number)
                self._server.set_enabled(self._names[key], enabled=False)
            failing.pop_all()
        return impairment

    def heal(self) -> None:
        """Takes off whatever is on."""
        for key, name in list(self._toxics):
            self._remove(key, name)
        for key, numbers in self._downs.items():
            for number in list(numbers):
                self._raise(key, number)

    def _remove(self, key: Key, name: str) -> None:
        with self._lock:
            if (key, name) in self._toxics:
                self._server.remove_toxic(self._names[key], name)
                self._toxics.discard((key, name))

    def _raise(self, key: Key, number: int) -> None:
        with self._lock:
            downs = self._downs[key]
            if downs == {number}:
                self._server.set_enabled(self._names[key], enabled=True)
            downs.discard(number)
