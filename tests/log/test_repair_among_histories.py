"""Whatever came back within the damage, and whoever is asked: a repair writes what lay there, or nothing."""

from dataclasses import dataclass
from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, run
from test_faulty_entries import data, open_cold, read_all
from test_log_recovery import locate
from test_log_repair import ask, repair_all

from dledger.entry import Index
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.log_repair import RangeRepair, RepairRefusedError
from dledger.log.log_store import LogStore
from dledger.rpc.response_code import ResponseCode

_COMMON_COUNT = 7
_Parts = list[tuple[int, list[int]]]  # (term, sizes of its bodies)


def log_of(disk: CrashDisk, parts: _Parts) -> LogStore:
    log = LogStore.open(disk, config())
    for number in range(_COMMON_COUNT):
        append(log, [b"common %d" % number * 30])
    for term, sizes in parts:
        for size in sizes:
            append(log, [bytes([term]) * size], term)
    return log


def put(disk: CrashDisk, pos: int, raw: bytes, begin: int, end: int) -> None:
    """Into the file where it lies, between these positions alone."""
    path, offset = f"{DATA}/{pos - pos % FILE_SIZE:020d}", pos % FILE_SIZE
    if path in disk.paths():
        content = disk.content(path)
        for at, byte in enumerate(raw, start=offset):
            if begin <= pos - offset + at < end and at < len(content):
                content[at] = byte


@pytest.mark.parametrize("flipped", [None, 10, 20, 60])
@pytest.mark.parametrize("terms", [(3, 2), (2, 3)])
@pytest.mark.parametrize("last", [None, 7, 8])
@pytest.mark.parametrize("count", [2, 3])
def test_an_entry_that_is_back_within_the_damage_proves_nothing(
    count: int, last: int | None, terms: tuple[int, int], flipped: int | None
) -> None:
    """Entry 7 is longer than all that came back in its place: the peer's 7, 8 and 9, of which each follows from the one
    in front. `last`: of the damage, as it is known; else it is found.
    """
    disk = CrashDisk()
    own: _Parts = [(terms[0], [300, 100, 100, 50, 60])]
    log, sound = log_of(disk, own), log_of(CrashDisk(), own)
    peer = log_of(CrashDisk(), [(terms[1], [40] * 6)])
    image = data(disk)
    path, offset = locate(log, 7)
    positions = [log.pos_at(Index(index)) for index in range(10)]
    log.close(clean=True)
    again = open_cold(disk)
    _, back = ask(peer, 7, 6 + count)
    disk.content(path)[offset : offset + len(back)] = back
    if flipped is not None:
        disk.content(path)[offset + flipped] ^= 1
    if last is None:
        read_all(again)
    else:
        again.faulty.add(FaultyRange(Index(7), Index(last), positions[7], positions[last + 1]))
    before = data(disk)
    with pytest.raises(RepairRefusedError):
        repair_all(again, peer)
    assert again.has_faults
    assert data(disk) == before
    repair_all(again, sound)
    assert data(disk) == image


@dataclass
class Drawn:
    """A damaged log and who is asked; the bytes as they were."""

    disk: CrashDisk
    log: LogStore
    peer: LogStore
    faulty: FaultyRange
    image: dict[str, bytes]


def drawn(random: Random) -> Drawn:
    """Logs that part somewhere behind a common front, and a damaged range in which entries of others are back."""

    def sizes() -> list[int]:
        return random.choices([40, 40, 100, 100, 250, 700, 2500], k=random.randint(1, 9))

    shared: _Parts = [(2, sizes())] if random.random() < 0.5 else []
    own: _Parts = sorted((random.choice([3, 4, 5]), sizes()) for _ in range(random.randint(1, 2)))
    disk = CrashDisk()
    log = log_of(disk, shared + own)
    peers = []
    for _ in range(random.randint(1, 3)):
        base = own[: random.randint(0, len(own))]
        if base and random.random() < 0.6:
            term, kept = base[-1]
            base = [*base[:-1], (term, kept[: random.randint(0, len(kept))])]
        left: _Parts = [(random.choice([6, 7, 8]), sizes())] if random.random() < 0.8 else []
        peers.append(log_of(CrashDisk(), shared + base + left))
    end_index = log.ledger_end_index
    first = Index(random.randint(4, end_index))
    last = Index(random.randint(first, end_index))
    next_pos = log.pos_at(Index(last + 1)) if last < end_index else log.end_pos_at(last)
    faulty = FaultyRange(first, last, log.pos_at(first), next_pos)
    image = data(disk)
    log.close(clean=True)
    again = open_cold(disk)
    for _ in range(random.randint(0, 4)):
        other = random.choice(peers)
        begin = random.randint(4, other.ledger_end_index)
        for index in range(begin, min(other.ledger_end_index, begin + random.choice([0, 0, 1, 3, 8])) + 1):
            _, entry = ask(other, index, index)
            put(disk, other.pos_at(Index(index)), entry, faulty.pos, next_pos)
    if random.random() < 0.8:
        put(disk, faulty.pos + random.choice([20, 38, 50]), b"\x55", faulty.pos, next_pos)
    again.faulty.add(faulty)
    return Drawn(disk, again, peers[0], faulty, image)


def is_proved(repair: RangeRepair, peer: LogStore, size_max: int) -> bool:
    """By what the peer has and what lies here."""
    while not repair.is_proved:
        response, entries = ask(peer, repair.next_index, repair.last_index, size_max)
        if response.code is not ResponseCode.SUCCESS:
            return not repair.is_at_begin and repair.goes_on_here()
        job = repair.take(response.first_pos, entries)
        if job is not None:
            run(job, lambda job: [held.release() for held in job.held])
    return True


def test_a_repair_among_other_histories_writes_what_lay_there_or_nothing() -> None:
    repaired_count = 0
    for seed in range(400):
        random = Random(seed)
        case = drawn(random)
        size_max = random.choice([0, 200, 700, 1 << 20])
        before = data(case.disk)
        repair = case.log.range_repair(case.faulty)
        try:
            if not is_proved(repair, case.peer, size_max):
                continue
        except RepairRefusedError:
            assert data(case.disk) == before, f"seed {seed}"
            continue
        while not repair.is_done:
            if repair.is_here_next:
                job = repair.take_here()
            else:
                response, entries = ask(case.peer, repair.next_index, repair.last_index, size_max)
                taken = repair.take(response.first_pos, entries)
                assert taken is not None
                job = taken
            run(job, lambda job: [held.release() for held in job.held])
        assert data(case.disk) == case.image, f"seed {seed}"
        repaired_count += 1
    assert repaired_count > 20
