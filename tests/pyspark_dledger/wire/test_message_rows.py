"""A worker reads a range of a queue over a socket: every message once, through what may go wrong on the way."""

import subprocess
import sys
import zlib
from typing import Any

import pytest
from answering import answering
from socket_broker import QUEUE, SocketBroker, record

from message.batch import BatchMessage, encode_batch
from message.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from pyspark_dledger.schema import MESSAGE_COLUMN_NAMES
from pyspark_dledger.wire import message_rows, patience
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.message_rows import MessageSelection, range_batches
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import QueueRange
from pyspark_dledger.wire.read_errors import (
    DataLossError,
    MissingMessagesError,
    PullRefusedError,
    ReadTimeoutError,
)
from remoting.codes import ResponseCode

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)


def read(
    broker: SocketBroker,
    start: int,
    end: int,
    *,
    columns: tuple[str, ...] = MESSAGE_COLUMN_NAMES,
    inflate: bool = True,
    timeout_ms: int = 10_000,
    **options: Any,
) -> Rows:
    with answering(broker.answer) as broker.address:
        pull = PullOptions(cluster=ClusterAccess((broker.address,)), timeout_ms=timeout_ms, **options)
        batches = range_batches(QueueRange(QUEUE, start, end), pull, MessageSelection(columns, inflate))
        return [row for batch in batches for row in batch.to_pylist()]


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number * (number % 5 + 1) for number in range(start, start + count)]


def holding(*messages: bytes, **settings: Any) -> SocketBroker:
    return SocketBroker([record(number, body) for number, body in enumerate(messages)], **settings)


@pytest.mark.parametrize(
    "settings", [{}, {"count_max": 1}, {"size_max": 300}, {"count_max": 7, "size_max": 500}]
)
def test_range_has_each_message_once_whatever_a_pull_brings(settings: dict[str, int]) -> None:
    sent = bodies(300)
    rows = read(holding(*sent, **settings), 10, 290)
    assert [row["queue_offset"] for row in rows] == list(range(10, 290))
    assert [row["body"] for row in rows] == sent[10:290]


def test_row_says_what_the_message_is() -> None:
    (row,) = read(SocketBroker([record(5, b"hello", tags="A")]), 5, 6)
    assert (row["topic"], row["broker"], row["queue_id"], row["queue_offset"]) == (*QUEUE, 5)
    assert (row["tags"], row["body"], row["flag"], row["phy_offset"]) == ("A", b"hello", 7, 5000)
    assert dict(row["properties"]) == {"TAGS": "A"}
    assert row["store_timestamp"].timestamp() == 1_700_000_000.5
    assert row["msg_id"] == "7F000001" + f"{9:08X}{5000:016X}"


def test_chosen_columns_alone_come_in_their_order() -> None:
    rows = read(holding(b"a", b"b"), 0, 2, columns=("body", "broker", "queue_offset"))
    assert [list(row.items()) for row in rows] == [
        [("body", b"a"), ("broker", "g0"), ("queue_offset", 0)],
        [("body", b"b"), ("broker", "g0"), ("queue_offset", 1)],
    ]


@pytest.mark.parametrize(
    "trouble",
    [
        None,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.GO_AWAY,
    ],
)
def test_trouble_of_a_moment_costs_no_message(trouble: int | None) -> None:
    sent = bodies(100)
    broker = holding(*sent, count_max=10, troubles=[trouble, trouble])
    assert [row["body"] for row in read(broker, 0, 100)] == sent


def test_read_ends_when_a_trouble_stays() -> None:
    broker = holding(b"a", troubles=[ResponseCode.SERVICE_NOT_AVAILABLE] * 1000)
    with pytest.raises(
        ReadTimeoutError, match=r"queue 1 of T at g0: nothing came from offset 0 on for 0.05 s: .*14 as told"
    ):
        read(broker, 0, 1, timeout_ms=50)


def test_end_that_the_broker_does_not_reach_is_waited_for() -> None:
    """A range is committed: a broker that has less of it is behind."""
    with pytest.raises(ReadTimeoutError, match="from offset 2 on"):
        read(holding(b"a", b"b"), 0, 3, timeout_ms=50)


def test_refusal_is_told_in_the_words_of_the_broker() -> None:
    with pytest.raises(PullRefusedError, match="16 as told"):
        read(holding(b"a", troubles=[ResponseCode.NO_PERMISSION]), 0, 1)


def test_expired_messages_are_named() -> None:
    broker = SocketBroker([record(number, b"x") for number in range(7, 10)])
    with pytest.raises(DataLossError) as raised:
        read(broker, 2, 9)
    assert str(raised.value).startswith("expired: queue 1 of T at g0 has lost 5 messages, 2 to 6: ")


def test_expired_messages_are_passed_over_by_the_users_wish() -> None:
    broker = SocketBroker([record(number, b"x") for number in range(7, 10)])
    assert [row["queue_offset"] for row in read(broker, 2, 9, fail_on_data_loss=False)] == [7, 8]
    assert read(broker, 2, 6, fail_on_data_loss=False) == []


def test_messages_whose_file_has_just_gone_have_expired() -> None:
    """The broker passes over them, and its bounds say nothing yet."""

    def broker() -> SocketBroker:
        return SocketBroker([record(number, b"x") for number in range(10)], gone_before=7, count_max=4)

    with pytest.raises(DataLossError) as raised:
        read(broker(), 2, 9)
    assert str(raised.value).startswith("expired: queue 1 of T at g0 has lost 5 messages, 2 to 6: ")
    assert [row["queue_offset"] for row in read(broker(), 2, 9, fail_on_data_loss=False)] == [7, 8]
    assert read(broker(), 2, 6, fail_on_data_loss=False) == []


@pytest.mark.parametrize("end", [6, 9])
def test_topic_that_was_made_again_is_named_whatever_the_wish(end: int) -> None:
    broker = SocketBroker([record(number, b"x") for number in range(7, 10)], is_made_again=True)
    with pytest.raises(DataLossError) as raised:
        read(broker, 2, end, fail_on_data_loss=False)
    assert str(raised.value).startswith("topic made again: queue 1 of T at g0 has lost ")
    assert (raised.value.start, raised.value.end) == (2, min(7, end))


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER])
def test_queue_that_is_gone_is_named_whatever_the_wish(code: int) -> None:
    with pytest.raises(DataLossError, match="queue gone: queue 1 of T at g0 has lost 3 messages, 4 to 6"):
        read(holding(b"a", troubles=[code]), 4, 7, fail_on_data_loss=False)


def test_broker_that_passes_over_a_message_is_found_out() -> None:
    broker = SocketBroker([record(0, b"a"), record(2, b"c")], lengths={0: 2})
    with pytest.raises(MissingMessagesError, match="1 messages of the offsets 0 to 2 did not come"):
        read(broker, 0, 3)


def test_broker_that_gives_other_offsets_is_found_out() -> None:
    with pytest.raises(MissingMessagesError, match="1 messages of the offsets 0 to 1 did not come"):
        read(SocketBroker([record(0, b"a"), record(9, b"b")]), 0, 2)
    with pytest.raises(MissingMessagesError, match="gave offsets 0 to 1 where those after -1 were asked for"):
        read(SocketBroker([record(0, b"a"), record(2, b"c"), record(1, b"b")]), 0, 3)


def test_filter_leaves_out_rows_and_still_reaches_the_end() -> None:
    tags = ["A", "B", "B", "C"] * 25
    broker = SocketBroker(
        [record(number, b"x", tags=tag) for number, tag in enumerate(tags)],
        count_max=6,
        wanted=frozenset("AC"),
    )
    rows = read(broker, 0, 100, columns=("queue_offset",), expression="A || C")
    assert [row["queue_offset"] for row in rows] == [number for number, tag in enumerate(tags) if tag != "B"]
    assert (broker.fields["subscription"], broker.fields["expressionType"]) == ("A || C", "TAG")


def test_broker_that_looks_on_for_what_a_filter_wants_gives_nothing_of_the_next_task() -> None:
    broker = SocketBroker(
        [record(number, b"x", tags="ABB"[number % 3]) for number in range(60)], wanted=frozenset("A")
    )
    rows = read(broker, 10, 31, columns=("queue_offset",), expression="A")
    assert [row["queue_offset"] for row in rows] == [12, 15, 18, 21, 24, 27, 30]
    assert read(broker, 13, 15, expression="A") == []


def test_tags_with_one_hash_are_told_apart() -> None:
    """«Aa» and «BB» have one hash in Java: a broker that compares hashes gives both."""
    broker = SocketBroker([record(0, b"x", tags="Aa"), record(1, b"y", tags="BB")])
    assert [row["body"] for row in read(broker, 0, 2, expression="Aa")] == [b"x"]


@pytest.mark.parametrize("inflate", [True, False])
def test_compressed_bodies_are_inflated_unless_they_are_wanted_as_stored(inflate: bool) -> None:
    deflated = zlib.compress(b"long" * 100)
    broker = SocketBroker(
        [record(0, b"plain"), record(1, deflated, sys_flag=0x301), record(2, b"no zlib", sys_flag=0x301)]
    )
    rows = read(broker, 0, 3, inflate=inflate)
    assert [row["body"] for row in rows] == [b"plain", b"long" * 100 if inflate else deflated, b"no zlib"]


def test_inner_batches_are_messages_one_by_one() -> None:
    def batch(first: int, count: int) -> bytes:
        inside = [
            BatchMessage(3, b"%d" % number, b"KEYS\x01k%d\x02" % number)
            for number in range(first, first + count)
        ]
        return record(first, encode_batch(inside), sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG)

    broker = SocketBroker([batch(0, 4), batch(4, 3), batch(7, 5)], count_max=2, lengths={0: 4, 4: 3, 7: 5})
    rows = read(broker, 2, 9)
    assert [row["queue_offset"] for row in rows] == list(range(2, 9))
    assert [(row["body"], row["keys"], row["flag"]) for row in rows] == [
        (b"%d" % number, f"k{number}", 3) for number in range(2, 9)
    ]


def test_damaged_body_ends_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = record(0, b"hello").replace(b"hello", b"hellO")
    with pytest.raises(Exception, match="queue offset 0 does not match its CRC"):
        read(SocketBroker([damaged]), 0, 1)


def test_large_ranges_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rows, "_BATCH_SIZE", 1000)
    sent = bodies(200)
    assert [row["body"] for row in read(holding(*sent, count_max=4), 0, 200)] == sent


def test_workers_load_no_event_loop() -> None:
    code = (
        "import sys, pyspark_dledger.wire.message_rows, pyspark_dledger.wire.message_sender; "
        "print([name for name in ('asyncio', 'uvloop', 'mqclient', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
