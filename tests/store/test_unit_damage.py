"""Units of ConsumeQueues that are damaged while the member runs: found, mended, and never read as they are."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from store_group import CQ_FILE_UNITS, START_MS, StoreGroup, StoreMember, message, scrub

from dledger.entry import Index
from message.decoder import decode_message
from message.dispatch_columns import DispatchColumns
from message.tags import build_subscription
from store.dispatch_request import DispatchRequest, dispatch_requests
from store.errors import StoreDamagedError, UnitDamagedError
from store.filter.message_filter import filter_of
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE, FILLER
from store.message_store import WORK_INTERVAL_MS
from store.queues import record_walk, unit_rebuild
from store.queues.record_walk import RecordWalk
from store.services.delayed_message import delayed

K256 = 256 * 1024
COUNT = 120
DAMAGED = 20


def filled(group: StoreGroup, count: int = COUNT) -> StoreMember:
    """A member with messages of two queues whose units are in files, and not in memory."""
    group.start()
    leader = group.lead()
    for number in range(count):
        leader.put(message(body=b"%d" % number * 3, tags="AB"[number % 2]), message("U", 1, tags="C"))
    group.settle()
    leader.stop()
    group.start()
    return group.lead()


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    return StoreGroup(tmp_path)


def units_path(group: StoreGroup, number: int, topic: str = "T", queue_id: int = 0) -> Path:
    return sorted((group.root() / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip(path: Path, offset: int, bit: int) -> None:
    write(path, offset, bytes([path.read_bytes()[offset] ^ bit]))


def pulled(member: StoreMember, topic: str = "T", queue_id: int = 0) -> list[int]:
    """Queue offsets of all messages, as pulls get them."""
    found: list[int] = []
    while len(found) < member.store.reads.max_offset(topic, queue_id):
        result = member.store.reads.get_message(topic, queue_id, len(found), 32, K256)
        assert result.buffers
        records = [decode_message(buffer) for buffer in result.buffers]
        assert {record.topic for record in records} == {topic}
        found += [record.queue_offset for record in records]
    return found


def pull_until_mended(group: StoreGroup, member: StoreMember, offset: int) -> list[int]:
    """A consumer that asks again."""

    def has_come() -> bool:
        try:
            result = member.store.reads.get_message("T", 0, offset, 32, K256)
        except UnitDamagedError:
            return False
        offsets[:] = [decode_message(buffer).queue_offset for buffer in result.buffers]
        return True

    offsets: list[int] = []
    group.run_until(has_come)
    return offsets


def pulled_until_mended(group: StoreGroup, member: StoreMember) -> list[int]:
    """As pulled(), by a consumer that asks again."""
    found: list[int] = []
    while len(found) < member.store.reads.max_offset("T", 0):
        found += pull_until_mended(group, member, len(found))
    return found


@pytest.mark.parametrize("bit", [0x01, 0x80])
def test_a_flip_in_any_byte_of_a_unit_is_found_by_the_scrub_and_mended(group: StoreGroup, bit: int) -> None:
    member = filled(group)
    assert scrub(member).faults == 0
    path = units_path(group, 0)
    sound = path.read_bytes()
    for at in range(CQ_UNIT_SIZE):
        flip(path, (2 * at) * CQ_UNIT_SIZE + at, bit)
    result = scrub(member)
    assert (result.faults, result.mended) == (1, 1), "the block is named once"
    assert member.store.figures()["consume_queue_mended_total"] == CQ_UNIT_SIZE
    assert path.read_bytes() == sound
    assert scrub(member).faults == 0
    assert pulled(member) == list(range(COUNT))


@pytest.mark.parametrize("bit", [0x01, 0x40])
def test_a_pull_gives_no_wrong_message_whatever_flips_and_has_the_unit_mended(
    group: StoreGroup, bit: int
) -> None:
    member = filled(group)
    path = units_path(group, 0)
    sound = path.read_bytes()
    for at in range(CQ_UNIT_SIZE):
        flip(path, DAMAGED * CQ_UNIT_SIZE + at, bit)
        assert pull_until_mended(group, member, DAMAGED) == list(range(DAMAGED, DAMAGED + 32))
        if at < 12:  # else it is the tags code, which a pull of all messages does not look at
            assert path.read_bytes() == sound
    assert member.failure is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: write(path, 400, bytes(400)),
        lambda path: write(path, 0, bytes(range(256)) * 3),
        lambda path: write(path, 20 * 49, b"\xff" * 20),
        lambda path: path.unlink(),
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 401),
    ],
    ids=[
        "zeros",
        "garbage from the first unit on",
        "the last unit of a file",
        "the file is gone",
        "the file is empty",
        "the file is cut short within a unit",
    ],
)
def test_more_than_a_unit_is_mended_by_the_scrub(group: StoreGroup, damage: Callable[[Path], None]) -> None:
    member = filled(group)
    path = units_path(group, 1)
    sound = path.read_bytes()
    damage(path)
    result = scrub(member)
    assert result.faults == result.mended > 0
    assert path.read_bytes() == sound
    assert pulled(member) == list(range(COUNT))


@pytest.mark.parametrize("size", [0, 381])
@pytest.mark.parametrize("number", [0, 2])
def test_a_pull_does_not_pass_over_what_a_file_has_lost(group: StoreGroup, size: int, number: int) -> None:
    member = filled(group)
    path = units_path(group, number)
    sound = path.read_bytes()
    os.truncate(path, size)
    offset = number * CQ_FILE_UNITS
    assert pull_until_mended(group, member, offset + 19)[0] == offset + 19
    assert pulled_until_mended(group, member) == list(range(COUNT))
    assert path.read_bytes() == sound
    assert member.failure is None


def test_a_pull_does_not_pass_over_a_file_that_is_gone(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, cq_file_units=2)
    member = filled(group, count=300)  # so many files are not kept open
    path = units_path(group, 2)
    sound = path.read_bytes()
    path.unlink()
    assert pull_until_mended(group, member, 4) == list(range(4, 36))
    assert path.read_bytes() == sound
    assert member.failure is None


def test_a_reader_that_meets_a_block_of_zeros_has_all_of_it_mended(group: StoreGroup) -> None:
    member = filled(group)
    path = units_path(group, 0)
    sound = path.read_bytes()
    write(path, 0, bytes(600))
    with pytest.raises(UnitDamagedError, match="unit 3 says 0 bytes at 0"):
        member.store.reads.get_message("T", 0, 3, 32, K256)
    # Other queues are read meanwhile.
    assert pulled(member, "U", 1) == list(range(COUNT))
    assert pull_until_mended(group, member, 3) == list(range(3, 35))
    assert path.read_bytes()[60:] == sound[60:]
    assert member.store.figures()["consume_queue_mended_total"] >= 27
    assert member.failure is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: write(path, 20 * CQ_UNIT_SIZE, bytes(CQ_UNIT_SIZE)),
        lambda path: write(path, 20 * CQ_UNIT_SIZE, bytes(5 * CQ_UNIT_SIZE)),
        lambda path: write(path, 20 * CQ_UNIT_SIZE, path.read_bytes()[5 * CQ_UNIT_SIZE : 6 * CQ_UNIT_SIZE]),
        lambda path: write(path, 20 * CQ_UNIT_SIZE, b"\x7f" * CQ_UNIT_SIZE),
        lambda path: os.truncate(path, 20 * CQ_UNIT_SIZE),
    ],
    ids=["a unit of zeros", "zeros", "what stands elsewhere", "garbage", "the file is cut short"],
)
def test_damage_hides_no_message_from_a_filter(group: StoreGroup, damage: Callable[[Path], None]) -> None:
    member = filled(group)
    damage(units_path(group, 0))
    wanted = filter_of(build_subscription("T", "A"))
    found: list[int] = []
    offset = 0

    def has_come() -> bool:
        nonlocal offset
        with suppress(UnitDamagedError):
            result = member.store.reads.get_message("T", 0, offset, 32, K256, wanted)
            found.extend(decode_message(buffer).queue_offset for buffer in result.buffers)
            offset = result.next_begin_offset
        return offset == COUNT

    group.run_until(has_come)
    assert found == list(range(0, COUNT, 2))
    assert member.failure is None


def test_a_queue_begins_behind_a_damaged_unit_whose_message_is_gone(group: StoreGroup) -> None:
    member = filled(group)
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    request = DispatchRequest(b"T", 0, COUNT, START_MS)
    request.units.append(CQ_UNIT.pack(1 << 40, 200, 0))
    group.run_for(100)
    member.store.queues.put([request])
    queue.begin_with(COUNT)
    with pytest.raises(UnitDamagedError):
        member.store.reads.get_message("T", 0, COUNT, 32, K256)
    group.run_until(lambda: queue.min_offset == COUNT + 1)
    assert member.failure is None


def test_a_unit_whose_record_the_log_does_not_have_ends_the_member_and_the_next_start_has_none(
    group: StoreGroup,
) -> None:
    member = filled(group)
    request = DispatchRequest(b"T", 0, COUNT, START_MS)
    request.units.append(CQ_UNIT.pack(1 << 40, 200, 0))
    group.run_for(100)
    member.store.queues.put([request])
    with pytest.raises(UnitDamagedError):
        member.store.reads.get_message("T", 0, COUNT, 32, K256)
    with pytest.raises(StoreDamagedError, match=f"the log has no record of unit {COUNT}"):
        group.run_for(1_000)
    member.crash()
    group.start()
    assert pulled(group.lead()) == list(range(COUNT))


@pytest.mark.parametrize(
    "unit", [CQ_UNIT.pack(1 << 40, 200, 0), bytes(CQ_UNIT_SIZE)], ids=["leads nowhere", "zeros"]
)
def test_a_look_up_by_time_that_meets_damage_is_right_when_it_comes_again(
    group: StoreGroup, unit: bytes
) -> None:
    member = filled(group)
    write(units_path(group, 1), 10 * CQ_UNIT_SIZE, unit)
    with pytest.raises(UnitDamagedError, match="unit 60 says that its record begins at"):
        member.store.reads.offset_by_time("T", 0, group.now_ms)
    group.run_for(1_000)
    assert member.store.reads.offset_by_time("T", 0, group.now_ms) == COUNT


def delayed_messages(member: StoreMember) -> None:
    level_max = max(member.store.config.delay_levels)
    member.put(*[delayed(message(body=b"%d" % number), 5, level_max) for number in range(COUNT)])
    member.group.settle()


def test_times_of_delivery_are_mended_unless_the_levels_were_changed(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    delayed_messages(group.lead())
    group.lead().stop()
    group.settings["delay_levels"] = {5: 120_000}
    group.start()
    member = group.lead()
    assert scrub(member).faults == 0, "what waits has its time"
    path = units_path(group, 0, "SCHEDULE_TOPIC_XXXX", 4)
    for at in range(8):
        flip(path, (2 * at + 1) * CQ_UNIT_SIZE + 12 + at, 4)
    assert scrub(member).mended == 1
    assert member.store.figures()["consume_queue_mended_total"] == 8


def test_a_damaged_unit_of_a_delay_level_is_mended_before_anything_of_it_is_delivered(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    delayed_messages(group.lead())
    group.lead().stop()
    group.start()
    member = group.lead()
    path = units_path(group, 0, "SCHEDULE_TOPIC_XXXX", 4)
    phy_offset, size, deliver_ms = CQ_UNIT.unpack(path.read_bytes()[:CQ_UNIT_SIZE])
    write(path, 0, CQ_UNIT.pack(phy_offset, size, deliver_ms - 50_001))
    write(path, 5 * CQ_UNIT_SIZE, bytes(8))
    group.run_for(deliver_ms - group.now_ms - 20_000)
    assert member.store.reads.max_offset("T", 0) == 0, "it is not due"
    assert path.read_bytes()[:CQ_UNIT_SIZE] == CQ_UNIT.pack(phy_offset, size, deliver_ms)
    group.run_until(lambda: member.store.reads.max_offset("T", 0) == COUNT, limit_ms=120_000)
    result = member.store.reads.get_message("T", 0, 0, 32, K256)
    assert [decode_message(buffer).body for buffer in result.buffers] == [b"%d" % n for n in range(32)]


def test_a_damaged_unit_has_no_messages_taken_for_deleted(group: StoreGroup) -> None:
    member = filled(group)
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    first = queue.unit(10)
    assert first is not None
    write(units_path(group, 1), 10 * CQ_UNIT_SIZE, (1).to_bytes(8, "big"))  # where the search looks first
    queue.correct_min_offset(first[0])
    assert queue.min_offset == 0, "what is gone is looked for another time"
    assert scrub(member).mended == 1
    queue.correct_min_offset(first[0])
    assert queue.min_offset == 10


def test_the_log_begins_behind_the_records_of_damaged_units_while_they_are_looked_for(
    group: StoreGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = filled(group, count=4 * COUNT)
    path = units_path(group, 0)
    write(path, 3 * CQ_UNIT_SIZE, bytes(3 * CQ_UNIT_SIZE))
    damaged = path.read_bytes()
    run_as_ever = RecordWalk.run
    begins: list[Index] = []

    def run(walk: RecordWalk) -> None:
        run_as_ever(walk)
        if not begins:
            assert member.replica.delete_first_file(group.now_ms)
            begins.append(member.replica.log.ledger_begin_index)

    monkeypatch.setattr(RecordWalk, "run", run)
    monkeypatch.setattr(unit_rebuild, "_STEP_SIZE", 4096)
    result = scrub(member)
    assert begins[0] > 6
    assert (result.faults, result.mended) == (1, 0)
    assert path.read_bytes() == damaged, "nobody reads there any more"
    assert scrub(member).faults == 0
    first = member.store.reads.min_offset("T", 0)
    result = member.store.reads.get_message("T", 0, first, 32, K256)
    assert decode_message(result.buffers[0]).queue_offset == first > 6


def test_units_of_a_store_without_sums_get_them_as_they_stand(group: StoreGroup) -> None:
    """As an earlier release has left it."""
    filled(group).stop()
    for path in (group.root() / "dledger-n0" / "pydledger").glob("derived-sums-*"):
        path.unlink()
    group.start()
    member = group.lead()
    assert scrub(member).faults == 0
    path = units_path(group, 0)
    sound = path.read_bytes()
    flip(path, 5 * CQ_UNIT_SIZE + 15, 1)  # of a tags code, which no pull of all messages looks at
    assert scrub(member).mended == 1
    assert path.read_bytes() == sound


def test_units_that_readers_get_from_memory_are_rebuilt_in_their_file(group: StoreGroup) -> None:
    group.start()
    member = group.lead()
    for _ in range(60):
        member.put(message())
    group.settle()
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    group.run_for(61_000)
    assert not queue.unflushed_count
    path = units_path(group, 0)
    sound = path.read_bytes()
    flip(path, 30 * CQ_UNIT_SIZE + 6, 0x40)
    assert pulled(member) == list(range(60))
    assert scrub(member).mended == 1
    assert path.read_bytes() == sound


def test_a_member_at_rest_ticks_on_while_units_are_rebuilt(group: StoreGroup) -> None:
    """One step of the walk belongs to each tick. Without entries they would come with the heartbeats alone."""
    member = filled(group)
    group.run_for(1000)
    write(units_path(group, 0), 3 * CQ_UNIT_SIZE, bytes(CQ_UNIT_SIZE))
    with pytest.raises(UnitDamagedError):
        member.store.reads.get_message("T", 0, 3, 32, K256)
    member.store.tick(group.now_ms)
    due_ms = member.store.due_ms(group.now_ms)
    assert due_ms is not None
    assert due_ms <= group.now_ms + WORK_INTERVAL_MS


def test_a_wrong_sum_has_units_compared_with_the_log_and_no_more(
    group: StoreGroup, caplog: pytest.LogCaptureFixture
) -> None:
    member = filled(group)
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    sums = [queue.sums.get(block) for block in range(3)]
    for block in range(3):
        queue.sums.set(block, 17)
    assert scrub(member).faults == 0
    assert caplog.text.count("sum of right units was another") == 3
    assert [queue.sums.get(block) for block in range(3)] == sums


def test_units_that_wait_for_a_record_to_be_repaired_keep_their_sum(group: StoreGroup) -> None:
    member = filled(group)
    log = member.replica.log
    flip(min((group.root() / "dledger-n0" / "data").iterdir()), log.pos_at(Index(40)) + log.head_size + 20, 1)
    path = units_path(group, 0)
    sound = path.read_bytes()
    flip(path, 3 * CQ_UNIT_SIZE + 15, 1)
    queue = member.store.queues.find(b"T", 0)
    assert queue is not None
    known = queue.sums.get(0)
    result = scrub(member)
    assert (result.faults, result.mended) == (2, 1), "the entry has no peers here"
    assert path.read_bytes() == sound
    assert queue.sums.get(0) == known


def test_a_gap_that_was_damaged_is_one_again(group: StoreGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of other hands may leave offsets out."""
    member = filled(group)
    path = units_path(group, 1)
    sound = path.read_bytes()
    gap = CQ_FILE_UNITS + 7

    def with_gap(columns: DispatchColumns) -> list[DispatchRequest]:
        requests = []
        for request in dispatch_requests(columns):
            at = gap - request.queue_offset
            if request.topic != b"T" or not 0 <= at < len(request.units):
                requests.append(request)
                continue
            for first, units in ((0, request.units[:at]), (at + 1, request.units[at + 1 :])):
                part = DispatchRequest(b"T", 0, request.queue_offset + first, START_MS)
                part.units = units
                requests.append(part)
        return requests

    monkeypatch.setattr(record_walk, "dispatch_requests", with_gap)
    write(path, 7 * CQ_UNIT_SIZE, bytes(CQ_UNIT_SIZE))
    assert scrub(member).mended == 1
    assert path.read_bytes() == sound[: 7 * CQ_UNIT_SIZE] + FILLER + sound[8 * CQ_UNIT_SIZE :]
