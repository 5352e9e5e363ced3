"""Writes manifest.json: every recorded frame under wire/, and how far the tests cover it.

    python tests/golden/make_manifest.py

`coverage` says for each kind of frame what holds of it: `frame` for the bytes of frame and header,
`values` for the typed header and body. `files` counts the frames of each kind in each file, so a
frame that nobody accounted for changes the file, which a test notices.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from wire_frames import (
    ANSWERED_CODES,
    BODIES,
    DLEDGER_NOT_YET,
    HEADERS,
    NOT_YET,
    TEXT_CODES,
    TYPED_CODES,
    RecordedFrame,
    recorded_files,
    recorded_frames,
)

MANIFEST = Path(__file__).parent / "manifest.json"
COVERED_BY = "covered: test_golden_wire.py"
ANSWERED_BY = "covered: tests/broker/recorded/test_recorded_answers.py"


def values_coverage(frame: RecordedFrame) -> str:
    """Raises KeyError for a code that nobody claims."""
    if frame.is_dledger:
        return f"not yet, belongs to {DLEDGER_NOT_YET}"
    if frame.code in TEXT_CODES:
        return f"{COVERED_BY} (properties text)"
    if frame.code in ANSWERED_CODES:
        return ANSWERED_BY
    if frame.code not in TYPED_CODES:
        for owner, codes in NOT_YET.items():
            if frame.code in codes:
                return f"not yet, belongs to {owner}"
        raise KeyError(f"no one accounts for {frame.key}")
    key = (frame.code, frame.direction)
    classes = [table[key].__name__ for table in (HEADERS, BODIES) if key in table]
    return f"{COVERED_BY} ({', '.join(classes) or 'has none'})"


def build_manifest() -> dict[str, dict[str, dict[str, object]]]:
    coverage: dict[str, dict[str, object]] = {}
    files: dict[str, dict[str, object]] = {}
    for path in recorded_files():
        counts: Counter[str] = Counter()
        for frame in recorded_frames(path):
            counts[frame.key] += 1
            if frame.key not in coverage:
                coverage[frame.key] = {"frame": COVERED_BY, "values": values_coverage(frame)}
        files[path.name] = dict(sorted(counts.items()))
    return {"coverage": dict(sorted(coverage.items())), "files": files}


def render(manifest: dict[str, dict[str, dict[str, object]]]) -> str:
    return json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    MANIFEST.write_text(render(build_manifest()), encoding="utf-8")
