"""A filter sees the unit first and the record second."""

from pathlib import Path

import pytest
from store_group import StoreGroup, message

from message.decoder import decode_message
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
    assert result.next_begin_offset == 3, "two records were read"


def test_subscription_to_all_has_no_filter_and_one_to_tags_looks_at_the_unit_alone() -> None:
    assert filter_of(build_subscription("T", "*")) is None
    wanted = filter_of(build_subscription("T", "A || B"))
    assert wanted is not None
    assert [wanted.by_unit(tags_code(tag)) for tag in ("A", "B", "C")] == [True, True, False]
    assert wanted.by_record is None


def test_expression_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match="filter message by SQL92"):
        filter_of(build_subscription("T", "a > 1", "SQL92"))
