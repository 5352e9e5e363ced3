"""A broker that serves, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    made = OneBroker(tmp_path)
    yield made
    made.close()
