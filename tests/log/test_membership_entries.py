"""Who the members are is known after a restart and a cut, and when the entry that says so is deleted."""

from itertools import count
from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import append, config, cut, fill, run, sync
from test_log_begin import delete_first_file
from test_log_recovery import mark

from dledger.core.messages import MembershipBefore
from dledger.entry import EntryKind, Index, Pos, Term, verify_entries
from dledger.log.log_store import LogStore
from dledger.log.membership_entries import LISTED_COUNT_MAX, MEMBERSHIP_SIZE_MAX
from dledger.log.synced_mark import CutRecord, SyncedMark, SyncedMarkFile


def say(log: LogStore, body: bytes, term: int = 1) -> Index:
    """A membership entry."""
    positions = log.reserve([len(body)])
    return log.append([body], positions, Term(term), EntryKind.MEMBERSHIP).last_index


def said(log: LogStore) -> tuple[int, bytes | None]:
    last = log.membership_up_to(log.ledger_end_index)
    return log.memberships.last_index, last.body if last is not None else None


def with_two(disk: CrashDisk) -> tuple[LogStore, Index, Index]:
    log = LogStore.open(disk, config())
    fill(log, 5)
    first = say(log, b"n0 n1 n2")
    fill(log, 20)
    second = say(log, b"n0 n1")
    fill(log, 5)
    return log, first, second


def push(log: LogStore, follower: LogStore) -> bool:
    """Some of the entries that the follower has not. Whether there were any."""
    entries = log.range_from(Index(follower.ledger_end_index + 1), 500)
    if entries is None:
        return False
    payload = verify_entries(
        b"".join(log.read_range(entries)),
        first_index=entries.first_index,
        first_pos=entries.pos,
        prev_chain=follower.ledger_end_chain,
        prev_term=follower.ledger_end_term,
    )
    follower.append_range(payload, 0)
    return True


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
    while push(log, follower):
        pass
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


class ManyChanges:
    """A log of a thousand changes of the members, and what each of its entries says."""

    def __init__(self, body_size: int) -> None:
        self.disk = CrashDisk()
        self.log = LogStore.open(self.disk, config())
        self.bodies: dict[int, bytes] = {-1: b""}
        self._body_size = body_size
        self._clock = count(0, 2000)

    def change(self, text: bytes) -> None:
        body = text.ljust(self._body_size)
        self.bodies[say(self.log, body)] = body

    def sync(self) -> None:
        if (job := self.log.sync_job()) is not None:
            run(job, self.log.sync_done)

    def mark(self) -> None:
        self.sync()
        if (job := self.log.mark_job(next(self._clock)) or self.log.mark_job(next(self._clock))) is not None:
            run(job, self.log.mark_done)

    def take_back(self) -> None:
        """The last change, which nobody has committed."""
        index = self.log.memberships.last_index
        cut(self.log, index)
        del self.bodies[index]

    def restart(self, seed: int) -> None:
        self.disk = self.disk.crash(Random(seed))
        self.log = LogStore.open(self.disk, config())
        self.check()

    def check(self) -> None:
        last = max(self.bodies)
        assert said(self.log) == (last, self.bodies[last])
        begin = self.log.ledger_begin_index
        counting = max(index for index in self.bodies if index < begin)
        before = self.log.membership_before_begin
        assert (before.index if before is not None else -1) >= counting
        assert before is None or (before.index < last and before.body == self.bodies[before.index])


@pytest.mark.parametrize(
    "body_size",
    [
        9,
        pytest.param(700, marks=pytest.mark.slow),
        pytest.param(MEMBERSHIP_SIZE_MAX, marks=pytest.mark.slow),
    ],
)
def test_a_thousand_changes_fit_into_the_mark_and_who_the_members_are_is_always_known(body_size: int) -> None:
    changes = ManyChanges(body_size)
    for number in range(1000):
        changes.change(b"n%d" % number)
        if number % 3 == 0:
            append(changes.log, [b"message"])
        if number % 5 == 0:
            changes.mark()
        if number % 7 == 0:
            changes.take_back()
            changes.change(b"other %d" % number)
        changes.check()
        if number % 11 == 0:
            changes.sync()
            changes.restart(number)
        if number % 50 == 49:
            changes.mark()
            for _ in range(3):
                if changes.log.first_file_last_index is not None:
                    delete_first_file(changes.log)
                changes.check()
            changes.restart(number)
    assert changes.log.ledger_begin_index > 50


def test_a_mark_that_is_lost_among_a_thousand_changes_is_made_again() -> None:
    changes = ManyChanges(700)
    for number in range(1000):
        changes.change(b"n%d" % number)
    changes.sync()
    changes.disk.unlink(f"{config().own_directory}/synced-mark")
    changes.restart(1)
    changes.change(b"n1000")
    changes.mark()
    changes.restart(2)


def test_a_log_that_begins_where_the_members_are_not_listed_any_more_goes_by_newer_ones() -> None:
    changes = ManyChanges(100)
    for number in range(3 * LISTED_COUNT_MAX):
        changes.change(b"n%d" % number)
    changes.mark()
    delete_first_file(changes.log)
    log, told = changes.log, changes.log.membership_before_begin
    assert told is not None
    before = Index(log.ledger_begin_index - 1)
    assert before < told.index < log.memberships.last_index
    term, chain = log.term_at(before), log.chain_at(before)
    assert term is not None
    assert chain is not None
    disk = CrashDisk()
    follower = LogStore.open(disk, config())
    run(follower.begin_anew(before, term, chain, log.ledger_begin_pos, told), follower.cut_done)
    known = [said(follower)]
    while push(log, follower):
        sync(follower)
        known.append(said(follower))
        disk = disk.crash(Random(1))
        follower = LogStore.open(disk, config())
        assert said(follower) == known[-1]
    assert known[0] == (told.index, told.body)
    assert [index for index, _ in known] == sorted(index for index, _ in known)
    assert known[-1] == said(log)
    # What it has of entries before those may be cut, and they count on.
    late = LogStore.open(CrashDisk(), config())
    run(late.begin_anew(before, term, chain, log.ledger_begin_pos, told), late.cut_done)
    push(log, late)
    assert late.ledger_end_index < told.index
    cut(late, late.ledger_begin_index)
    assert said(late) == known[0]


def test_the_largest_mark_fits_into_its_slot() -> None:
    largest = (1 << 63) - 1
    mark_file = SyncedMarkFile(CrashDisk(), "store")
    index, term, pos = Index(largest), Term(largest), Pos(largest)
    mark_file.write(
        SyncedMark(
            index,
            term,
            pos,
            -(1 << 31),
            data_file_size=largest,
            before_begin_index=index,
            before_begin_term=term,
            before_begin_chain=-(1 << 31),
            begin_pos=pos,
            before_begin_membership_index=index,
            before_begin_membership="ff" * MEMBERSHIP_SIZE_MAX,
            membership_indexes=(index,) * LISTED_COUNT_MAX,
            last_membership_index=index,
            cut=CutRecord(pos, pos),
        )
    )


def test_the_first_entry_of_members_that_the_mark_does_not_tell_of_is_known() -> None:
    log = LogStore.open(CrashDisk(), config(data_file_size=1 << 20))
    fill(log, 5)
    assert log.index_before_untold == -1, "the first entry begins a data file"
    sync(log)
    mark(log)
    assert log.index_before_untold == log.ledger_end_index
    first = say(log, b"n0 n1 n2")
    fill(log, 5)
    say(log, b"n0 n1")
    assert log.index_before_untold == first - 1
    sync(log)
    assert log.index_before_untold == first - 1
    mark(log)
    assert log.index_before_untold == log.ledger_end_index
    third = say(log, b"n0")
    fill(log, 5)
    assert log.index_before_untold == third - 1
    cut(log, third)
    assert log.index_before_untold == log.ledger_end_index


def test_a_mark_tells_whole_who_the_members_are_after_a_cut_back_to_what_this_run_has_not_read() -> None:
    disk = CrashDisk()
    log, first, second = with_two(disk)
    sync(log)
    mark(log)
    disk = disk.crash(Random(1))
    again = LogStore.open(disk, config())
    cut(again, second)
    assert again._mark.last_membership_index == first
    pos = again.pos_at(first)
    damaged = disk.open(f"{again.config.data_directory}/{pos - pos % again.config.data_file_size:020d}")
    damaged.pwrite(b"\xff" * 8, pos % again.config.data_file_size + 60)
    assert said(LogStore.open(disk, config())) == (first, b"n0 n1 n2")


def file_begins(log: LogStore, index: int) -> list[Index]:
    """Entries behind `index` that begin a data file."""
    behind = map(Index, range(index + 1, log.ledger_end_index + 1))
    return [at for at in behind if log.pos_at(at) % log.config.data_file_size == 0]


def test_the_first_entry_of_a_data_file_that_the_mark_does_not_tell_of_is_known() -> None:
    log = LogStore.open(CrashDisk(), config())
    fill(log, 30)
    sync(log)
    mark(log)
    marked_index = log.durable_index
    assert log.index_before_untold == marked_index
    fill(log, 100)
    begins = file_begins(log, marked_index)
    assert len(begins) > 3
    assert log.index_before_untold == begins[0] - 1
    cut(log, begins[2])
    assert log.index_before_untold == begins[0] - 1
    cut(log, begins[0])
    assert log.index_before_untold == log.ledger_end_index
    fill(log, 30)
    begins = file_begins(log, marked_index)
    assert log.index_before_untold == begins[0] - 1
    sync(log)
    run(log.mark_job(0), log.mark_done)  # at once
    assert log.index_before_untold == log.ledger_end_index
    cut(log, begins[0])  # lowers the mark
    fill(log, 30)
    assert log.index_before_untold == file_begins(log, begins[0] - 1)[0] - 1


def test_the_mark_tells_what_is_on_the_disk_and_not_what_is_to_be() -> None:
    log = LogStore.open(CrashDisk(), config())
    fill(log, 60)
    sync(log)
    mark(log)
    marked_index = log.durable_index
    for _ in range(LISTED_COUNT_MAX + 5):
        say(log, b"n0 n1 n2")
    sync(log)
    assert log.index_before_untold == marked_index
    job = log.delete_first_file_job()
    assert job is not None
    assert log.index_before_untold == marked_index
    run(job, log.move_begin_done)
    assert log.index_before_untold > marked_index


def test_where_older_entries_of_members_were_let_go_none_is_taken_for_the_first() -> None:
    log, *_ = with_two(CrashDisk())
    sync(log)
    mark(log)
    marked_index = log.durable_index
    fill(log, 3)
    for _ in range(LISTED_COUNT_MAX + 3):
        say(log, b"n0 n1 n2")
    assert log.index_before_untold == marked_index
    sync(log)
    mark(log)
    assert log.index_before_untold == log.ledger_end_index
