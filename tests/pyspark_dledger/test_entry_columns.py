"""Entries as Arrow batches, without Spark: columns, selections, verdicts, bodies."""

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from entry_rows_store import BORN_MS, HOST, MadeLog, made_record, make_log

from dledger.entry import ENTRY_HEADER, seal_entries
from message.sys_flag import COMPRESSED_FLAG
from pyspark_dledger import entry_rows
from pyspark_dledger.entry_columns import Place, Selection, run_batches
from pyspark_dledger.entry_rows import unit_batches
from pyspark_dledger.schema import BODY, COLUMN_NAMES, COLUMNS, SchemaError, check_names
from verify.log.entry_scan import Run
from verify.replica import open_replica
from verify.work import plan

PLACE = Place("n0", "", "data/0")
WITH_BODY = (*COLUMN_NAMES, BODY.name)


def rows_of(log: MadeLog, selection: Selection, *, units: int = 1) -> list[dict[str, Any]]:
    replica = open_replica(log.root)
    return [
        row
        for unit in plan([replica], unit_count=units)
        for batch in unit_batches(unit, selection)
        for row in batch.to_pylist()
    ]


def run_of(records: list[bytes]) -> Run:
    positions = [sum(len(record) + 48 for record in records[:number]) for number in range(len(records))]
    parts, _ = seal_entries(records, positions, 0, 1, 0, 0)
    buffer = b"".join(parts)
    return Run(
        0, len(records) - 1, 0, len(buffer), positions, 48, [1] * len(records), [0] * len(records), buffer
    )


def faults(log: MadeLog, *, units: int = 1) -> dict[int, str]:
    rows = rows_of(log, Selection(("index", "fault")), units=units)
    return {row["index"]: row["fault"] for row in rows if row["fault"] is not None}


@pytest.fixture
def log(tmp_path: Path) -> MadeLog:
    return make_log(tmp_path / "store")


def test_every_entry_is_a_row_with_all_that_its_record_says(log: MadeLog) -> None:
    rows = rows_of(log, Selection(WITH_BODY))
    assert [row["index"] for row in rows] == list(range(120))
    assert [row["pos"] for row in rows] == log.positions
    assert {row["fault"] for row in rows} == {None}
    row = rows[41]
    assert row["term"] == 2
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("Orders", 1, 41)
    assert row["properties"] == [("UNIQ_KEY", f"{41:032X}"), ("TAGS", "Tag1"), ("KEYS", "k41")]
    assert (row["uniq_key"], row["tags"], row["keys"]) == (f"{41:032X}", "Tag1", "k41")
    assert row["body"] == b"body 41 " * 20
    assert row["born_timestamp"].timestamp() * 1000 == BORN_MS + 41
    assert row["born_host"] == row["store_host"] == "127.0.0.1:10911"
    assert row["msg_id"] == f"{HOST.hex().upper()}{log.positions[41] + 48:016X}"
    assert row["kind"] == "message"
    assert row["size"] == row["message_size"] + 48


@pytest.mark.parametrize("units", [2, 3, 16, 1000])
def test_rows_are_the_same_for_any_number_of_units(log: MadeLog, units: int) -> None:
    log.flip(log.positions[30] + 100)
    log.flip(log.positions[70] + 36)
    assert rows_of(log, Selection(COLUMN_NAMES), units=units) == rows_of(log, Selection(COLUMN_NAMES))


def test_digests_are_equal_where_bytes_are(tmp_path: Path) -> None:
    logs = [make_log(tmp_path / name) for name in ("a", "b")]
    logs[1].flip(logs[1].positions[5] + 60)
    first, second = (
        {row["index"]: row["digest"] for row in rows_of(log, Selection(("index", "digest")))} for log in logs
    )
    assert [index for index in first if first[index] != second[index]] == [5]


def test_a_body_that_was_changed_is_told_of_its_own_entry_only(log: MadeLog) -> None:
    log.flip(log.positions[17] + 48 + 95)
    assert faults(log) == {17: "body crc"}


@pytest.mark.parametrize("units", [1, 7, 40])
def test_a_chain_that_was_changed_is_told_of_its_own_entry_only(log: MadeLog, units: int) -> None:
    log.flip(log.positions[17] + 36)
    log.flip(log.positions[18 * 4] + 36)
    assert faults(log, units=units) == {17: "chain crc", 72: "chain crc"}


def test_an_index_that_was_changed_breaks_the_order_and_the_chain(log: MadeLog) -> None:
    header = list(
        ENTRY_HEADER.unpack(
            log.path(log.positions[17]).read_bytes()[log.positions[17] % log.file_size :][:48]
        )
    )
    header[2] = 19
    log.write(log.positions[17], ENTRY_HEADER.pack(*header))
    rows = rows_of(log, Selection(("pos", "index", "fault")))
    assert [row for row in rows if row["fault"] is not None] == [
        {"pos": log.positions[17], "index": 19, "fault": "gap, chain crc"}
    ]


def test_an_entry_whose_header_cannot_be_believed_has_no_row_and_its_neighbours_no_fault(
    log: MadeLog,
) -> None:
    log.write(log.positions[17], bytes(48))
    rows = rows_of(log, Selection(("index", "fault")))
    assert [row["index"] for row in rows] == [index for index in range(120) if index != 17]
    assert {row["fault"] for row in rows} == {None}


def test_a_body_that_is_no_record_is_a_row_without_a_message() -> None:
    run = run_of([made_record(0, 48), b"no record at all", made_record(2, 0)])
    (batch,) = run_batches(run, PLACE, Selection(WITH_BODY))
    rows = batch.to_pylist()
    assert [row["fault"] for row in rows] == [None, "undecodable message", None]
    assert {name: value for name, value in rows[1].items() if value is not None}.keys() == {
        "replica", "group", "file", "pos", "index", "term", "size", "kind", "chain_crc", "body_crc", "fault", "digest",
    }  # fmt: skip
    assert rows[2]["queue_offset"] == 2


@pytest.mark.parametrize("units", [1, 4, 30])
def test_a_body_that_holds_a_copy_of_a_log_is_one_entry(tmp_path: Path, units: int) -> None:
    # The copy says of itself that it is where it really lies.
    pos = 48 + 88
    bait: list[bytes] = []
    for index in range(1000, 1100):
        parts, _ = seal_entries([b"x" * 100], [pos], index, 9, 0, 0)
        bait += parts
        pos += 148
    log = MadeLog(tmp_path, 64 * 1024)
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    records = [made_record(0, 48, body=b"".join(bait))]
    records.append(made_record(1, 0))
    positions = [0, len(records[0]) + 48]
    parts, _ = seal_entries(records, positions, 0, 1, 0, 0)
    log.path(0).write_bytes(b"".join(parts).ljust(log.file_size, b"\0"))
    assert [row["index"] for row in rows_of(log, Selection(("index",)), units=units)] == [0, 1]


def test_a_damaged_body_is_no_place_for_entries_in_the_next_window_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_rows, "_DAMAGE_WINDOW", 256)
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    inner = ENTRY_HEADER.pack(1, 148, 7, 1, 1000, 0, 5, 5, 100)
    outer = ENTRY_HEADER.pack(1, 2000, 0, 1, 0, 0, 5, 5, 1952)
    (data / f"{0:020d}").write_bytes((outer.ljust(1000, b"x") + inner).ljust(2000, b"x"))
    log = MadeLog(tmp_path, 2000)
    rows = rows_of(log, Selection(COLUMN_NAMES))
    assert [row["index"] for row in rows] == [0]


def test_bounds_are_inclusive_and_a_topic_leaves_the_others_out(log: MadeLog) -> None:
    selection = Selection(("index", "topic"), topic="Payments", index_from=10, index_to=15)
    expected = [{"index": 12, "topic": "Payments"}, {"index": 15, "topic": "Payments"}]
    assert rows_of(log, selection) == expected
    assert rows_of(log, selection, units=9) == expected
    assert not rows_of(log, Selection(("index",), topic="Nobody's"))


def test_bodies_are_inflated_on_request_and_null_where_they_cannot_be() -> None:
    body = b"much of the same " * 50
    records = [
        made_record(0, 48, body=zlib.compress(body), sys_flag=COMPRESSED_FLAG),
        made_record(1, 0, body=b"not compressed at all", sys_flag=COMPRESSED_FLAG),
        made_record(2, 0, body=b"plain"),
    ]
    (batch,) = run_batches(run_of(records), PLACE, Selection(("body",), inflate=True))
    assert batch.column("body").to_pylist() == [body, None, b"plain"]
    (stored,) = run_batches(run_of(records), PLACE, Selection(("body",)))
    assert stored.column("body").to_pylist() == [zlib.compress(body), b"not compressed at all", b"plain"]


def test_bodies_that_inflate_beyond_a_batch_make_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_dledger.entry_columns.BATCH_BODIES_SIZE", 1000)
    compressed = zlib.compress(b"x" * 600)
    run = run_of([made_record(number, 0, body=compressed, sys_flag=COMPRESSED_FLAG) for number in range(3)])
    batches = list(run_batches(run, PLACE, Selection(("index", "body"), inflate=True)))
    assert [batch.num_rows for batch in batches] == [1, 1, 1]
    assert pa.Table.from_batches(batches).column("index").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("born", [2**63 - 1, -(2**63), 253_402_300_800_000])
def test_a_timestamp_that_no_calendar_has_is_null(born: int) -> None:
    record = bytearray(made_record(0, 48))
    record[40:48] = born.to_bytes(8, "big", signed=True)
    (batch,) = run_batches(
        run_of([bytes(record), made_record(1, 0)]), PLACE, Selection(("born_timestamp", "store_timestamp"))
    )
    first, second = batch.to_pylist()
    assert first["born_timestamp"] is None
    assert first["store_timestamp"].timestamp() * 1000 == BORN_MS + 1
    assert second["born_timestamp"].timestamp() * 1000 == BORN_MS + 1


@pytest.mark.parametrize(
    ("names", "text"), [(["indx"], "'indx' is no column"), ([], "no column"), (["pos", "pos"], "twice")]
)
def test_names_that_are_no_columns_are_refused_with_those_that_are(names: list[str], text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        check_names(names)


def test_the_page_about_it_has_the_columns_as_they_are() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "pipeline.md").read_text(encoding="utf-8")
    for column in (*COLUMNS, BODY):
        assert f"| `{column.name}` | {column.sql_type} | {column.meaning} |" in page
