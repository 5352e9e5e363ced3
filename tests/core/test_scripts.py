"""Each file of scripts/ is a story told in commands; it must print today what it printed when it was written."""

from pathlib import Path

import pytest
from core_script import run_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_prints_what_it_printed(path, request):
    told = path.read_text()
    printed = run_script(told)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(printed)
    else:
        assert printed == told


def test_a_script_that_says_something_else_is_noticed():
    told = "members n0\nstart all\ntick n0 40\n----\nn0 does nothing\n"
    assert "n0 persist term=1 vote_for=n0" in run_script(told)
