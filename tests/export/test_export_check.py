"""What may be done to an export, or to a replica, and the sentence that names it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_store import checked, run_export, write_replica
from made_store import changed, three_terms

from export.manifest import ManifestError

LOG = three_terms(120)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store n0 and its export, of several commits."""
    root = tmp_path_factory.mktemp("made")
    run_export(root / "export", write_replica(root / "n0", LOG, committed=109))
    return root


@pytest.fixture
def into(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "export", tmp_path / "export")
    return tmp_path / "export"


def manifest(into: Path, number: int) -> Path:
    return into / "_manifests" / f"{number:010}.json"


def rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def part(into: Path, number: int) -> Path:
    return sorted(into.glob("part-*.parquet"))[number]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def put_into_directory(path: Path, directory: Path) -> None:
    directory.mkdir()
    shutil.copy(path, directory / "more.parquet")


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda into: flip(part(into, 1)), "the file was changed: other bytes; it has entries"),
    (lambda into: cut(part(into, 1)), "the file was changed: .* bytes instead of"),
    (lambda into: part(into, 1).unlink(), "No such file or directory; it has entries"),
    (lambda into: shutil.copy(part(into, 1), into / "more.parquet"), "more.parquet: no manifest names this file"),
    (lambda into: shutil.copy(part(into, 1), into / "more.parq"), "more.parq: no manifest names this file"),
    (lambda into: put_into_directory(part(into, 1), into / "p=1"), "p=1/more.parquet: no manifest names this file"),
    (lambda into: (into / "p=1").symlink_to(into), "p=1: no manifest names this file"),
    (lambda into: manifest(into, 1).unlink(), "_manifests/0000000001.json: the manifest is not there"),
    (lambda into: manifest(into, 1).write_text("{}"), "0000000001.json is no manifest"),
    (lambda into: rewrite(manifest(into, 1), version=9), "is of version 9, and this release knows 1"),
    (lambda into: rewrite(manifest(into, 1), first_index=1), "0000000001.json: overlap: entries"),
    (lambda into: rewrite(manifest(into, 1), first_index=41), "0000000001.json: gap: entries"),
    (lambda into: rewrite(manifest(into, 1), chain_before=5), "0000000001.json: chain 5 follows chain"),
    (lambda into: rewrite(manifest(into, 1), group="ab"), "0000000001.json: group ab follows group"),
    (lambda into: rewrite(manifest(into, 1), begin_pos=3), "0000000001.json: position 3 follows position"),
    (lambda into: rewrite(manifest(into, 1), rows=3), "rows instead of 3"),
    (lambda into: rewrite(manifest(into, 1), digest="0" * 32), "the manifest says 0{32}"),
    (lambda into: rewrite(manifest(into, 0), exported_at="now"), "0000000001.json: the manifest before it was changed"),
    (lambda into: rewrite(manifest(into, 0), before="ab"), "the first manifest names one before it"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_each_change_of_an_export_is_named(into: Path, damage: Callable[[Path], object], said: str) -> None:
    assert checked(into).faults == []
    damage(into)
    assert any(re.search(said, fault) for fault in checked(into).faults), checked(into).faults


def test_a_file_whose_manifest_comes_while_the_export_is_checked_is_no_fault(
    into: Path, tmp_path: Path
) -> None:
    """As the export that runs beside it writes them: the file first."""
    last, away = max((into / "_manifests").glob("*.json")), tmp_path / "last.json"
    last.rename(away)
    assert len(checked(into).faults) == 1
    report = checked(into, meanwhile=lambda: away.rename(last))
    assert (report.faults, report.last_index) == ([], 94)


def test_rows_that_were_changed_with_their_manifest_differ_from_the_replica(made: Path, into: Path) -> None:
    """Whoever changes a row, the file's sum and all later manifests is found by the replicas alone."""
    path = part(into, 1)
    table = pq.read_table(path)
    keys = table["keys"].to_pylist()
    keys[2] = "another"
    column = table.column_names.index("keys")
    pq.write_table(table.set_column(column, table.schema.field("keys"), pa.array(keys, pa.string())), path)
    reseal(into)
    assert checked(into).faults == []
    index = table["index"][2].as_py()
    (fault,) = checked(into, made / "n0").faults
    assert re.fullmatch(
        rf"n0, entries .*: entry {index}, column keys: 'another' in the file, None in the log", fault
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"terms": [{"term": 3, "first_index": 95}]}, ""),
        ({"terms": [{"term": 4, "first_index": 95}]}, "and the manifest says"),
        (
            {"terms": [{"term": 2, "first_index": 95}, {"term": 3, "first_index": 96}]},
            "its terms are not those",
        ),
        ({"chain_after": 7}, "and the manifest says"),
        ({"end_pos": 7}, "and the manifest says"),
    ],
)
def test_what_the_last_manifest_says_is_compared_with_the_replica(
    made: Path, into: Path, fields: dict[str, object], said: str
) -> None:
    """No later manifest vouches for it."""
    last = max((into / "_manifests").glob("*.json"))
    assert json.loads(last.read_text())["first_index"] == 95
    rewrite(last, **fields)
    faults = checked(into, made / "n0").faults
    assert (said in "".join(faults)) if said else faults == []


def test_text_that_is_none_is_a_difference(made: Path, into: Path) -> None:
    path = part(into, 1)
    pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False)
    content = path.read_bytes()
    assert b"UNIQ_KEY" in content
    path.write_bytes(content.replace(b"UNIQ_KEY", b"UNIQ_KE\xff"))
    reseal(into)
    (fault,) = checked(into, made / "n0").faults
    assert fault.endswith("column properties: the file has text that is no UTF-8")


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("digest", None, "its columns are not those that the manifest says"),
        ("digest", [b"?"] * 18 + [None], "rows without an index or a digest"),
        ("index", [None] * 19, "rows without an index or a digest"),
        ("index", [*range(38, 56), 54], "row of entry 54 behind row of entry 55"),
        ("index", [*range(38, 56), 99], "row of entry 99, and the manifest says entries 38 .. 56"),
        ("index", [*range(37, 56)], "row of entry 37 behind row of entry 37"),
    ],
)
def test_rows_that_are_not_those_of_the_range_are_named(
    into: Path, column: str, values: list[object] | None, said: str
) -> None:
    """With sums and manifests that were made for them."""
    path = part(into, 1)
    table = pq.read_table(path)
    number = table.column_names.index(column)
    if values is None:
        table = table.remove_column(number)
    else:
        field = table.schema.field(number)
        table = table.set_column(number, field, pa.array(values, field.type))
    pq.write_table(table, path)
    reseal(into)
    assert checked(into).faults == [f"{path.name}: {said}"]


def reseal(into: Path) -> None:
    """Manifests as they would be had the files been written so."""
    import hashlib

    before = ""
    for path in sorted((into / "_manifests").glob("*.json")):
        told = json.loads(path.read_text())
        for file in told["files"]:
            content = (into / file["name"]).read_bytes()
            file |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        told["before"] = before
        path.write_text(json.dumps(told))
        before = hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_replica_with_another_entry_is_named(into: Path, tmp_path: Path) -> None:
    """Sealed anew behind it, so that the log is sound in itself."""
    other = write_replica(tmp_path / "n1", changed(LOG, 60, 60, text="b"))
    faults = checked(into, other).faults
    assert re.match(r"n1, entries [\d,]+ .. [\d,]+: entry 60, column size|.*entry 60, column", faults[0]), (
        faults
    )
    compared = checked(into, other).compared[0]
    assert (compared.first_index, compared.last_index) == (0, 57) or compared.last_index < 60


def test_a_replica_that_no_longer_has_all_says_from_where_on_it_was_compared(
    made: Path, into: Path, tmp_path: Path
) -> None:
    store = tmp_path / "n0"
    shutil.copytree(made / "n0", store)
    for path in sorted((store / "dledger-n0" / "data").iterdir())[:3]:
        path.unlink()
    report = checked(into, store)
    assert report.faults == []
    (compared,) = report.compared
    assert compared.first_index > 0
    assert compared.last_index == 109
    assert compared.remark.startswith("its log begins with entry ")


def test_a_replica_that_has_nothing_of_the_export_proves_nothing(into: Path, tmp_path: Path) -> None:
    store = write_replica(tmp_path / "n1", LOG, committed=-1)
    report = checked(into, store)
    assert report.faults == [
        "n1: nothing of the export can be compared with it: it knows no commit behind entry -1"
    ]


def test_a_directory_without_commits_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="is no export"):
        checked(tmp_path)
    (tmp_path / "_manifests").mkdir()
    with pytest.raises(ManifestError, match="without a commit"):
        checked(tmp_path)
