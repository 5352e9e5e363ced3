"""`mq cluster secret`, for the confs of all members of a group."""

import re

from typer.testing import CliRunner

from mq.cluster_commands import app


def test_each_secret_is_another_and_long_enough_that_nobody_guesses_it() -> None:
    made = {CliRunner().invoke(app, ["secret"]).stdout for _ in range(2)}
    assert len(made) == 2
    assert all(re.fullmatch(r"[0-9a-f]{64}\n", text) for text in made)
