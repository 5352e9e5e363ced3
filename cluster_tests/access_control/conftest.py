"""Who asks in these tests."""

import json

import pytest
from secured_cluster import ROOT


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers know root, and our commands sign as root."""
    user = json.dumps(dict(zip(("username", "password"), ROOT, strict=True)))
    monkeypatch.setenv("PYDLEDGER_INIT_AUTHENTICATION_USER", user)
    monkeypatch.setenv("PYDLEDGER_ACCESS_KEY", ROOT[0])
    monkeypatch.setenv("PYDLEDGER_SECRET_KEY", ROOT[1])
