from datetime import UTC, datetime, timedelta

import pytest

from mq.deliver_time import DeliverTime, deliver_time


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("90s", timedelta(seconds=90)),
        ("1.5m", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("1d", timedelta(days=1)),
    ],
)
def test_a_delay_has_a_unit(text: str, delay: timedelta) -> None:
    assert deliver_time(text, None) == DeliverTime(delay)


def test_a_time_may_name_its_offset() -> None:
    assert deliver_time(None, "2026-01-31T08:00+00:00").deliver_at == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert deliver_time(None, "2026-01-31T08:00").deliver_at == datetime(2026, 1, 31, 8)  # noqa: DTZ001
    assert deliver_time(None, None) == DeliverTime()


@pytest.mark.parametrize("text", ["5", "s", "-1s", "1 s", "", "1w"])
def test_what_is_no_delay_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 500ms, 90s"):
        deliver_time(text, None)


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="write 2026-01-31"):
        deliver_time(None, "tomorrow")
    with pytest.raises(ValueError, match="contradict"):
        deliver_time("1s", "2026-01-31T08:00")
