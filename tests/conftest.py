"""What holds for every test."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from disk.real_disk import RealFile

# A machine with other work on it is no fault of an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Their tests are seconds of one seed each, and share nothing: they fill up what whole files have left to one process.
FILES_IN_PARTS = ("test_failed_seeds.py", "test_mutants.py")
SPARK_FILES = ("test_data_source.py", "test_spark_runner.py", "test_validate.py")


class FilesWhole(LoadScopeScheduling):
    """Processes side by side take whole files, with their fixtures and ports; those that start Spark go to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        if file.endswith(FILES_IN_PARTS):
            return nodeid
        return "spark" if file.endswith(SPARK_FILES) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesWhole:
    return FilesWhole(config, log)


@pytest.fixture(autouse=True)
def files_are_closed_behind_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many tests drop a store as a crash would. A process may have 1,024 files open on most machines.

    A store that a fixture shares between tests must therefore have its files open before the first of them.
    """
    opened: list[RealFile] = []
    init = RealFile.__init__

    def noted(self: RealFile, path: str, descriptor: int) -> None:
        init(self, path, descriptor)
        opened.append(self)

    monkeypatch.setattr(RealFile, "__init__", noted)
    yield
    for file in opened:
        file.close()
