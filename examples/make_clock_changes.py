"""Makes clock_changes.tsv out of a machine's tz database: every change of a clock on earth from 2000 to 2025.

    python examples/make_clock_changes.py > examples/clock_changes.tsv

Reads /usr/share/zoneinfo: zone1970.tab for the zones, the compiled TZif files for their changes.
"""

import datetime
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

ZONEINFO = Path("/usr/share/zoneinfo")
FIRST_YEAR, LAST_YEAR = 2000, 2025
COUNTS = struct.Struct(">4sc15x6I")  # magic, version, then: isut, isstd, leap, times, types, characters


def transitions(tzif: bytes) -> Iterator[tuple[int, tuple[int, bool, str], tuple[int, bool, str]]]:
    """Seconds since 1970 of each change, with (UTC offset in seconds, is DST, abbreviation) before and after it."""
    _, _, isut, isstd, leap, times, types, characters = COUNTS.unpack_from(tzif)
    # The first block has 32-bit times; the second one, of the same form with 64-bit times, is behind it.
    at = COUNTS.size + times * 5 + types * 6 + characters + leap * 8 + isstd + isut
    _, _, isut, isstd, leap, times, types, characters = COUNTS.unpack_from(tzif, at)
    at += COUNTS.size
    moments = struct.unpack_from(f">{times}q", tzif, at)
    kinds = tzif[at + times * 8 : at + times * 9]
    at += times * 9
    rows = [struct.unpack_from(">iBB", tzif, at + 6 * number) for number in range(types)]
    names = tzif[at + 6 * types : at + 6 * types + characters]
    states = [(offset, bool(dst), names[name : names.index(0, name)].decode()) for offset, dst, name in rows]
    before = states[0]
    for moment, kind in zip(moments, kinds, strict=True):
        yield moment, before, states[kind]
        before = states[kind]


def shown(state: tuple[int, bool, str]) -> str:
    offset, _, name = state
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    return f"{sign}{minutes // 60:02}:{minutes % 60:02} {name}"


def main() -> None:
    table = (ZONEINFO / "zone1970.tab").read_text().splitlines()
    zones = sorted(line.split("\t")[2] for line in table if line and not line.startswith("#"))
    changes = []
    for zone in zones:
        for moment, before, after in transitions((ZONEINFO / zone).read_bytes()):
            instant = datetime.datetime.fromtimestamp(moment, datetime.UTC) if abs(moment) < 1 << 35 else None
            if instant is not None and FIRST_YEAR <= instant.year <= LAST_YEAR and before != after:
                changes.append((instant.strftime("%Y-%m-%dT%H:%M:%SZ"), zone, before, after))
    for instant, zone, before, after in sorted(changes):
        print(zone, "DST" if after[1] else "STD", instant, shown(before), shown(after), sep="\t")
    print(f"{len(changes)} changes in {len(zones)} zones", file=sys.stderr)


if __name__ == "__main__":
    main()
