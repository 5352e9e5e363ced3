"""What goes wrong with IndexFiles while the broker runs: they are derived, so nobody else suffers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_group import StoreGroup, scrub
from test_index_service import assert_all_found, found, keyed, put

from disk.disk import DiskError
from dledger.entry import INDEX_UNIT_SIZE, Index
from store.index.index_file_flush import IndexFileFlushJob
from store.layout.index_file import IndexFileShape, entry_offset

SHAPE = IndexFileShape(13, 100)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[StoreGroup]:
    made = StoreGroup(tmp_path, index_file_shape=SHAPE, index_keys_per_flush=20)
    made.start()
    yield made
    for member in list(made.members.values()):
        member.crash()


def evict(group: StoreGroup) -> None:
    """Descriptors of the index are closed, as when ConsumeQueues need them."""
    for index_file in group.lead().store.index._index_file_list._index_files:
        for _ in range(2):
            if index_file.mapped_file.is_open and index_file.mapped_file.evict():
                index_file.mapped_file._descriptors.forget(index_file.mapped_file)


def test_index_files_that_somebody_removes_are_built_anew(group: StoreGroup) -> None:
    put(group, range(150))
    leader = group.lead()
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    evict(group)
    for path in (group.root() / "index").iterdir():
        path.unlink()
    put(group, range(150, 250))
    group.run_for(5000)
    assert_all_found(group, leader, range(250))


def test_a_file_that_is_cut_off_while_the_broker_runs_is_built_anew(group: StoreGroup) -> None:
    put(group, range(150))
    leader = group.lead()
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    newest = max((group.root() / "index").iterdir())
    with newest.open("r+b") as file:
        file.truncate(50)
    put(group, range(150, 250))
    group.run_for(5000)
    assert_all_found(group, leader, range(250))


def test_a_disk_that_takes_nothing_is_not_asked_at_each_tick(
    group: StoreGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[IndexFileFlushJob] = []

    def run(self: IndexFileFlushJob) -> None:
        runs.append(self)
        raise DiskError(28, "No space left on device", "index")

    group.lead()
    with monkeypatch.context() as patch:
        patch.setattr(IndexFileFlushJob, "run", run)
        put(group, range(60))
        group.run_for(3000)
        assert 1 < len(runs) < 6
    group.run_for(3000)
    assert_all_found(group, group.lead(), range(60))


def test_a_stop_with_an_index_that_cannot_be_written_still_closes_the_log(
    group: StoreGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: IndexFileFlushJob) -> None:
        raise DiskError(28, "No space left on device", "index")

    leader = group.lead()
    with monkeypatch.context() as patch:
        patch.setattr(IndexFileFlushJob, "run", run)
        put(group, range(60))
        leader.replica.stop(group.now_ms)
        group.run_until(lambda: leader.replica.idle and not leader.store.is_busy)
        leader.up = False
        leader.store.stop()
        leader.replica.close(clean=True)
        with pytest.raises(DiskError):
            leader.store.close(clean=True)
    del group.members[leader.id]
    group.start()
    assert_all_found(group, group.lead(), range(60))


def test_when_the_log_begins_anew_while_a_flush_runs_the_index_follows_it(group: StoreGroup) -> None:
    leader = group.lead()
    put(group, range(60))
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    leader.put(*(keyed(n) for n in range(60, 90)))
    group.run_until(lambda: leader.store.index.is_busy)
    leader.store.log_began_anew(Index(leader.replica.log.ledger_begin_index - 1))
    assert leader.store.index.is_busy
    leader.store.committed(leader.replica.log.ledger_end_index)
    group.run_until(lambda: not leader.store.index.is_busy)
    group.run_until(lambda: leader.store.reads.reput_behind == 0 and leader.store.index.behind == 0)
    group.run_for(1000)
    assert found(group, leader, "k5") == [b"5"]
    assert found(group, leader, "all", 200) == [b"%d" % n for n in range(90)]


def test_a_query_of_a_file_that_was_taken_away_ends_with_an_error(group: StoreGroup) -> None:
    put(group, range(150))
    leader = group.lead()
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    evict(group)
    for path in (group.root() / "index").iterdir():
        path.unlink()
    with pytest.raises(DiskError, match="taken away"):
        found(group, leader, "k5")


@pytest.mark.parametrize("unit", [b"\0" * INDEX_UNIT_SIZE, b"\x7f" * INDEX_UNIT_SIZE], ids=["0", "far"])
def test_where_the_log_is_damaged_around_the_place_to_go_on_all_is_indexed_once_it_is_repaired(
    tmp_path: Path, unit: bytes
) -> None:
    """The units of these entries do not tell any more which of them the place belongs to."""
    group = StoreGroup(tmp_path, 3, index_file_shape=SHAPE, index_keys_per_flush=20)
    group.start()
    put(group, range(130))
    put(group, range(130, 135))  # too few keys for a flush
    leader = group.lead()
    member = next(member for member in group.members.values() if member is not leader)
    index = member.store.index
    group.run_until(lambda: index.behind == 0 and not member.store.is_busy)
    group.run_for(2000)  # so that the synced mark is behind what is damaged
    log = member.replica.log
    place = log.first_index_at(index._index_file_list.flushed_pos)
    assert place < log.ledger_end_index - 2, "some of it is not flushed"
    positions = [log.pos_at(Index(place + distance)) for distance in (-2, -1, 0, 1)]
    data_file_size = log.config.data_file_size
    member.crash()
    directory = group.root(member.id) / f"dledger-{member.id}"
    for distance, pos in zip((-2, -1, 0, 1), positions, strict=True):
        overwrite(directory / "data", pos, bytes(40), data_file_size)
        overwrite(directory / "index", (place + distance) * INDEX_UNIT_SIZE, unit, log.config.index_file_size)
    group.start(member.id)
    again = group.members[member.id]
    assert again.replica.log.has_faults
    group.run_until(lambda: not again.replica.log.has_faults)
    group.settle()
    assert_all_found(group, again, range(135))
    for running in list(group.members.values()):
        running.crash()


def test_a_stop_with_damage_where_the_index_has_to_go_on_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = StoreGroup(tmp_path, 1, index_file_shape=SHAPE, index_keys_per_flush=20)
    group.start()
    put(group, range(130))
    group.run_for(2000)
    leader = group.lead()
    log = leader.replica.log
    pos, data_file_size = log.pos_at(Index(60)), log.config.data_file_size
    leader.stop()
    data_directory = group.root(leader.id) / f"dledger-{leader.id}" / "data"
    overwrite(data_directory, pos + 60, b"\xff" * 20, data_file_size)
    group.start()
    member = group.lead()
    scrub(member)
    assert member.replica.log.has_faults
    index = member.store.index
    index.begin_anew()
    group.run_for(2000)
    assert index.behind > 0, "it waits for a repair"
    rounds = iter(range(10))
    advance = index._advance
    monkeypatch.setattr(index, "_advance", lambda count: (next(rounds), advance(count)))
    member.stop()


def test_damage_that_a_scrub_found_right_before_a_stop_is_mended_by_then(group: StoreGroup) -> None:
    put(group, range(250))
    leader = group.lead()
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    path = sorted((group.root() / "index").iterdir())[1]
    content = bytearray(path.read_bytes())
    content[entry_offset(50, SHAPE.slot_count)] ^= 0xFF  # of a key's hash
    path.write_bytes(content)
    leader.replica.scrubber.start_round(group.now_ms)
    group.run_until(lambda: leader.store.index._is_damaged)
    leader.stop()
    group.start()
    assert_all_found(group, group.lead(), range(250))


def test_a_query_begins_anew_when_the_index_does(group: StoreGroup) -> None:
    put(group, range(250))
    leader = group.lead()
    group.run_until(lambda: leader.store.index.behind == 0 and not leader.store.is_busy)
    query = leader.store.reads.query_message("T", "all", 200, 0, 2**62)
    query.look()
    assert 0 < len(query.records) < 200
    leader.store.index.begin_anew()
    query.look()
    assert (query.is_done, query.is_waiting, query.records) == (False, True, [])
    hasty = leader.store.reads.query_message("T", "all", 200, 0, 2**62)
    while not hasty.is_done:
        hasty.look()
    assert hasty.is_incomplete
    group.run_until(lambda: not query.is_waiting)
    while not query.is_done:
        query.look()
    assert (len(query.records), query.is_incomplete) == (200, False)


def overwrite(directory: Path, pos: int, data: bytes, file_size: int) -> None:
    with (directory / f"{pos - pos % file_size:020d}").open("r+b") as file:
        file.seek(pos % file_size)
        file.write(data)
