"""A peer's bytes in the place of damaged ones: proved between its neighbours, and only then written."""

from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, facts, fill, run, sync
from msgspec.structs import replace
from test_faulty_entries import closed_log, data, open_cold, ranges_of, read_all
from test_log_begin import delete_first_file, filled
from test_log_recovery import INDEX, locate, mark

from disk.disk import DiskError
from dledger.core.messages import LedgerBegin
from dledger.entry import Index, Pos, Term
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.jobs import MoveBeginJob
from dledger.log.log_repair import RangeRepair, RepairRefusedError
from dledger.log.log_store import LogStore
from dledger.repair_answers import answer_repair
from dledger.rpc.requests import RepairRequest, RepairResponse
from dledger.rpc.response_code import ResponseCode
from simulator.world.sim_disk import SimDisk


def ask(peer: LogStore, first: int, last: int, size_max: int = 1 << 20) -> tuple[RepairResponse, bytes]:
    request = RepairRequest(1, "n0", Index(first), Index(last), size_max)
    response, buffers = answer_repair(peer, "n1", request, 1 << 20)
    return response, b"".join(buffers)


def pieces(repair: RangeRepair, peer: LogStore, size_max: int) -> int:
    """Has the range repaired as Repairer does; how many answers that took."""
    count = 0
    while not repair.is_done:
        response, entries = ask(peer, repair.next_index, repair.last_index, size_max)
        assert response.code is ResponseCode.SUCCESS
        job = repair.take(response.first_pos, entries)
        if job is not None:
            run(job, lambda job: [held.release() for held in job.held])
        count += 1
    return count


def repair_all(log: LogStore, peer: LogStore, size_max: int = 1 << 20) -> int:
    count = 0
    while log.has_faults:
        (faulty, *_) = log.faulty.ranges
        repair = log.range_repair(faulty)
        count += pieces(repair, peer, size_max)
        log.repaired(repair.faulty)
    return count


def damaged(disk: CrashDisk, log: LogStore, first: int, last: int) -> None:
    """Zeros from within one entry to within another."""
    for pos in range(log.pos_at(Index(first)) + 20, log.end_pos_at(Index(last)) - 3):
        disk.content(f"{DATA}/{pos - pos % FILE_SIZE:020d}")[pos % FILE_SIZE] = 0


@pytest.mark.parametrize("size_max", [0, 700, 1 << 20])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 9), (30, 60), (5, 96), (98, 99), (0, 99)])
def test_what_was_damaged_is_as_it_was(first: int, last: int, size_max: int) -> None:
    disk, log = closed_log()
    last = min(last, log.ledger_end_index)
    image, before = data(disk), facts(log)
    units = {name: bytes(disk.content(name)) for name in disk.paths() if name.startswith(INDEX)}
    damaged(disk, log, first, last)
    for name in units:
        disk.content(name)[:] = bytes(len(units[name]))
    again = open_cold(disk)
    read_all(again)
    ((first_found, last_found),) = ranges_of(again)
    assert (first_found, last_found) in ((first, last), (first, last + 1))
    count = repair_all(again, log, size_max)
    assert data(disk) == image
    assert facts(again) == before
    assert {name: bytes(disk.content(name)) for name in units} == units
    assert not again.has_faults
    # Several pieces come twice, to be proved and to be written.
    assert count == 1 or count % 2 == 0
    run(again.note_faults_job(), again.faults_noted)
    third = open_cold(disk)
    assert ranges_of(third) == []


def test_a_repair_is_durable_before_the_damage_is_forgotten() -> None:
    disk, log = closed_log()
    before = facts(log)
    damaged(disk, log, 10, 40)
    again = open_cold(disk)
    read_all(again)
    repair_all(again, log, 700)
    run(again.note_faults_job(), again.faults_noted)
    for seed in range(20):
        after = open_cold(disk.crash(Random(seed)))
        read_all(after)
        assert ranges_of(after) == []
        assert facts(after) == before


def test_a_repair_whose_sync_failed_is_made_durable_by_the_next_start_although_it_reads_as_sound() -> None:
    disk = SimDisk(Random(0), lambda: 0, lambda: 0)
    log = LogStore.open(disk, config(recent_bytes_max=1 << 20))
    fill(log, 50)
    log.close(clean=True)
    path, offset = locate(log, 20)
    disk.damage(path, offset + 50, b"\xff")
    again = open_cold(disk)
    read_all(again)
    (faulty,) = again.faulty
    assert not again.is_noted(faulty)
    run(again.note_faults_job(), again.faults_noted)
    assert again.is_noted(faulty)
    response, entries = ask(log, faulty.first_index, faulty.last_index)
    job = again.range_repair(faulty).take(response.first_pos, entries)
    assert job is not None
    disk.failing_syncs = 1
    with pytest.raises(DiskError):
        job.run()
    assert list(disk.unwritten_positions(DATA)), "the page cache alone has it"
    disk.process_crash()
    assert ranges_of(open_cold(disk)) == []
    disk.power_loss()
    after = open_cold(disk)
    read_all(after)
    assert ranges_of(after) == []


def test_a_range_is_repaired_although_the_log_has_come_to_begin_with_it() -> None:
    disk, log = closed_log()
    before = Index(next(index for index in range(99) if log.pos_at(Index(index + 1)) >= FILE_SIZE))
    damaged(disk, log, before + 1, before + 1)
    again = open_cold(disk)
    read_all(again)
    (faulty,) = again.faulty
    assert faulty.first_index == before + 1
    repair = again.range_repair(faulty)
    term, chain = log.term_at(before), log.chain_at(before)
    assert term is not None
    assert chain is not None
    begin = LedgerBegin(before, term, chain, Pos(FILE_SIZE), None)
    run(again.begin_at_job(begin), again.move_begin_done)
    assert again.ledger_begin_index == before + 1
    assert pieces(repair, log, 1 << 20) == 1
    again.repaired(repair.faulty)
    read_all(again)
    assert not again.has_faults


def test_the_first_entry_is_repaired_while_the_one_before_the_begin_is_still_remembered() -> None:
    log = LogStore.open(CrashDisk(), config(recent_bytes_max=1 << 20))
    fill(log, 80)
    sync(log)
    mark(log)
    delete_first_file(log)
    first = log.ledger_begin_index
    assert log.recent.find(Index(first - 1)) is not None
    assert log.stored_end_at(Index(first - 1))[0] == log.begin.before_chain
    faulty = FaultyRange(first, first, log.pos_at(first), log.end_pos_at(first))
    assert log.range_repair(faulty).next_index == first


def faulty_in_the_middle() -> tuple[LogStore, LogStore, FaultyRange]:
    disk, log = closed_log()
    path, offset = locate(log, 20)
    disk.content(path)[offset + 50] ^= 1
    again = open_cold(disk)
    read_all(again)
    return again, log, again.faulty.ranges[0]


@pytest.mark.parametrize("at", [0, 8, 20, 36, 47, 50, -1])
def test_bytes_that_are_not_sound_are_refused_and_nothing_is_written(at: int) -> None:
    log, peer, faulty = faulty_in_the_middle()
    response, entries = ask(peer, faulty.first_index, faulty.last_index)
    spoiled = bytearray(entries)
    spoiled[at] ^= 1
    repair = log.range_repair(faulty)
    with pytest.raises(RepairRefusedError):
        repair.take(response.first_pos, bytes(spoiled))
    assert repair.take(response.first_pos, entries) is not None, "the next peer's are taken"


@pytest.mark.parametrize("size_max", [0, 1 << 20])
def test_sound_entries_of_another_history_are_refused_before_anything_is_written(size_max: int) -> None:
    disk, log = closed_log()
    damaged(disk, log, 20, 25)
    image = data(disk)
    again = open_cold(disk)
    read_all(again)
    other = LogStore.open(CrashDisk(), config())
    fill(other, 9)
    assert other.chain_at(Index(17)) == log.chain_at(Index(17)), "they have a history in common"
    fill(other, 30, first=9, term=2)
    again.faulty.add(FaultyRange(Index(18), Index(19), log.pos_at(Index(18)), log.pos_at(Index(20))))
    (faulty,) = again.faulty.ranges
    with pytest.raises(RepairRefusedError):
        pieces(again.range_repair(faulty), other, size_max)
    assert data(disk) == image


def test_entries_at_another_place_or_more_than_was_asked_for_are_refused() -> None:
    log, peer, faulty = faulty_in_the_middle()
    response, entries = ask(peer, 20, 22)
    repair = log.range_repair(faulty)
    with pytest.raises(RepairRefusedError, match="not asked for"):
        repair.take(response.first_pos, entries)
    response, entries = ask(peer, 20, 20)
    with pytest.raises(RepairRefusedError, match="lies at"):
        repair.take(response.first_pos + 1, entries)
    with pytest.raises(RepairRefusedError, match="not asked for"):
        repair.take(response.first_pos, b"")


def damage_with_a_sound_end(*, also: int | None = None) -> tuple[CrashDisk, LogStore, LogStore, RangeRepair]:
    """20 is gone with its chain, and nothing proves 21; as far as 26, if `also` a byte of an entry behind is wrong. A
    peer has given 20.
    """
    disk, peer = closed_log()
    damaged(disk, peer, 20, 20)
    if also is not None:
        path, offset = locate(peer, also)
        disk.content(path)[offset + 50] ^= 1
    log = open_cold(disk)
    read_all(log)
    if also is not None:
        log.faulty.add(FaultyRange(Index(20), Index(26), peer.pos_at(Index(20)), peer.pos_at(Index(27))))
    (faulty,) = log.faulty.ranges
    assert (faulty.first_index, faulty.last_index) == (20, 21 if also is None else 26)
    repair = log.range_repair(faulty)
    assert not repair.goes_on_here()
    response, entries = ask(peer, 20, 20)
    assert repair.take(response.first_pos, entries) is None
    return disk, log, peer, repair


def test_what_lies_here_behind_what_a_peer_has_is_the_rest_of_it_with_its_units() -> None:
    disk, log, peer, repair = damage_with_a_sound_end()
    units = {name: bytes(disk.content(name)) for name in disk.paths() if name.startswith(INDEX)}
    number, unit = divmod(21 * 32, len(units[min(units)]))
    disk.content(sorted(units)[number])[unit + 8] ^= 1
    assert repair.goes_on_here()
    response, entries = ask(peer, repair.next_index, repair.last_index)
    job = repair.take(response.first_pos, entries)
    assert job is not None
    run(job, lambda job: None)
    assert repair.is_here_next
    assert not repair.is_done
    job = repair.take_here()
    assert job is not None
    run(job, lambda job: None)
    assert repair.is_done
    log.repaired(repair.faulty)
    assert facts(log) == facts(peer)
    assert {name: bytes(disk.content(name)) for name in units} == units
    read_all(log)
    assert not log.has_faults


def test_what_lay_here_may_have_been_damaged_before_it_is_written() -> None:
    disk, _, peer, repair = damage_with_a_sound_end()
    assert repair.goes_on_here()
    response, entries = ask(peer, 20, 20)
    assert repair.take(response.first_pos, entries) is not None
    path, offset = locate(peer, 21)
    disk.content(path)[offset + 50] ^= 1
    with pytest.raises(RepairRefusedError, match="21 has been damaged"):
        repair.take_here()


@pytest.mark.parametrize("also", [23, 26])
def test_what_lies_here_and_leads_nowhere_is_not_the_rest_of_it(also: int) -> None:
    """A peer is asked on from where it was."""
    _, log, peer, repair = damage_with_a_sound_end(also=also)
    assert not repair.goes_on_here()
    assert (repair.next_index, repair.last_index) == (21, 26)
    assert pieces(repair, peer, 1 << 20) == 3
    log.repaired(repair.faulty)
    assert facts(log) == facts(peer)


def test_entries_of_before_that_lie_here_are_not_the_rest_of_one_that_a_peer_has_of_them() -> None:
    """They end where the damage does, and each follows from the one in front."""
    disk, log = closed_log()
    other = LogStore.open(CrashDisk(), config())
    fill(other, 9)
    fill(other, 30, first=9, term=2)
    first, last = Index(18), Index(23)
    response, stale = ask(other, first, last)
    assert response.first_pos == log.pos_at(first)
    assert response.first_pos + len(stale) == log.pos_at(Index(last + 1))
    path, offset = locate(log, first)
    disk.content(path)[offset : offset + len(stale)] = stale
    again = open_cold(disk)
    faulty = FaultyRange(first, last, log.pos_at(first), log.pos_at(Index(last + 1)))
    again.faulty.add(faulty)
    repair = again.range_repair(faulty)
    response, entries = ask(other, first, first)
    assert repair.take(response.first_pos, entries) is None
    assert not repair.goes_on_here()
    assert repair.next_index == first + 1


def test_where_only_the_leader_is_believed_nothing_here_is_the_rest_of_what_it_gave() -> None:
    _, log, peer, repair = damage_with_a_sound_end()
    repair = log.range_repair(repair.faulty, Index(21))
    response, entries = ask(peer, 20, 20)
    assert repair.take(response.first_pos, entries) is None
    assert not repair.goes_on_here()


def test_an_answer_that_ends_before_what_was_proved_is_refused() -> None:
    log, peer, _ = faulty_in_the_middle()
    log.faulty.add(FaultyRange(Index(20), Index(26), peer.pos_at(Index(20)), peer.pos_at(Index(27))))
    repair = log.range_repair(*log.faulty.ranges)
    for first, last in ((20, 22), (23, 26)):
        response, entries = ask(peer, first, last)
        assert repair.take(response.first_pos, entries) is None
    assert repair.is_proved
    response, entries = ask(peer, 20, 21)
    with pytest.raises(RepairRefusedError, match="ends with entry 21"):
        repair.take(response.first_pos, entries)


def parted_log(disk: CrashDisk, sizes: list[int], term: int) -> LogStore:
    """Seven entries that all have, and some of its own."""
    log = LogStore.open(disk, config())
    for number in range(7):
        append(log, [b"common %d" % number * 30])
    for size in sizes:
        append(log, [bytes([term]) * size], term)
    return log


def parted_with_stale(
    damaged_index: Index, own: list[int], others: list[int], stale: list[int]
) -> tuple[CrashDisk, LogStore, LogStore, RangeRepair, dict[str, bytes]]:
    """Damaged from there to the end, of a log that goes on in the next file where it has what the peer has not; the
    peer's entries are small, and of these some are back in the blank. Also the bytes as they were.
    """
    disk = CrashDisk()
    log, peer = parted_log(disk, own, 2), parted_log(CrashDisk(), others, 3)
    last = log.ledger_end_index
    assert FILE_SIZE in [log.pos_at(Index(index)) for index in range(7, last + 1)]
    assert peer.pos_at(last) < FILE_SIZE
    image = data(disk)
    faulty = FaultyRange(damaged_index, last, log.pos_at(damaged_index), log.end_pos_at(last))
    path, offset = locate(log, damaged_index)
    log.close(clean=True)
    again = open_cold(disk)
    disk.content(path)[offset + 60] ^= 1
    for index in stale:
        pos, (_, entry) = peer.pos_at(Index(index)), ask(peer, index, index)
        disk.content(path)[pos : pos + len(entry)] = entry
    again.faulty.add(faulty)
    return disk, again, peer, again.range_repair(faulty), image


def write_proved(repair: RangeRepair, peer: LogStore, last: int) -> None:
    """Of the peer's, up to there; the rest lies here."""
    response, entries = ask(peer, repair.next_index, repair.last_index)
    assert response.last_index == last
    job = repair.take(response.first_pos, entries)
    assert job is not None
    run(job, lambda job: [held.release() for held in job.held])
    while not repair.is_done:
        run(repair.take_here(), lambda job: [held.release() for held in job.held])


@pytest.mark.parametrize(
    ("own", "others", "stale"),
    [
        ([2500, 100, 100], [40] * 6, [8]),
        # 7 as well, and follows like the one in the next file.
        ([2500, 100, 100], [40] * 6, [7]),
        ([2500, 100, 100], [40] * 6, [7, 8]),
        # 7 is one's own in the peer's place, and behind it is a run of the peer's.
        ([100, 2500, 100], [100] + [40] * 5, [8]),
        ([100, 2500, 100], [100] + [40] * 5, [8, 9]),
    ],
)
def test_entries_of_a_peers_history_that_are_back_do_not_hide_where_that_parts_from_ours(
    own: list[int], others: list[int], stale: list[int]
) -> None:
    disk, _, peer, repair, image = parted_with_stale(Index(6), own, others, stale)
    response, entries = ask(peer, 6, 9)
    assert repair.take(response.first_pos, entries) is None
    assert repair.is_proved
    write_proved(repair, peer, 6)
    assert data(disk) == image


def test_entries_that_are_back_behind_one_that_lies_here_do_not_hide_that_it_goes_on_in_the_next_file() -> (
    None
):
    disk, _, peer, repair, image = parted_with_stale(Index(5), [2500, 100, 100], [40] * 6, [7, 8])
    response, entries = ask(peer, 5, 5)
    assert repair.take(response.first_pos, entries) is None
    assert repair.goes_on_here()
    write_proved(repair, peer, 5)
    assert data(disk) == image


def test_an_entry_that_is_back_in_the_next_file_does_not_hide_that_this_one_goes_on() -> None:
    """The log had a large one there once."""
    disk = CrashDisk()
    log, other = parted_log(disk, [40] * 4, 3), parted_log(CrashDisk(), [2500], 2)
    first, last = Index(5), Index(9)
    faulty = FaultyRange(first, last, log.pos_at(first), log.pos_at(Index(last + 1)))
    path, offset = locate(log, first)
    append(log, [b"next file" * 300], 3)
    image = data(disk)
    next_path, at = locate(log, 11)
    assert (log.pos_at(Index(11)), other.pos_at(Index(7)), at) == (FILE_SIZE, FILE_SIZE, 0)
    peer = parted_log(CrashDisk(), [40] * 4, 3)
    log.close(clean=True)
    again = open_cold(disk)
    disk.content(path)[offset + 60] ^= 1
    _, entry = ask(other, 7, 7)
    disk.content(next_path)[: len(entry)] = entry
    again.faulty.add(faulty)
    repair = again.range_repair(faulty)
    response, entries = ask(peer, first, first)
    assert repair.take(response.first_pos, entries) is None
    assert repair.goes_on_here()
    write_proved(repair, peer, first)
    assert bytes(disk.content(path)) == image[path]


def test_a_peer_says_what_it_has_not_got() -> None:
    log, peer, _ = faulty_in_the_middle()
    assert ask(log, 20, 20)[0].code is ResponseCode.DISK_ERROR
    end_index = peer.ledger_end_index
    assert ask(peer, end_index + 1, end_index + 1)[0].code is ResponseCode.INDEX_OUT_OF_RANGE
    assert ask(peer, 5, 4)[0].code is ResponseCode.INDEX_OUT_OF_RANGE
    # Neither its end nor damage behind what it can give keeps it from giving that.
    response, _ = ask(peer, end_index, end_index + 1)
    assert (response.code, response.last_index) == (ResponseCode.SUCCESS, end_index)
    response, _ = ask(log, 10, 30)
    assert (response.code, response.last_index) == (ResponseCode.SUCCESS, 19)


@pytest.mark.parametrize("reach", [(2, 3), (-9, -1), (-1, -1), (-2, 1), (0, 2), (-4, 70)])
def test_a_log_begins_where_a_peer_does_and_damage_in_front_of_that_is_no_more(
    reach: tuple[int, int],
) -> None:
    """`reach`: of the damage, from the peer's begin on where it is negative or goes beyond it."""
    disk = CrashDisk()
    filled(disk)
    peer = filled(CrashDisk())
    for _ in range(3):
        run(peer.delete_first_file_job(), peer.move_begin_done)
    begin = peer.ledger_begin_index
    log = open_cold(disk)
    first, last = (2, 3) if reach == (2, 3) else (begin + reach[0], begin + reach[1])
    damaged(disk, log, first, min(last, log.ledger_end_index))
    log.fault_found(0, log.ledger_end_index)
    assert log.faulty.first_within(first, first) is not None
    response, _ = ask(peer, min(first, begin - 1), begin)
    assert response.begin == peer.begin
    run(log.note_faults_job(), log.faults_noted)
    job = log.begin_at_job(response.begin)
    run(job, log.move_begin_done)
    assert log.ledger_begin_index == begin
    assert all(faulty.first_index >= begin for faulty in log.faulty)
    assert log.has_faults == (reach != (2, 3)), (
        "what was in front of the begin said that the entry there is sound"
    )
    for each in (log, open_cold(disk)):
        repair_all(each, peer)
        assert facts(each) == facts(peer)
    assert {path for path in disk.paths() if path.startswith(DATA)} == {
        f"{DATA}/{pos:020d}" for pos in range(log.ledger_begin_pos, log.ledger_end_pos, FILE_SIZE)
    }


def test_a_log_does_not_begin_where_other_entries_lie_nor_at_its_end_nor_above_its_mark() -> None:
    disk = CrashDisk()
    log = filled(disk)
    peer = filled(CrashDisk())
    while run_if(peer.delete_first_file_job(), peer):
        begin = peer.begin
        assert log.begin_at_job(replace(begin, before_chain=begin.before_chain ^ 1)) is None
        assert log.begin_at_job(replace(begin, before_term=Term(begin.before_term + 1))) is None
        assert log.begin_at_job(replace(begin, pos=Pos(begin.pos + FILE_SIZE))) is None
    end = LedgerBegin(log.ledger_end_index, log.ledger_end_term, log.ledger_end_chain, log.ledger_end_pos)
    assert log.begin_at_job(end) is None
    unmarked = LogStore.open(CrashDisk(), config())
    fill(unmarked, 40)
    fill(unmarked, 40, first=40, term=3)
    assert unmarked.begin_at_job(peer.begin) is None
    assert log.begin_at_job(peer.begin) is not None


def run_if(job: MoveBeginJob | None, log: LogStore) -> bool:
    if job is not None:
        run(job, log.move_begin_done)
    return job is not None
