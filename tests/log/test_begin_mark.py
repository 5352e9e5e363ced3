"""Where the log begins, and who the members are, outlives the synced mark."""

import re
from collections.abc import Callable
from random import Random

import orjson
import pytest
from crash_disk import CrashDisk, no_space
from log_steps import append, config, cut, facts, fill, run, sync
from test_log_begin import crash_after, delete_first_file
from test_log_recovery import mark
from test_membership_entries import push, said, say

from disk.slots import SLOT_SIZE, Slots
from dledger.core.messages import MembershipBefore
from dledger.entry import GENESIS_CHAIN, Index, Pos, Term
from dledger.log.begin_mark import BEGIN_MARK_FILE_NAME, BeginMarkFile
from dledger.log.errors import LedgerConfigError, LedgerDamagedError
from dledger.log.log_store import LogStore
from dledger.log.synced_mark import MARK_FILE_NAME

MARK = f"{config().own_directory}/{MARK_FILE_NAME}"
BEGIN = f"{config().own_directory}/{BEGIN_MARK_FILE_NAME}"


def deleted(disk: CrashDisk) -> tuple[LogStore, Index]:
    """A log of which the entry that says who the members are is gone, and the index of that."""
    log = LogStore.open(disk, config())
    fill(log, 5)
    index = say(log, b"n0 n1 n2")
    fill(log, 60)
    sync(log)
    mark(log)
    while log.first_file_last_index is not None:
        delete_first_file(log)
    assert log.ledger_begin_index > index
    return log, index


def damage(disk: CrashDisk, path: str, *slots: int) -> None:
    for slot in slots:
        disk.content(path)[slot * SLOT_SIZE + 40] ^= 1


def killed(operation: str, path: str) -> None:
    raise KeyboardInterrupt


def is_killed(disk: CrashDisk, left: int, act: Callable[[], object]) -> bool:
    """Whether the process ended behind so many disk operations of it."""
    crash_after(disk, left)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        disk.fail = lambda operation, path: None
    return False


def lose(disk: CrashDisk, path: str, how: str) -> None:
    if how == "gone":
        disk.unlink(path)
    else:
        damage(disk, path, 0, 1)


def without_mark(disk: CrashDisk, seed: int = 1) -> tuple[CrashDisk, LogStore]:
    """The next start, behind a power loss."""
    disk = disk.crash(Random(seed))
    disk.unlink(MARK)
    return disk, LogStore.open(disk, config())


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_they_are_known_without_the_mark(how: str) -> None:
    disk = CrashDisk()
    _, index = deleted(disk)
    disk = disk.crash(Random(1))
    lose(disk, MARK, how)
    log = LogStore.open(disk, config())
    assert log.doubted
    assert said(log) == (index, b"n0 n1 n2")
    assert log.membership_before_begin == MembershipBefore(index, b"n0 n1 n2")
    # Newer ones count from there on, and a second loss is one like the first.
    newer = say(log, b"n0 n1")
    assert said(log) == (newer, b"n0 n1")
    sync(log)
    mark(log)
    assert said(without_mark(disk)[1]) == (newer, b"n0 n1")


@pytest.mark.parametrize("slot", [0, 1])
def test_damage_to_one_slot_brings_back_nobody(slot: int) -> None:
    disk = CrashDisk()
    log, _ = deleted(disk)
    newer = say(log, b"n0 n1")
    fill(log, 60)
    sync(log)
    mark(log)
    while log.first_file_last_index is not None:
        delete_first_file(log)
    assert log.ledger_begin_index > newer
    disk = disk.crash(Random(1))
    damage(disk, BEGIN, slot)
    disk.unlink(MARK)
    assert said(LogStore.open(disk, config())) == (newer, b"n0 n1")


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_start_writes_them_again_when_the_file_is_lost(how: str) -> None:
    disk = CrashDisk()
    log, index = deleted(disk)
    log.close(clean=True)
    disk = disk.crash(Random(1))
    lose(disk, BEGIN, how)
    assert not LogStore.open(disk, config()).doubted
    assert said(without_mark(disk)[1]) == (index, b"n0 n1 n2")


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_where_the_log_begins_is_known_without_the_mark(how: str) -> None:
    """Else the first entry could be proved by nobody, and a peer that begins there could take none behind it."""
    disk = CrashDisk()
    log, _ = deleted(disk)
    begin, end = log.begin, log.ledger_end_index
    disk = disk.crash(Random(1))
    lose(disk, MARK, how)
    again = LogStore.open(disk, config())
    assert again.begin == begin
    assert again.ledger_end_index == end
    assert again.doubted
    follower = LogStore.open(CrashDisk(), config())
    run(
        follower.begin_anew(
            begin.before_index, begin.before_term, begin.before_chain, begin.pos, begin.membership
        ),
        follower.cut_done,
    )
    while push(again, follower):
        pass
    assert follower.ledger_end_index == end


def test_a_log_that_begins_anew_and_has_no_entry_yet_is_known_without_the_mark() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 20)
    told = MembershipBefore(Index(70), b"n0 n3")
    run(log.begin_anew(Index(90), Term(3), 7, Pos(8 * 4096), told), log.cut_done)
    _, again = without_mark(disk)
    assert again.begin == log.begin
    assert (again.ledger_end_index, again.doubted) == (90, True)
    assert said(again) == (70, b"n0 n3")


@pytest.mark.parametrize("seed", range(20))
def test_the_file_is_on_disk_before_the_mark_is(seed: int) -> None:
    """Power is lost behind any operation of a job: what the mark tells, the file does."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    say(log, b"n0")
    sync(log)
    mark(log)
    second = say(log, b"n0 n1")
    fill(log, 60)
    sync(log)

    def mark_and_delete() -> None:
        mark(log)
        while log.first_file_last_index is not None:
            delete_first_file(log)

    is_killed(disk, seed, mark_and_delete)
    begin = log.begin
    _, again = without_mark(disk, seed)
    assert said(again) == (second, b"n0 n1")
    # As it was before the deletion under way, or is after it.
    assert again.begin == begin or again.ledger_begin_index < log.ledger_begin_index


def test_a_change_that_was_cut_is_not_remembered() -> None:
    """Nobody had committed it; others may have been made in its place."""
    disk = CrashDisk()
    log, index = deleted(disk)
    undone = say(log, b"n0 n1 n2 n3")
    sync(log)
    mark(log)
    cut(log, undone)
    _, log = without_mark(disk)
    assert said(log) == (index, b"n0 n1 n2")
    append(log, [b"message"])
    assert said(log) == (index, b"n0 n1 n2")


def test_without_the_mark_an_entry_in_front_of_the_members_must_not_be_damaged() -> None:
    """Nobody knows what lay behind it: the one that says that there are others is missing."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    pos = log.ledger_end_pos
    fill(log, 1)
    index = say(log, b"n0 n1 n2")
    sync(log)
    mark(log)
    disk = disk.crash(Random(1))
    disk.unlink(MARK)
    data_file = f"{config().data_directory}/{0:020d}"
    disk.content(data_file)[pos + 60] ^= 1
    content = bytes(disk.content(data_file))
    for _ in range(2):
        expected = f"entry {index}, which says who the members are, was durable"
        with pytest.raises(LedgerDamagedError, match=re.escape(expected)):
            LogStore.open(disk, config())
    assert bytes(disk.content(data_file)) == content


def test_on_a_disk_without_space_the_mark_moves_when_there_is_some() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    say(log, b"n0 n1 n2")
    sync(log)
    disk.fail = lambda operation, path: no_space(operation, path) if BEGIN in path else None
    for fails in (disk.fail, lambda operation, path: None):
        disk.fail = fails
        job = log.mark_job(0)
        assert job is not None
        run(job, log.mark_done)
        assert job.lacks_space is (log.index_before_untold < log.ledger_end_index)
    assert log.index_before_untold == log.ledger_end_index
    assert said(without_mark(disk)[1]) == (0, b"n0 n1 n2")


def test_only_a_mark_that_is_raised_waits_for_space() -> None:
    """Not the start of a store from before there was such a file, nor what is to free space, nor a cut."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 60)
    sync(log)
    mark(log)
    disk.unlink(BEGIN)
    disk.fail = lambda operation, path: no_space(operation, path) if BEGIN in path else None
    log = LogStore.open(disk, config())
    begin = log.ledger_begin_index
    undone = say(log, b"n0 n1 n2")
    fill(log, 3)
    sync(log)
    job = log.mark_job(0)
    assert job is not None
    run(job, log.mark_done)
    assert job.lacks_space
    delete_first_file(log)
    assert log.ledger_begin_index > begin
    cut(log, Index(undone + 2))
    cut(log, undone)
    log = LogStore.open(disk, config())
    disk.fail = lambda operation, path: None
    fill(log, 5)
    sync(log)
    mark(log)
    assert without_mark(disk)[1].begin == log.begin


@pytest.mark.parametrize("fails", [no_space, killed])
def test_both_slots_say_it_before_the_mark_does(fails: Callable[[str, str], None]) -> None:
    for seed in range(20):
        disk = CrashDisk()
        log = LogStore.open(disk, config())
        say(log, b"n0")
        sync(log)
        mark(log)
        newer = say(log, b"n0 n1")
        sync(log)
        syncs: list[str] = []

        def fail(operation: str, path: str, syncs: list[str] = syncs) -> None:
            if (operation, path) == ("fdatasync", BEGIN):
                syncs.append(path)
                if len(syncs) == 2:
                    fails(operation, path)

        disk.fail = fail
        try:
            mark(log)
            mark(log)
        except KeyboardInterrupt:
            disk = disk.crash(Random(seed))
            LogStore.open(disk, config())
        disk.fail = lambda operation, path: None
        for slot in (0, 1):
            survivor = disk.crash(Random(100 + seed))
            damage(survivor, BEGIN, slot)
            (index,) = BeginMarkFile(survivor, config().own_directory).mark.membership_indexes[-1:]
            assert index == newer


def test_without_the_mark_the_oldest_data_file_must_not_be_missing() -> None:
    """What it said of the members is gone with it, and the last that is known of them nobody may have committed."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    say(log, b"n0 n1 n2")
    fill(log, 60)
    say(log, b"n0 n1 n2 n3")
    sync(log)
    mark(log)
    disk = disk.crash(Random(1))
    disk.unlink(MARK)
    disk.unlink(f"{config().data_directory}/{0:020d}")
    paths = disk.paths()
    with pytest.raises(LedgerDamagedError, match="the oldest data file, but the log began at 0"):
        LogStore.open(disk, config())
    assert disk.paths() == paths


def test_where_nobody_knew_what_lies_before_the_begin_the_first_entry_is_taken_as_it_is() -> None:
    """Both files were lost once, and later the mark alone: no entry follows from what nobody knows, and none is cut."""
    disk = CrashDisk()
    deleted(disk)
    disk = disk.crash(Random(1))
    disk.unlink(MARK)
    disk.unlink(BEGIN)
    log = LogStore.open(disk, config())
    fill(log, 10)
    sync(log)
    mark(log)
    before = facts(log)
    assert facts(without_mark(disk)[1]) == before


@pytest.mark.parametrize("begin_pos", [2 * 4096, 8 * 4096, 64 * 4096])
@pytest.mark.parametrize("has_had_one", [False, True])
def test_a_log_that_begins_anew_when_it_is_killed_is_the_one_of_before_or_of_after(
    begin_pos: int, has_had_one: bool
) -> None:
    """Without its mark, and behind any operation of the job, and so again when the start is killed."""
    outcomes = set()
    for left in range(40):
        disk = CrashDisk()
        log = LogStore.open(disk, config())
        if has_had_one:
            run(log.begin_anew(Index(20), Term(1), 7, Pos(4096), None), log.cut_done)
            log = LogStore.open(disk, config())
        else:
            fill(log, 120)
            sync(log)
            mark(log)
        before = log.begin
        told = MembershipBefore(Index(70), b"n0 n3")
        job = log.begin_anew(Index(400), Term(3), 7, Pos(begin_pos), told)
        is_done = not is_killed(disk, left, job.run)
        disk.unlink(MARK)
        for again in range(left % 7):
            is_killed(disk, again, lambda disk=disk: LogStore.open(disk, config()))
            if disk.exists(MARK):
                break
        found = LogStore.open(disk, config())
        assert found.begin in (before, log.begin) or found.begin.membership == told
        assert found.doubted
        outcomes.add(found.ledger_begin_index)
        if is_done:
            assert found.begin == log.begin
            break
    assert outcomes == {before.before_index + 1, 401}


def test_damage_in_front_of_the_members_is_not_forgotten_by_a_deletion_that_is_finished() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 60)
    pos = log.ledger_end_pos
    fill(log, 1)
    index = say(log, b"n0 n1 n2")
    fill(log, 5)
    sync(log)
    mark(log)

    def fail(operation: str, path: str) -> None:
        if operation == "unlink":
            raise KeyboardInterrupt

    disk.fail = fail
    with pytest.raises(KeyboardInterrupt):
        delete_first_file(log)
    disk.fail = lambda operation, path: None
    disk.unlink(MARK)
    disk.content(f"{config().data_directory}/{pos - pos % 4096:020d}")[pos % 4096 + 60] ^= 1
    for _ in range(2):
        with pytest.raises(LedgerDamagedError, match=f"entry {index}, which says who the members are"):
            LogStore.open(disk, config())


def test_another_data_file_size_is_refused_without_the_mark_too() -> None:
    disk = CrashDisk()
    deleted(disk)[0].close()
    disk.unlink(MARK)
    before = {path: bytes(disk.content(path)) for path in disk.paths()}
    with pytest.raises(LedgerConfigError, match="made with data files of 4096 bytes, configured are 8192"):
        LogStore.open(disk, config(data_file_size=8192))
    assert {path: bytes(disk.content(path)) for path in disk.paths()} == before


@pytest.mark.parametrize("has_file", [False, True])
def test_a_log_whose_first_entry_lies_behind_another_commit_log_is_known_without_the_mark(
    has_file: bool,
) -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    run(log.begin_anew(Index(-1), Term(-1), GENESIS_CHAIN, Pos(2 * 4096)), log.cut_done)
    if has_file:
        LogStore.open(disk, config())
    disk.unlink(MARK)
    again = LogStore.open(disk, config())
    assert again.begin == log.begin
    assert again.doubted


def test_a_write_that_found_no_space_leaves_no_doubt_about_what_is_kept() -> None:
    """A change of members is told, half, and then cut: the file does not go on telling of it."""
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    fill(log, 5)
    sync(log)
    mark(log)
    undone = say(log, b"n0 n1")
    sync(log)
    syncs: list[str] = []

    def fail(operation: str, path: str) -> None:
        if (operation, path) == ("fdatasync", BEGIN):
            syncs.append(path)
            if len(syncs) == 2:
                no_space(operation, path)

    disk.fail = fail
    mark(log)
    cut(log, undone)
    assert said(without_mark(disk)[1]) == (-1, None)


def add_fields(disk: CrashDisk, path: str) -> None:
    """As a release that is to come may write them."""
    slots = Slots(disk, path)
    assert slots.payload is not None
    fields = orjson.loads(slots.payload)
    slots.write(orjson.dumps(fields | {"rows": [8, 1, 1, 7, 262144], "damaged": [[3, 4], [9, 9]]}))
    slots.sync_copy()
    slots.close()


@pytest.mark.parametrize("is_mark_lost", [False, True])
def test_fields_that_a_later_release_has_written_are_passed_over(is_mark_lost: bool) -> None:
    disk = CrashDisk()
    log, index = deleted(disk)
    before = facts(log)
    log.close(clean=True)
    add_fields(disk, MARK)
    add_fields(disk, BEGIN)
    if is_mark_lost:
        disk.unlink(MARK)
    for _ in range(2):
        again = LogStore.open(disk, config())
        assert facts(again) == before
        assert said(again) == (index, b"n0 n1 n2")
        assert again.doubted == is_mark_lost
        again.close(clean=True)
