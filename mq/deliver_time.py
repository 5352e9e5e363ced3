"""When consumers are to get what is sent, as a person writes it: --delay and --deliver-at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class DeliverTime:
    """At most one of the two says more than now."""

    delay: timedelta = timedelta()
    deliver_at: datetime | None = None


def deliver_time(delay: str | None, deliver_at: str | None) -> DeliverTime:
    """Raises ValueError, which says what is allowed."""
    if delay is not None and deliver_at is not None:
        raise ValueError("--delay and --deliver-at contradict each other: give one of them")
    if delay is not None:
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)", delay, re.ASCII)
        if match is None:
            raise ValueError(f"--delay {delay!r} is no time: write 500ms, 90s, 15m, 2h or 1d")
        return DeliverTime(timedelta(**{_UNITS[match[2]]: float(match[1])}))
    if deliver_at is not None:
        try:
            return DeliverTime(deliver_at=datetime.fromisoformat(deliver_at))
        except ValueError:
            raise ValueError(
                f"--deliver-at {deliver_at!r} is no time: write 2026-01-31T08:00, or with an offset "
                "2026-01-31T08:00+01:00"
            ) from None
    return DeliverTime()
