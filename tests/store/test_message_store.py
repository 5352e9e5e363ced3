"""Put, replicate, dispatch, get: one member, real files, virtual time."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from store_group import DATA_FILE_SIZE, HOST, StoreGroup, message

from message.decoder import decode_message
from message.sys_flag import TRANSACTION_PREPARED_TYPE
from message.tags import build_subscription
from store.dispatch_request import DispatchRequest
from store.filter.tag_filter import TagFilter
from store.get_message import GetMessageStatus
from store.message_store import WORK_INTERVAL_MS
from store.put_message import PutBatch, PutRefusal, PutStatus
from store.state.state_proposals import ProposeStatus
from store.state.table_configs import TopicConfig
from store.state.tables.topic_config_table import PutTopicConfig

K256 = 256 * 1024


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    group = StoreGroup(tmp_path)
    group.start()
    return group


def test_what_is_put_is_got_after_commit_and_not_before(group: StoreGroup) -> None:
    leader = group.lead()
    put = leader.put(message(body=b"one", tags="A"), message(body=b"two", tags="B"))
    leader.reput()
    assert put.statuses == []
    assert leader.store.reads.max_offset("T", 0) == 0
    group.settle()
    assert put.statuses == [PutStatus.PUT_OK]
    result = leader.store.reads.get_message("T", 0, 0, 32, K256)
    assert result.status is GetMessageStatus.FOUND
    assert (result.next_begin_offset, result.min_offset, result.max_offset) == (2, 0, 2)
    messages = [decode_message(buffer) for buffer in result.buffers]
    assert [(found.body, found.queue_offset, found.properties["TAGS"]) for found in messages] == [
        (b"one", 0, "A"),
        (b"two", 1, "B"),
    ]
    assert [found.phy_offset for found in messages] == put.phy_offsets
    assert result.size == sum(map(len, result.buffers))


def test_queue_offsets_are_dense_in_each_queue_over_batches(group: StoreGroup) -> None:
    leader = group.lead()
    first = leader.put(message(queue_id=0), message(queue_id=1), message(queue_id=0), message("U", 0))
    second = leader.put(message(queue_id=1), message(queue_id=0))
    group.settle()
    third = leader.put(message(queue_id=0), message("U", 0))
    assert (first.queue_offsets, second.queue_offsets, third.queue_offsets) == ([0, 0, 1, 0], [1, 2], [3, 1])


def test_a_member_that_does_not_serve_refuses_as_service_not_available(group: StoreGroup) -> None:
    member = group.members["n0"]
    assert not member.store.serving
    assert member.put(message()).refusal is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    "illegal",
    [
        message(body=bytes(16 * 1024 + 1)),
        message(topic="t" * 33_000),
        message(sys_flag=0x20),
        message(queue_id=2**31),
    ],
    ids=["body", "topic", "store host", "queue id"],
)
def test_a_refusal_stores_nothing_of_the_batch_and_consumes_no_queue_offset(
    group: StoreGroup, illegal: object
) -> None:
    leader = group.lead()
    end_index = leader.replica.log.ledger_end_index
    assert leader.put(message(), illegal).refusal is PutStatus.MESSAGE_ILLEGAL  # type: ignore[arg-type]
    assert leader.replica.log.ledger_end_index == end_index
    assert leader.put(message()).queue_offsets == [0]


def test_what_else_is_appended_leaves_room_for_what_is_gathered(group: StoreGroup) -> None:
    leader = group.lead()
    leader.put(message())
    log = leader.store._commit_log
    log.gathered_size = 64 << 20  # that much may be uncommitted
    refused = log.append_state([b"x"], lambda status: None, group.now_ms)
    assert isinstance(refused, PutRefusal)
    assert refused.status is PutStatus.SYSTEM_BUSY
    assert log.deliver(lambda index: b"x", [message()], group.now_ms) is None
    log.gathered_size = 0
    assert isinstance(log.append_state([b"x"], lambda status: None, group.now_ms), PutBatch)


def test_what_was_gathered_for_a_topic_is_appended_when_the_topic_changes(group: StoreGroup) -> None:
    """It was checked as a single message; the topic's next ones are batches, and no queue holds both."""
    leader = group.lead()
    leader.reput_held = True
    statuses: list[ProposeStatus] = []
    config = TopicConfig("T", attributes={"queue.type": "BatchCQ"})
    leader.store.propose(PutTopicConfig(config), statuses.append, group.now_ms)
    group.run_until(lambda: leader.store.reads.committed_index == leader.replica.log.ledger_end_index)
    end_index = leader.replica.log.ledger_end_index
    leader.store.gather.add(1, [message()], [0], (), lambda *end: None, group.now_ms)
    assert leader.replica.log.ledger_end_index == end_index
    leader.store.reput_step(group.now_ms)
    assert statuses == [ProposeStatus.APPLIED]
    assert leader.replica.log.ledger_end_index == end_index + 1


def test_records_say_their_physical_offset_host_and_a_store_time_that_never_falls(group: StoreGroup) -> None:
    leader = group.lead()
    first = leader.put(message())
    group.now_ms -= 5000  # a clock that was set back
    second = leader.put(message())
    group.now_ms += 5000
    group.settle()
    assert isinstance(first.result, PutBatch)
    assert isinstance(second.result, PutBatch)
    assert second.result.store_timestamp == first.result.store_timestamp
    for put in (first, second):
        (phy_offset,) = put.phy_offsets
        record = leader.store.reads.look_message_by_offset(phy_offset)
        assert record is not None
        found = decode_message(record)
        assert (found.phy_offset, found.store_host) == (phy_offset, "127.0.0.1:10911")
    assert bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big") == HOST


def test_a_batch_larger_than_the_rest_of_a_data_file_goes_on_in_the_next(group: StoreGroup) -> None:
    leader = group.lead()
    put = leader.put(*[message(body=bytes(9000)) for _ in range(10)])
    group.settle()
    assert put.phy_offsets[-1] > DATA_FILE_SIZE
    result = leader.store.reads.get_message("T", 0, 0, 32, K256)
    assert [decode_message(buffer).queue_offset for buffer in result.buffers] == list(range(10))


def test_a_prepared_message_takes_no_place_in_its_queue(group: StoreGroup) -> None:
    leader = group.lead()
    put = leader.put(message(), message(sys_flag=TRANSACTION_PREPARED_TYPE), message())
    group.settle()
    assert put.queue_offsets == [0, 0, 1]
    assert leader.store.reads.max_offset("T", 0) == 2


def test_arrivals_are_told_once_per_step_with_queue_and_tags(group: StoreGroup) -> None:
    leader = group.lead()
    told: list[list[tuple[bytes, int, int, int]]] = []

    def listener(requests: Sequence[DispatchRequest]) -> None:
        told.append(
            [(item.topic, item.queue_id, item.next_offset, len(item.tags_codes)) for item in requests]
        )

    leader.store.add_arrival_listener(listener)
    leader.reput_held = True
    leader.put(message(tags="A"), message(tags="B"), message(queue_id=3))
    leader.put(message(tags="A"))
    group.run_for(100)
    leader.reput_held = False
    leader.reput()
    assert told == [[(b"T", 0, 2, 2), (b"T", 3, 1, 1), (b"T", 0, 3, 1)]]


class TestGetMessageDecisions:
    def get(self, group: StoreGroup, offset: int, topic: str = "T") -> tuple[GetMessageStatus, int]:
        result = group.lead().store.reads.get_message(topic, 0, offset, 32, K256)
        return result.status, result.next_begin_offset

    @pytest.fixture
    def filled(self, group: StoreGroup) -> StoreGroup:
        group.lead().put(*[message(body=b"%d" % number) for number in range(3)])
        group.settle()
        return group

    @pytest.mark.parametrize(
        ("offset", "status", "next_offset"),
        [
            (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
            (0, GetMessageStatus.FOUND, 3),
            (2, GetMessageStatus.FOUND, 3),
            (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
            (4, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3),
        ],
    )
    def test_by_offset(
        self, filled: StoreGroup, offset: int, status: GetMessageStatus, next_offset: int
    ) -> None:
        assert self.get(filled, offset) == (status, next_offset)

    def test_an_unknown_queue(self, filled: StoreGroup) -> None:
        assert self.get(filled, 0, "Unknown") == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)

    def test_all_filtered(self, filled: StoreGroup) -> None:
        result = filled.lead().store.reads.get_message(
            "T", 0, 0, 32, K256, TagFilter(build_subscription("T", "none"))
        )
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 3)

    def test_a_filter_skips_and_goes_on(self, group: StoreGroup) -> None:
        leader = group.lead()
        leader.put(*[message(tags="AB"[number % 2]) for number in range(10)])
        group.settle()
        result = leader.store.reads.get_message("T", 0, 0, 2, K256, TagFilter(build_subscription("T", "B")))
        assert [decode_message(buffer).queue_offset for buffer in result.buffers] == [1, 3]
        assert result.next_begin_offset == 4

    def test_the_first_match_always_fits_and_the_size_bounds_the_rest(self, group: StoreGroup) -> None:
        leader = group.lead()
        leader.put(*[message(body=bytes(1000)) for _ in range(5)])
        group.settle()
        assert leader.store.reads.get_message("T", 0, 0, 32, 10).count == 1
        assert leader.store.reads.get_message("T", 0, 0, 32, 2500).count == 2

    def test_a_file_of_the_queue_that_is_missing_is_skipped(self, group: StoreGroup) -> None:
        leader = group.lead()
        leader.put(*[message() for _ in range(120)])
        group.settle()
        leader.stop()
        group.start()
        leader = group.lead()
        leader.store.queues.find(b"T", 0).files.delete_before(1000)  # type: ignore[union-attr]
        assert self.get(group, 3) == (GetMessageStatus.OFFSET_FOUND_NULL, 50)


def test_no_message_is_found_where_none_begins(group: StoreGroup) -> None:
    leader = group.lead()
    put = leader.put(message(body=bytes(300)), message())
    (first, second) = put.phy_offsets
    assert leader.store.reads.look_message_by_offset(first) is None, "not committed yet"
    group.settle()
    assert leader.store.reads.look_message_by_offset(first) is not None
    for offset in (0, 1, 47, first + 1, first + 40, second - 48, second + 48, 1 << 40, -1):
        assert leader.store.reads.look_message_by_offset(offset) is None


def test_keys_that_are_not_indexed_yet_let_ticks_come_no_faster(group: StoreGroup) -> None:
    """Under load there are always some: at each tick of the member they would cost as much as the messages."""
    leader = group.lead()
    for _ in range(3):
        leader.put(*[message(body=b"x")] * 100)
        group.settle()
    store = leader.store
    store.tick(group.now_ms)
    assert store.index.has_work, "a tick takes up fewer"
    assert store.due_ms(group.now_ms) == group.now_ms + WORK_INTERVAL_MS
