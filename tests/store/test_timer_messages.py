"""Timer messages: never early, none lost, none twice, whatever becomes of the leader that delivers them."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from store_group import StoreGroup, StoreMember, message
from test_delayed_messages import (
    bodies_of,
    entries_of,
    lead_after_a_part_of_a_delivery,
    messages_of,
    tables_of,
)

from dledger.entry import EntryKind, parse_header
from message.names import TIMER_TOPIC
from message.properties import decode_properties, encode_properties
from store.errors import MessageDamagedError
from store.message_reader import MessageReader
from store.put_message import PutMessage
from store.services.deliveries import BATCH_COUNT_MAX
from store.services.timer_message import slot_of, timed
from store.state.tables.topic_config_table import DeleteTopic

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def timer(deliver_ms: int, body: bytes = b"hello", topic: str = "T", **more: str) -> PutMessage:
    """As the send processor hands it over, asked for by TIMER_DELIVER_MS unless `more` asks otherwise."""
    asked = {} if "TIMER_DELAY_MS" in more else {"TIMER_DELIVER_MS": str(deliver_ms)}
    properties = encode_properties({"KEYS": "k", "UNIQ_KEY": body.decode(), **asked, **more})
    return timed(replace(message(topic, body=body), properties=properties), slot_of(deliver_ms, 1000))


def recall(deliver_ms: int, key: str, topic: str = "T") -> PutMessage:
    """Of the message with this UNIQ_KEY that is due then."""
    handle_ms = slot_of(deliver_ms, 1000) + 1
    return timer(handle_ms, b"0", topic, TIMER_DEL_UNIQKEY=key, UNIQ_KEY=key)


def is_idle(member: StoreMember) -> bool:
    """Nothing waits in the timer topic."""
    return member.store.tables.timer_table.first_waiting == member.store.reads.max_offset(TIMER_TOPIC, 0)


@pytest.mark.parametrize("delay_ms", [300, 1_000, 1_700, 61_234])
def test_a_timer_message_appears_in_its_topic_at_the_asked_time_and_not_before(
    tmp_path: Path, delay_ms: int
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    deliver_ms = group.now_ms + delay_ms
    leader.put(timer(deliver_ms, b"late"))
    group.settle()
    (waiting,) = messages_of(leader, TIMER_TOPIC)
    group.run_for(deliver_ms - 1 - group.now_ms)
    assert leader.store.reads.max_offset("T", 0) == 0
    group.run_for(30)
    (arrived,) = messages_of(leader, "T")
    assert arrived.store_timestamp >= deliver_ms
    assert (arrived.body, arrived.keys, arrived.queue_id) == (b"late", "k", 0)
    added = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    assert {
        name: arrived.properties[name] for name in arrived.properties.keys() - added
    } == waiting.properties
    assert arrived.properties.keys() >= {*added, "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS"}
    group.run_until(lambda: is_idle(leader))


def test_a_delay_counts_from_when_the_message_was_stored(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(timer(group.now_ms + 1_500, b"x", TIMER_DELAY_MS="1500"))
    group.settle()
    (waiting,) = messages_of(leader, TIMER_TOPIC)
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == 1)
    (arrived,) = messages_of(leader, "T")
    assert 0 <= arrived.store_timestamp - waiting.store_timestamp - 1_500 <= 30


def test_they_come_in_the_order_of_their_times_and_of_their_storing_where_these_are_equal(
    tmp_path: Path,
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    now_ms = group.now_ms
    for delay_ms, body in ((3_000, b"d"), (1_000, b"a"), (2_000, b"b"), (2_000, b"c")):
        leader.put(timer(now_ms + delay_ms, body))
    group.run_for(5_000)
    assert bodies_of(leader) == [b"a", b"b", b"c", b"d"]


@pytest.mark.slow
def test_three_thousand_that_are_due_at_once_go_out_in_batches_and_each_once(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, data_file_size=4 << 20)
    group.start()
    leader = group.lead()
    deliver_ms = group.now_ms + 60_000
    bodies = [b"%d" % number for number in range(3_000)]
    for body in bodies:
        leader.put(timer(deliver_ms, body))
    group.settle()
    leader.stop()
    group.run_for(120_000)
    group.start()
    leader = group.lead()
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == len(bodies), 5_000)
    group.run_until(lambda: is_idle(leader))
    assert bodies_of(leader) == bodies
    states = [entry for entry in entries_of(leader) if parse_header(entry).kind == EntryKind.STATE]
    assert len(states) <= 3 + len(bodies) // BATCH_COUNT_MAX + 3


@pytest.mark.parametrize("kept", range(5))
def test_what_is_left_of_a_delivery_counts_and_the_next_leader_delivers_the_rest(
    tmp_path: Path, kept: int
) -> None:
    group = StoreGroup(tmp_path)
    waiting = [timer(group.now_ms + 1_000, b"%d" % number) for number in range(3)]
    leader = lead_after_a_part_of_a_delivery(group, waiting, kept)
    assert bodies_of(leader) == [b"0", b"1", b"2"]
    assert is_idle(leader)


@pytest.mark.slow
def test_after_a_leader_is_killed_the_next_one_goes_on_and_all_members_agree(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for number in range(60):
        leader.put(timer(group.now_ms + 600 + 7 * number, b"%d" % number), recall(group.now_ms + 9_000, "x"))
        group.run_for(10)
    group.run_for(100)
    assert 0 < leader.store.reads.max_offset("T", 0) < 60
    leader.crash()
    leader = group.lead()
    group.run_until(lambda: is_idle(leader))
    assert sorted(bodies_of(leader), key=int) == [b"%d" % number for number in range(60)]
    group.start()
    group.settle()
    first, *others = [tables_of(member) for member in group.members.values()]
    assert others == [first] * 2


def test_what_comes_behind_many_that_have_ended_is_delivered_after_a_restart(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    count = 1_100  # more than one look at the queue takes in
    for number in range(count):
        leader.put(timer(group.now_ms + 500, b"%d" % number))
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == count)
    group.settle()
    leader.crash()
    group.start()
    leader = group.lead()
    leader.put(timer(group.now_ms + 500, b"last"))
    group.run_until(lambda: leader.store.reads.max_offset("T", 0) == count + 1)


def test_after_a_start_all_that_wait_are_known_without_waiting_for_ticks(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, data_file_size=1 << 20)
    group.start()
    leader = group.lead()
    for number in range(1_000):
        leader.put(timer(group.now_ms + DAY_MS, b"%d" % number))
    group.settle()
    leader.stop()
    group.start()
    member = group.members["n0"]
    index = member.store.services.timer_message_service.index
    member.store.tick(group.now_ms)
    assert not index.is_ready(group.now_ms)
    group.run_for(0)
    assert index.is_ready(group.now_ms)
    assert index.counts == {"T": 1_000}


def test_a_state_that_is_not_whole_is_waited_for_in_peace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the log began anew behind records that were to be looked at, the store would ask to be called again at
    once, over and over, until a full state comes.
    """
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    for number in range(300):
        leader.put(timer(group.now_ms + DAY_MS, b"%d" % number))
    group.settle()
    leader.stop()
    group.start()
    store = group.members["n0"].store
    group.run_until(lambda: store.services.is_behind)
    monkeypatch.setattr(store.services.timer_message_service._store.state, "is_whole", False)
    store.services.catch_up(group.now_ms)
    assert not store.services.is_behind


class TestRecall:
    @pytest.mark.parametrize("topic_key", [False, True])
    def test_a_recalled_message_never_arrives_and_others_do(self, tmp_path: Path, topic_key: bool) -> None:
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 5_000
        leader.put(timer(deliver_ms, b"a"), timer(deliver_ms, b"b"), timer(deliver_ms, b"c"))
        group.run_for(500)
        leader.put(recall(deliver_ms, "T+b" if topic_key else "b"))
        group.run_for(10_000)
        assert bodies_of(leader) == [b"a", b"c"]
        assert is_idle(leader)
        assert leader.store.services.timer_message_service.index.counts == {}

    def test_a_recall_of_what_is_unknown_or_delivered_changes_nothing(self, tmp_path: Path) -> None:
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        deliver_ms = group.now_ms + 1_500
        leader.put(timer(deliver_ms, b"a"))
        group.run_for(2_000)
        leader.put(recall(deliver_ms, "a"), recall(deliver_ms + 4_000, "unknown"))
        group.run_for(10_000)
        assert bodies_of(leader) == [b"a"]
        assert is_idle(leader)

    @pytest.mark.parametrize("is_first", [True, False])
    def test_what_comes_first_in_the_log_counts_the_recall_or_the_delivery(
        self, tmp_path: Path, is_first: bool
    ) -> None:
        """A recall is appended, and not committed yet, when its message is due."""
        group = StoreGroup(tmp_path, 3)
        group.start()
        leader = group.lead()
        deliver_ms = slot_of(group.now_ms + 2_000, 1000) + 500
        leader.put(timer(deliver_ms, b"a"))
        group.settle()
        followers = {peer for peer in group.peers if peer != leader.id}
        group.run_for(deliver_ms - 20 - group.now_ms)
        group.cut_off |= followers
        if is_first:
            leader.put(recall(deliver_ms, "a"))
        group.run_for(60)
        if not is_first:
            leader.put(recall(deliver_ms, "a"))
        group.cut_off.clear()
        group.run_for(5_000)
        group.run_until(lambda: is_idle(group.lead()))
        assert bodies_of(group.lead()) == ([] if is_first else [b"a"])

    def test_while_a_recall_cannot_be_read_its_slot_waits_and_others_come(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        group = StoreGroup(tmp_path)
        group.start()
        leader = group.lead()
        deliver_ms = slot_of(group.now_ms + 5_000, 1000) + 500
        leader.put(timer(deliver_ms, b"a"), timer(deliver_ms, b"b"), timer(deliver_ms + 1_500, b"later"))
        leader.put(recall(deliver_ms, "a"))
        group.run_for(1_000)
        queue = leader.store.queues.find(TIMER_TOPIC.encode(), 0)
        assert queue is not None
        unit = queue.unit(3)
        look = MessageReader.look_message_by_offset

        def look_or_fail(reader: MessageReader, phy_offset: int) -> bytes | None:
            if unit is not None and phy_offset == unit[0]:
                raise MessageDamagedError("until it is repaired from a peer")
            return look(reader, phy_offset)

        monkeypatch.setattr(MessageReader, "look_message_by_offset", look_or_fail)
        group.run_for(10_000)
        assert bodies_of(leader) == [b"later"]
        monkeypatch.undo()
        group.run_for(1_000)
        assert bodies_of(leader) == [b"later", b"b"]
        assert is_idle(leader)


def test_a_message_goes_with_its_topic_also_where_it_is_rolled(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(timer(group.now_ms + 1_000, b"near"), timer(group.now_ms + 5 * DAY_MS, b"far"))
    group.settle()
    leader.store.propose(DeleteTopic("T"), None, group.now_ms)
    group.run_for(3_000)
    assert bodies_of(leader) == []
    group.skip(2 * DAY_MS)
    group.run_for(100)
    assert is_idle(leader)
    assert leader.store.reads.max_offset(TIMER_TOPIC, 0) == 2


def test_a_record_that_says_nothing_of_a_timer_holds_up_none(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(message(TIMER_TOPIC), timer(group.now_ms + 500, b"x"))
    group.run_for(1_000)
    assert bodies_of(leader) == [b"x"]
    assert is_idle(leader)


def test_a_message_whose_unit_cannot_be_read_waits_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    leader.put(timer(group.now_ms + 500, b"x"))
    group.settle()
    queue = leader.store.queues.find(TIMER_TOPIC.encode(), 0)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(type(queue), "unit", lambda queue, offset: None)
        group.run_for(1_000)
    assert bodies_of(leader) == []
    group.run_for(1_000)
    assert bodies_of(leader) == [b"x"]
    assert is_idle(leader)


@pytest.mark.parametrize("delay_ms", [500, 3 * DAY_MS])
@pytest.mark.parametrize(
    ("topic", "more"), [("T", {"NOTE": "n" * 32_650}), ("n" * 300, {}), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {})]
)
def test_what_cannot_be_stored_where_it_belongs_is_dropped_and_holds_up_none(
    tmp_path: Path, delay_ms: int, topic: str, more: dict[str, str]
) -> None:
    """RocketMQ's broker may have left it so. Each leader would fail on it, one after the other."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    due_ms = group.now_ms + delay_ms
    leader.put(timer(due_ms, b"bad", topic, **more), timer(due_ms, b"good"))
    group.settle()
    if delay_ms > DAY_MS:
        group.skip(2 * DAY_MS)
        group.run_for(100)
    group.skip(max(due_ms - group.now_ms, 0))
    group.run_for(1_000)
    assert bodies_of(leader) == [b"good"]
    assert is_idle(leader)
    assert leader.store.reads.max_offset(topic, 0) == (1 if topic == "T" else 0)


def test_what_waits_keeps_all_that_its_sender_said_of_it() -> None:
    waiting = timer(1_700_000_001_500, b"x", REAL_TOPIC="other", REAL_QID="7")
    assert decode_properties(waiting.properties) == {
        "KEYS": "k",
        "UNIQ_KEY": "x",
        "TIMER_DELIVER_MS": "1700000001500",
        "TIMER_OUT_MS": "1700000001000",
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize(("deliver_ms", "out_ms"), [(5_000, 4_000), (5_001, 5_000), (5_999, 5_000)])
def test_slots_are_those_of_rocketmq(deliver_ms: int, out_ms: int) -> None:
    assert slot_of(deliver_ms, 1000) == out_ms
