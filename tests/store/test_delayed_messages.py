"""Delayed messages: never early, none lost, none twice, whatever becomes of the leader that delivers them."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from store_group import StoreGroup, StoreMember, message

from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import EntryKind, Index, parse_header
from message.decoder import MessageExt, decode_message, raw_properties
from message.names import SCHEDULE_TOPIC
from message.properties import decode_properties, encode_properties
from store.errors import StoreConfigError
from store.layout.config_json import parse_config
from store.put_message import PutMessage
from store.services.delayed_message import delayed
from store.services.deliveries import BATCH_COUNT_MAX, REFUSED_PAUSE_MS
from store.store_config import DELAY_LEVELS, parse_delay_levels


def delayed_message(level: int, body: bytes = b"hello", topic: str = "T", tags: str = "") -> PutMessage:
    return delayed(message(topic, body=body, tags=tags), level, 18)


def messages_of(member: StoreMember, topic: str, queue_id: int = 0) -> list[MessageExt]:
    found: list[MessageExt] = []
    while len(found) < member.store.reads.max_offset(topic, queue_id):
        result = member.store.reads.get_message(topic, queue_id, len(found), 32, 1 << 20)
        found += map(decode_message, result.buffers)
    return found


def bodies_of(member: StoreMember, topic: str = "T") -> list[bytes]:
    return [found.body for found in messages_of(member, topic)]


def test_a_delayed_message_appears_in_its_topic_when_its_level_has_passed_and_not_before(
    tmp_path: Path,
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    stored_ms = group.now_ms
    leader.put(delayed_message(2, b"late", tags="A"))
    group.settle()
    (waiting,) = messages_of(leader, SCHEDULE_TOPIC, 1)
    group.run_for(stored_ms + DELAY_LEVELS[2] - 1 - group.now_ms)
    assert leader.store.reads.max_offset("T", 0) == 0
    group.run_for(20)
    (arrived,) = messages_of(leader, "T")
    assert arrived.store_timestamp >= waiting.store_timestamp + DELAY_LEVELS[2]
    assert (arrived.body, arrived.tags, arrived.keys) == (b"late", "A", "k")
    assert arrived.properties == waiting.properties
    assert (arrived.properties["REAL_TOPIC"], arrived.properties["REAL_QID"]) == ("T", "0")
    assert leader.store.tables.delay_offset_table.offsets == {2: 1}


@pytest.mark.slow
def test_each_level_waits_for_itself_and_within_a_level_the_order_is_kept(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(delayed_message(3, b"10 s"), delayed_message(1, b"1 s"), delayed_message(2, b"5 s"))
    group.run_for(500)
    leader.put(delayed_message(1, b"1.5 s"), delayed_message(2, b"5.5 s"))
    group.run_for(20_000)
    assert bodies_of(leader) == [b"1 s", b"1.5 s", b"5 s", b"5.5 s", b"10 s"]


@pytest.mark.slow
def test_a_backlog_goes_out_in_batches_and_each_message_once(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    count = 2 * BATCH_COUNT_MAX + 10
    for number in range(count):
        leader.put(delayed_message(1, b"%d" % number))
    group.settle()
    group.members["n0"].stop()
    group.run_for(60_000)
    group.start()
    leader = group.lead()
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == count)
    group.settle()
    assert bodies_of(leader) == [b"%d" % number for number in range(count)]
    records = [
        parse_header(entry) for entry in entries_of(leader) if parse_header(entry).kind == EntryKind.STATE
    ]
    assert len(records) < 10


def entries_of(member: StoreMember) -> list[bytes]:
    ledger = member.replica.log
    found: list[bytes] = []
    for batch in ledger.batches_from(Index(0), ledger.ledger_end_index, 1 << 20):
        found += [
            batch.buffer[batch.offset_of(index) : batch.end_offset_of(index)]
            for index in range(batch.first_index, batch.last_index + 1)
        ]
    return found


def zero_from(group: StoreGroup, pos: int) -> None:
    """What a power loss leaves of the log of n0: nothing behind `pos`."""
    (path,) = (group.root() / "dledger-n0" / "data").glob("*0")
    with path.open("r+b") as file:
        file.seek(pos)
        file.write(bytes(len(path.read_bytes()) - pos))


def lead_after_a_part_of_a_delivery(group: StoreGroup, waiting: list[PutMessage], kept: int) -> StoreMember:
    """The log ends within the batch that delivers what waits: behind none of its entries, its record, its first
    message, and so on. Returns the next leader, 3 s later.
    """
    group.start()
    leader = group.lead()
    for each in waiting:
        leader.put(each)
    group.settle()
    end_before = leader.replica.log.ledger_end_index
    group.run_until(lambda: leader.replica.log.ledger_end_index > end_before)
    assert leader.replica.log.ledger_end_index == end_before + 1 + len(waiting)
    assert leader.store.reads.applied_index == end_before
    end_pos = leader.replica.log.end_pos_at(Index(end_before + kept))
    leader.crash()
    zero_from(group, end_pos)
    group.start()
    leader = group.lead()
    group.run_for(3_000)
    return leader


@pytest.mark.parametrize("kept", range(5))
def test_what_is_left_of_a_delivery_counts_and_the_next_leader_delivers_the_rest(
    tmp_path: Path, kept: int
) -> None:
    waiting = [delayed_message(1, b"%d" % number) for number in range(3)]
    leader = lead_after_a_part_of_a_delivery(StoreGroup(tmp_path), waiting, kept)
    assert bodies_of(leader) == [b"0", b"1", b"2"]
    assert leader.store.tables.delay_offset_table.offsets == {1: 3}


def tables_of(member: StoreMember) -> list[object]:
    captured = member.store._derived._checkpoints.capture()
    assert captured is not None
    return captured.tables


@pytest.mark.slow
def test_after_a_leader_is_killed_the_next_one_goes_on_and_all_members_agree(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for number in range(40):
        leader.put(delayed_message(1, b"%d" % number))
        group.run_for(20)
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) > 10)
    leader.crash()
    successor = group.lead()
    successor.put(message(body=b"at once"))
    group.run_for(5_000)
    assert sorted(bodies_of(successor)) == sorted([b"at once", *(b"%d" % number for number in range(40))])
    group.start(leader.id)
    group.settle()
    assert [tables_of(member) for member in group.members.values()] == 3 * [tables_of(successor)]


@pytest.mark.slow
def test_a_member_that_starts_from_a_checkpoint_within_a_delivery_counts_on_from_there(
    tmp_path: Path,
) -> None:
    group = StoreGroup(tmp_path, checkpoint_entries_max=1)
    group.start()
    leader = group.lead()
    for number in range(3):
        leader.put(delayed_message(1, b"%d" % number))
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == 3)
    group.settle()
    group.run_for(3_000)
    leader.crash()
    group.start()
    restored = group.members["n0"]
    assert restored.store.reads.applied_index > 0
    group.lead()
    group.run_for(3_000)
    assert bodies_of(restored) == [b"0", b"1", b"2"]


def test_while_the_log_refuses_what_is_due_is_not_read_at_each_tick_and_it_goes_out_soon_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(delayed_message(1, b"first"), delayed_message(1, b"second"))
    group.settle()
    refused_at_ms: list[int] = []

    def refuse(*arguments: object, **keywords: object) -> Refusal:
        refused_at_ms.append(group.now_ms)
        return Refusal(RefusalReason.LEADER_PENDING_FULL, "full")

    with monkeypatch.context() as full:
        full.setattr(leader.replica, "append", refuse)
        group.run_for(DELAY_LEVELS[1] + 20 * REFUSED_PAUSE_MS)
    assert 15 <= len(refused_at_ms) <= 21
    group.run_for(REFUSED_PAUSE_MS + 30)
    assert bodies_of(leader) == [b"first", b"second"]


def test_a_new_leadership_does_not_wait_for_a_refusal_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(delayed_message(1, b"due"))
    group.settle()
    refusals: list[Refusal] = []

    def refuse(*arguments: object, **keywords: object) -> Refusal:
        refusals.append(Refusal(RefusalReason.LEADER_TRANSFERRING, "about to go"))
        return refusals[-1]

    with monkeypatch.context() as transferring:
        transferring.setattr(leader.replica, "append", refuse)
        group.run_until(lambda: bool(refusals))
    for service in leader.store.services.all:
        service.serving_changed()
    leader.store.tick(group.now_ms)
    group.run_for(20)
    assert bodies_of(leader) == [b"due"]


def test_progress_is_exported_as_rocketmq_keeps_it(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(delayed_message(1), delayed_message(2), delayed_message(1))
    group.run_for(10_000)
    path = group.root() / "config" / "delayOffset.json"
    exported = parse_config(path.read_text())
    assert exported["offsetTable"] == {1: 2, 2: 1}
    assert "\n\t\t1:2,\n\t\t2:1\n" in path.read_text()


def test_what_names_no_topic_to_go_to_is_skipped_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    lost, also_lost = (
        replace(delayed_message(1, b"lost"), properties=encode_properties(properties))
        for properties in (
            {"DELAY": "1", "REAL_TOPIC": "T"},
            {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "9" * 5000},
        )
    )
    leader.put(delayed_message(1, b"before"), lost, also_lost, delayed_message(1, b"behind"))
    group.run_for(2_000)
    assert bodies_of(leader) == [b"before", b"behind"]
    assert leader.store.tables.delay_offset_table.offsets == {1: 4}
    assert caplog.text.count("cannot be delivered topic=SCHEDULE_TOPIC_XXXX queue=0") == 2
    leader.put(lost)
    group.run_for(2_000)
    assert leader.store.tables.delay_offset_table.offsets == {1: 5}


def record_properties(member: StoreMember, topic: str) -> list[bytes]:
    result = member.store.reads.get_message(topic, 0, 0, 32, 1 << 20)
    return [raw_properties(record) for record in result.buffers]


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"p\x01\xff\xfe\x02",
        b"p\x01" + b"\xff" * 20_000 + b"\x02",
        b"p\x01" + b"x" * 32_725 + b"\x02",
        b"p\x01one\x02p\x01two\x02empty\x01\x02\x01nameless\x02nothing\x02",
        b"TAGS\x01\xff\xfe\x02",
    ],
    ids=["usual", "not UTF-8", "much that is not UTF-8", "as long as can be", "pairs that are none", "tags"],
)
def test_a_delivered_message_has_the_property_bytes_that_it_waited_with(tmp_path: Path, odd: bytes) -> None:
    """An acknowledged message is delivered, whatever its sender wrote into its properties."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    sent = message()
    waiting = delayed(replace(sent, properties=odd + sent.properties), 1, 18)
    leader.put(waiting)
    group.run_for(2_000)
    assert record_properties(leader, "T") == [waiting.properties]
    assert odd in waiting.properties


def test_the_tags_of_a_delivered_message_are_hashed_by_the_leader_as_by_its_followers(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for tags in (b"A", "标签".encode(), b"\xff\xfe", b""):
        leader.put(delayed(replace(message(), properties=b"TAGS\x01%b\x02" % tags), 1, 18))
    group.run_for(2_000)
    group.settle()
    units = [
        [queue.unit(offset) for offset in range(4)]
        for member in group.members.values()
        if (queue := member.store.queues.find(b"T", 0)) is not None
    ]
    assert units == 3 * [units[0]]
    assert units[0].count(None) == 0


def test_a_leader_whose_clock_stands_behind_delivers_late_and_never_early(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(message(body=b"now"), delayed_message(1, b"late"))
    group.settle()
    (waiting,) = messages_of(leader, SCHEDULE_TOPIC)
    due_ms = waiting.store_timestamp + DELAY_LEVELS[1]
    leader.store.tick(due_ms - 100_000)
    leader.store.tick(due_ms - 1)
    group.settle()
    assert bodies_of(leader) == [b"now"]
    leader.store.tick(due_ms)
    group.settle()
    assert bodies_of(leader) == [b"now", b"late"]


class TestDelayed:
    def test_a_level_above_the_highest_counts_as_that(self) -> None:
        waiting = delayed_message(99)
        assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC.encode(), 17)
        assert decode_properties(waiting.properties)["DELAY"] == "18"

    @pytest.mark.parametrize("last_separator", [True, False])
    def test_what_it_says_of_an_earlier_delay_or_a_timer_is_replaced(self, last_separator: bool) -> None:
        earlier = {"DELAY": "7", "REAL_TOPIC": "U", "KEYS": "k", "TIMER_DELAY_SEC": "9", "REAL_QID": "3"}
        properties = encode_properties(earlier, last_separator=last_separator)
        waiting = delayed(replace(message(), properties=properties), 1, 18)
        assert waiting.properties.count(b"DELAY\x01") == 1
        assert decode_properties(waiting.properties) == {
            "KEYS": "k",
            "REAL_TOPIC": "T",
            "REAL_QID": "0",
            "DELAY": "1",
        }


@pytest.mark.parametrize("text", ["1x", "", "1", "s", "1s 5", "-1s", "1.5s", "1s " * 129])
def test_delay_levels_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(StoreConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)
