"""Who the members are is known after a restart and a cut, and when the entry that says so is deleted."""

from random import Random

from crash_disk import CrashDisk
from test_log_begin import delete_first_file
from test_log_recovery import mark
from test_log_store import append, config, cut, fill, run, sync

from dledger.core.messages import MembershipBefore
from dledger.entry import EntryKind, Index, Pos, Term, verify_entries
from dledger.log.log_store import LogStore


def say(log: LogStore, body: bytes, term: int = 1) -> Index:
    """A membership entry."""
    positions = log.reserve([len(body)])
    return log.append([body], positions, Term(term), EntryKind.MEMBERSHIP).last_index


def said(log: LogStore) -> tuple[int, bytes | None]:
    return log.membership_index, log.membership_body()


def with_two(disk: CrashDisk) -> tuple[LogStore, Index, Index]:
    log = LogStore.open(disk, config())
    fill(log, 5)
    first = say(log, b"n0 n1 n2")
    fill(log, 20)
    second = say(log, b"n0 n1")
    fill(log, 5)
    return log, first, second


def test_no_entry_says_it_at_first() -> None:
    log = LogStore.open(CrashDisk(), config())
    assert said(log) == (-1, None)
    fill(log, 3)
    assert said(log) == (-1, None)


def test_the_last_entry_counts_as_soon_as_it_is_appended_and_until_it_is_cut() -> None:
    log, first, second = with_two(CrashDisk())
    assert said(log) == (second, b"n0 n1")
    sync(log)
    cut(log, second)
    assert said(log) == (first, b"n0 n1 n2")
    cut(log, first)
    assert said(log) == (-1, None)


def test_a_restart_finds_it_below_and_above_the_mark() -> None:
    disk = CrashDisk()
    log, first, second = with_two(disk)
    sync(log)
    assert said(LogStore.open(disk.crash(Random(1)), config())) == (second, b"n0 n1")
    mark(log)
    assert said(LogStore.open(disk.crash(Random(1)), config())) == (second, b"n0 n1")
    cut(log, second)
    assert said(LogStore.open(disk.crash(Random(1)), config())) == (first, b"n0 n1 n2")


def test_a_follower_finds_it_in_what_is_pushed() -> None:
    log, _, second = with_two(CrashDisk())
    follower = LogStore.open(CrashDisk(), config())
    while (entries := log.range_from(Index(follower.ledger_end_index + 1), 500)) is not None:
        payload = verify_entries(
            b"".join(log.read_range(entries)),
            first_index=entries.first_index,
            first_pos=entries.pos,
            prev_chain=follower.ledger_end_chain,
        )
        follower.append_range(payload, 0)
    assert said(follower) == (second, b"n0 n1")


def test_it_is_kept_when_its_entry_is_deleted_also_for_the_next_start() -> None:
    disk = CrashDisk()
    log, first, second = with_two(disk)
    fill(log, 60)
    sync(log)
    mark(log)
    while (last_index := log.first_file_last_index) is not None:
        delete_first_file(log)
        assert said(log) == (second, b"n0 n1")
        known = MembershipBefore(second, b"n0 n1") if second <= last_index else None
        if known is None and first <= last_index:
            known = MembershipBefore(first, b"n0 n1 n2")
        assert log.membership_before_begin == known
        again = LogStore.open(disk.crash(Random(1)), config())
        assert said(again) == (second, b"n0 n1")
        assert again.membership_before_begin == known
    assert second < log.ledger_begin_index


def test_a_log_that_begins_anew_has_the_members_that_it_was_told() -> None:
    disk = CrashDisk()
    log, _, _ = with_two(disk)
    told = MembershipBefore(Index(70), b"n0 n3")
    run(log.begin_anew(Index(90), Term(3), 7, Pos(8 * 4096), told), log.cut_done)
    assert said(log) == (70, b"n0 n3")
    append(log, [b"next"], term=3)
    assert said(LogStore.open(disk.crash(Random(1)), config())) == (70, b"n0 n3")
