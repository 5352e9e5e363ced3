"""Sectors that the disk does not give: read as damage, and written over although the kernel would read them first."""

import errno
from pathlib import Path

import pytest
from worn_disk import SECTOR, WornDisk, WornFile

from disk.disk import DiskError, NoSpaceError
from disk.readable import read_what_there_is, write_over

CONTENT = bytes(range(1, 251)) * 100


@pytest.fixture
def file(tmp_path: Path) -> WornFile:
    path = str(tmp_path / "file")
    Path(path).write_bytes(CONTENT)
    disk = WornDisk()
    disk.bad[path] = {1, 3, 6}
    return disk.open(path)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 4096), (0, 25_000), (100, 9_000), (4_096, 4_096), (5_000, 10), (24_000, 5_000)]
)
def test_what_can_be_read_is_read_and_each_other_sector_is_none_of_it(
    file: WornFile, offset: int, size: int
) -> None:
    found = read_what_there_is(file, size, offset)
    wanted = CONTENT[offset : offset + size]
    for at, (one, other) in enumerate(zip(found, wanted, strict=False), offset):
        if at // SECTOR not in file._bad:
            assert one == other, at
    for number in file._bad:
        start, end = max(0, number * SECTOR - offset), number * SECTOR + SECTOR - offset
        if start < end and wanted[start:end]:
            assert found[start : start + len(wanted[start:end])] != wanted[start:end]


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 4_096), (4_096, 4_096), (4_100, 20), (4_100, 9_000), (3_000, 12_000), (24_900, 100)],
)
def test_a_write_over_sectors_that_cannot_be_read_leaves_what_is_around_it(
    file: WornFile, offset: int, size: int
) -> None:
    bad = set(file._bad)
    write_over(file, b"w" * size, offset)
    touched = range(offset // SECTOR, (offset + size - 1) // SECTOR + 1)
    assert file._bad == bad - set(touched)
    content = Path(file.path).read_bytes()
    assert len(content) == len(CONTENT)
    assert content[offset : offset + size] == b"w" * size
    for at in range(len(CONTENT)):
        if at // SECTOR not in bad and not offset <= at < offset + size:
            assert content[at] == CONTENT[at], at


def test_a_write_that_fails_for_another_reason_fails(file: WornFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise DiskError(errno.EIO, "Input/output error", file.path)

    monkeypatch.setattr(WornFile, "pwrite", fails)
    with pytest.raises(DiskError):
        write_over(file, b"w", 0)


def test_want_of_space_is_told_at_once(file: WornFile, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(*_: object) -> None:
        calls.append(1)
        raise NoSpaceError(errno.ENOSPC, "No space left on device", file.path)

    monkeypatch.setattr(WornFile, "pwrite", full)
    with pytest.raises(NoSpaceError):
        write_over(file, b"w", 4_096)
    assert len(calls) == 1
