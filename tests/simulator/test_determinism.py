"""A seed is a history: the same to the last event in another process, under another order of hashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = "from simulator.harness.run import run_seed; r = run_seed(7, with_digest=True); print(r.digest, r.outcome)"


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_under_another_hash_seed():
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert len(digests.pop().split()[0]) >= 16
