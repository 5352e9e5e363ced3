"""Appends that fail, most for want of space: nothing of them comes back, and nothing of others is lost."""

import errno
from collections.abc import Callable, Sequence
from random import Random

import pytest
from crash_disk import CrashDisk, broken, no_space
from log_steps import DATA, append, config, cut, facts, fill, probe, sync

from disk.disk import DiskError, NoSpaceError
from dledger.log.log_store import LogStore


def without_space(disk: CrashDisk, operation: str, within: str = "") -> None:
    def fail(seen: str, path: str) -> None:
        if seen == operation and within in path:
            no_space(seen, path)

    disk.fail = fail


def refuse_halfway(disk: CrashDisk, log: LogStore, bodies: Sequence[bytes] = (b"refused",)) -> None:
    """The entries are written, and their units find no space."""
    without_space(disk, "pwrite", "/index/")
    with pytest.raises(NoSpaceError):
        append(log, bodies)
    disk.fail = lambda operation, path: None


@pytest.mark.parametrize("seed", range(60))
def test_a_failed_append_does_not_come_back_in_the_place_of_a_later_one(seed: int) -> None:
    """Both would have the same indexes and the same term, and others have the later one by then."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    sync(log)
    refuse_halfway(disk, log, [b"refused" * 100, b"as well" * 100])
    assert probe(log)
    append(log, [b"taken" * 20, b"too" * 150, b"and this" * 50])
    appended = {index: chain for index, _, chain, *_ in facts(log)}
    again = LogStore.open(disk.crash(Random(seed)), config())
    for index, _, chain, *_ in facts(again):
        assert chain == appended[index]


def test_nothing_is_appended_until_what_a_failed_append_wrote_is_cleared() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    early = log.probe_job()
    early.run()
    refuse_halfway(disk, log)
    assert not log.probe_done(early), "it began before there was anything to clear"
    with pytest.raises(NoSpaceError, match="not cleared"):
        append(log, [b"too early"])
    assert probe(log)
    append(log, [b"taken"])
    assert log.ledger_end_index == 0


@pytest.mark.parametrize("operation", ["pwrite", "allocate"])
def test_a_probe_without_space_approves_nothing(operation: str) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    refuse_halfway(disk, log)
    without_space(disk, operation)
    assert not probe(log)
    disk.fail = lambda operation, path: None
    assert probe(log)


def test_a_probe_whose_sync_finds_no_space_is_final() -> None:
    """The kernel takes the zeros for written from then on: no later sync tells that they are not."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    refuse_halfway(disk, log)
    without_space(disk, "fdatasync")
    with pytest.raises(DiskError) as raised:
        log.probe_job().run()
    assert not isinstance(raised.value, NoSpaceError)


@pytest.mark.parametrize("seed", range(20))
def test_a_failed_append_is_gone_for_good_after_a_clean_stop(seed: int) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    before = facts(log)
    refuse_halfway(disk, log, [b"refused" * 100])
    log.close(clean=True)
    assert facts(LogStore.open(disk.crash(Random(seed)), config())) == before


def test_a_blank_of_which_a_part_was_written_is_cleared() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    append(log, [bytes(3000)])
    end_pos = log.ledger_end_pos

    def fail(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(f"data/{0:020d}"):
            disk.content(path)[end_pos : end_pos + 3] = b"\xff" * 3
            disk.fail = lambda operation, path: None
            no_space(operation, path)

    disk.fail = fail
    with pytest.raises(NoSpaceError):
        append(log, [bytes(2000)])
    assert not any(disk.content(f"{DATA}/{0:020d}")[end_pos:])
    assert probe(log)


def test_an_append_that_found_no_space_before_it_wrote_leaves_nothing_to_clear() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())

    without_space(disk, "allocate")
    with pytest.raises(NoSpaceError):
        append(log, [b"refused"])
    disk.fail = lambda operation, path: None
    append(log, [b"taken"])


def test_a_cut_clears_what_a_failed_append_has_left() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    refuse_halfway(disk, log)
    under_way = log.probe_job()
    cut(log, 5)
    append(log, [b"taken"], term=2)
    under_way.run()
    assert log.probe_done(under_way)
    sync(log)
    after = facts(log)
    log.close()
    assert facts(LogStore.open(disk, config())) == after


@pytest.mark.parametrize("operation", ["allocate", "create", "pwrite", "truncate"])
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("failure", [no_space, broken])
def test_an_append_that_fails_leaves_the_log_as_it_was(
    operation: str, after: int, failure: Callable[[str, str], None]
) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 7)
    sync(log)
    before, end_pos = facts(log), log.ledger_end_pos
    calls = 0

    def fail(seen: str, path: str) -> None:
        nonlocal calls
        if seen == operation:
            calls += 1
            if calls > after:
                failure(seen, path)

    disk.fail = fail
    bodies = [bytes([number]) * 900 for number in range(1, 9)]  # over three data files
    failed: DiskError | None = None
    try:
        append(log, bodies, term=2)
    except DiskError as error:
        failed = error
    disk.fail = lambda seen, path: None
    if failed is not None:
        assert isinstance(failed, NoSpaceError) == (failed.errno == errno.ENOSPC)
        assert facts(log) == before
        assert log.ledger_end_pos == end_pos
        assert log.reserve([0]) == [end_pos]
        assert probe(log)
        append(log, [b"small"], term=3)
    sync(log)
    after_append = facts(log)
    log.close()
    again = LogStore.open(disk, config())
    assert facts(again) == after_append
    assert not again.doubted, "the failed append left nothing that looks like lost entries"
