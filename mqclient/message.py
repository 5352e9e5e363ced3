"""A message as an application hands it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Message:
    """`keys` are for look-ups (joined with blanks on the wire; a string is taken as it is), `tags` for filters of
    consumers, `properties` are the application's own. `sharding_key`: messages with an equal one go to the same queue,
    in the order sent. `delay_level`: consumers get it when the level's time has passed, 1 s for level 1 to 2 h for
    level 18 (the broker's messageDelayLevel); 0: at once. `delay`, or `deliver_at`: consumers get it after that, or at
    that time by the broker's clock, and `recall` calls it off before. At most one of these three says more than now. A
    `deliver_at` without a time zone is local time."""

    topic: str
    body: bytes
    tags: str = ""
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sharding_key: str = ""
    delay_level: int = 0
    delay: timedelta = timedelta()
    deliver_at: datetime | None = None
