"""Options of messages over the wire: what they mean, and what is refused, in one line that says what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_dledger.option_values import OptionError
from pyspark_dledger.schema import MESSAGE_COLUMN_NAMES
from pyspark_dledger.wire.entry_options import OPTIONS as ENTRY_OPTIONS
from pyspark_dledger.wire.message_options import (
    OPTIONS,
    MessageOptions,
    Place,
    PlaceKind,
    Subscription,
    message_options,
)
from pyspark_dledger.wire.message_sink import SINK_OPTIONS
from pyspark_dledger.wire.planning import TaskSizes
from pyspark_dledger.wire.queue_range import Queue
from pyspark_dledger.wire.row_messages import SINK_COLUMNS

A, B = Queue("T", "g0", 0), Queue("T", "g0", 1)
EARLIEST, LATEST = Place(PlaceKind.EARLIEST), Place(PlaceKind.LATEST)


def read(*, is_stream: bool = False, **options: Any) -> MessageOptions:
    given = {"namesrv": "127.0.0.1:9876", "subscribe": "T", **options}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items() if value
    }
    return message_options(texts, MESSAGE_COLUMN_NAMES, is_stream=is_stream)


def test_batch_reads_all_and_a_stream_what_comes() -> None:
    assert (read().starting.otherwise, read().ending.otherwise) == (EARLIEST, LATEST)
    assert read(is_stream=True).starting.otherwise == LATEST


def test_names_of_options_have_no_case_as_all_of_sparks() -> None:
    options = message_options(
        {"namesrv": "h:1;g:2", "SUBSCRIBE": "A, B,A", "MINpartitions": "4"}, ("body",), is_stream=False
    )
    assert options.pull.cluster.namesrv == ("h:1", "g:2")
    assert options.subscription == Subscription(topics=("A", "B"))
    assert options.sizes == TaskSizes(4, None)
    assert options.columns == ("body",)


def test_queues_are_said_by_topic_broker_and_id() -> None:
    options = read(subscribe=None, assign={"T": {"g0": [1, 0, 1]}})
    assert options.subscription == Subscription(queues=(A, B))
    options = read(subscribe=None, subscribePattern="T.*")
    assert options.subscription == Subscription(pattern="T.*")


def test_starts_of_queues_may_be_offsets_and_words_as_numbers() -> None:
    bound = read(is_stream=True, startingOffsets={"T": {"g0": {"0": 23, "1": -2}}}).starting
    assert (bound.of(A), bound.of(B)) == (Place(PlaceKind.OFFSET, 23), EARLIEST)
    assert bound.of(Queue("T", "g0", 2)) == LATEST


def test_time_for_all_queues_comes_before_times_of_queues_and_those_before_offsets() -> None:
    of_queues = {"T": {"g0": {"0": 5}}}
    both = {"startingOffsetsByTimestamp": of_queues, "startingOffsets": "latest"}
    assert read(**both, startingTimestamp="7").starting.of(A) == Place(PlaceKind.TIME, 7)
    assert read(**both).starting.of(A) == Place(PlaceKind.TIME, 5)
    assert read(**both).starting.of(B) == EARLIEST


def test_filter_is_tags_or_sql() -> None:
    assert read().pull.wants_all
    assert (read(tags="A || B").pull.expression, read(tags="A || B").pull.expression_type) == (
        "A || B",
        "TAG",
    )
    assert (read(sql="a > 3").pull.expression, read(sql="a > 3").pull.expression_type) == ("a > 3", "SQL92")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": "T"}, "unknown option 'topics': there are assign, body"),
        ({"namesrv": "nowhere"}, "option namesrv: 'nowhere' has no port: write host:port"),
        ({"namesrv": ";"}, "option namesrv is empty"),
        (
            {"subscribe": None},
            "one of subscribe, subscribePattern and assign says what is read: none is given",
        ),
        ({"subscribePattern": "T"}, "subscribe and subscribePattern is given"),
        ({"subscribe": None, "subscribePattern": "("}, "option subscribePattern='('"),
        ({"subscribe": " , "}, "option subscribe is empty"),
        ({"subscribe": "a b"}, "contains illegal characters"),
        ({"subscribe": None, "assign": {"T": [0]}}, "names no queues"),
        ({"subscribe": None, "assign": {"T": {"g0": ["0"]}}}, "names no queues"),
        ({"subscribe": None, "assign": "{"}, "is no JSON"),
        ({"startingOffsets": "first"}, "option startingOffsets='first' is no JSON"),
        ({"startingOffsets": {"T": {"0": 3}}}, "is no object with queues of T at 0"),
        ({"startingOffsets": {"T": {"g0": {"0": -3}}}}, "queue 0 of T at g0: -3 is below -2"),
        ({"endingOffsets": {"T": {"g0": {"0": -2}}}}, "queue 0 of T at g0: -2 is below -1"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"startingTimestamp": "yesterday"}, "a whole number of at least 0 is needed"),
        ({"minPartitions": "0"}, "a whole number of at least 1 is needed"),
        ({"tags": "A", "sql": "a > 3"}, "one filter is possible"),
        ({"tags": "||"}, "the filter '||' cannot be read"),
        ({"failOnDataLoss": "perhaps"}, "it is one of true, false"),
        ({"consumerGroup": "a b"}, "option consumerGroup='a b'"),
        ({"maxOffsetsPerTrigger": "3"}, "option maxOffsetsPerTrigger is for spark.readStream alone"),
        ({"maxBytesPerTrigger": "3"}, "option maxBytesPerTrigger is for spark.readStream alone"),
    ],
)
def test_refuses_what_nobody_can_mean(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        read(**options)
    assert said in str(raised.value)


def test_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match=r"option endingOffsets is for spark\.read alone"):
        read(is_stream=True, endingOffsets="latest")


def test_page_has_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    assert [
        name for name in (*OPTIONS, *ENTRY_OPTIONS, *SINK_OPTIONS, *SINK_COLUMNS) if f"`{name}`" not in page
    ] == []
