"""Transactions at the store: ends as batches of the log, whole or in part, under one leader and the next."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from store_group import HOST, StoreGroup, StoreMember, message
from test_delayed_messages import bodies_of, messages_of, zero_from

from dledger.entry import ENTRY_HEADER, ENTRY_HEADER_SIZE, ENTRY_MAGIC, Index
from message.encoder import encode_record
from message.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from message.properties import encode_properties, with_properties
from message.record_layout import RECORD_HEAD_V4
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from store.put_message import PutMessage
from store.services.deliveries import BATCH_COUNT_MAX
from store.services.half_message import op_message, prepared
from store.services.resume_check_service import ResumeStatus
from store.services.transaction_service import EndStatus
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import DeleteTopic


def half(body: bytes = b"hello", topic: str = "T") -> PutMessage:
    properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": body.hex()})
    return prepared(PutMessage(topic.encode(), 0, body, properties, 0, 1, HOST))


class Ends:
    """Ends of halves at one member, and how each went."""

    def __init__(self, member: StoreMember, phy_offsets: list[int]) -> None:
        self.member = member
        self.phy_offsets = phy_offsets
        self.statuses: dict[int, list[EndStatus]] = {}

    def end(self, number: int, *, is_commit: bool = True) -> None:
        transactions = self.member.store.services.transaction_service
        found = transactions.half_at(self.phy_offsets[number])
        assert found is not None
        statuses = self.statuses.setdefault(number, [])
        (transactions.commit if is_commit else transactions.roll_back)(found, statuses.append)

    def wait(self) -> None:
        self.member.group.run_until(lambda: all(self.statuses.values()))


def prepare(group: StoreGroup, leader: StoreMember, count: int) -> list[int]:
    puts = [leader.put(half(b"%d" % number)) for number in range(count)]
    group.settle()
    return [put.phy_offsets[0] for put in puts]


@pytest.mark.parametrize("kept", range(5))
def test_what_is_left_of_an_end_counts_and_the_rest_is_undecided(tmp_path: Path, kept: int) -> None:
    """The log ends within the batch: behind none of its entries, its record, its first message, and so on. The third
    transaction is rolled back, so it ends with the record.
    """
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    ends = Ends(leader, prepare(group, leader, 3))
    end_before = leader.replica.log.ledger_end_index
    for number, is_commit in ((0, True), (1, True), (2, False)):
        ends.end(number, is_commit=is_commit)
    group.run_until(lambda: leader.replica.log.ledger_end_index > end_before)
    assert leader.replica.log.ledger_end_index == end_before + 4
    assert leader.store.reads.applied_index == end_before
    end_pos = leader.replica.log.end_pos_at(Index(end_before + kept))
    leader.crash()
    assert ends.statuses == {0: [], 1: [], 2: []}
    zero_from(group, end_pos)
    group.start()
    leader = group.lead()
    group.settle()
    delivered = min(max(kept - 1, 0), 2)
    assert bodies_of(leader) == [b"0", b"1"][:delivered]
    assert leader.store.services.transaction_service.pending_count == 3 - delivered - (kept > 0)
    ends = Ends(leader, ends.phy_offsets)
    for number in (0, 1):
        ends.end(number)
    ends.end(2, is_commit=False)
    ends.wait()
    assert sorted(bodies_of(leader)) == [b"0", b"1"]
    assert leader.store.services.transaction_service.pending_count == 0


def test_a_half_whose_delay_level_is_no_number_comes_at_once(tmp_path: Path) -> None:
    """Our sends refuse it; a store that was taken over may hold it."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    plain = half()
    puts = [
        leader.put(replace(plain, properties=with_properties(plain.properties, {"DELAY": level})))
        for level in ("9" * 5000, "²", "-1")
    ]
    ends = Ends(leader, [put.phy_offsets[0] for put in puts])
    for number in range(3):
        ends.end(number)
    ends.wait()
    group.settle()
    assert bodies_of(leader) == [b"hello"] * 3


def test_a_half_is_ended_that_is_not_dispatched_yet(tmp_path: Path) -> None:
    """Of halves that are appended together some may be committed, and their producers told, before all are."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    put = leader.put(half(b"early"))
    assert leader.store.reads.look_message_by_offset(put.phy_offsets[0]) is None
    ends = Ends(leader, put.phy_offsets)
    ends.end(0)
    ends.wait()
    assert ends.statuses == {0: [EndStatus.ENDED]}
    assert bodies_of(leader) == [b"early"]


def test_a_body_that_looks_like_an_entry_with_a_half_is_none(tmp_path: Path) -> None:
    """A client may know where its message is going to lie. It must not end the transaction of another, or have a
    message sent to where it may not send.
    """
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    (phy_offset,) = prepare(group, leader, 1)
    at = leader.replica.log.ledger_end_pos + ENTRY_HEADER_SIZE + RECORD_HEAD_V4.size
    inner = half(b"forged", "Secret")
    record = encode_record(
        *(inner.topic, 0, 0, 0, at + ENTRY_HEADER_SIZE, 0, 1, HOST, group.now_ms, HOST, 0, 0),
        inner.body,
        inner.properties,
    )
    size = ENTRY_HEADER_SIZE + len(record)
    header = ENTRY_HEADER.pack(ENTRY_MAGIC, size, 0, 0, at, 0, 0, 0, len(record))
    put = leader.put(message(body=header + record))
    assert put.phy_offsets == [at - RECORD_HEAD_V4.size]
    transactions = leader.store.services.transaction_service
    for _ in range(2):
        assert transactions.half_at(phy_offset) is not None
        assert transactions.half_at(at + ENTRY_HEADER_SIZE) is None
        group.settle()


def test_a_leader_that_is_cut_off_ends_nothing_and_the_next_one_does(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    old = group.lead()
    phy_offsets = prepare(group, old, 4)
    first = Ends(old, phy_offsets)
    first.end(3)
    first.wait()
    group.cut_off = {old.id}
    for number, is_commit in ((0, True), (1, False), (3, False)):
        first.end(number, is_commit=is_commit)
    group.run_until(lambda: not old.store.serving)
    assert first.statuses == {3: [EndStatus.ENDED] * 2, 0: [EndStatus.UNKNOWN], 1: [EndStatus.UNKNOWN]}
    new = group.lead()
    second = Ends(new, phy_offsets)
    for number, is_commit in ((0, False), (1, True), (2, True), (3, False)):
        second.end(number, is_commit=is_commit)
    second.wait()
    assert second.statuses == {number: [EndStatus.ENDED] for number in range(4)}
    group.cut_off = set()
    group.settle()
    for member in group.members.values():
        assert bodies_of(member) == [b"3", b"1", b"2"]
        assert member.store.tables.transaction_table.rows() == {-1: 4}
    first.end(0)
    assert first.statuses[0] == [EndStatus.UNKNOWN, EndStatus.NOT_SERVING]


@pytest.mark.slow
def test_the_next_leader_knows_what_was_resumed_and_resumes_what_was_lost_on_the_way(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for number in range(2):
        given_up = PutMessage(
            TRANS_CHECK_MAX_TIME_TOPIC.encode(), 0, b"%d" % number, half().properties, 0, 1, HOST
        )
        leader.put(given_up)
    group.settle()
    records = [
        leader.store.reads.get_message(TRANS_CHECK_MAX_TIME_TOPIC, 0, number, 1, 1 << 20).buffers[0]
        for number in range(2)
    ]
    statuses: list[ResumeStatus] = []

    def resume(number: int) -> None:
        service = leader.store.services.resume_check_service
        service.resume(bytes(records[number]), statuses.append, group.now_ms)

    resume(0)
    group.settle()
    group.cut_off = {leader.id}
    resume(1)
    old = leader
    group.run_until(lambda: not old.store.serving)
    leader = group.lead()
    resume(0)
    resume(1)
    group.run_until(lambda: len(statuses) == 4)
    assert statuses == [
        ResumeStatus.RESUMED,
        ResumeStatus.UNKNOWN,
        ResumeStatus.RESUMED_BEFORE,
        ResumeStatus.RESUMED,
    ]
    assert [found.body for found in messages_of(leader, TRANS_HALF_TOPIC)] == [b"0", b"1"]


def test_many_ends_go_in_batches_and_each_transaction_ends_once(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    count = 2 * BATCH_COUNT_MAX + 10
    ends = Ends(leader, prepare(group, leader, count))
    for number in range(count):
        ends.end(number)
        ends.end(number, is_commit=False)
    ends.wait()
    assert bodies_of(leader) == [b"%d" % number for number in range(count)]
    assert ends.statuses == {number: [EndStatus.ENDED] * 2 for number in range(count)}
    ops = messages_of(leader, TRANS_OP_HALF_TOPIC)
    assert [op.body.count(b",") for op in ops] == [BATCH_COUNT_MAX, BATCH_COUNT_MAX, 10]
    assert leader.store.tables.transaction_table.rows() == {-1: count}


def test_an_end_that_waits_while_its_topic_is_deleted_goes_with_it(tmp_path: Path) -> None:
    """Behind the deletion its message would be that of a new topic."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    ends = Ends(leader, prepare(group, leader, 2))
    ends.end(0)
    group.run_for(0)
    ends.end(1)
    leader.store.propose(DeleteTopic("T"), None, group.now_ms)
    ends.wait()
    group.run_for(1_000)
    queue = leader.store.queues.find(b"T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (1, 1), "the first message went with the topic, too"
    assert leader.store.services.transaction_service.pending_count == 0


def test_retention_keeps_the_first_waiting_half_and_what_comes_after_it(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    phy_offsets = prepare(group, leader, 3)
    ends = Ends(leader, phy_offsets)
    first_waiting_pos = leader.store.services.transaction_service.first_waiting_pos
    assert first_waiting_pos() == phy_offsets[0]
    ends.end(1)
    ends.wait()
    assert first_waiting_pos() == phy_offsets[0]
    ends.end(0, is_commit=False)
    ends.wait()
    assert first_waiting_pos() == phy_offsets[2]
    ends.end(2)
    ends.wait()
    assert first_waiting_pos() is None


def test_what_rocketmq_has_ended_stays_ended_and_its_group_goes_on_where_we_are(tmp_path: Path) -> None:
    """A store as RocketMQ leaves it: halves, op records and the offsets of its group; of ours, no table."""
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    halves = [half(b"%d" % number) for number in range(6)]
    # Put again while nobody was to be asked: 6 stands for 3, which has ended, and 7 for 4.
    for earlier in (3, 4):
        properties = halves[earlier].properties + b"TRAN_PREPARED_QUEUE_OFFSET\x01%d\x02" % earlier
        halves.append(replace(halves[earlier], properties=properties))
    phy_offsets = [leader.put(message).phy_offsets[0] for message in halves]
    for ended in ([0, 1], [5, 3]):
        leader.put(op_message(ended, HOST, group.now_ms))
    for topic, offset in ((TRANS_HALF_TOPIC, 2), (TRANS_OP_HALF_TOPIC, 1)):
        leader.store.propose(CommitOffset(TRANS_GROUP, topic, 0, offset), None, group.now_ms)
    group.settle()
    leader.crash()
    group.start()
    leader = group.lead()
    transactions = leader.store.services.transaction_service
    early = Ends(leader, phy_offsets)  # before it is known here what RocketMQ has ended
    for number in (0, 3):
        early.end(number)
    assert early.statuses == {0: [], 3: []}
    early.wait()
    assert early.statuses == {0: [EndStatus.ENDED], 3: [EndStatus.ENDED]}
    group.run_until(lambda: transactions.pending_count == 3)
    ended_table = leader.store.tables.transaction_table
    assert [offset for offset in range(8) if not ended_table.is_ended(offset)] == [2, 4, 7]
    ends = Ends(leader, phy_offsets)
    for number in (0, 1, 3, 5, 6, 7):
        ends.end(number)
    ends.wait()
    assert bodies_of(leader) == [b"4"]

    def committed() -> list[int]:
        query = leader.store.tables.consumer_offset_table.query
        return [query(TRANS_GROUP, topic, 0) for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)]

    assert committed() == [2, 1], "what the last batch has ended, RocketMQ reads once more"
    ends.end(2)
    ends.end(4)
    ends.wait()
    leader.put(half(b"last"))
    group.settle()
    ends = Ends(leader, [*phy_offsets, *prepare(group, leader, 1)])
    ends.end(8)
    ends.wait()
    assert committed() == [8, 4]


def zero_unit(group: StoreGroup, topic: str, number: int) -> None:
    """Of the first file of its queue 0."""
    path = min((group.root() / "consumequeue" / topic / "0").iterdir())
    with path.open("r+b") as file:
        file.seek(number * CQ_UNIT_SIZE)
        file.write(bytes(CQ_UNIT_SIZE))


def test_a_half_whose_unit_is_damaged_stays_undecided(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    phy_offsets = prepare(group, leader, 3)
    leader.stop()
    zero_unit(group, TRANS_HALF_TOPIC, 1)
    group.start()
    leader = group.lead()
    transactions = leader.store.services.transaction_service
    group.run_until(lambda: list(transactions.checks.pending) == [0, 1, 2])
    assert transactions.pending_count == 3
    ends = Ends(leader, phy_offsets)
    ends.end(1)
    ends.wait()
    assert bodies_of(leader) == [b"1"]


def test_a_damaged_unit_hides_nothing_that_rocketmq_has_ended(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    prepare(group, leader, 4)
    for ended in range(3):
        leader.put(op_message([ended], HOST, group.now_ms))
    group.settle()
    leader.stop()
    zero_unit(group, TRANS_OP_HALF_TOPIC, 1)
    group.start()
    leader = group.lead()
    group.run_until(lambda: leader.store.tables.transaction_table.rows() == {-1: 3})
    assert leader.store.services.transaction_service.pending_count == 1


def test_a_disk_that_runs_full_has_the_halves_given_up_that_keep_its_oldest_file(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    phy_offsets = prepare(group, leader, 3)
    leader.store.retention.log.kept_end = phy_offsets[2]
    transactions = leader.store.services.transaction_service
    group.run_until(lambda: transactions.pending_count == 1)
    assert transactions.first_waiting_pos() == phy_offsets[2]
    assert bodies_of(leader, TRANS_CHECK_MAX_TIME_TOPIC) == [b"0", b"1"]


def test_transactions_that_were_there_before_do_not_wait_for_a_member_that_is_away(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    ends = Ends(leader, prepare(group, leader, 2))
    assert leader.store.services.transaction_service.refusal_of_prepared(0) is None
    ends.end(0)
    ends.wait()
    group.settle()
    for member in list(group.members.values()):
        member.crash()
    group.start("n0", "n1")
    leader = group.lead()
    assert leader.store.services.transaction_service.refusal_of_prepared(0) is None
    assert leader.store.services.timer_message_service.refusal() is not None, "no timer was ever there"
    later = Ends(leader, ends.phy_offsets)
    later.end(1)
    later.wait()
    assert later.statuses == {1: [EndStatus.ENDED]}
