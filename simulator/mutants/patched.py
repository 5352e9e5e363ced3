"""Code under test with one thing in it put in the place of another, for the length of a context."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


@contextmanager
def patched(owner: type | ModuleType, name: str, new: Any) -> Iterator[None]:
    old = owner.__dict__[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)
