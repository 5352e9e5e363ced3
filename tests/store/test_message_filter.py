"""A filter sees the unit first and the record second."""

from pathlib import Path

import pytest
from store_group import StoreGroup, message

from message.decoder import decode_message
from message.errors import SubscriptionParseError
from message.tags import build_subscription, tags_code
from store.filter.message_filter import UnsupportedExpressionError, filter_of
from store.get_message import GetMessageStatus


class BodyFilter:
    """Wants the messages of one tag with one body."""

    def __init__(self, tag: str, body: bytes) -> None:
        self._code = tags_code(tag)
        self._body = body
        self.read: list[bytes] = []  # bodies of the records that it saw

    def by_unit(self, code: int) -> bool:
        return code == self._code

    def by_record(self, record: bytes) -> bool:
        body = decode_message(record).body
        self.read.append(body)
        return body == self._body


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    group = StoreGroup(tmp_path)
    group.start()
    leader = group.lead()
    for tag, body in (("A", b"1"), ("B", b"2"), ("A", b"2"), ("A", b"3")):
        leader.put(message(body=body, tags=tag))
    group.settle()
    return group


def test_only_records_whose_unit_is_wanted_are_read_and_only_wanted_records_are_got(
    group: StoreGroup,
) -> None:
    wanted = BodyFilter("A", b"2")
    result = group.lead().store.reads.get_message("T", 0, 0, 32, 1 << 20, wanted)
    assert [decode_message(record).queue_offset for record in result.buffers] == [2]
    assert wanted.read == [b"1", b"2", b"3"]
    assert (result.status, result.count, result.next_begin_offset) == (GetMessageStatus.FOUND, 1, 4)
    assert result.size == len(result.buffers[0])


def test_pull_goes_on_behind_records_of_which_none_is_wanted(group: StoreGroup) -> None:
    result = group.lead().store.reads.get_message("T", 0, 0, 2, 1 << 20, BodyFilter("A", b"4"))
    assert (result.status, result.count, result.size) == (GetMessageStatus.NO_MATCHED_MESSAGE, 0, 0)
    assert result.next_begin_offset == 4


def test_pull_looks_through_more_records_than_it_may_bring(group: StoreGroup) -> None:
    leader = group.lead()
    for number in range(100):
        leader.put(message(body=b"2" if number % 20 == 0 else b"0", tags="A"))
    group.settle()
    got = []
    offset, pulls = 0, 0
    while offset < 104:
        result = leader.store.reads.get_message("T", 0, offset, 3, 1 << 20, BodyFilter("A", b"2"))
        assert len(result.buffers) <= 3
        got += [decode_message(record).queue_offset for record in result.buffers]
        offset, pulls = result.next_begin_offset, pulls + 1
    assert got == [2, 4, 24, 44, 64, 84]
    assert pulls == 3, "two full ones, and one for the rest"


def test_size_bounds_what_a_filtered_pull_brings(group: StoreGroup) -> None:
    leader = group.lead()
    for _ in range(4):
        leader.put(message(body=b"2" * 1000, tags="A"))
    group.settle()
    wanted = BodyFilter("A", b"2" * 1000)
    first = leader.store.reads.get_message("T", 0, 0, 32, 2500, wanted)
    assert [decode_message(record).queue_offset for record in first.buffers] == [4, 5]
    assert first.next_begin_offset == 6
    tiny = leader.store.reads.get_message("T", 0, 6, 32, 1, wanted)
    assert [decode_message(record).queue_offset for record in tiny.buffers] == [6], "one always fits"
    assert tiny.next_begin_offset == 7


def test_pull_with_a_filter_that_wants_nothing_ends_after_so_much_work(group: StoreGroup) -> None:
    leader = group.lead()
    for _ in range(500):
        leader.put(message(body=b"x" * 2000, tags="A"))
    group.settle()
    wanted = BodyFilter("A", b"9")
    result = leader.store.reads.get_message("T", 0, 4, 32, 262_144, wanted)
    assert result.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert 300 < result.next_begin_offset < 400
    assert len(wanted.read) == result.next_begin_offset - 4
    assert 1 << 20 <= result.filter_cost < 2 << 20


def test_subscription_to_all_has_no_filter_and_one_to_tags_looks_at_the_unit_alone() -> None:
    assert filter_of(build_subscription("T", "*")) is None
    wanted = filter_of(build_subscription("T", "A || B"))
    assert wanted is not None
    assert [wanted.by_unit(tags_code(tag)) for tag in ("A", "B", "C")] == [True, True, False]
    assert wanted.by_record is None


def test_sql_expression_looks_at_properties_of_the_record(
    group: StoreGroup, caplog: pytest.LogCaptureFixture
) -> None:
    store = group.lead().store
    wanted = filter_of(build_subscription("T", "TAGS IN ('B', 'C') AND KEYS IS NOT NULL left over", "SQL92"))
    result = store.reads.get_message("T", 0, 0, 32, 1 << 20, wanted)
    assert [decode_message(record).tags for record in result.buffers] == ["B"]
    assert "only the part in front of 'left over' counts" in caplog.text
    failing = filter_of(build_subscription("T", "TAGS > 5", "SQL92"))
    assert (
        store.reads.get_message("T", 0, 0, 32, 1 << 20, failing).status is GetMessageStatus.NO_MATCHED_MESSAGE
    )
    assert caplog.text.count("'A' is no Integer") == 1, "told once, not for every message"


def test_sql_expression_that_cannot_be_read_is_refused_each_time_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        with pytest.raises(SubscriptionParseError, match="column 5: '!' is no part"):
            filter_of(build_subscription("T", "tag != 3", "SQL92"))
    assert caplog.text.count("filter refused") == 1


def test_expression_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match="filter message by XPATH"):
        filter_of(build_subscription("T", "a > 1", "XPATH"))
