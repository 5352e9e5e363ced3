"""A broker that serves, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from one_broker import OneBroker

# What a plain broker does as a member of a group does it.
_OF_BOTH_KINDS = {
    "test_consumers_and_offsets",
    "test_pull_message",
    "test_query_message",
    "test_retries",
    "test_send_message",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ in _OF_BOTH_KINDS and "broker" in metafunc.fixturenames:
        metafunc.parametrize("broker", ["group", "plain"], indirect=True)


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OneBroker]:
    """A member of a group; with the parameter "plain" a broker without one."""
    made = OneBroker(tmp_path, is_plain=getattr(request, "param", None) == "plain")
    yield made
    made.close()
