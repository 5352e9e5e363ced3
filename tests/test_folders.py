"""A stranger reads the architecture from the tree: files for one sitting, folders that one sees at a glance.

`dledger/` is left out: there a few files are long, as what they decide belongs together.
"""

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = sorted({path.parent.name for path in ROOT.glob("[a-z]*/*.py")} - {"dledger", "tests"})
LINES_MAX = 500
FILES_MAX = 25


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_is_long_and_no_folder_is_full(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert {name: count for name, count in folders.items() if count > FILES_MAX} == {}


def test_the_rooms_are_found() -> None:
    assert {"broker", "mq", "mqclient", "store"} <= set(ROOMS)
