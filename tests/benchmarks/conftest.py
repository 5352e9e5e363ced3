"""The programs of benchmarks/ import each other as they do when they run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
