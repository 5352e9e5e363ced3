"""Inner batches: one record and one unit for several queue offsets, through the whole life of a store."""

import base64
import json
import os
from pathlib import Path

import pytest
from store_group import CQ_FILE_UNITS, StoreGroup, StoreMember, message, scrub

from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt, decode_message
from message.dispatch_columns import scan_records
from message.inner_batch import unwrapped
from message.tags import build_subscription
from store.dispatch_request import dispatch_requests, unit_bytes
from store.errors import UnitDamagedError
from store.filter.message_filter import filter_of
from store.get_message import BoundaryType, GetMessageStatus
from store.inner_batch import inner_batch
from store.java.consume_queue_ends import consume_queue_ends
from store.layout.batch_unit import BATCH_UNIT
from store.put_message import PutMessage, PutStatus
from store.services.delayed_message import delayed

K256 = 256 * 1024
FILE_UNITS = 4


def batch(first: int, count: int, topic: str = "B", queue_id: int = 0) -> PutMessage:
    """Messages with the numbers from `first` on as bodies."""
    numbers = range(first, first + count)
    body = encode_batch(
        BatchMessage(0, b"%d" % number, b"UNIQ_KEY\x01K%d\x02" % number) for number in numbers
    )
    return inner_batch(message(topic, queue_id, body), count)


def make(tmp_path: Path, size: int = 1, **settings: int) -> StoreGroup:
    return StoreGroup(tmp_path, size, mapper_file_size_batch_consume_queue=46 * FILE_UNITS, **settings)


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    group = make(tmp_path)
    group.start()
    return group


def get(member: StoreMember, offset: int, count_max: int = 32) -> list[MessageExt]:
    result = member.store.reads.get_message("B", 0, offset, count_max, K256)
    assert result.status is GetMessageStatus.FOUND
    messages = [decode_message(record) for record in result.buffers]
    assert result.next_begin_offset == messages[-1].queue_offset + int(messages[-1].properties["INNER_NUM"])
    assert result.count == result.next_begin_offset - offset
    return messages


def read_all(member: StoreMember, queue_id: int = 0) -> list[tuple[int, bytes]]:
    """Queue offset and body of each message, as a consumer reads them."""
    found: list[tuple[int, bytes]] = []
    offset = member.store.reads.min_offset("B", queue_id)
    while offset < member.store.reads.max_offset("B", queue_id):
        result = member.store.reads.get_message("B", queue_id, offset, 8, K256)
        assert result.status is GetMessageStatus.FOUND
        messages = unwrapped([decode_message(record) for record in result.buffers], offset)
        found += [(message.queue_offset, message.body) for message in messages]
        offset = result.next_begin_offset
    return found


def numbered(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


def fill(member: StoreMember, *counts: int, first: int = 0) -> int:
    for count in counts:
        member.put(batch(first, count))
        first += count
    member.group.settle()
    return first


def units(root: Path) -> list[tuple[int, ...]]:
    data = b"".join(path.read_bytes() for path in sorted((root / "batchconsumequeue/B/0").iterdir()))
    return [unit for unit in BATCH_UNIT.iter_unpack(data) if unit[1]]


def test_a_batch_takes_an_offset_for_each_message_and_says_so_in_its_properties(group: StoreGroup) -> None:
    leader = group.lead()
    put = leader.put(batch(0, 3), batch(3, 2), batch(0, 4, queue_id=1))
    later = leader.put(batch(5, 1))
    group.settle()
    assert put.statuses == later.statuses == [PutStatus.PUT_OK]
    assert (put.queue_offsets, later.queue_offsets) == ([0, 3, 0], [5])
    first, second, third = get(leader, 0)
    assert [record.queue_offset for record in (first, second, third)] == [0, 3, 5]
    assert (first.sys_flag & 0xC0, first.properties["INNER_NUM"]) == (0xC0, "3")
    assert [int(record.properties["INNER_BASE"]) for record in (first, second, third)] == [0, 3, 5]
    assert leader.store.reads.max_offset("B", 0) == 6
    assert leader.store.reads.max_offset("B", 1) == 4


def test_a_pull_within_a_batch_finds_that_batch(group: StoreGroup) -> None:
    leader = group.lead()
    fill(leader, 3, 2, 4)
    for offset, first in ((0, 0), (2, 0), (3, 3), (4, 3), (5, 5), (8, 5)):
        assert get(leader, offset)[0].queue_offset == first
    assert leader.store.reads.get_message("B", 0, 9, 32, K256).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_the_count_of_a_pull_is_one_of_messages_and_the_first_batch_always_fits(group: StoreGroup) -> None:
    leader = group.lead()
    fill(leader, 3, 2, 4)
    assert [len(get(leader, 0, count_max)) for count_max in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]


def test_tags_in_a_batch_are_left_to_its_consumer(group: StoreGroup) -> None:
    leader = group.lead()
    fill(leader, 2)
    result = leader.store.reads.get_message("B", 0, 0, 32, K256, filter_of(build_subscription("B", "A")))
    assert result.status is GetMessageStatus.FOUND


def test_times_find_batches(group: StoreGroup) -> None:
    leader = group.lead()
    times = []
    for number in range(6):
        group.run_for(100)
        fill(leader, 3, first=3 * number)
        times.append(get(leader, 3 * number)[0].store_timestamp)
    store = leader.store
    assert [store.reads.offset_by_time("B", 0, time) for time in times] == [0, 3, 6, 9, 12, 15]
    assert store.reads.offset_by_time("B", 0, times[2], BoundaryType.UPPER) == 8
    assert store.reads.offset_by_time("B", 0, times[-1] + 1) == 18
    assert store.reads.store_timestamp("B", 0, 7) == times[2]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_all_batches_again(tmp_path: Path, clean: bool) -> None:
    group = make(tmp_path)
    group.start()
    leader = group.lead()
    end = fill(leader, 3, 2, 4, 1, 5, 2)
    if clean:
        leader.stop()
        assert [unit[4:6] for unit in units(group.root())] == [
            (0, 3),
            (3, 2),
            (5, 4),
            (9, 1),
            (10, 5),
            (15, 2),
        ]
    else:
        leader.crash()
    group.start()
    leader = group.lead()
    group.settle()
    assert read_all(leader) == numbered(end)
    end = fill(leader, 2, 3, first=end)
    assert read_all(leader) == numbered(end)


def test_what_came_behind_a_checkpoint_is_zeroed_and_dispatched_again(tmp_path: Path) -> None:
    group = make(tmp_path, flush_consume_queue_least_pages=0)
    group.start()
    leader = group.lead()
    fill(leader, 3, 2)
    leader.store._derived.flusher.want_checkpoint()
    group.run_for(3000)
    end = fill(leader, 4, 1, 5, first=5)
    group.run_for(3000)
    assert len(units(group.root())) == 5
    leader.crash()
    group.start()
    member = group.members["n0"]
    assert member.store.reads.max_offset("B", 0) == 5
    assert [unit[4:6] for unit in units(group.root())] == [(0, 3), (3, 2)]
    leader = group.lead()
    group.settle()
    assert read_all(leader) == numbered(end)


def test_files_that_are_lost_or_damaged_are_built_anew(tmp_path: Path) -> None:
    group = make(tmp_path)
    group.start()
    end = fill(group.lead(), *[2] * 10)
    for damage in ("lost", "zeroed", "shifted"):
        group.lead().stop()
        files = sorted((group.root() / "batchconsumequeue/B/0").iterdir())
        before = units(group.root())
        if damage == "lost":
            files[0].unlink()
        elif damage == "zeroed":
            files[-1].write_bytes(bytes(46 * FILE_UNITS))
        else:
            files[-1].write_bytes(files[0].read_bytes())
        group.start()
        leader = group.lead()
        group.settle()
        assert read_all(leader) == numbered(end)
        leader.stop()
        assert units(group.root()) == before
        group.start()


def test_all_members_have_equal_units_and_a_new_leader_goes_on_behind_them(tmp_path: Path) -> None:
    group = make(tmp_path, 3)
    group.start()
    old = group.lead()
    end = fill(old, 3, 2, 4)
    old.crash()
    new = group.lead()
    put = new.put(batch(end, 2))
    group.run_until(lambda: bool(put.statuses))
    assert put.queue_offsets == [end]
    group.start(old.id)
    group.settle()
    for member in group.members.values():
        assert read_all(member) == numbered(end + 2)
    for member in list(group.members.values()):
        member.stop()
    assert units(group.root("n0")) == units(group.root("n1")) == units(group.root("n2"))


def test_retention_takes_batches_whose_records_are_gone_and_their_files(tmp_path: Path) -> None:
    group = StoreGroup(
        tmp_path,
        mapper_file_size_batch_consume_queue=46 * FILE_UNITS,
        file_reserved_time_ms=0,
        delete_when=frozenset(range(24)),
        thorough_interval_ms=1000,
    )
    group.start()
    leader = group.lead()
    end = 0
    for _ in range(120):
        body = encode_batch(BatchMessage(0, bytes(1000), b"") for _ in range(3))
        leader.put(inner_batch(message("B", 0, body), 3))
        group.settle()
        end += 3
    group.run_for(60_000)
    store = leader.store
    low = store.reads.min_offset("B", 0)
    assert 0 < low < end
    assert low % 3 == 0
    assert sorted((group.root() / "batchconsumequeue/B/0").iterdir())[0].name != "0" * 20
    assert len(read_all(leader)) == end - low
    assert store.reads.get_message("B", 0, low - 1, 32, K256).status is GetMessageStatus.OFFSET_TOO_SMALL
    leader.stop()
    group.start()
    leader = group.lead()
    assert leader.store.reads.min_offset("B", 0) == low
    assert len(read_all(leader)) == end - low


def test_a_queue_of_single_messages_takes_no_batches(group: StoreGroup) -> None:
    leader = group.lead()
    leader.put(message("T"))
    group.settle()
    assert leader.put(batch(0, 2, "T")).refusal is PutStatus.MESSAGE_ILLEGAL
    assert leader.put(message(sys_flag=0x80)).refusal is PutStatus.MESSAGE_ILLEGAL
    assert leader.put(message("T")).queue_offsets == [1]


def test_a_batch_is_refused_also_while_single_messages_for_its_queue_wait_to_be_committed(
    group: StoreGroup,
) -> None:
    leader = group.lead()
    leader.put(message("B", body=b"0"))
    assert leader.put(batch(1, 2)).refusal is PutStatus.MESSAGE_ILLEGAL
    group.settle()
    result = leader.store.reads.get_message("B", 0, 0, 32, K256)
    assert [decode_message(record).body for record in result.buffers] == [b"0"]


def test_a_queue_of_batches_takes_single_messages_as_batches_of_one(group: StoreGroup) -> None:
    leader = group.lead()
    end = fill(leader, 3, 2)
    leader.put(message("B", body=b"%d" % end))
    leader.put(delayed(message("B", body=b"%d" % (end + 1)), 1, 18))
    group.run_for(2000)
    end = fill(leader, 2, first=end + 2)
    assert read_all(leader) == numbered(end)
    stored = [leader.store.reads.store_timestamp("B", 0, offset) for offset in (5, 6)]
    leader.stop()
    assert [unit[3:6] for unit in units(group.root())][2:4] == [(stored[0], 5, 1), (stored[1], 6, 1)]
    group.start()
    assert read_all(group.lead()) == numbered(end)


def test_the_ends_of_batch_queues_are_found_in_their_files(tmp_path: Path) -> None:
    group = make(tmp_path)
    disk = group.disk_of("n0")
    group.start()
    leader = group.lead()
    fill(leader, 3, 2, 4, 1, 5)
    leader.put(*[message("T")] * (CQ_FILE_UNITS + 1))
    group.settle()
    leader.stop()
    found = consume_queue_ends(disk, str(group.root()))
    ends = {(topic, queue_id): end for topic, queue_id, end in found}
    assert (ends[b"B", 0], ends[b"T", 0]) == (15, CQ_FILE_UNITS + 1)


def test_units_are_those_that_java_makes_of_the_same_log() -> None:
    """Recorded from a plain broker of RocketMQ 5.5.0: batches of 3, 2, 4, 1, 5 and 2 messages."""
    recorded = json.loads((Path(__file__).parent / "java_inner_batches.json").read_text())
    log, wanted = base64.b64decode(recorded["log"]), bytes.fromhex(recorded["units"])
    offsets = [0]
    while (end := offsets[-1] + int.from_bytes(log[offsets[-1] : offsets[-1] + 4], "big")) < len(log):
        offsets.append(end)
    (request,) = dispatch_requests(scan_records(log, offsets))
    assert (request.topic, request.queue_offset, request.next_offset) == (b"Batches", 0, 17)
    assert unit_bytes(request) == wanted
    messages = unwrapped([decode_message(log, offset) for offset in offsets])
    assert [(message.queue_offset, message.body) for message in messages] == [
        (number, b"m%d" % number) for number in range(17)
    ]


def test_a_single_message_behind_batches_is_a_batch_of_one_to_members_whose_queue_has_those(
    tmp_path: Path,
) -> None:
    group = make(tmp_path, 3, thorough_interval_ms=1000)
    group.start()
    old = group.lead()
    fill(old, 3, 2)
    # As cleanUnusedTopic does, of each member that it is asked of.
    old.store.retention.queues.let_go(lambda queue: queue.topic == b"B")
    group.run_for(10_000)
    old.put(message("B", body=b"5"), message("B", body=b"6"))
    group.settle()
    old.crash()
    new = group.lead()
    group.settle()
    assert read_all(new) == numbered(7)
    assert new.put(batch(7, 2)).queue_offsets == [7]
    group.settle()
    times = [new.store.reads.store_timestamp("B", 0, offset) for offset in (5, 6, 7)]
    for member in list(group.members.values()):
        member.stop()
    for peer_id in group.peers.keys() - {old.id}:
        assert [unit[3:6] for unit in units(group.root(peer_id))][2:] == [
            (times[0], 5, 1),
            (times[1], 6, 1),
            (times[2], 7, 2),
        ]


def flip(path: Path, offset: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= bit
    with path.open("r+b") as file:
        file.write(content)


def filled_and_restarted(tmp_path: Path) -> tuple[StoreMember, Path, int]:
    """A member, the file of its queue's units, which are not in memory, and how many messages there are."""
    group = StoreGroup(tmp_path, mapper_file_size_batch_consume_queue=46 * 200)
    group.start()
    count = fill(group.lead(), *[2] * 150)
    group.lead().stop()
    group.start()
    (path,) = (tmp_path / "n0" / "batchconsumequeue/B/0").iterdir()
    return group.lead(), path, count


@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_a_flip_in_any_byte_of_a_unit_is_found_by_the_scrub_and_mended(tmp_path: Path, bit: int) -> None:
    member, path, count = filled_and_restarted(tmp_path)
    assert scrub(member).faults == 0
    sound = path.read_bytes()
    for at in range(46):
        flip(path, 46 * 2 * at + at, bit)
    result = scrub(member)
    assert (result.faults, result.mended) == (1, 1), "the block is named once"
    assert member.store.figures()["consume_queue_mended_total"] == 46
    assert path.read_bytes() == sound
    assert read_all(member) == numbered(count)


@pytest.mark.parametrize("size", [0, 46 * 20 + 5])
def test_what_a_file_has_lost_of_its_length_is_mended_by_the_scrub(tmp_path: Path, size: int) -> None:
    member, path, count = filled_and_restarted(tmp_path)
    sound = path.read_bytes()
    os.truncate(path, size)
    result = scrub(member)
    assert result.faults == result.mended > 0
    assert path.read_bytes() == sound
    assert read_all(member) == numbered(count)


def test_the_scrub_does_not_write_a_unit_in_the_place_of_that_of_a_damaged_record(tmp_path: Path) -> None:
    member, path, _ = filled_and_restarted(tmp_path)
    sound = path.read_bytes()
    phy_offset = BATCH_UNIT.unpack_from(sound, 46 * 37)[0]
    flip(min((tmp_path / "n0" / "dledger-n0" / "data").iterdir()), phy_offset + 90, 0x01)
    result = scrub(member)
    assert (result.faults, result.mended) == (1, 0), "the record's entry alone"
    assert path.read_bytes() == sound
    flip(path, 46 * 50, 0x01)
    assert scrub(member).mended == 0, "the way from the block's begin leads over that record"
    with pytest.raises(UnitDamagedError):
        get(member, 100)
    member.group.run_until(lambda: path.read_bytes() == sound)


@pytest.mark.parametrize("bit", [0x01, 0x40])
@pytest.mark.parametrize("number", [0, 37, 74])
def test_a_pull_gives_no_wrong_batch_and_passes_over_none_whatever_flips(
    tmp_path: Path, number: int, bit: int
) -> None:
    member, path, _ = filled_and_restarted(tmp_path)

    def has_come() -> bool:
        try:
            return get(member, 2 * number)[0].queue_offset == 2 * number
        except UnitDamagedError:
            return False

    sound = path.read_bytes()
    for at in range(46):
        flip(path, 46 * number + at, bit)
        member.group.run_until(has_come)
        if path.read_bytes() != sound:
            flip(path, 46 * number + at, bit)  # what pulls do not look at
