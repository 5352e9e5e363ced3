"""Two slots: whatever a crash leaves, the last record that was acknowledged is read, or a later one."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from disk import real_disk
from disk.disk import Disk, DiskError, NoSpaceError
from disk.real_disk import RealDisk
from disk.slots import PAYLOAD_SIZE_MAX, SLOT_SIZE, Slots, SlotsUnreadableError
from simulator.world.sim_disk import SimDisk


class SyncCounter:
    """A disk that records the content of a file at each fdatasync."""

    def __init__(self) -> None:
        self.synced: list[bytes] = []

    def disk(self) -> Disk:
        counter = self

        class CountingDisk(RealDisk):
            def open(self, path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
                file = super().open(path, create=create, read_only=read_only)

                class CountingFile(type(file)):  # type: ignore[misc]
                    def fdatasync(self) -> None:
                        super().fdatasync()
                        counter.synced.append(Path(path).read_bytes())

                return CountingFile(path, os.dup(file._descriptor))

        return CountingDisk()


def payload_of(path: Path) -> bytes | None:
    """What a start would read."""
    slots = Slots(RealDisk(), str(path))
    slots.close()
    return slots.payload


def test_a_file_never_written_is_no_record(tmp_path: Path) -> None:
    assert payload_of(tmp_path / "s") is None
    assert list(tmp_path.iterdir()) == []


def test_the_newest_record_is_read_again(tmp_path: Path) -> None:
    for number in range(5):
        slots = Slots(RealDisk(), f"{tmp_path}/s")
        slots.make_durable()
        assert slots.payload == (b"b%d" % (number - 1) if number else None)
        slots.write(b"a%d" % number)
        slots.write(b"b%d" % number)
        slots.close()
        assert payload_of(tmp_path / "s") == b"b%d" % number
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").stat().st_size == 2 * SLOT_SIZE


def test_a_record_is_written_after_a_sync_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    slots = Slots(RealDisk(), f"{tmp_path}/s")
    slots.write(b"before")
    with monkeypatch.context() as patched:
        patched.setattr(real_disk.os, "fdatasync", fail)
        with pytest.raises(DiskError):
            slots.write(b"lost")
    slots.write(b"after")
    slots.close()
    assert payload_of(tmp_path / "s") == b"after"


def test_damage_to_either_slot_uncovers_the_same_record(tmp_path: Path) -> None:
    path = tmp_path / "s"
    slots = Slots(RealDisk(), str(path))
    for number in range(4):
        slots.write(b"record %d" % number)
        whole = path.read_bytes()
        for at in (5, 30, SLOT_SIZE + 9):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            assert payload_of(path) == b"record %d" % number
        path.write_bytes(whole)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_is_named_at_the_start_and_sound_once_it_was_written(
    tmp_path: Path, slot: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    Slots(RealDisk(), str(path)).write(b"vote")
    whole = path.read_bytes()
    at = slot * SLOT_SIZE + 9
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    slots = Slots(RealDisk(), str(path))
    assert slots.was_damaged
    assert f"path={path} slot={slot} bytes={slot * SLOT_SIZE}..{slot * SLOT_SIZE + 4095}" in caplog.text
    slots.make_durable()
    caplog.clear()
    assert not Slots(RealDisk(), str(path)).was_damaged
    assert caplog.text == ""


def test_both_slots_damaged_is_an_error_and_not_a_first_start(tmp_path: Path) -> None:
    path = tmp_path / "s"
    Slots(RealDisk(), str(path)).write(b"vote")
    for damage in (bytes(2 * SLOT_SIZE), b"", path.read_bytes()[:100]):
        path.write_bytes(damage)
        with pytest.raises(SlotsUnreadableError, match="both slots"):
            Slots(RealDisk(), str(path))


@pytest.mark.slow
def test_a_torn_write_leaves_the_record_before_or_the_new_one(tmp_path: Path) -> None:
    """What is on disk for sure is the file as it was synced last; of what came later any part may be there."""
    path = tmp_path / "s"
    counter = SyncCounter()
    slots = Slots(counter.disk(), str(path))
    slots.write(b"record 0")
    for number in range(1, 6):
        before = counter.synced[-1]
        slots.write(b"record %d" % number)
        synced, after = counter.synced[-1], path.read_bytes()
        for torn in _tears(before, synced):
            path.write_bytes(torn)
            payload = payload_of(path)
            assert payload in (b"record %d" % (number - 1), b"record %d" % number)
        for torn in _tears(synced, after):
            path.write_bytes(torn)
            assert payload_of(path) == b"record %d" % number
        path.write_bytes(after)


@pytest.mark.slow
def test_a_torn_write_after_a_restart_leaves_the_record_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "s"
    slots = Slots(RealDisk(), str(path))
    for number in range(3):
        slots.write(b"record %d" % number)
    whole = path.read_bytes()
    torn_slots = [whole, b"\1" * SLOT_SIZE + whole[SLOT_SIZE:], whole[:SLOT_SIZE] + b"\1" * SLOT_SIZE]
    for start in torn_slots:
        path.write_bytes(start)
        counter = SyncCounter()
        slots = Slots(counter.disk(), str(path))
        slots.write(b"record 3")  # makes what was read durable first
        durable, written = counter.synced
        for torn in [*_tears(start, durable), *_tears(durable, written)]:
            path.write_bytes(torn)
            assert payload_of(path) in (b"record 2", b"record 3")


def test_a_record_larger_than_a_slot_is_our_own_mistake(tmp_path: Path) -> None:
    slots = Slots(RealDisk(), f"{tmp_path}/s")
    slots.write(bytes(PAYLOAD_SIZE_MAX))
    with pytest.raises(AssertionError, match="do not fit"):
        slots.write(bytes(PAYLOAD_SIZE_MAX + 1))


def _tears(before: bytes, after: bytes) -> list[bytes]:
    """Files in which, of the bytes that differ, a first part, a last part, or nothing but rubbish arrived."""
    changed = [at for at in range(len(after)) if before[at] != after[at]]
    if not changed:
        return [after]
    first, last = changed[0], changed[-1] + 1
    cuts = [*range(first, min(first + 64, last)), last]
    prefixes = [after[:cut] + before[cut:] for cut in cuts]
    suffixes = [before[:cut] + after[cut:] for cut in cuts]
    return prefixes + suffixes


@pytest.mark.parametrize("damaged", [(0,), (1,), (0, 1)])
def test_a_damaged_slot_is_written_anew_from_memory(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    path = tmp_path / "s"
    slots = Slots(RealDisk(), str(path))
    slots.write(b"old")
    slots.write(b"new")
    for number in damaged:
        with path.open("r+b") as file:
            file.seek(number * SLOT_SIZE + 25)
            file.write(b"\xff")
    assert slots.mend()
    assert not slots.mend()
    slots.close()
    for number in (0, 1):
        content = bytearray(path.read_bytes())
        content[number * SLOT_SIZE : (number + 1) * SLOT_SIZE] = bytes(SLOT_SIZE)
        (tmp_path / f"only-{1 - number}").write_bytes(content)
        assert payload_of(tmp_path / f"only-{1 - number}") == b"new"


def test_a_record_that_may_not_be_durable_is_not_mended(tmp_path: Path) -> None:
    """The other slot may be the one that is surely on disk."""
    slots = Slots(RealDisk(), f"{tmp_path}/s")
    slots.write(b"old")
    slots.close()
    again = Slots(RealDisk(), f"{tmp_path}/s")
    (tmp_path / "s").write_bytes(bytes(2 * SLOT_SIZE))
    assert not again.mend()
    again.make_durable()
    assert not again.mend(), "both hold it now"
    assert payload_of(tmp_path / "s") == b"old"
    again.close()


def test_a_file_never_written_needs_no_mending(tmp_path: Path) -> None:
    assert not Slots(RealDisk(), f"{tmp_path}/s").mend()


def test_a_write_that_found_no_space_is_made_good_by_the_next() -> None:
    disk = SimDisk(Random(0), lambda: 0, lambda: 0)
    disk.make_directory("d")
    disk.is_full = True
    slots = Slots(disk, "d/s")
    with pytest.raises(NoSpaceError):
        slots.write(b"one")
    assert not disk.exists("d/s")
    disk.is_full = False
    slots.write(b"two")
    disk.power_loss()
    assert Slots(disk, "d/s").payload == b"two"


@pytest.mark.parametrize("damaged_slot", [0, 1])
def test_a_copy_that_was_synced_outlives_the_power_and_the_other_slot(damaged_slot: int) -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed), lambda: 0, lambda: 0)
        disk.make_directory("d")
        slots = Slots(disk, "d/s")
        for payload in (b"one", b"two", b"three"):
            slots.write(payload)
        slots.sync_copy()
        disk.power_loss()
        file = disk.open("d/s")
        file.pwrite(b"damage", damaged_slot * SLOT_SIZE + 20)
        assert Slots(disk, "d/s").payload == b"three"
