"""Entries that Java's DLedger wrote become entries like ours, where they lie."""

from collections.abc import Callable, Iterator
from itertools import count as count_from
from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, facts, fill, run, sync
from test_log_recovery import locate, mark
from test_membership_entries import say

from disk.disk import DiskError
from dledger.core.messages import MembershipBefore
from dledger.core.output import HardState
from dledger.entry import EntryKind, Index, Term, walk
from dledger.log.errors import LedgerConfigError, LedgerDamagedError
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState

DIRECTORY = "store/dledger-n0"


def java_was_here(disk: CrashDisk, term: int, committed_index: int, *, from_index: int = 0) -> None:
    """Makes the entries from there on Java's: without CRCs, on the disk for good."""
    for path in disk.paths():
        if path.startswith(f"{DATA}/"):
            content = disk.content(path)
            for header, _ in walk(bytes(content), int(path.rpartition("/")[2])):
                if header.index >= from_index:
                    start = header.pos % FILE_SIZE
                    content[start + 36 : start + 44] = bytes(8)
            write(disk, path, bytes(content))
    write(disk, f"{DIRECTORY}/currterm", f"#a date\nvoteLeader=n0\ncurrTerm={term}\n".encode())
    write(disk, f"{DIRECTORY}/checkpoint", f"committedIndex={committed_index}\nendIndex=99\n".encode())


def write(disk: CrashDisk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    file.pwrite(content, 0)
    file.fdatasync()
    disk.sync_directory(path.rpartition("/")[0])


def java_disk(committed_index: int = 60) -> tuple[CrashDisk, LogStore]:
    """Of a member that never was ours, and the log as it would be had we written it."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 20)
    fill(log, 12, term=3)
    log.close(clean=True)
    for path in disk.paths():
        if "/pydledger/" in path or "/index/" in path:
            disk.unlink(path)
    disk.sync_directory(f"{DIRECTORY}/pydledger")
    disk.sync_directory(f"{DIRECTORY}/index")
    java_was_here(disk, 3, committed_index)
    ours = CrashDisk()
    again = LogStore.open(ours, config())
    fill(again, 20)
    fill(again, 12, term=3)
    sync(again)
    return disk, again


def start(disk: CrashDisk, is_sound_body: Callable[[memoryview], bool] = lambda body: True) -> LogStore:
    """As a member does."""
    QuorumState.load(disk, DIRECTORY).close()
    return LogStore.open(disk, config(), is_sound_body)


def data_of(disk: CrashDisk) -> dict[str, bytes]:
    return {
        path: bytes(disk.content(path))
        for path in disk.paths()
        if path.startswith(DATA) and any(disk.content(path))
    }


def test_they_get_the_bytes_that_they_would_have_from_us() -> None:
    disk, ours = java_disk()
    log = start(disk)
    assert facts(log) == facts(ours)
    assert log.durable_index == ours.ledger_end_index
    assert not log.doubted
    assert data_of(disk) == data_of(ours.disk)  # type: ignore[arg-type]
    for seed in range(20):
        assert facts(start(disk.crash(Random(seed)))) == facts(ours)


def test_entries_that_no_member_would_take_are_no_log_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the frame limit of RocketMQ was raised. Replicated to nobody, they would keep the group from repairing
    them, and a new member from ever catching up.
    """
    disk, ours = java_disk()
    sizes = [ours.end_pos_at(index) - ours.pos_at(index) for index in map(Index, range(20))]
    monkeypatch.setattr("dledger.entry.ENTRY_SIZE_MAX", max(sizes) - 1)
    first = next(index for index, size in enumerate(sizes) if size == max(sizes))
    with pytest.raises(LedgerConfigError, match=f"entry {first} has {max(sizes)} bytes"):
        start(disk)


def test_the_term_goes_above_all_that_java_has_used_once() -> None:
    disk, _ = java_disk()
    for _ in range(2):
        state = QuorumState.load(disk, DIRECTORY)
        assert state.hard_state == HardState(1, Term(4), None, doubted=False)
        assert state.identity is None
        state.close()
    state = QuorumState.load(disk, DIRECTORY)
    state.store_job(HardState(2, Term(9), "n1", doubted=False)).run()
    state.close()
    assert QuorumState.load(disk, DIRECTORY).hard_state.curr_vote_for == "n1"


def cut_off_starts(disk_of: Callable[[int], CrashDisk]) -> Iterator[tuple[int, CrashDisk]]:
    """A disk on which a start was cut off, for each operation that it does; `disk_of` is given the number of it."""
    for count in count_from(0):
        disk, left = disk_of(count), count

        def fail(operation: str, path: str) -> None:
            nonlocal left
            if left == 0:
                raise DiskError(5, "crash point", path)
            left -= 1

        disk.fail = fail
        try:
            start(disk)
            return
        except DiskError:
            disk.fail = lambda operation, path: None
            yield count, disk


def test_a_crash_at_any_point_is_gone_over_again() -> None:
    _, ours = java_disk()
    expected = facts(ours)
    count = 0
    for count, disk in cut_off_starts(lambda count: java_disk()[0]):
        for seed in (None, count, count + 1000):
            after = disk.crash(Random(seed)) if seed is not None else disk
            log = start(after)
            assert (facts(log), log.doubted) == (expected, False), f"at operation {count}, seed {seed}"
            log.close()
    assert count > 20


def test_what_java_wrote_behind_our_entries_follows_them() -> None:
    disk = CrashDisk()
    log = start(disk)
    QuorumState.load(disk, DIRECTORY).store_job(HardState(1, Term(1), None, doubted=False)).run()
    fill(log, 10)
    sync(log)
    mark(log)
    fill(log, 10, first=10)
    first = log.ledger_end_index + 1
    fill(log, 10, term=2)
    expected = facts(log)
    log.close(clean=False)
    java_was_here(disk, 2, first + 3, from_index=first)
    log = start(disk)
    assert facts(log) == expected
    assert not log.doubted
    assert QuorumState.load(disk, DIRECTORY).hard_state.curr_term == 3


@pytest.mark.parametrize("alone", [1, 3, 9])
def test_what_only_this_member_had_at_its_mark_may_be_javas_by_now(alone: int) -> None:
    """As the no-op of a leader that stopped at once: Java cuts it, and goes on in its place."""
    disk, ours = CrashDisk(), CrashDisk()
    log, again = LogStore.open(disk, config()), LogStore.open(ours, config())
    for one in (log, again):
        fill(one, 20)
    first = log.ledger_end_index + 1
    append(log, [b"this member alone had it"] * alone, 2)
    log.close(clean=True)
    fill(again, 3, term=3)
    sync(again)
    expected = facts(again)
    for path in ours.paths():
        if "/pydledger/" not in path:
            write(disk, path, bytes(ours.content(path)))
    java_was_here(disk, 3, again.ledger_end_index, from_index=first)
    for seed in range(10):
        log = start(disk.crash(Random(seed)))
        assert facts(log) == expected
        assert not log.doubted
        assert not log.has_faults
    count = 0
    for count, after in cut_off_starts(lambda count: disk.crash(Random(count))):
        assert facts(start(after.crash(Random(count)))) == expected, f"at operation {count}"
    assert count > 5


def test_without_javas_term_file_they_are_refused_and_nothing_is_cut() -> None:
    disk, _ = java_disk()
    before = data_of(disk)
    write(disk, f"{DIRECTORY}/currterm", b"voteLeader=\ncurrTerm=4\nwrittenBy=pydledger\n".ljust(60, b"\n"))
    with pytest.raises(LedgerConfigError, match="take the line writtenBy=pydledger out of"):
        start(disk)
    assert data_of(disk) == before
    # Java keeps our currterm where it followed at once in the term that it found there.
    write(disk, f"{DIRECTORY}/currterm", b"voteLeader=\ncurrTerm=4\n".ljust(60, b"\n"))
    assert start(disk).ledger_end_index == 62


@pytest.mark.parametrize("index", [0, 17, 45])
@pytest.mark.parametrize("is_torn", [True, False])
def test_what_java_may_have_lost_is_cut_above_its_committed_index_only(index: int, is_torn: bool) -> None:
    def broken() -> CrashDisk:
        disk, ours = java_disk(committed_index=20)
        path, at = locate(ours, index)
        size = ours.end_pos_at(Index(index)) - ours.pos_at(Index(index))
        if is_torn:
            disk.content(path)[at + 4 : at + 8] = b"\xff" * 4
        else:
            disk.content(path)[at + 48 : at + size] = b"?" * (size - 48)
        return disk

    disk = broken()
    before = data_of(disk)

    def is_sound(body: memoryview) -> bool:
        return b"?" not in bytes(body)

    if index <= 20:
        with pytest.raises(LedgerDamagedError, match="committed") as refused:
            start(disk, is_sound)
        assert f"entry {index} at pos" in str(refused.value) or index == 0
        assert set(data_of(disk)) == set(before)
        return
    log = start(disk, is_sound)
    assert (log.ledger_end_index, log.doubted) == (index - 1, True)
    append(log, [b"goes on"], term=5)
    sync(log)
    assert facts(start(disk, is_sound)) == facts(log)


@pytest.mark.parametrize("is_last_file", [True, False])
def test_where_java_remembers_no_commit_only_the_last_data_file_has_a_torn_tail(is_last_file: bool) -> None:
    disk, ours = java_disk()
    disk.unlink(f"{DIRECTORY}/checkpoint")
    index = ours.ledger_end_index - 1 if is_last_file else 5
    path, at = locate(ours, index)
    assert (path == max(data_of(disk))) == is_last_file
    disk.content(path)[at + 4 : at + 8] = b"\xff" * 4
    before = data_of(disk)
    if is_last_file:
        assert start(disk).ledger_end_index == index - 1
        return
    with pytest.raises(LedgerDamagedError, match="Nothing was cut"):
        start(disk)
    assert set(data_of(disk)) == set(before)


def test_data_files_of_another_size_are_refused_with_the_setting() -> None:
    disk, _ = java_disk()
    QuorumState.load(disk, DIRECTORY)
    with pytest.raises(LedgerConfigError, match="mappedFileSizeCommitLog"):
        LogStore.open(disk, config(data_file_size=2 * FILE_SIZE))


def test_a_log_behind_a_plain_commitlog_begins_with_entry_0_where_that_ended() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    run(log.begin_anew(Index(-1), Term(-1), 0, FILE_SIZE), log.cut_done)  # type: ignore[arg-type]
    positions = log.reserve([5])
    log.append([b"first"], positions, Term(1), EntryKind.MESSAGE)
    log.close(clean=True)
    for path in disk.paths():
        if "/pydledger/" in path:
            disk.unlink(path)
    java_was_here(disk, 1, 0)
    for log in (start(disk), start(disk)):
        assert (log.ledger_begin_index, log.ledger_begin_pos, log.ledger_end_index) == (0, FILE_SIZE, 0)
        assert log.chain_at(Index(-1)) == 0


def test_a_log_whose_first_files_java_deleted_begins_where_it_does() -> None:
    disk, ours = java_disk()
    first, second = sorted(data_of(disk))[:2]
    disk.unlink(first)
    log = start(disk)
    begin = next(i for i in range(99) if locate(ours, i)[0] == second)
    assert (log.ledger_begin_index, log.ledger_begin_pos) == (begin, FILE_SIZE)
    assert log.ledger_end_index == ours.ledger_end_index
    assert facts(start(disk)) == facts(log)


@pytest.mark.parametrize("is_ours_left", [True, False])
def test_a_log_of_ours_of_which_java_deleted_files_begins_where_it_does(is_ours_left: bool) -> None:
    disk = CrashDisk()
    log = start(disk)
    QuorumState.load(disk, DIRECTORY).store_job(HardState(1, Term(1), None, doubted=False)).run()
    fill(log, 5)
    members = MembershipBefore(say(log, b"n0 n1 n2"), b"n0 n1 n2")
    fill(log, 34)
    sync(log)
    mark(log)
    first = log.ledger_end_index + 1
    fill(log, 200, term=2)
    names = sorted(path for path in disk.paths() if path.startswith(DATA))
    gone = 1 if is_ours_left else next(n for n, name in enumerate(names) if name > locate(log, first)[0])
    begin = next(i for i in range(240) if locate(log, i)[0] == names[gone])
    assert (begin < first) == is_ours_left
    log.close(clean=False)
    java_was_here(disk, 2, first + 30, from_index=first)
    for name in names[:gone]:
        disk.unlink(name)
    disk.sync_directory(DATA)
    again = start(disk)
    assert (again.ledger_begin_index, again.ledger_end_index) == (begin, log.ledger_end_index)
    assert not again.doubted
    assert again.membership_up_to(again.ledger_end_index) == members
    if is_ours_left:
        assert again.ledger_end_chain == log.ledger_end_chain, "the others may have deleted less"
    seen = facts(again)
    again.close()
    assert facts(start(disk)) == seen
    write(disk, f"{DIRECTORY}/currterm", b"voteLeader=\ncurrTerm=9\nwrittenBy=pydledger\n".ljust(60, b"\n"))
    assert facts(start(disk)) == seen
