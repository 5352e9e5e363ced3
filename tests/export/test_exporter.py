"""An export goes on where its last manifest ended, and holds each committed entry once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from export_store import checked, commit, replicas, rows_of, run_export, write_replica
from made_store import Entry, changed, three_terms

from export import exporter
from export.export_directory import ExportError, open_for_writing
from export.exporter import Choices, schema_changes
from export.log_source import ReplicaSource
from export.manifest import ManifestError
from export.parquet_part import PartWriter
from verify.log.log_walk import LogBrokenError

COUNT = 120
LOG = three_terms(COUNT)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_replica(tmp_path / "n0", LOG, committed=99)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "export"


def test_each_committed_entry_is_exported_once_over_many_runs(store: Path, into: Path) -> None:
    first = run_export(into, store)
    assert len(first) > 2, "several files"
    assert rows_of(into, "index") == list(range(100))
    assert run_export(into, store) == []
    for committed in (100, 107, 119):
        commit(store, committed)
        (manifest,) = run_export(into, store, file_log_size=1 << 20)
        assert manifest.last_index == committed
        assert rows_of(into, "index") == list(range(committed + 1))
    report = checked(into, store)
    assert report.faults == []
    assert (report.first_index, report.last_index, report.rows) == (0, 119, 120)
    assert (report.compared[0].entries, report.compared[0].remark) == (120, "")


def test_a_manifest_says_range_terms_chains_and_the_manifest_before(store: Path, into: Path) -> None:
    first, *_ = commits = run_export(into, store)
    assert (first.number, first.before, first.first_index, first.chain_before) == (0, "", 0, 0)
    for before, after in pairwise(commits):
        assert after.number == before.number + 1
        assert after.first_index == before.last_index + 1
        assert after.chain_before == before.chain_after
        assert len(after.before) == 64
    chains = rows_of(into, "chain_crc")
    terms = dict(zip(rows_of(into, "index"), rows_of(into, "term"), strict=True))
    for manifest in commits:
        assert manifest.chain_after == chains[manifest.last_index]
        for begin in manifest.terms:
            assert terms[begin.first_index] == begin.term
    assert len({begin.term for manifest in commits for begin in manifest.terms}) == 3


def test_what_is_not_committed_is_not_exported(tmp_path: Path, into: Path) -> None:
    store = write_replica(tmp_path / "n0", LOG, committed=-1)
    assert run_export(into, store) == []
    assert rows_of(into, "index") == []


def test_rows_of_one_topic_alone(tmp_path: Path, into: Path) -> None:
    """The log of this store has topic T alone; a range without a row has no file, and is covered all the same."""
    store = write_replica(tmp_path / "n0", LOG)
    (manifest,) = run_export(into, store, choices=Choices(topic="U"), file_log_size=1 << 20)
    assert (manifest.rows, manifest.files, manifest.last_index) == (0, (), COUNT - 1)
    assert checked(into, store).faults == []
    other = into.parent / "other"
    run_export(other, store, choices=Choices(topic="T"))
    assert rows_of(other, "index") == list(range(COUNT))
    assert checked(other, store).faults == []


def test_another_topic_goes_into_another_directory(store: Path, into: Path) -> None:
    run_export(into, store, choices=Choices(topic="T"))
    commit(store, 110)
    with pytest.raises(ExportError, match="this export has topic T: export topic U into another directory"):
        run_export(into, store, choices=Choices(topic="U"))
    assert run_export(into, store)[-1].topic == "T", "what is not said stays as it was"


def test_a_change_of_the_schema_is_said_and_proved(store: Path, into: Path) -> None:
    before = run_export(into, store, choices=Choices(body="none"))[-1]
    commit(store, 110)
    after = run_export(into, store, choices=Choices(body="inflated"))[-1]
    assert schema_changes(before, after) == "+ body binary"
    assert schema_changes(after, before) == "- body"
    assert schema_changes(None, before) == schema_changes(before, before) == ""
    commit(store, 119)
    assert schema_changes(after, run_export(into, store, choices=Choices(body="stored"))[-1]) == (
        "body inflated -> stored"
    )
    assert checked(into, store).faults == []


def test_what_one_replica_cannot_give_another_gives(tmp_path: Path, into: Path) -> None:
    one, other = (write_replica(tmp_path / name, LOG) for name in ("n0", "n1"))
    flip(one, 70)
    run_export(into, one, other)
    assert rows_of(into, "index") == list(range(COUNT))
    assert checked(into, other).faults == []
    (fault,) = [text for text in checked(into, one).faults if text.startswith("n0")]
    assert "the replica cannot be read: n0: body crc: entry 70 at position" in fault


def test_damage_that_all_have_ends_the_export_in_front_of_it(tmp_path: Path, into: Path) -> None:
    store = write_replica(tmp_path / "n0", LOG)
    flip(store, 70)
    with pytest.raises(LogBrokenError) as caught:
        run_export(into, store)
    assert caught.value.index == 70
    exported = rows_of(into, "index")
    assert exported == list(range(len(exported)))
    assert 0 < len(exported) <= 70
    assert checked(into).faults == []


def flip(root: Path, index: int) -> None:
    """A bit in the body of an entry."""
    for path in sorted((root / f"dledger-{root.name}" / "data").iterdir()):
        content = bytearray(path.read_bytes())
        at = content.find(f"a {index} a {index} ".encode())
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError(f"no entry {index}")


def test_entries_that_expired_before_they_were_exported_are_named(tmp_path: Path, into: Path) -> None:
    store = write_replica(tmp_path / "n0", LOG, committed=20)
    run_export(into, store)
    commit(store, 119)
    for path in sorted((store / "dledger-n0" / "data").iterdir())[:4]:
        path.unlink()
    with pytest.raises(ExportError, match=r"entries 21 \.\. \d+ are no longer in the log, and .* entry 20"):
        run_export(into, store)


def test_an_export_of_a_log_that_has_lost_its_first_files_begins_with_what_is_there(
    tmp_path: Path, into: Path
) -> None:
    store = write_replica(tmp_path / "n0", LOG)
    for path in sorted((store / "dledger-n0" / "data").iterdir())[:4]:
        path.unlink()
    first = run_export(into, store)[0]
    assert first.first_index > 0
    assert first.chain_before is None
    assert rows_of(into, "index") == list(range(first.first_index, COUNT))
    assert checked(into, store).faults == []


def test_a_log_that_was_rewritten_is_not_gone_on_with(tmp_path: Path, into: Path) -> None:
    store = write_replica(tmp_path / "n0", LOG, committed=50)
    run_export(into, store)
    shutil.rmtree(store)
    write_replica(store, changed(LOG, 30, 30, text="b"))
    with pytest.raises(LogBrokenError, match="chain crc: entry 51"):
        run_export(into, store)


def test_two_exports_do_not_write_into_one_directory(store: Path, into: Path) -> None:
    with open_for_writing(into), pytest.raises(ExportError, match="another export is writing into"):
        run_export(into, store)


def test_a_directory_with_other_files_is_not_taken(store: Path, into: Path) -> None:
    into.mkdir()
    (into / "letter").write_text("dear")
    with pytest.raises(ExportError, match="is not empty and is no export"):
        run_export(into, store)


@pytest.mark.parametrize("is_in_place", [False, True])
def test_a_killed_export_leaves_nothing_behind(
    store: Path, into: Path, monkeypatch: pytest.MonkeyPatch, is_in_place: bool
) -> None:
    """Killed while it wrote a file, or between the file and its manifest."""
    run_export(into, store)
    commit(store, 119)

    class Killed(BaseException):
        pass

    def killed(*_: Any, **fields: Any) -> Iterator[Any]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PartWriter, "drop", lambda self: None)
        if is_in_place:
            patch.setattr(exporter, "Manifest", killed)
        else:
            patch.setattr(PartWriter, "finish", killed)
        with pytest.raises(Killed):
            run_export(into, store, file_log_size=1 << 20)
    if is_in_place:
        assert any("no manifest names this file" in fault for fault in checked(into).faults)
    run_export(into, store)
    assert rows_of(into, "index") == list(range(COUNT))
    assert checked(into, store).faults == []
    assert not list(into.glob(".*")), "what was being written was put in its place"


def test_a_missing_manifest_ends_the_next_export(store: Path, into: Path) -> None:
    run_export(into, store)
    (into / "_manifests" / "0000000001.json").unlink()
    with pytest.raises(ManifestError, match="does not have all manifests"):
        run_export(into, store)


def test_replicas_of_two_groups_are_refused(tmp_path: Path) -> None:
    ours, others = replicas(*(write_replica(tmp_path / name, LOG) for name in ("n0", "n1")))
    object.__setattr__(others, "group", "ab" * 8)
    with pytest.raises(ExportError, match="belongs to group"):
        ReplicaSource([ours, others])


def test_a_large_file_has_many_row_groups_and_the_same_rows(
    store: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.parquet_part._GROUP_SIZE", 4096)
    monkeypatch.setattr("verify.log.entry_scan.WINDOW_SIZE", 1024)
    (manifest,) = run_export(into, store, file_log_size=1 << 20)
    assert pa.parquet.ParquetFile(into / manifest.files[0].name).num_row_groups > 2
    assert checked(into, store).faults == []


def test_entries_that_are_no_messages_have_rows_too(tmp_path: Path, into: Path) -> None:
    log = [Entry(0, 1), Entry(1, 1, body=b"x" * 80), Entry(2, 1)]
    store = write_replica(tmp_path / "n0", log)
    run_export(into, store)
    assert rows_of(into, "index") == [0, 1, 2]
    assert checked(into, store).faults == []
