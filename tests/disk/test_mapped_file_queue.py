"""Queues of files: names, gaps, lengths, bytes across files, few descriptors."""

import errno
import os
from pathlib import Path

import pytest

from disk import real_disk
from disk.disk import DiskError
from disk.mapped_file import DescriptorCache
from disk.mapped_file_queue import MappedFileQueue, MappedFileQueueError, file_name
from disk.readable import unreadable
from disk.real_disk import RealDisk


def new_queue(path: Path, *, size: int = 64, open_max: int = 8) -> MappedFileQueue:
    RealDisk().make_directory(str(path))
    return MappedFileQueue(DescriptorCache(RealDisk(), open_max), str(path), size)


def test_bytes_may_lie_across_files(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    for offset in (128, 192, 256):
        queue.create_mapped_file(offset, durable=True)
    data = bytes(range(150))
    queue.write(140, data)
    assert queue.read(140, 150) == data
    assert queue.read(128, 1000) == bytes(12) + data + bytes(30)
    assert queue.read(100, 10) == b""
    assert queue.read(320, 10) == b""
    assert (queue.min_offset, queue.end_offset) == (128, 320)
    reopened = new_queue(tmp_path)
    reopened.load()
    assert reopened.read(140, 150) == data
    assert [f.stat().st_size for f in sorted(tmp_path.iterdir())] == [64, 64, 64]


@pytest.mark.parametrize("is_gone", [False, True])
def test_behind_a_file_that_lost_its_end_bytes_keep_their_places(tmp_path: Path, is_gone: bool) -> None:
    queue = new_queue(tmp_path, open_max=1)
    for offset in (0, 64, 128):
        queue.create_mapped_file(offset)
    data = bytes(range(1, 193))
    queue.write(0, data)
    if is_gone:
        Path(queue.path_of(64)).unlink()
    else:
        os.truncate(queue.path_of(64), 0)
    found = queue.read(10, 180)
    assert (found[:54], found[118:]) == (data[10:64], data[128:190])
    assert queue.read(70, 50) == unreadable(50)


def test_a_gap_between_files_is_an_error_that_names_the_missing_file(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    for offset in (0, 64, 128):
        queue.create_mapped_file(offset)
    (tmp_path / file_name(64)).unlink()
    with pytest.raises(MappedFileQueueError, match=file_name(64)):
        new_queue(tmp_path).load()


@pytest.mark.parametrize("other_size", [32, 128])
def test_files_of_another_size_are_an_error(tmp_path: Path, other_size: int) -> None:
    queue = new_queue(tmp_path)
    queue.create_mapped_file(0)
    queue.create_mapped_file(64)
    with pytest.raises(MappedFileQueueError, match="file size"):
        new_queue(tmp_path, size=other_size).load()
    with pytest.raises(MappedFileQueueError, match="file size"):
        new_queue(tmp_path, size=other_size).load(accept_short=other_size == 32)


def test_a_file_whose_creation_a_crash_cut_off_gets_its_length(tmp_path: Path) -> None:
    (tmp_path / file_name(0)).touch()
    (tmp_path / "lost+found").mkdir()
    queue = new_queue(tmp_path)
    queue.load()
    assert queue.read(0, 100) == bytes(64)
    (tmp_path / file_name(64)).write_bytes(b"abc")
    with pytest.raises(MappedFileQueueError):
        new_queue(tmp_path).load()
    derived = new_queue(tmp_path)
    derived.load(accept_short=True)
    assert derived.read(64, 100) == b"abc" + bytes(61)


def test_files_are_deleted_from_either_end(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    for offset in range(0, 320, 64):
        queue.create_mapped_file(offset)
    assert queue.delete_before(129) == 2
    queue.delete_from(193)
    assert [f.file_from_offset for f in queue.mapped_files] == [128, 192]
    assert queue.list_files() == [128, 192]
    queue.delete_from(0)
    assert (queue.min_offset, queue.end_offset, queue.list_files()) == (0, 0, [])


def test_few_descriptors_serve_many_files(tmp_path: Path) -> None:
    descriptors = DescriptorCache(RealDisk(), open_max=4)
    queue = MappedFileQueue(descriptors, str(tmp_path), 64)
    for number in range(40):
        queue.create_mapped_file(number * 64)
    for number in range(40):
        queue.write(number * 64, b"%d" % number)
    assert descriptors.open_count == 4
    assert [queue.read(number * 64, 2).rstrip(b"\0") for number in range(40)] == [
        b"%d" % n for n in range(40)
    ]
    assert descriptors.open_count == 4


def test_a_held_file_keeps_its_descriptor(tmp_path: Path) -> None:
    descriptors = DescriptorCache(RealDisk(), open_max=2)
    queue = MappedFileQueue(descriptors, str(tmp_path), 64)
    for number in range(6):
        queue.create_mapped_file(number * 64)
    held = queue.mapped_files[0]
    file = held.hold()
    again = held.hold()
    assert again is file
    for mapped_file in queue.mapped_files[1:]:
        mapped_file.file()
    assert held.is_open
    queue.close()
    file.pwrite(b"still mine", 0)
    held.release()
    assert held.is_open
    held.release()
    assert not held.is_open
    assert descriptors.open_count == 0


def test_a_file_whose_sync_failed_is_opened_anew_once_nobody_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    descriptors = DescriptorCache(RealDisk())
    queue = MappedFileQueue(descriptors, str(tmp_path), 64)
    queue.create_mapped_file(0)
    (mapped_file,) = queue.mapped_files
    file = mapped_file.hold()
    mapped_file.hold()
    with monkeypatch.context() as patched:
        patched.setattr(real_disk.os, "fdatasync", fail)
        with pytest.raises(DiskError):
            file.fdatasync()
    mapped_file.release()
    with pytest.raises(DiskError):
        mapped_file.file().fdatasync()
    mapped_file.release()
    mapped_file.file().fdatasync()
    assert descriptors.open_count == 1
    queue.close()


def test_a_file_in_use_survives_the_ones_not_used_again(tmp_path: Path) -> None:
    descriptors = DescriptorCache(RealDisk(), open_max=3)
    queue = MappedFileQueue(descriptors, str(tmp_path), 64)
    for number in range(20):
        queue.create_mapped_file(number * 64)
    hot = queue.mapped_files[0]
    for mapped_file in queue.mapped_files[1:]:
        hot.file()
        mapped_file.file()
        assert hot.is_open
