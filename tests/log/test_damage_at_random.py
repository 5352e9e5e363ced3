"""Damage at random, to a ledger that is there twice: as it was, and as a reader finds it."""

from random import Random

import pytest
from crash_disk import CrashDisk
from log_steps import DATA, FILE_SIZE, append, config, cut, sync
from test_faulty_entries import read_all
from test_log_recovery import INDEX, mark
from test_stale_entries import scrub

from dledger.entry import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, Index, Pos
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore

SIZES = (5, 10, 30, 200)  # of bodies, in words of three bytes
COUNT = 120
HARMS = ("flipped", "zeroed", "garbage", "stale", "none")


class Harmed:
    """About 120 entries of some terms, of which the last were others once; harmed in data and index files."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.disk = CrashDisk()
        self.log = LogStore.open(self.disk, config(recent_bytes_max=0))
        term = 1
        for number in range(100):
            term += random.random() < 0.05
            append(self.log, [b"%03d" % number * random.choice(SIZES)], term)
        before = self._files()
        sync(self.log)
        has_history = random.random() < 0.6
        if has_history:
            first = random.randrange(30, 95)
            cut(self.log, first)
            # A leader goes on with entries of its own term, or with those of an earlier one.
            term = random.choice((term + 1, self.log.ledger_end_term))
            for number in range(first, COUNT):
                append(self.log, [b"X%02d" % number * (random.choice(SIZES) + 1)], term)
            sync(self.log)
        mark(self.log)
        indexes = [Index(index) for index in range(self.log.ledger_end_index + 1)]
        self.positions = [*map(self.log.pos_at, indexes), self.log.ledger_end_pos]
        self.ends = [*map(self.log.end_pos_at, indexes), Pos(0)]
        self.bodies = [self.log.body_at(index) for index in indexes]
        self._right = self._files()
        # Entries of an earlier history are known by their units, so not both are of it.
        are_entries_stale = has_history and random.random() < 0.5
        for path in sorted(self._right):
            if are_entries_stale and path.startswith(DATA):
                self._harm(path, "stale", before.get(path))
            elif path.startswith(DATA) and random.random() < 0.3:
                self._harm(path, random.choice(HARMS), None)
            elif path.startswith(INDEX) and not are_entries_stale:
                self._harm(path, random.choice(HARMS), before.get(path))

    def _files(self) -> dict[str, bytes]:
        paths = [path for path in self.disk.paths() if path.startswith((DATA, INDEX))]
        return {path: bytes(self.disk.content(path)) for path in paths}

    def _harm(self, path: str, harm: str, before: bytes | None) -> None:
        content, random = self.disk.content(path), self.random
        at = random.randrange(len(content) - 64)
        match harm:
            case "flipped":
                content[at] ^= 1 << random.randrange(8)
            case "zeroed":
                content[at : at + 200] = bytes(len(content[at : at + 200]))
            case "stale" if before is not None:
                content[at : at + 512] = before[at : at + 512]
            case "garbage":
                content[at : at + 64] = random.randbytes(64)

    def is_harmed(self, index: int) -> bool:
        start, end = (
            self.positions[index],
            self.positions[index] + ENTRY_HEADER_SIZE + len(self.bodies[index]),
        )
        return any(self._differs(DATA, FILE_SIZE, pos) for pos in range(start, end))

    def is_unit_harmed(self, index: int) -> bool:
        size = config().index_file_size
        start = index * INDEX_UNIT_SIZE
        return any(self._differs(INDEX, size, pos) for pos in range(start, start + INDEX_UNIT_SIZE))

    def _differs(self, directory: str, file_size: int, pos: int) -> bool:
        path, offset = f"{directory}/{pos - pos % file_size:020d}", pos % file_size
        return self.disk.content(path)[offset] != self._right[path][offset]


@pytest.mark.parametrize("found_by", ["read", "start", "scrub", "looks"])
@pytest.mark.parametrize("seed", range(15))
def test_all_of_it_is_named_where_it_lies_and_no_more_than_what_hides_behind_it(
    seed: int, found_by: str
) -> None:
    harmed = Harmed(seed * 4 + ["read", "start", "scrub", "looks"].index(found_by))
    log, count = harmed.log, len(harmed.bodies)
    damaged = {index for index in range(count) if harmed.is_harmed(index)}
    # A sound entry is proved by those around it and by its unit: of these two may be missing.
    beside = {index + step for index in damaged for step in (-1, 1)}
    hidden = beside | {index for index in range(count) if harmed.is_unit_harmed(index)}
    match found_by:
        case "start":
            log.close(clean=False)
            log = LogStore.open(harmed.disk, config(recent_bytes_max=0))
        case "scrub":
            scrub(log)
        case "looks":
            for _ in range(20):
                look = harmed.random.choice((log.body_at, log.chain_at, log.pos_at, log.term_at))
                try:
                    look(Index(harmed.random.randrange(count)))
                except FaultyEntryError:
                    continue
    read_all(log)
    read_all(log)
    for index, body in enumerate(harmed.bodies):
        try:
            assert log.body_at(Index(index)) == body
        except FaultyEntryError:
            continue
    named = {index for faulty in log.faulty for index in range(faulty.first_index, faulty.last_index + 1)}
    assert damaged <= named
    assert named <= damaged | hidden
    for faulty in log.faulty:
        # Or where the entry in front ends, with a blank behind it.
        assert harmed.ends[faulty.first_index - 1] <= faulty.pos <= harmed.positions[faulty.first_index]
