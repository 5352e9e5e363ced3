"""Times as mqadmin takes them."""

from __future__ import annotations

import datetime
import re
import time
from typing import Final

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
HINT = "now, ms since 1970, 2026-01-31#12:00:00:000 or 2026-01-31T12:00"


def timestamp_ms(text: str) -> int:
    """Local time where the text says no other zone. Raises ValueError."""
    if text == "now":
        return time.time_ns() // 1_000_000
    if text.isdigit():
        return int(text)
    try:
        if "#" in text:
            moment = datetime.datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").astimezone()
        else:
            moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write {HINT}") from None
    return int(moment.timestamp() * 1000)


def time_or_ago_ms(text: str) -> int:
    """What timestamp_ms() takes, or how long ago: 90s, 30m, 2h, 7d. Raises ValueError."""
    ago = re.fullmatch(r"([0-9]+)([smhd])", text)
    if ago is None:
        return timestamp_ms(text)
    return timestamp_ms("now") - int(ago[1]) * _UNITS_MS[ago[2]]
