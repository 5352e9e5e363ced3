"""The IndexFiles behind the dispatch: whatever happens, in the end each visible message is found by its key."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from store_group import START_MS, StoreGroup, StoreMember, message, scrub
from worn_disk import WornDisk

from dledger.log.jobs import DiskJob, MoveBeginJob
from message.properties import encode_properties
from store.index.index_service import ENTRIES_PER_IDLE_TICK, ENTRIES_PER_TICK
from store.layout.checkpoint import parse_checkpoint
from store.layout.index_file import INDEX_HEADER_SIZE, IndexFileShape, parse_index_header
from store.message_query import MessageQuery
from store.put_message import PutMessage

FOREVER_MS = 2**62
KEYS_PER_FLUSH = 20
SHAPE = IndexFileShape(13, 100)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[StoreGroup]:
    made = StoreGroup(tmp_path, index_file_shape=SHAPE, index_keys_per_flush=KEYS_PER_FLUSH)
    made.start()
    yield made
    for member in list(made.members.values()):
        member.crash()


def keyed(number: int) -> PutMessage:
    properties = encode_properties({"KEYS": f"k{number} all", "UNIQ_KEY": f"U{number}"})
    return msgspec.structs.replace(message(body=b"%d" % number), properties=properties)


def put(group: StoreGroup, numbers: range) -> None:
    """Ten at a time."""
    leader = group.lead()
    for start in range(numbers.start, numbers.stop, 10):
        leader.put(*(keyed(number) for number in range(start, min(start + 10, numbers.stop))))
        group.settle()


def found(group: StoreGroup, member: StoreMember, key: str, count_max: int = 64) -> list[bytes]:
    query = member.store.reads.query_message("T", key, count_max, 0, FOREVER_MS)
    group.run_until(lambda: not query.is_waiting)
    return drain(query)


def drain(query: MessageQuery) -> list[bytes]:
    while not query.is_done:
        query.look()
    assert not query.is_incomplete
    return [body_of(record) for record in query.records]


def body_of(record: bytes) -> bytes:
    length = int.from_bytes(record[84:88], "big")
    return record[88 : 88 + length]


def assert_all_found(group: StoreGroup, member: StoreMember, numbers: range) -> None:
    for number in numbers:
        assert found(group, member, f"k{number}") == [b"%d" % number], number
    newest = numbers[-min(len(numbers), 64) :]
    assert found(group, member, "all") == [b"%d" % number for number in newest]


def test_keys_are_found_in_memory_and_in_several_files(group: StoreGroup) -> None:
    put(group, range(250))
    leader = group.lead()
    assert_all_found(group, leader, range(250))
    assert len(list((group.root() / "index").iterdir())) > 3


def test_the_checkpoint_says_up_to_when_keys_are_in_the_files(group: StoreGroup) -> None:
    put(group, range(250))
    group.lead().stop()
    checkpoint = parse_checkpoint((group.root() / "checkpoint").read_bytes())
    newest = max((group.root() / "index").iterdir())
    header = parse_index_header(newest.read_bytes()[:INDEX_HEADER_SIZE])
    assert checkpoint.index_msg_timestamp == header.end_timestamp > 0


def test_every_member_of_a_group_has_its_own(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3, index_file_shape=SHAPE, index_keys_per_flush=KEYS_PER_FLUSH)
    group.start()
    put(group, range(60))
    for member in group.members.values():
        assert_all_found(group, member, range(60))
        assert (member.store.index.end_phy_offset, member.store.index.behind) == (
            group.lead().store.index.end_phy_offset,
            0,
        )


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_after_a_start_the_index_goes_on_where_it_was(group: StoreGroup, end: str) -> None:
    for run in range(3):
        put(group, range(70 * run, 70 * run + 70))
        leader = group.lead()
        leader.crash() if end == "crash" else leader.stop()
        group.start()
        assert_all_found(group, group.lead(), range(70 * run + 70))


BETWEEN_THE_EDGES = (2, 0)  # where a start does not look


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("number", [0, -1], ids=["oldest", "newest"])
@pytest.mark.parametrize("sector", range(4))
def test_a_start_builds_a_file_anew_of_which_a_sector_cannot_be_read(
    tmp_path: Path, end: str, number: int, sector: int
) -> None:
    disk = WornDisk()
    group = StoreGroup(
        tmp_path,
        disk_of=lambda peer: disk,
        index_file_shape=IndexFileShape(2000, 300),
        index_keys_per_flush=KEYS_PER_FLUSH,
    )
    group.start()
    put(group, range(150))
    leader = group.lead()
    leader.crash() if end == "crash" else leader.stop()
    path = sorted((group.root() / "index").iterdir())[number]
    disk.bad.setdefault(str(path), set()).add(sector)
    group.start()
    member = group.lead()
    if (sector, number) == BETWEEN_THE_EDGES:
        assert scrub(member).mended == 1
        group.run_until(lambda: member.store.index.behind == 0)
    assert_all_found(group, member, range(150))
    member.crash()


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_all_keys_of_a_message_are_found_if_a_file_is_lost_that_had_some_of_them(
    tmp_path: Path, end: str
) -> None:
    shape = IndexFileShape(13, 102)  # the keys of 33 messages, and two of the next one
    group = StoreGroup(tmp_path, index_file_shape=shape, index_keys_per_flush=KEYS_PER_FLUSH)
    group.start()
    put(group, range(60))
    leader = group.lead()
    group.run_until(lambda: len(list((group.root() / "index").iterdir())) == 2)
    leader.crash() if end == "crash" else leader.stop()
    newest = max((group.root() / "index").iterdir())
    newest.write_bytes(bytes(newest.stat().st_size))
    group.start()
    assert_all_found(group, group.lead(), range(60))
    group.lead().crash()


def test_a_store_without_an_index_gets_one(group: StoreGroup) -> None:
    put(group, range(120))
    group.lead().crash()
    for path in (group.root() / "index").iterdir():
        path.unlink()
    (group.root() / "dledger-n0" / "pydledger" / "key-index-mark").unlink()
    group.start()
    assert_all_found(group, group.lead(), range(120))


def test_an_index_of_another_log_is_built_anew(group: StoreGroup, tmp_path: Path) -> None:
    put(group, range(120))
    group.lead().stop()
    other = StoreGroup(tmp_path / "other", index_file_shape=SHAPE, index_keys_per_flush=KEYS_PER_FLUSH)
    other.start()
    put(other, range(10))
    other.lead().stop()
    index = other.root() / "index"
    for path in index.iterdir():
        path.unlink()
    for path in (group.root() / "index").iterdir():
        path.rename(index / path.name)
    mark = "dledger-n0/pydledger/key-index-mark"
    (group.root() / mark).rename(other.root() / mark)
    other.start()
    assert_all_found(other, other.lead(), range(10))
    assert found(other, other.lead(), "k100") == []


def test_under_load_the_index_takes_a_few_entries_per_tick_and_more_when_it_is_over(
    group: StoreGroup,
) -> None:
    leader = group.lead()
    group.settle()
    index = leader.store.index
    group.run_until(lambda: index.behind == 0)
    count = 2 * ENTRIES_PER_IDLE_TICK
    leader.put(*(keyed(number) for number in range(count)))
    group.run_until(lambda: leader.store.reads.reput_behind == 0 and index.behind > 0)
    assert index.behind >= count - ENTRIES_PER_TICK
    group.run_until(lambda: index.behind == 0, limit_ms=200)


@pytest.fixture
def short_lived(tmp_path: Path) -> StoreGroup:
    """Data files are kept for a second."""
    group = StoreGroup(
        tmp_path,
        index_file_shape=SHAPE,
        index_keys_per_flush=KEYS_PER_FLUSH,
        file_reserved_time_ms=1000,
        delete_when=frozenset(range(24)),
        clean_resource_interval_ms=100,
        thorough_interval_ms=200,
    )
    group.start()
    return group


def test_files_before_the_begin_of_the_log_stay_until_that_is_durable(short_lived: StoreGroup) -> None:
    """Else a power loss could bring the log's begin back, and not the keys of what lies behind it."""
    group = short_lived
    put(group, range(400))
    leader = group.lead()
    oldest = min((group.root() / "index").iterdir())
    waiting: list[DiskJob] = []
    run = leader._run
    leader._run = lambda job: waiting.append(job) if isinstance(job, MoveBeginJob) else run(job)
    group.run_until(lambda: waiting)
    group.run_for(1000)
    assert leader.store.reads.min_phy_offset > 48
    assert oldest.exists()
    run(waiting.pop())
    group.run_until(lambda: not oldest.exists())


def test_files_before_the_begin_of_the_log_go(short_lived: StoreGroup) -> None:
    group = short_lived
    put(group, range(400))
    leader = group.lead()
    index = group.root() / "index"
    before = len(list(index.iterdir()))
    group.run_for(5000)
    put(group, range(400, 420))
    group.run_until(lambda: leader.store.reads.min_phy_offset > 48)
    group.run_until(lambda: len(list(index.iterdir())) < before)
    begin = int(next(record for record in [found(group, leader, "all")[0]]))
    assert found(group, leader, f"k{begin}") == [b"%d" % begin]
    assert found(group, leader, "k0") == []


def test_times_are_held_to_the_millisecond(group: StoreGroup) -> None:
    put(group, range(3))
    leader = group.lead()
    assert found(group, leader, "all") == [b"0", b"1", b"2"]
    stored_ms = leader.store.reads.store_timestamp("T", 0, 0)
    assert stored_ms >= START_MS
    assert drain(leader.store.reads.query_message("T", "k0", 9, stored_ms, stored_ms)) == [b"0"]
    assert drain(leader.store.reads.query_message("T", "k0", 9, stored_ms + 1, FOREVER_MS)) == []
    assert drain(leader.store.reads.query_message("T", "k0", 9, 0, stored_ms - 1)) == []
