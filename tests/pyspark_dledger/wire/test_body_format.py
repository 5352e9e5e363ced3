"""Bodies as text and as values: whole or not at all, whatever producers have sent."""

import datetime
import json
import pickle
import zlib
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from answering import answering
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType, VariantType
from socket_broker import QUEUE, SocketBroker, record

from pyspark_dledger.option_values import OptionError
from pyspark_dledger.schema import SchemaError
from pyspark_dledger.wire.body_format import BodyFormat, body_format
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.message_options import message_ddl
from pyspark_dledger.wire.message_rows import MessageSelection, range_batches
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import QueueRange
from pyspark_dledger.wire.read_errors import CorruptBodyError

UTC = datetime.UTC
ORDER = pa.struct(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("lines", pa.list_(pa.struct([("sku", pa.string()), ("price", pa.decimal128(6, 2))]))),
        pa.field("seen", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("weights", pa.map_(pa.string(), pa.float64())),
        pa.field("share", pa.float32()),
    ]
)


def of_json(*bodies: bytes | None, wanted: pa.DataType = ORDER) -> tuple[list[Any], list[Any]]:
    column, corrupt = body_format({"bodyFormat": "json"}, wanted).columns(bodies)
    assert column.type == wanted
    return column.to_pylist(), corrupt.to_pylist()


def test_text_is_utf8_and_what_is_none_is_kept() -> None:
    column, corrupt = body_format({"bodyFormat": "utf8"}, pa.string()).columns(
        [b"\xc3\xa9t\xc3\xa9", b"\xff", b""]
    )
    assert column.to_pylist() == ["été", None, ""]
    assert corrupt.to_pylist() == [None, b"\xff", None]


def test_json_is_read_by_the_schema() -> None:
    body = (
        b'{"id":7,"name":"n","lines":[{"sku":"a","price":1.5,"more":[1]},{}],"seen":"2024-01-02T03:04:05+01:00",'
        b'"day":"2024-01-02","weights":{"x":1,"y":0.5},"share":3.4028235e38,"not in the schema":{"a":[{}]}}'
    )
    ((row,), corrupt) = of_json(body)
    assert corrupt == [None]
    assert row == {
        "id": 7,
        "name": "n",
        "lines": [{"sku": "a", "price": Decimal("1.50")}, {"sku": None, "price": None}],
        "seen": datetime.datetime(2024, 1, 2, 2, 4, 5, tzinfo=UTC),
        "day": datetime.date(2024, 1, 2),
        "weights": [("x", 1.0), ("y", 0.5)],
        "share": 2.0**128 - 2.0**104,
    }


def test_what_may_be_null_may_be_missing() -> None:
    rows, corrupt = of_json(b'{"id":1}', b'{"id":2,"name":null,"lines":null}')
    assert [(row["id"], row["name"], row["lines"]) for row in rows] == [(1, None, None), (2, None, None)]
    assert corrupt == [None, None]


@pytest.mark.parametrize("name", ["größe", "日付", "é", "я", "naïve price"])
def test_names_have_letters_of_any_language(name: str) -> None:
    wanted = pa.struct([("in", pa.struct([(name, pa.int32())])), (name, pa.list_(pa.int32()))])
    rows, corrupt = of_json(f'{{"in":{{"{name}":7}},"{name}":[8]}}'.encode(), wanted=wanted)
    assert (rows, corrupt) == ([{"in": {name: 7}, name: [8]}], [None])
    escaped = json.dumps({name: [8]}).encode()
    assert of_json(escaped, wanted=wanted)[0] == [{"in": None, name: [8]}]


def test_decimal_may_be_a_string_so_that_it_loses_no_digits() -> None:
    wanted = pa.struct([("price", pa.decimal128(30, 10))])
    bodies = (
        b'{"price":12345678901234567890.0123456789}',
        b'{"price":"12345678901234567890.0123456789"}',
        b'{"price":-2}',
        b'{"price":"-2e-1"}',
        b'{"price":null}',
    )
    rows, corrupt = of_json(*bodies, wanted=wanted)
    long = Decimal("12345678901234567890.0123456789")
    assert [row["price"] for row in rows] == [long, long, -2, Decimal("-0.2"), None]
    assert corrupt == [None] * 5


def test_columns_may_have_comments() -> None:
    """Spark hands them over as metadata, by which Arrow also tells Spark's own types."""
    columns = StructType().add("id", "integer", True, {"comment": "of the order"})
    rows, corrupt = of_json(b'{"id":1}', wanted=to_arrow_type(columns))
    assert (rows, corrupt) == ([{"id": 1}], [None])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"id"',
        b"{",
        b'{"id":1} {"id":2}',
        b"{}",
        b'{"id":null}',
        b'{"id":"1"}',
        b'{"id":1.5}',
        b'{"id":3000000000}',
        b'{"id":100000000000000000000000}',
        b'{"id":1e400}',
        b'{"id":NaN}',
        b'{"id":1,"name":"\xff"}',
        b'{"id":1,"name":"\\ud800"}',
        b'{"id":1,"lines":[{"price":1.234}]}',
        b'{"id":1,"lines":[{"price":"NaN"}]}',
        b'{"id":1,"lines":[{"price":123456}]}',
        b'{"id":1,"lines":[{"price":1e99999999}]}',
        b'{"id":1,"lines":[{"price":" 1.5"}]}',
        b'{"id":1,"lines":[{"price":"1_000"}]}',
        '{"id":1,"lines":[{"price":"\u0663"}]}'.encode(),  # a digit of Arabic
        b'{"id":1,"lines":[{"price":true}]}',
        b'{"id":1,"lines":[{"price":[0,[1,5],-1]}]}',
        b'{"id":1,"seen":"2024-01-02T03:04:05"}',
        b'{"id":1,"seen":"0001-01-01T00:00:00+10:00"}',
        b'{"id":1,"seen":"9999-12-31T23:59:59-01:00"}',
        b'{"id":1,"share":1e300}',
        b'{"id":1,"share":-3.4028236e38}',
        b'{"id":1,"day":"2024-02-30"}',
        b'{"id":1,"x":' + b"[" * 100_000,
        b'{"id":1,"lines":' + b"[" * 100_000,
    ],
)
def test_what_is_not_of_the_schema_is_kept_and_spoils_no_other_row(body: bytes) -> None:
    rows, corrupt = of_json(b'{"id":1}', body, b'{"id":3}')
    assert [row and row["id"] for row in rows] == [1, None, 3]
    assert corrupt == [None, body, None]


@pytest.mark.parametrize("number", ["1e-214748364", '"1e-999999999"', "1e999", '"-1e999999999"', "9" * 5000])
def test_a_number_far_beyond_a_decimal_is_no_body_of_the_format(number: str) -> None:
    """Arrow ended the worker's process for some of them."""
    wanted = body_format({"bodyFormat": "json"}, pa.struct([("price", pa.decimal128(6, 2))]))
    body = f'{{"price":{number}}}'.encode()
    column, corrupt = wanted.columns([body])
    assert (column.to_pylist(), corrupt.to_pylist()) == ([None], [body])


def test_format_goes_to_workers() -> None:
    made = body_format({"bodyFormat": "json"}, ORDER)
    assert pickle.loads(pickle.dumps(made)) == made


def test_table_has_a_column_for_bad_bodies_only_where_bodies_have_a_format() -> None:
    given = {"namesrv": "h:1", "subscribe": "T"}
    assert message_ddl(given).endswith("`body` binary")
    text = {**given, "bodyFormat": "UTF8"}
    assert message_ddl(text).endswith("`body` string, `_corrupt` binary")
    by_schema = {**given, "bodyformat": "json", "bodyschema": "id BIGINT", "columns": "body, keys"}
    assert message_ddl(by_schema) == "`body` STRUCT</* option bodySchema */ id BIGINT>, `keys` string"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bodyFormat": "avro"}, "it is one of bytes, utf8, json"),
        ({"bodyFormat": "json"}, "bodyFormat=json needs bodySchema, such as `id BIGINT NOT NULL"),
        ({"bodySchema": "id INT"}, "bodySchema says what bodyFormat=json reads"),
        ({"bodyFormat": "utf8", "body": "stored"}, "leave it out with bodyFormat=utf8"),
        ({"columns": "_corrupt"}, "'_corrupt' is no column"),
    ],
)
def test_refuses_what_nobody_can_mean(options: dict[str, str], said: str) -> None:
    with pytest.raises((OptionError, SchemaError)) as raised:
        message_ddl({"namesrv": "h:1", "subscribe": "T", **options})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("json", pa.string()),
        ("utf8", pa.binary()),
        ("bytes", pa.string()),
        ("json", pa.struct([("a", pa.duration("us"))])),
        ("json", pa.struct([("a", pa.map_(pa.int32(), pa.int32()))])),
        ("json", to_arrow_type(StructType().add("a", VariantType()))),
    ],
)
def test_refuses_types_that_it_does_not_make(name: str, wanted: pa.DataType) -> None:
    with pytest.raises(OptionError):
        body_format({"bodyFormat": name}, wanted)


@pytest.mark.parametrize("twice", ["id", "ID"])
def test_refuses_a_name_that_stands_twice(twice: str) -> None:
    columns = pa.struct([("id", pa.int32()), (twice, pa.string())])
    for wanted in (columns, pa.struct([("in", pa.list_(columns))])):
        with pytest.raises(OptionError, match=f"bodySchema has the name '{twice}' twice"):
            body_format({"bodyFormat": "json"}, wanted)


def test_large_bodies_of_json_come_in_batches_of_their_own() -> None:
    """As Python's values they take many times their bytes."""
    wanted = body_format({"bodyFormat": "json"}, pa.struct([("id", pa.int32())]))
    large = zlib.compress(b'{"id":1}' + b" " * 700_000)
    broker = SocketBroker([record(number, large, sys_flag=0x301) for number in range(3)])
    with answering(broker.answer) as broker.address:
        pull = PullOptions(cluster=ClusterAccess((broker.address,)), timeout_ms=10_000)
        selection = MessageSelection(("body", "_corrupt"), inflate=True, body=wanted)
        batches = list(range_batches(QueueRange(QUEUE, 0, 3), pull, selection))
    assert [batch.to_pylist() for batch in batches] == [[{"body": {"id": 1}, "_corrupt": None}]] * 3


def rows_of(broker: SocketBroker, wanted: BodyFormat, *columns: str, **options: Any) -> list[dict[str, Any]]:
    with answering(broker.answer) as broker.address:
        pull = PullOptions(cluster=ClusterAccess((broker.address,)), timeout_ms=10_000, **options)
        selection = MessageSelection(columns, inflate=True, body=wanted)
        part = QueueRange(QUEUE, 0, len(broker.records))
        return [row for batch in range_batches(part, pull, selection) for row in batch.to_pylist()]


def test_bad_body_ends_a_read_that_has_no_column_for_it() -> None:
    wanted = body_format({"bodyFormat": "json"}, pa.struct([("id", pa.int32())]))
    records = [record(0, b'{"id":1}'), record(1, b'{"id":"a"}')]
    assert rows_of(SocketBroker(records), wanted, "body", "_corrupt", "queue_offset") == [
        {"body": {"id": 1}, "_corrupt": None, "queue_offset": 0},
        {"body": None, "_corrupt": b'{"id":"a"}', "queue_offset": 1},
    ]
    said = r"queue 1 of T at g0: the body at offset 1 is not as bodyFormat=json reads it: Expected `int \| null`, got"
    with pytest.raises(CorruptBodyError, match=said):
        rows_of(SocketBroker(records), wanted, "body")


def test_bad_body_that_the_filter_leaves_out_ends_nothing() -> None:
    """«Aa» and «BB» have one hash, by which brokers filter."""
    wanted = body_format({"bodyFormat": "utf8"}, pa.string())
    records = [record(0, b"x", tags="Aa"), record(1, b"\xff", tags="BB")]
    assert rows_of(SocketBroker(records), wanted, "body", expression="Aa") == [{"body": "x"}]
