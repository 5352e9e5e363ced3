"""A table of an export has the files of its manifests, each once, whatever was killed in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from export_store import checked, commit, replicas, run_export, write_replica
from made_store import three_terms

from export.export_directory import ExportError, open_for_writing
from export.exporter import Choices, export
from export.log_source import ReplicaSource
from export.table_log import LOG_DIRECTORIES, open_table

LOG = three_terms(120)
LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


@pytest.fixture(params=list(LIBRARIES))
def table_format(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(LIBRARIES[request.param])
    return str(request.param)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_replica(tmp_path / "n0", LOG, committed=79)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "an export"


def run_table_export(into: Path, store: Path, table_format: str, choices: Choices | None = None) -> None:
    with open_for_writing(into) as directory:
        table = open_table(into, table_format)
        if directory.last is not None:
            table.catch_up(directory.last.number)
        source = ReplicaSource(replicas(store))
        export(directory, source, choices or Choices(), table.add, file_log_size=4096)


def rows_of_table(into: Path, table_format: str, *columns: str) -> list[dict[str, Any]]:
    """As a reader of the table has them, by index."""
    rows: pa.Table
    if table_format == "delta":
        import deltalake

        rows = deltalake.DeltaTable(into).to_pyarrow_table(columns=["index", *columns])
    else:
        from pyiceberg.catalog import load_catalog

        own = into / "_iceberg"
        catalog = load_catalog(
            "pydledger", type="sql", uri=f"sqlite:///{own}/catalog.db", warehouse=f"file://{own}"
        )
        rows = catalog.load_table("pydledger.an_export").scan(selected_fields=("index", *columns)).to_arrow()
    return list(rows.sort_by("index").to_pylist())


def indexes_of_table(into: Path, table_format: str) -> list[int]:
    return [row["index"] for row in rows_of_table(into, table_format)]


def test_each_entry_is_in_the_table_once_over_many_runs(store: Path, into: Path, table_format: str) -> None:
    run_table_export(into, store, table_format)
    run_table_export(into, store, table_format)
    commit(store, 119)
    run_table_export(into, store, table_format)
    assert indexes_of_table(into, table_format) == list(range(120))
    assert checked(into, store).faults == []


def test_an_export_that_had_no_table_gets_one_with_all_that_it_has(
    store: Path, into: Path, table_format: str
) -> None:
    run_export(into, store)
    commit(store, 119)
    run_table_export(into, store, table_format)
    assert indexes_of_table(into, table_format) == list(range(120))
    assert checked(into, store).faults == []


def test_what_a_killed_run_did_not_tell_the_table_the_next_one_does(
    store: Path, into: Path, table_format: str
) -> None:
    run_table_export(into, store, table_format)
    commit(store, 119)
    run_export(into, store)  # as one that is killed between a manifest and the table's log
    (fault,) = checked(into).faults
    assert f"{LOG_DIRECTORIES[table_format]}: the table ends with manifest" in fault
    run_table_export(into, store, table_format)
    assert indexes_of_table(into, table_format) == list(range(120))
    assert checked(into).faults == []


def test_an_export_that_runs_beside_the_check_makes_no_fault(
    store: Path, into: Path, table_format: str
) -> None:
    run_table_export(into, store, table_format)

    def go_on() -> None:
        commit(store, 119)
        run_table_export(into, store, table_format)

    report = checked(into, store, meanwhile=go_on)
    assert (report.faults, report.last_index) == ([], 79)
    assert checked(into, store).last_index == 119


def test_a_column_that_comes_later_is_null_in_rows_before(store: Path, into: Path, table_format: str) -> None:
    run_table_export(into, store, table_format, Choices(body="none"))
    commit(store, 100)
    run_table_export(into, store, table_format, Choices(body="stored"))
    commit(store, 119)
    run_table_export(into, store, table_format, Choices(body="none"))
    rows = rows_of_table(into, table_format, "body", "digest", "properties")
    assert [row["index"] for row in rows] == list(range(120))
    assert [row["body"] is not None for row in rows] == [79 < row["index"] <= 100 for row in rows]
    assert all(len(row["digest"]) == 16 for row in rows)
    assert dict(rows[3]["properties"]) == {"UNIQ_KEY": "a3"}
    assert checked(into, store).faults == []


def test_a_range_without_rows_is_a_version_of_the_table(store: Path, into: Path, table_format: str) -> None:
    run_table_export(into, store, table_format, Choices(topic="U"))
    assert indexes_of_table(into, table_format) == []
    assert checked(into).faults == []


def test_what_others_do_to_a_delta_table_is_named(store: Path, into: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    run_table_export(into, store, "delta")
    deltalake.DeltaTable(into).delete("`index` < 5")
    faults = checked(into).faults
    assert any("_delta_log: the table no longer has part-0" in fault for fault in faults), faults
    assert any("which no manifest names" in fault for fault in faults), faults


# A vector that deletes rows 1 and 3, in the text of the action itself.
INLINE_VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg0rri4",
    "sizeInBytes": 36,
    "cardinality": 2,
}


def write_delta_version(into: Path, version: int, *actions: dict[str, Any]) -> None:
    lines = [json.dumps(action) + "\n" for action in actions]
    (into / "_delta_log" / f"{version:020}.json").write_text("".join(lines))


def added_to_delta(into: Path) -> dict[str, Any]:
    """The add action of the first file."""
    logs = sorted((into / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return next(action["add"] for action in actions if "add" in action)


def test_rows_deleted_by_a_deletion_vector_are_named(store: Path, into: Path) -> None:
    """As Spark's DELETE writes it: the same file again, with a vector."""
    deltalake = pytest.importorskip("deltalake")
    run_table_export(into, store, "delta")
    add = added_to_delta(into)
    features = ["deletionVectors"]
    write_delta_version(
        into,
        deltalake.DeltaTable(into).version() + 1,
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": add | {"deletionVector": INLINE_VECTOR}},
    )
    faults = checked(into).faults
    assert any(f"{add['path']} of" in fault and "some deleted, which no" in fault for fault in faults), faults


@pytest.mark.parametrize("change", [{"size": 5}, {"stats": json.dumps({"numRecords": 5})}, {"stats": None}])
def test_a_delta_table_that_tells_another_size_or_count_of_rows_is_named(
    store: Path, into: Path, change: dict[str, Any]
) -> None:
    deltalake = pytest.importorskip("deltalake")
    run_table_export(into, store, "delta")
    add = added_to_delta(into)
    write_delta_version(into, deltalake.DeltaTable(into).version() + 1, {"add": add | change})
    new, old = checked(into).faults
    assert f"the table has {add['path']} of" in new
    assert f"the table no longer has {add['path']} of" in old


def test_delete_files_of_an_iceberg_table_are_named(
    store: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg reads them and writes none, so its plan is given them."""
    table_module = pytest.importorskip("pyiceberg.table")
    run_table_export(into, store, "iceberg")
    plan = table_module.DataScan.plan_files

    def with_deletes(scan: Any) -> list[Any]:
        return [table_module.FileScanTask(task.file, {task.file}) for task in plan(scan)]

    monkeypatch.setattr(table_module.DataScan, "plan_files", with_deletes)
    faults = checked(into).faults
    assert any("some deleted, which no manifest names" in fault for fault in faults), faults


def test_a_file_that_an_iceberg_table_has_twice_is_named(store: Path, into: Path) -> None:
    catalog_module = pytest.importorskip("pyiceberg.catalog")
    run_table_export(into, store, "iceberg")
    own = into / "_iceberg"
    catalog = catalog_module.load_catalog(
        "pydledger", type="sql", uri=f"sqlite:///{own}/catalog.db", warehouse=f"file://{own}"
    )
    path = min(into.glob("part-*.parquet"))
    table = catalog.load_table("pydledger.an_export")
    table.add_files([f"file://{path}"], check_duplicate_files=False)
    (fault,) = checked(into).faults
    assert f"the table has {path.name} of" in fault


def test_an_export_goes_on_with_both_tables(store: Path, into: Path) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    run_table_export(into, store, "delta")
    run_table_export(into, store, "iceberg")
    assert checked(into, store).faults == []
    assert indexes_of_table(into, "delta") == indexes_of_table(into, "iceberg") == list(range(80))


def test_an_iceberg_table_may_be_in_another_catalog(
    store: Path, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    from export.iceberg_log import CatalogChoice, choose_catalog

    with open_for_writing(into):
        choose_catalog(into, CatalogChoice("lake", "sales.orders"))
    with pytest.raises(ExportError, match=r"table sales.orders in catalog lake: URI missing"):
        run_table_export(into, store, "iceberg")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", (tmp_path / "warehouse").as_uri())
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", pytest.importorskip("pyiceberg.utils.config").Config()
    )
    run_table_export(into, store, "iceberg")
    assert checked(into, store).faults == []
    assert json.loads((into / "_iceberg" / "table.json").read_text())["catalog"] == "lake"
    with pytest.raises(
        ExportError, match=r"is sales\.orders in catalog lake: leave --catalog and --table out"
    ):
        choose_catalog(into, CatalogChoice("sea", "sales.orders"))
