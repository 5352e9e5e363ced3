"""The parts that must agree with Java to the byte: unique keys, offsets within a queue."""

import datetime
from collections.abc import Callable

import pytest

from message.decoder import MessageExt
from message.message_id import decode_uniq_key
from mqclient.client_instance import parse_namesrv
from mqclient.consumer.consumer_stats import TopicStats
from mqclient.consumer.process_queue import ConsumeBatch, ProcessQueue
from mqclient.message_queue import MessageQueue
from mqclient.producer.uniq_key import UniqKeyGenerator


def test_unique_keys_differ_and_tell_where_and_when_they_were_made() -> None:
    generator = UniqKeyGenerator(bytes((192, 0, 2, 2)), 0x1_0277, 0x0BADCAFE)
    now = datetime.datetime(2026, 11, 20, 9, 26).astimezone()
    now_ms = int(now.timestamp() * 1000)
    keys = [generator.next_key(now_ms) for _ in range(65_536)]
    assert len(set(keys)) == 65_536
    parts = decode_uniq_key(keys[0])
    assert (parts.ip, parts.pid, parts.class_loader_hash) == (bytes((192, 0, 2, 2)), 0x0277, 0x0BADCAFE)
    month = now.replace(day=1, hour=0, minute=0)
    assert parts.ms_since_month_start == (now - month).total_seconds() * 1000


def test_unique_keys_can_be_made_at_the_end_of_a_month_and_over_it() -> None:
    generator = UniqKeyGenerator(bytes(4), 1, 1)
    end = datetime.datetime(2026, 12, 31, 23, 59, 59).astimezone()
    last = generator.next_key(int(end.timestamp() * 1000))
    first = generator.next_key(int(end.timestamp() * 1000) + 1000)
    assert len(last) == len(first) == 32
    assert decode_uniq_key(first).ms_since_month_start == 0


def message(queue_offset: int) -> MessageExt:
    return MessageExt("T", 0, queue_offset, 0, 0, 0, 0, "h:1", 0, "h:1", 0, 0, b"x", 0, {}, 100)


def process_queue(
    offset: int,
    *,
    count_max: int = 100,
    bytes_max: int = 10_000,
    span_max: int = 2000,
    now_ms: Callable[[], int] = lambda: 0,
) -> ProcessQueue:
    return ProcessQueue(
        MessageQueue("T", "b", 0),
        offset,
        count_max=count_max,
        bytes_max=bytes_max,
        span_max=span_max,
        now_ms=now_ms,
        stats=TopicStats(),
    )


def taken(queue: ProcessQueue) -> ConsumeBatch:
    batch = queue.take()
    assert batch is not None
    return batch


def test_nothing_of_before_a_reset_is_handed_out_after_it() -> None:
    queue = process_queue(10)
    queue.pulled([message(10)], 11)
    queue.pulled([message(11)], 12)
    before = taken(queue)
    queue.reset(500)
    assert queue.ready_count == 0
    queue.give_back(before)
    queue.pulled([message(500)], 501)
    after = taken(queue)
    assert [message.queue_offset for message in after.messages] == [500]
    assert queue.take() is None
    before.done()
    assert (queue.consume_offset, queue.cached_count) == (500, 1)
    after.done()
    assert queue.consume_offset == 501


def test_the_offset_of_a_queue_moves_over_the_oldest_batch_that_is_done() -> None:
    queue = process_queue(10)
    queue.pulled([message(10), message(11)], 12)
    queue.pulled([], 15)
    queue.pulled([message(15)], 16)
    first, second = taken(queue), taken(queue)
    assert queue.take() is None
    assert (queue.pull_offset, queue.consume_offset) == (16, 10)
    second.done()
    assert queue.consume_offset == 10
    first.done()
    assert queue.consume_offset == 16


def test_pulling_pauses_while_too_much_waits_to_be_consumed() -> None:
    queue = process_queue(0, count_max=3)
    queue.pulled([message(0), message(1)], 2)
    assert queue.room.is_set()
    queue.pulled([message(2)], 3)
    assert not queue.room.is_set()
    taken(queue).done()
    assert queue.room.is_set()
    # By their bodies, as in Java: each message of an inner batch has the size of the whole as its store size.
    heavy = process_queue(0, bytes_max=2)
    heavy.pulled([message(0)], 1)
    assert heavy.room.is_set()
    heavy.pulled([message(1)], 2)
    assert not heavy.room.is_set()


def test_pulling_pauses_while_the_oldest_message_that_is_not_done_lies_too_far_back() -> None:
    queue = process_queue(0, span_max=10)
    queue.pulled([message(0)], 1)
    queue.pulled([message(11)], 12)
    assert not queue.room.is_set()
    oldest, newest = taken(queue), taken(queue)
    newest.done()
    assert not queue.room.is_set()
    oldest.done()
    assert queue.room.is_set()


def test_a_paused_queue_keeps_what_it_has_and_pulls_no_more() -> None:
    queue = process_queue(0)
    queue.pulled([message(0)], 1)
    queue.pause()
    assert queue.take() is None
    assert not queue.room.is_set()
    queue.resume()
    assert queue.room.is_set()
    assert taken(queue).messages == [message(0)]


def test_a_puller_hears_of_the_end_of_a_queue_that_is_paused() -> None:
    queue = process_queue(0)
    queue.pause()
    queue.drop()
    assert queue.room.is_set()


def test_a_reset_forgets_what_was_pulled_before_it() -> None:
    queue = process_queue(0, count_max=1)
    queue.pulled([message(0)], 1)
    before = taken(queue)
    queue.reset(500)
    before.done()
    assert (queue.pull_offset, queue.consume_offset) == (500, 500)
    assert queue.room.is_set()


def test_a_reader_that_stops_within_a_batch_leaves_the_offset_there() -> None:
    queue = process_queue(0)
    queue.pulled([message(0), message(1), message(4)], 5)
    taken(queue).done(2)
    assert queue.consume_offset == 4


def test_the_offset_never_moves_over_what_a_reader_left_of_a_batch() -> None:
    queue = process_queue(0)
    queue.pulled([message(0), message(1)], 2)
    queue.pulled([message(2)], 3)
    queue.pulled([], 9)
    stopped, behind = taken(queue), taken(queue)
    behind.done()
    stopped.done(1)
    assert queue.consume_offset == 1


def test_a_reader_may_empty_the_list_that_it_was_handed() -> None:
    queue = process_queue(0)
    queue.pulled([message(0)], 1)
    batch = taken(queue)
    batch.messages.clear()
    queue.pulled([message(1)], 2)
    batch.done()
    assert queue.consume_offset == 1


def test_namesrv_addresses_are_those_of_the_environment_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "e:1;[::1]:2")
    assert parse_namesrv("a:1") == ["a:1"]
    assert parse_namesrv(None) == parse_namesrv("") == ["e:1", "[::1]:2"]
    monkeypatch.setenv("NAMESRV_ADDR", "e:1,f:2")
    with pytest.raises(ValueError, match=r"'e:1,f:2' holds a comma: write host:port, several joined by ;"):
        parse_namesrv(None)


def test_namesrv_addresses_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert parse_namesrv("a:1; b:2;") == ["a:1", "b:2"]
    for text in ("", ";", "a", "a:0", "a:b", "a:99999", ":1"):
        with pytest.raises(ValueError, match="host:port"):
            parse_namesrv(text)
