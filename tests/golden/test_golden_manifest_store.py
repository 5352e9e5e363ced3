"""The manifest of recorded stores and vectors: nothing lies here unlisted, and what is called covered is read."""

import json
from typing import Any

import pytest
from golden_store import GOLDEN

MANIFEST: dict[str, dict[str, Any]] = json.loads((GOLDEN / "manifest_store.json").read_text())


def test_every_file_is_listed_once() -> None:
    files = [path for folder in ("store", "vectors") for path in (GOLDEN / folder).iterdir()]
    assert sorted(str(path.relative_to(GOLDEN)) for path in files) == sorted(MANIFEST)


@pytest.mark.parametrize("path", sorted(MANIFEST))
def test_a_file_is_covered_by_tests_that_read_it_or_says_where_it_belongs(path: str) -> None:
    entry = MANIFEST[path]
    assert entry
    assert set(entry) <= {"covered", "not yet"}
    folder, _, name = path.partition("/")
    for test in entry.get("covered", []):
        source = (GOLDEN / test).read_text() + (GOLDEN / "golden_store.py").read_text()
        # Stores are named by their stem, through the lists in golden_store.py; vectors by their own.
        stem = (
            name.split(".n")[0].split(".broker")[0].removesuffix(".expected.jsonl.gz").removesuffix(".tar.xz")
        )
        wanted = f'"{stem}"' if folder == "store" else f'"{name.removesuffix(".jsonl")}'
        assert wanted in source
    if "covered" not in entry:
        assert entry["not yet"].startswith("a later issue: ")
