"""The real disk: positions, many buffers, errors by class."""

import ctypes
import errno
import os
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from disk import real_disk
from disk.disk import Disk, DiskError, NoSpaceError
from disk.real_disk import IOV_MAX, RealDisk


@pytest.fixture
def disk() -> Disk:
    return RealDisk()


def test_more_buffers_than_one_call_takes_are_written_in_order(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    buffers = [b"%07d" % number for number in range(2 * IOV_MAX + 3)]
    file.pwritev(buffers, 11)
    assert file.pread(10**6, 11) == b"".join(buffers)
    assert file.pread(11, 0) == bytes(11)


def test_a_short_write_is_carried_on(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(real_disk.os, "pwrite", lambda d, data, at: pwrite(d, bytes(data)[:3], at))
    monkeypatch.setattr(real_disk.os, "pwritev", lambda d, data, at: pwritev(d, [b"".join(data)[:5]], at))
    file = disk.open(f"{tmp_path}/f", create=True)
    file.pwrite(b"0123456789", 0)
    file.pwritev([b"abc", b"defg", b"hij"], 10)
    assert file.pread(20, 0) == b"0123456789abcdefghij"


def test_a_read_ends_at_the_end_of_the_file(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    file.pwrite(b"abc", 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 3) == b""


def test_truncate_lengthens_with_zeros_and_allocate_keeps_length_and_content(
    disk: Disk, tmp_path: Path
) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)
    file.pwrite(b"abc", 0)
    file.truncate(8192)
    file.allocate(0, 1 << 20)
    assert Path(file.path).stat().st_blocks * 512 >= 1 << 20
    assert file.size() == 8192
    assert file.pread(8192, 0) == b"abc" + bytes(8189)


def test_a_missing_file_is_told_apart_from_a_failing_disk(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/none")
    with pytest.raises(DiskError) as failure:
        disk.open(f"{tmp_path}")
    assert failure.value.errno == errno.EISDIR
    assert failure.value.filename == f"{tmp_path}"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_apart_from_a_broken_one(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = disk.open(f"{tmp_path}/f", create=True)

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(real_disk.os, "pwrite", fail)
    monkeypatch.setattr(real_disk.os, "pwritev", fail)
    with pytest.raises(NoSpaceError):
        file.pwrite(b"x", 0)
    with pytest.raises(NoSpaceError) as failure:
        file.pwritev([b"x"], 0)
    assert (failure.value.errno, failure.value.filename) == (code, f"{tmp_path}/f")


@pytest.mark.parametrize(
    ("code", "raised"), [(errno.ENOSPC, NoSpaceError), (errno.EIO, DiskError), (errno.EOPNOTSUPP, None)]
)
def test_space_that_cannot_be_set_aside_is_missed_only_where_it_could_be(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, raised: type[DiskError] | None
) -> None:
    codes = [errno.EINTR, code]

    def fallocate(descriptor: int, mode: int, offset: int, size: int) -> int:
        ctypes.set_errno(codes.pop(0))
        return -1

    file = disk.open(f"{tmp_path}/f", create=True)
    monkeypatch.setattr(real_disk, "_fallocate", fallocate)
    with nullcontext() if raised is None else pytest.raises(raised):
        file.allocate(0, 4096)
    assert codes == []


def test_a_failed_sync_is_no_lack_of_space(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = disk.open(f"{tmp_path}/f", create=True)
    monkeypatch.setattr(real_disk.os, "fdatasync", fail)
    with pytest.raises(DiskError) as failure:
        file.fdatasync()
    assert not isinstance(failure.value, NoSpaceError)


def test_a_sync_that_has_failed_is_told_to_whoever_syncs_the_file_after_it(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux does: what could not be written counts as clean, and the next one would be told that all is well."""
    answers = [OSError(errno.EIO, os.strerror(errno.EIO))]

    def told_once(_: int) -> None:
        while answers:
            raise answers.pop()

    file = disk.open(f"{tmp_path}/f", create=True)
    monkeypatch.setattr(real_disk.os, "fdatasync", told_once)
    for _ in range(3):
        with pytest.raises(DiskError, match=r"\[Errno 5\]"):
            file.fdatasync()
    assert not answers
    disk.open(f"{tmp_path}/f").fdatasync()


def test_syncs_of_one_file_take_turns(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, and the kernel might tell the wrong one that a write was lost."""
    file = disk.open(f"{tmp_path}/f", create=True)
    has_entered, other = threading.Event(), threading.Thread(target=lambda: file.fdatasync())
    entries_meanwhile = []

    def entered(_: int) -> None:
        if threading.current_thread() is other:
            has_entered.set()
            return
        other.start()
        entries_meanwhile.append(has_entered.wait(0.05))

    monkeypatch.setattr(real_disk.os, "fdatasync", entered)
    file.fdatasync()
    other.join()
    assert has_entered.is_set()
    assert entries_meanwhile == [False]


def test_directories_are_made_with_their_parents_and_listed_in_order(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/c"
    assert disk.list_directory(path) == []
    disk.make_directory(path)
    disk.make_directory(path)
    for name in ("2", "1"):
        disk.open(f"{path}/{name}", create=True).close()
    disk.rename(f"{path}/2", f"{path}/0")
    disk.sync_directory(path)
    assert disk.list_directory(path) == ["0", "1"]
    disk.unlink(f"{path}/0")
    assert not disk.exists(f"{path}/0")
    assert disk.is_directory(path)
    assert not disk.is_directory(f"{path}/1")
    free, total = disk.free_space(path)
    assert 0 <= free <= total


def test_every_name_above_is_synced_up_to_the_mount_or_to_what_may_not_be_read(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "b"
    disk.make_directory(str(path))
    synced: list[str] = []
    monkeypatch.setattr(real_disk.RealDisk, "sync_directory", lambda self, parent: synced.append(parent))
    disk.sync_parents(f"{path}/")
    above = [str(parent) for parent in path.parents]
    assert synced == above[: len(synced)]
    assert Path(synced[-1]).is_mount()

    def refuse(self: Disk, parent: str) -> None:
        raise DiskError(errno.EACCES if parent == str(tmp_path) else errno.EIO, "refused", parent)

    monkeypatch.setattr(real_disk.RealDisk, "sync_directory", refuse)
    disk.sync_parents(str(tmp_path / "a"))
    with pytest.raises(DiskError):
        disk.sync_parents(str(path))


def test_a_file_in_the_way_of_a_directory_is_an_error(disk: Disk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/a", create=True).close()
    with pytest.raises(DiskError):
        disk.make_directory(f"{tmp_path}/a/b")
    with pytest.raises(DiskError):
        disk.make_directory(f"{tmp_path}/a")
