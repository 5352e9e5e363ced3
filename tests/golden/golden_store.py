"""The recorded stores: their files out of the tars, and what the real system says is in them."""

import gzip
import json
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent
# Of sparse files of up to 160 MiB the start is all that anybody wrote.
READ_MAX = 1 << 20

SINGLE_STORES = ("single-5.5.0-clean", "single-5.5.0-killed", "single-5.5.0-torn", "single-4.9.5-clean")
DLEDGER_STORE = "dledger-5.5.0-3nodes"
NODES = ("n0", "n1", "n2")


# Python 3.11 has had filters since its fourth patch release only; from 3.12 on it warns where none is named.
_EXTRACTION: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack_store(
    name: str,
    directory: Path,
    wanted: Callable[[str], bool] = lambda path: True,
    *,
    with_wheel: bool = False,
) -> Path:
    """Below `directory`, those files whose path in the tar is `wanted`; without the 38 MB of the timer wheel unless
    asked. Returns the store's root.
    """
    with tarfile.open(GOLDEN / "store" / f"{name}.tar.xz") as tar:
        members = [
            item
            for item in tar
            if wanted(item.name) and (with_wheel or not item.name.endswith("/timerwheel"))
        ]
        tar.extractall(directory, members, **_EXTRACTION)
    return directory / name


@cache
def store_files(name: str) -> dict[str, bytes]:
    """Path below the store's root -> content, at most READ_MAX bytes of it."""
    files: dict[str, bytes] = {}
    with tarfile.open(GOLDEN / "store" / f"{name}.tar.xz") as tar:
        for member in tar:
            if member.isfile() and not member.name.endswith("/timerwheel"):
                content = tar.extractfile(member)
                assert content is not None
                files[member.name.partition("/")[2]] = content.read(READ_MAX)
    return files


@cache
def expected(name: str) -> dict[str, list[dict[str, Any]]]:
    """Lines of `<name>.expected.jsonl.gz` by their type."""
    lines: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(GOLDEN / "store" / f"{name}.expected.jsonl.gz", "rt", encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            lines.setdefault(line["type"], []).append(line)
    return lines


def below(files: dict[str, bytes], folder: str) -> list[tuple[int, bytes]]:
    """(start offset, content) of a mapped-file queue's files, in order."""
    names = sorted(path for path in files if path.rpartition("/")[0] == folder)
    return [(int(path.rpartition("/")[2]), files[path]) for path in names]


def vectors(name: str, kind: str | None = None) -> list[dict[str, Any]]:
    text = (GOLDEN / "vectors" / f"{name}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return rows if kind is None else [row for row in rows if row["kind"] == kind]
