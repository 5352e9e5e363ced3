"""A log walked from any place: the same entries, each proved to follow, and a name for the first that does not."""

import shutil
from pathlib import Path

import pytest
from made_store import FILE_SIZE, changed, three_terms, write_log

from dledger.entry import GENESIS_CHAIN
from verify.findings import Kind
from verify.log.log_walk import LogBrokenError, LogPlace, begin_of, place_after, walk_from
from verify.replica import Replica, open_replica

COUNT = 60
LOG = three_terms(COUNT)
LAST = COUNT - 1


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("walk") / "n0", LOG)


@pytest.fixture
def root(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "n0")
    return tmp_path / "n0"


def start_of(replica: Replica) -> LogPlace:
    place = begin_of(replica)
    assert place is not None
    return place


def walked(replica: Replica, place: LogPlace, last_index: int = LAST) -> list[tuple[int, int]]:
    """(index, position) of each entry."""
    found = []
    for run in walk_from(replica, place, last_index):
        shift = run.first_pos - run.offsets[0]
        found += [(run.first_index + number, offset + shift) for number, offset in enumerate(run.offsets)]
    return found


def place_behind(replica: Replica, index: int) -> LogPlace:
    *_, run = walk_from(replica, start_of(replica), index)
    return place_after(run)


@pytest.mark.parametrize("sealed", [True, False])
def test_from_each_place_the_same_entries_follow(tmp_path: Path, sealed: bool) -> None:
    replica = open_replica(write_log(tmp_path / "n0", LOG, sealed=sealed))
    begin = start_of(replica)
    assert begin == LogPlace(-1, -1, GENESIS_CHAIN, 0)
    whole = walked(replica, begin)
    assert [index for index, _ in whole] == list(range(COUNT))
    for index in range(COUNT):
        place = place_behind(replica, index)
        assert (place.index, place.term) == (index, LOG[index].term)
        assert walked(replica, place) == whole[index + 1 :]


def test_a_walk_ends_at_the_index_that_is_asked_for(written: Path) -> None:
    replica = open_replica(written)
    assert [index for index, _ in walked(replica, start_of(replica), 17)] == list(range(18))
    assert walked(replica, place_behind(replica, 17), 17) == []


def test_a_log_that_lost_its_first_files_begins_with_the_oldest_entry_that_is_there(root: Path) -> None:
    whole = walked(open_replica(root), start_of(open_replica(root)))
    (root / "dledger-n0" / "data" / f"{0:020d}").unlink()
    replica = open_replica(root)
    first, pos = next((index, pos) for index, pos in whole if pos >= FILE_SIZE)
    assert begin_of(replica) == LogPlace(first - 1, -1, None, pos)
    assert walked(replica, start_of(replica)) == whole[first:]


def test_a_place_in_front_of_a_file_leads_there_when_the_file_before_has_expired(root: Path) -> None:
    whole = walked(open_replica(root), start_of(open_replica(root)))
    first = next(index for index, pos in whole if pos >= FILE_SIZE)
    place = place_behind(open_replica(root), first - 1)
    assert place.pos < FILE_SIZE
    (root / "dledger-n0" / "data" / f"{0:020d}").unlink()
    assert walked(open_replica(root), place) == whole[first:]


def test_an_empty_log_begins_nowhere(tmp_path: Path) -> None:
    assert begin_of(open_replica(write_log(tmp_path / "n0", []))) is None


def broken(replica: Replica, last_index: int = LAST) -> LogBrokenError:
    with pytest.raises(LogBrokenError) as caught:
        walked(replica, start_of(replica), last_index)
    return caught.value


@pytest.mark.parametrize(
    ("byte", "kind"),
    [(0, Kind.DAMAGED_HEADER), (15, Kind.DAMAGED_HEADER), (39, Kind.CHAIN_CRC), (90, Kind.BODY_CRC)],
)
def test_a_flipped_bit_is_named(root: Path, byte: int, kind: Kind) -> None:
    """Wherever it is in the entry: magic, index, chain, body."""
    replica = open_replica(root)
    for index, pos in walked(replica, start_of(replica)):
        path = root / "dledger-n0" / "data" / f"{pos // FILE_SIZE * FILE_SIZE:020d}"
        sound = path.read_bytes()
        hit = bytearray(sound)
        hit[pos % FILE_SIZE + byte] ^= 1
        path.write_bytes(hit)
        error = broken(replica)
        assert (error.index, error.kind, error.replica) == (index, kind, "n0"), error
        assert error.file == f"dledger-n0/data/{path.name}"
        path.write_bytes(sound)


def test_a_missing_file_is_named_with_the_first_entry_that_it_had(root: Path) -> None:
    whole = walked(open_replica(root), start_of(open_replica(root)))
    (root / "dledger-n0" / "data" / f"{FILE_SIZE:020d}").unlink()
    error = broken(open_replica(root))
    first = next(index for index, pos in whole if pos >= FILE_SIZE)
    assert (error.kind, error.index) == (Kind.MISSING_FILE, first)


def test_a_log_that_ends_before_the_entry_that_is_asked_for_is_broken(written: Path) -> None:
    assert broken(open_replica(written), COUNT).index == COUNT


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (LOG[:30] + LOG[31:], Kind.GAP),
        (changed(LOG, 30, 30, term=1), Kind.NON_MONOTONIC_TERM),
    ],
)
def test_what_nobody_may_write_is_named(tmp_path: Path, entries: list, kind: Kind) -> None:  # type: ignore[type-arg]
    error = broken(open_replica(write_log(tmp_path / "n0", entries)))
    assert (error.kind, error.index) == (kind, 30)


def test_a_log_that_was_rewritten_does_not_follow_a_place_of_the_one_before(
    written: Path, tmp_path: Path
) -> None:
    """Sealed anew from an earlier entry on, so that it is sound in itself."""
    place = place_behind(open_replica(written), 40)
    rewritten = open_replica(write_log(tmp_path / "n0", changed(LOG, 20, 20, text="b")))
    assert len(walked(rewritten, start_of(rewritten))) == COUNT
    with pytest.raises(LogBrokenError) as caught:
        walked(rewritten, place)
    assert (caught.value.kind, caught.value.index) == (Kind.CHAIN_CRC, 41)
