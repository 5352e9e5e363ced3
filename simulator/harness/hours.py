"""Runs that take hours and go on where they were left: seeds one after the other until enough time was simulated.

What was done lies in a summary file, JSON, which is whole at any moment: it is replaced, never written in place.
Calm lives are among the seeds (calm.py), for most of the simulated time is theirs.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from simulator.faults.calm import CALM_EVERY
from simulator.harness.summary import Summary

_MS_PER_HOUR = 3_600_000


class SummaryFileError(Exception):
    """The summary file cannot be gone on from; the text says why and what to do."""


def is_calm_seed(seed: int) -> bool:
    return seed % CALM_EVERY == 0


@dataclass(slots=True)
class HoursRun:
    """Invariant: `summary` is of the seeds from `first_seed` on and below `next_seed`, each once."""

    first_seed: int
    next_seed: int
    setting: dict[str, Any]  # what else decides how a seed goes; the same for all of them
    summary: Summary = field(default_factory=Summary)
    commits: dict[str, int] = field(default_factory=dict)  # of the code -> seeds that ran on it

    def seeds(self) -> Iterator[int]:
        return count(self.next_seed)

    def done(self, seed: int, commit: str) -> None:
        assert seed == self.next_seed, "results come in the order of the seeds"
        self.next_seed += 1
        self.commits[commit] = self.commits.get(commit, 0) + 1

    def has_simulated(self, hours: float) -> bool:
        return self.summary.totals["virtual_ms"] >= hours * _MS_PER_HOUR

    def save(self, path: Path) -> None:
        """Raises OSError."""
        values = {
            "first_seed": self.first_seed,
            "next_seed": self.next_seed,
            "setting": self.setting,
            "commits": self.commits,
        }
        new = path.with_name(f"{path.name}.new")
        with open(new, "w") as file:
            json.dump(values | self.summary.as_dict(), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    @classmethod
    def load_or_begin(cls, path: Path | None, first_seed: int | None, setting: dict[str, Any]) -> "HoursRun":
        """Goes on with what the file says, or begins with `first_seed` (1 if nobody says) when there is none.

        Raises SummaryFileError.
        """
        if path is None or not path.exists():
            seed = 1 if first_seed is None else first_seed
            return cls(seed, seed, setting)
        try:
            values = json.loads(path.read_text())
            found = cls(
                values["first_seed"],
                values["next_seed"],
                values["setting"],
                Summary.from_dict(values),
                values["commits"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SummaryFileError(
                f"{path} is no summary to go on from ({type(error).__name__}: {error}); name another --summary"
            ) from error
        if found.setting != setting:
            raise SummaryFileError(
                f"{path} is of runs with {found.setting}, asked is {setting}; "
                "ask for the same or name another --summary"
            )
        if first_seed not in (None, found.first_seed):
            raise SummaryFileError(
                f"{path} began with seed {found.first_seed} and goes on with {found.next_seed}; "
                "leave --first-seed away or name another --summary"
            )
        return found
