"""The Delta table of an export has the files of its manifests, each once, whatever was killed in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from export_store import checked, commit, replicas, run_export, write_replica
from made_store import three_terms

from export.export_directory import open_for_writing
from export.exporter import Choices, export
from export.log_source import ReplicaSource

deltalake = pytest.importorskip("deltalake")

from export.delta_log import DeltaLog  # noqa: E402 (it needs the library)

LOG = three_terms(120)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_replica(tmp_path / "n0", LOG, committed=79)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "export"


def run_delta_export(into: Path, store: Path, choices: Choices | None = None) -> None:
    with open_for_writing(into) as directory:
        table = DeltaLog(into)
        if directory.last is not None:
            table.catch_up(directory.last.number)
        source = ReplicaSource(replicas(store))
        export(directory, source, choices or Choices(), table.add, file_log_size=4096)


def table_indexes(into: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(into).to_pyarrow_table(columns=["index"])["index"].to_pylist())


def test_each_entry_is_in_the_table_once_over_many_runs(store: Path, into: Path) -> None:
    run_delta_export(into, store)
    run_delta_export(into, store)
    commit(store, 119)
    run_delta_export(into, store)
    assert table_indexes(into) == list(range(120))
    assert checked(into, store).faults == []


def test_an_export_that_had_no_table_gets_one_with_all_that_it_has(store: Path, into: Path) -> None:
    run_export(into, store)
    commit(store, 119)
    run_delta_export(into, store)
    assert table_indexes(into) == list(range(120))
    assert checked(into, store).faults == []


def test_what_a_killed_run_did_not_tell_the_table_the_next_one_does(store: Path, into: Path) -> None:
    run_delta_export(into, store)
    commit(store, 119)
    run_export(into, store)  # as one that is killed between a manifest and the table's log
    (fault,) = checked(into).faults
    assert "_delta_log: the table ends with manifest" in fault
    run_delta_export(into, store)
    assert table_indexes(into) == list(range(120))
    assert checked(into).faults == []


def test_a_column_that_comes_later_is_null_in_rows_before(store: Path, into: Path) -> None:
    run_delta_export(into, store, Choices(body="none"))
    commit(store, 119)
    run_delta_export(into, store, Choices(body="stored"))
    rows = deltalake.DeltaTable(into).to_pyarrow_table(columns=["index", "body"]).sort_by("index").to_pylist()
    assert [row["body"] is None for row in rows] == [row["index"] < 80 for row in rows]
    run_delta_export(into, store, Choices(body="none"))
    assert checked(into, store).faults == []


def test_a_range_without_rows_is_a_version_of_the_table(store: Path, into: Path) -> None:
    run_delta_export(into, store, Choices(topic="U"))
    assert table_indexes(into) == []
    assert checked(into).faults == []


def test_what_others_do_to_the_table_is_named(store: Path, into: Path) -> None:
    run_delta_export(into, store)
    deltalake.DeltaTable(into).delete("`index` < 5")
    faults = checked(into).faults
    assert any("_delta_log: the table no longer has part-0" in fault for fault in faults), faults
    assert any("which no manifest names" in fault for fault in faults), faults
