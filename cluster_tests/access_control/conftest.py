"""Who asks in these tests."""

from collections.abc import Iterator

import pytest
from secured_cluster import INIT_USER, ROOT


@pytest.fixture(scope="module")
def as_root() -> Iterator[None]:
    """Brokers of ours know root, and our commands sign as root."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYDLEDGER_INIT_AUTHENTICATION_USER", INIT_USER)
        environment.setenv("PYDLEDGER_ACCESS_KEY", ROOT[0])
        environment.setenv("PYDLEDGER_SECRET_KEY", ROOT[1])
        yield
