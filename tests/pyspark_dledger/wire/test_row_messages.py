"""Rows as messages: what they become, ids that a repetition gives again, and rows that are no messages."""

from typing import Any

import pyarrow as pa
import pytest

from message.properties import decode_properties
from pyspark_dledger.option_values import OptionError
from pyspark_dledger.wire.message_sender import SinkMessage
from pyspark_dledger.wire.read_errors import RowError
from pyspark_dledger.wire.row_messages import TaskId, check_sink_columns, row_messages

TASK = TaskId("query/7", 2)


def messages(
    rows: list[dict[str, Any]], topic: str = "T", first: int = 0, task: TaskId = TASK
) -> list[SinkMessage]:
    schema = pa.schema(
        [(name, pa.map_(pa.string(), pa.string())) for name in rows[0] if name == "properties"]
    )
    arrays = {
        name: pa.array([row[name] for row in rows], schema.field(name).type if name in schema.names else None)
        for name in rows[0]
    }
    return list(row_messages(pa.RecordBatch.from_pydict(arrays), topic, task, first))


def test_columns_become_the_parts_of_a_message() -> None:
    row = {
        "body": "grüße", "topic": "Other", "tags": "A", "keys": "k1 k2", "sharding_key": "s",
        "properties": [("a", "1")],
    }  # fmt: skip
    (message,) = messages([row], topic="")
    assert (message.topic, message.sharding_key, message.body) == ("Other", "s", "grüße".encode())
    assert decode_properties(message.properties.encode()) == {
        "UNIQ_KEY": TASK.uniq_key(0), "WAIT": "true", "TAGS": "A", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "a": "1",
    }  # fmt: skip


def test_option_comes_before_the_column_and_nulls_are_left_out() -> None:
    (message,) = messages([{"body": b"x", "topic": "Other", "tags": None, "properties": None}])
    assert message.topic == "T"
    assert set(decode_properties(message.properties.encode())) == {"UNIQ_KEY", "WAIT"}


def test_repeated_task_gives_the_same_ids_and_nobody_else_does() -> None:
    rows = [{"body": b"x"}] * 3
    assert messages(rows) == messages(rows)
    tasks = [TASK, TaskId("query/8", 2), TaskId("query/7", 1), TaskId("other/7", 2)]
    ids = {task.uniq_key(number) for task in tasks for number in range(100)}
    assert len(ids) == 400
    assert all(len(key) == 32 and key == key.upper() and key[20:28] == "0" * 8 for key in ids)
    assert messages(rows[:2], first=1)[0] == messages(rows)[1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"body": None}, "its body is null or empty"),
        ({"body": ""}, "its body is null or empty"),
        ({"body": b"x", "properties": [("KEYS", "k")]}, "property KEYS is the protocol's own: use a column"),
        (
            {"body": b"x", "properties": [("a", "x\x02y")]},
            "property 'a' holds a sign that separates properties",
        ),
        ({"body": b"x", "keys": "a\x01b"}, "property 'KEYS' holds a sign"),
        ({"body": b"x", "keys": "k" * 40_000}, "the limit is 32767"),
    ],
)
def test_row_that_is_no_message_is_named(row: dict[str, Any], said: str) -> None:
    with pytest.raises(RowError) as raised:
        messages([row], first=4)
    assert str(raised.value).startswith("row 4 of partition 2 is no message: ")
    assert said in str(raised.value)


@pytest.mark.parametrize("topic", [None, "a b"])
def test_topic_of_a_row_must_be_one(topic: str | None) -> None:
    with pytest.raises(RowError, match="topic"):
        messages([{"body": b"x", "topic": topic}], topic="")


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        (
            {"body": "binary", "key": "string"},
            "T",
            "column key is none of the sink's: it takes body, topic, tags",
        ),
        ({"body": "int"}, "T", "column body is int, and the sink takes binary or string: cast it"),
        ({"topic": "string"}, "T", "there is no column body"),
        ({"body": "string"}, "", "which topic?"),
    ],
)
def test_refuses_columns_that_are_no_messages(columns: dict[str, str], topic: str, said: str) -> None:
    with pytest.raises(OptionError) as raised:
        check_sink_columns(columns, topic)
    assert said in str(raised.value)


def test_takes_each_column_of_the_sink() -> None:
    columns = {"body": "string", "topic": "string", "tags": "string", "properties": "map<string,string>"}
    check_sink_columns(columns, "")
