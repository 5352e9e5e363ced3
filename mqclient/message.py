"""A message as an application hands it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """`keys` are for look-ups (joined with blanks on the wire; a string is taken as it is), `tags` for filters of
    consumers, `properties` are the application's own. `sharding_key`: messages with an equal one go to the same queue,
    in the order sent."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sharding_key: str = ""
