"""Offsets of a streaming query: through a checkpoint and back, and what lies between two of them."""

import json

import pytest

from pyspark_dledger.wire.message_offset import MessageOffset, offset_from_json, ranges_between
from pyspark_dledger.wire.proof import OffsetError
from pyspark_dledger.wire.queue_range import Queue, QueueJsonError, QueueRange, queues_from_json

A, B = Queue("T", "g0", 0), Queue("T", "g0", 1)


@pytest.mark.parametrize(
    "offset", [MessageOffset(), MessageOffset({}), MessageOffset({A: 5, B: 0}), MessageOffset({A: 5}, {A: 2})]
)
def test_offset_comes_back_from_its_checkpoint(offset: MessageOffset) -> None:
    assert offset_from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_text_of_an_offset_does_not_depend_on_the_order_of_queues() -> None:
    assert json.dumps(MessageOffset({A: 1, B: 2}).to_json()) == json.dumps(
        MessageOffset({B: 2, A: 1}).to_json()
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"v": 2},
        {"v": 1, "next": []},
        {"v": 1, "next": {"T": {"g0": {"x": 1}}}},
        {"v": 1, "next": {"T": 3}},
    ],
)
def test_refuses_what_is_no_offset(value: object) -> None:
    with pytest.raises(OffsetError):
        offset_from_json(value)


def test_first_batch_begins_where_its_end_says() -> None:
    """The start says nothing, before a restart and after it."""
    assert ranges_between(MessageOffset(), MessageOffset({A: 9, B: 4}, {A: 2, B: 4})) == [QueueRange(A, 2, 9)]


def test_later_batch_begins_where_the_last_one_ended() -> None:
    assert ranges_between(MessageOffset({A: 9}, {A: 2}), MessageOffset({A: 12})) == [QueueRange(A, 9, 12)]


def test_queue_that_is_new_begins_where_the_end_says() -> None:
    assert ranges_between(MessageOffset({A: 9}), MessageOffset({A: 9, B: 3}, {B: 0})) == [QueueRange(B, 0, 3)]


@pytest.mark.parametrize(("start", "end"), [({A: 9}, {A: 8}), ({}, {A: 8})])
def test_refuses_ranges_that_nobody_can_read(start: dict[Queue, int], end: dict[Queue, int]) -> None:
    with pytest.raises(OffsetError, match="queue 0 of T at g0"):
        ranges_between(MessageOffset(start), MessageOffset(end))


def test_offsets_of_queues_are_numbers() -> None:
    with pytest.raises(QueueJsonError):
        queues_from_json({"T": {"g0": {"0": True}}})
