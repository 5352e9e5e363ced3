"""Damage drawn for one member's log, of which a peer has every byte: whoever looks there and in whatever order, all is
mended, what no fault has touched is never written over, and in the end nothing of an earlier history is served.
"""

from random import Random

import pytest
from log_steps import DATA, FILE_SIZE
from test_faulty_entries import open_cold, ranges_of, read_all
from test_stale_among_damage import Histories
from test_stale_entries import scrub

from dledger.config import DLedgerConfig
from dledger.core.member_config import MemberConfig
from dledger.entry import Index, Term
from dledger.errors import FaultyEntryError
from dledger.log.jobs import DiskJob
from dledger.repair_answers import answer_repair
from dledger.repairer import Repairer
from dledger.rpc.requests import RepairRequest
from remoting.address import Address

SIZES = [0, 20, 20, 50, 50, 90, 300, 700, 1500, 2800]  # of bodies


def drawn_histories(random: Random) -> Histories:
    def sizes(low: int, high: int, of: list[int]) -> list[int]:
        return [random.choice(of) for _ in range(random.randint(low, high))]

    if random.random() < 0.5:
        common, before, own = sizes(1, 4, SIZES), sizes(1, 12, SIZES), sizes(2, 14, SIZES)
    else:  # many short ones where the other history has few long ones, and a file that ends in a long blank
        common, before = sizes(1, 2, [700, 300, 1500]), [*sizes(3, 25, [20, 20, 50, 90]), 2800, 20]
        own = [*sizes(1, 3, [300, 700, 900, 1500]), *sizes(1, 4, [20, 50, 90]), 2800]
        own += sizes(1, len(before), [20, 50, 300])
        if random.random() < 0.3:
            before, own = own, before
    return Histories(
        common,
        before,
        own,
        terms=random.choice([(2, 2), (2, 3), (3, 2)]),
        remembers_terms=random.random() < 0.3,
    )


def damage(random: Random, case: Histories) -> None:
    begin, end, first = case.positions[case.common_count], case.ends[-1], case.common_count
    for _ in range(random.choice([1, 1, 2])):
        index, pos = random.randrange(first, case.count), random.randrange(end)
        file_end = (random.randrange(begin, end) // FILE_SIZE + 1) * FILE_SIZE
        last_end = max(entry_end for entry_end in case.ends if entry_end <= file_end)
        sector = case.positions[index] // 512 * 512
        last = min(case.count - 1, index + random.choice([0, 0, 1, 3]))
        low, high = random.choice(
            [
                (0, end),
                (case.positions[index], case.ends[last]),
                (sector, sector + 512 * random.randint(1, 4)),
                (pos, pos + random.randint(1, 2000)),
                (begin, random.randint(begin + 1, end)),
                (last_end - random.choice([0, 0, random.randint(1, 1500)]), file_end),
                (file_end, file_end + random.choice([512, 1024, FILE_SIZE])),
            ]
        )
        case.lose_data(max(low, begin), min(high, end))
    if random.random() < 0.6:
        index = random.randrange(case.count)
        some = index, min(case.count - 1, index + random.choice([0, 1, 15]))
        case.lose_units(*random.choice([(0, case.count - 1), some]))
    if random.random() < 0.15:
        index = random.randrange(case.count)
        case.zero_units(index, index)
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        case.flip(random.randrange(end))


class Mending:
    """A member's log with its repairer, and a peer that answers it. Time is virtual."""

    def __init__(self, random: Random, case: Histories, peer: Histories) -> None:
        self.random, self.case, self.log, self.peer = random, case, case.log, peer.log
        self.now_ms = 0
        self.requests: list[RepairRequest] = []
        self.jobs: list[DiskJob] = []
        self.sound = self.which_are_sound()
        peers = {f"n{number}": Address("127.0.0.1", 1 + number) for number in range(3)}
        push_size_max = random.choice([100, 600, 3000, 1 << 20])
        config = DLedgerConfig(
            group="g",
            self_id="n0",
            peers=peers,
            member=MemberConfig(self_id="n0", peers=tuple(peers), push_size_max=push_size_max),
            directory=case.log.config.directory,
        )
        leader = random.choice(["n1", "n2"])
        self.repairer = Repairer(
            config,
            case.log,
            lambda peer, request: self.requests.append(request),
            self.jobs.append,
            lambda begin, peers: False,
            lambda index, now_ms: None,  # all is committed: nothing may be cut
            lambda faulty, now_ms: None,
            lambda: Index(case.count - 1),
            lambda: (Term(9), leader),
        )
        self.repairer.peer_connected("n1")

    def which_are_sound(self) -> set[int]:
        return {index for index in range(self.case.count) if self.case.is_sound(index)}

    def check(self) -> None:
        sound = self.which_are_sound()
        assert self.sound <= sound, "written over"
        self.sound = sound

    def look(self, how: str) -> None:
        if how == "read":
            read_all(self.log)
        elif how == "scrub":
            scrub(self.log)
        else:
            for index in self.random.sample(range(self.case.count), self.case.count):
                try:
                    self.log.body_at(Index(index))
                except FaultyEntryError:
                    continue
        self.check()

    def mend(self) -> None:
        for _ in range(3000):
            if not self.log.has_faults:
                return
            self.now_ms += 20
            noting = self.log.note_faults_job()
            if noting is not None:
                noting.run()
                self.log.faults_noted(noting)
            self.repairer.tick(self.now_ms)
            self._run_jobs()
            while self.requests:
                response, entries = answer_repair(self.peer, "n1", self.requests.pop(), 1 << 20)
                self.repairer.on_response(response, b"".join(map(bytes, entries)), self.now_ms)
                self._run_jobs()
        raise AssertionError(f"never mended: {self.log.faulty.ranges} {self.repairer.waits}")

    def _run_jobs(self) -> None:
        while self.jobs:
            self.jobs.pop().run()
            self.repairer.job_done(None, self.now_ms)
            self.check()


# Seeds that failed once, and some more.
FAILED = [115, 390, 491, 896, 933, 1216, 1395, 1580, 1609, 1761, 2581, 2668, 3650, 4121]


@pytest.mark.parametrize("seed", [*range(40), *FAILED])
def test_all_is_mended_and_nothing_sound_is_written_over(seed: int) -> None:
    random = Random(seed)
    case, peer = drawn_histories(random), drawn_histories(Random(seed))
    damage(random, case)
    sound = {index for index in range(case.count) if case.is_sound(index)}
    if not case.remembers_terms and random.random() < 0.5:
        case.log.close(clean=random.random() < 0.5)
        case.log = open_cold(case.disk)
    mending = Mending(random, case, peer)
    assert sound <= mending.sound, "written over by the start"
    for number in range(4):
        mending.look(random.choice(["read", "scrub", "body"]) if number < 2 else "scrub")
        mending.mend()
    assert [case.log.body_at(Index(index)) for index in range(case.count)] == case.bodies
    files = case.files()
    assert {path: files[path] for path in files if path.startswith(DATA)} == {
        path: case.truth[path] for path in case.truth if path.startswith(DATA)
    }


def test_damage_far_in_front_that_nobody_can_repair_holds_up_nothing_behind() -> None:
    """It is found on the way to the entry in front of a range, as units between are damaged."""
    case, peer = (Histories([50], [50], [50] * 40) for _ in range(2))
    peer.flip(peer.positions[14] + 60)
    case.flip(case.positions[30] + 60)
    mending = Mending(Random(1), case, peer)
    with pytest.raises(FaultyEntryError):
        case.log.body_at(Index(30))
    case.flip(case.positions[14] + 60)
    case.zero_units(16, 31)
    mending.sound.discard(14)
    with pytest.raises(AssertionError, match="never mended"):
        mending.mend()
    assert ranges_of(case.log) == [(14, 14)]


@pytest.mark.parametrize("offset", [60, 45])
def test_what_nobody_remembers_of_the_last_header_is_proved_by_the_entry_in_front(offset: int) -> None:
    """The `kind` of the last entry is damaged, and the body or the chain of the one before."""
    case, peer = (Histories([20, 0], [50, 50], [90, 50]) for _ in range(2))
    case.lose_units(0, 3)
    case.flip(case.positions[2] + offset)
    case.flip(case.positions[3] + 34)
    mending = Mending(Random(1), case, peer)
    mending.look("read")
    mending.mend()
    assert case.is_sound(2)
    assert case.is_sound(3)
