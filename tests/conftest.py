"""What holds for every test."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from disk.real_disk import RealFile

# A machine with other work on it is no fault of an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side run files, which keep their fixtures and ports to themselves; and Spark is started once."""
    for item in items:
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def files_are_closed_behind_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tests drop a store as a crash would. A process may have 1,024 files open on most machines."""
    opened: list[RealFile] = []
    init = RealFile.__init__

    def noted(self: RealFile, path: str, descriptor: int) -> None:
        init(self, path, descriptor)
        opened.append(self)

    monkeypatch.setattr(RealFile, "__init__", noted)
    yield
    for file in opened:
        file.close()
