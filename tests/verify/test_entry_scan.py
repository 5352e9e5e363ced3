"""The sound entries of a log, found alike wherever units and windows begin and end."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from damage import Replicas
from derived_store import cut_out
from made_store import FILE_SIZE, changed, three_terms, write_group, write_log

from dledger.entry import ENTRY_HEADER
from verify.findings import Kind
from verify.log import entry_scan, range_crc
from verify.log.entry_scan import Rest, Run, scan, up_to
from verify.log.range_crc import RangeCrc
from verify.replica import Replica, open_replica
from verify.runner import LocalRunner
from verify.validation import validate
from verify.work import plan

LOG = three_terms(60)


def scanned(replica: Replica, unit_count: int | None = None) -> list[Run | Rest]:
    return [found for unit in plan([replica], unit_count=unit_count) for found in scan(unit)]


def entries(found: Iterable[Run | Rest]) -> list[tuple[int, int, bytes]]:
    """(index, position, bytes) of each entry."""
    told = []
    for run in found:
        if isinstance(run, Run):
            shift = run.first_pos - run.offsets[0]
            for number, (start, end) in enumerate(zip(run.offsets, run.ends, strict=True)):
                index = run.first_index + number if run.first_index >= 0 else -1
                told.append((index, start + shift, run.buffer[start:end]))
    return told


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("window_size", [1 << 22, 1024, 300])
def test_units_and_windows_of_any_size_find_the_same_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool, window_size: int
) -> None:
    replica = open_replica(write_log(tmp_path / "n0", LOG, sealed=sealed))
    whole = entries(scanned(replica))
    assert [index for index, _, _ in whole] == [entry.index for entry in LOG]
    monkeypatch.setattr(entry_scan, "WINDOW_SIZE", window_size)
    monkeypatch.setattr(entry_scan, "_ZEROS", bytes(window_size))
    for count in (1, 2, 7, 16, 61, 200):
        assert entries(scanned(replica, count)) == whole


@pytest.mark.parametrize("unit_count", [1, 5, 33])
def test_runs_and_rests_cover_each_byte_once(tmp_path: Path, unit_count: int) -> None:
    replica = open_replica(write_log(tmp_path / "n0", LOG))
    for unit in plan([replica], unit_count=unit_count):
        at = unit.file.base + unit.start
        for found in scan(unit):
            first, behind = (
                (found.first_pos, found.next_pos) if isinstance(found, Run) else (found.pos, found.end_pos)
            )
            assert first == at
            assert behind > first
            at = behind
        # The last entry may go on into the next unit.
        assert at >= unit.file.base + unit.end


def test_a_run_names_what_is_in_it(tmp_path: Path) -> None:
    replica = open_replica(write_log(tmp_path / "n0", LOG))
    runs = [found for found in scanned(replica) if isinstance(found, Run)]
    assert sum(run.count for run in runs) == len(LOG)
    assert [term for run in runs for term in run.terms] == [entry.term for entry in LOG]
    assert {kind for run in runs for kind in run.kinds} == {0}
    assert all(run.record_shift == 48 and run.has_crcs for run in runs)
    assert runs[0].first_header == runs[0].buffer[:48]


def test_what_is_not_0_in_a_rest_is_told(tmp_path: Path) -> None:
    root = write_log(tmp_path / "n0", LOG[:5])
    group = Replicas([root])
    group.write("n0", group.end_pos + 700, b"x")
    rest = scanned(open_replica(root))[-1]
    assert rest == Rest(group.end_pos, FILE_SIZE, group.end_pos + 701)


def test_a_run_ends_where_the_next_entry_does_not_follow(tmp_path: Path) -> None:
    log = [*LOG[:4], *changed(LOG[6:9], 0, 99, term=1)]
    runs = [
        found for found in scanned(open_replica(write_log(tmp_path / "n0", log))) if isinstance(found, Run)
    ]
    assert [(run.first_index, run.last_index) for run in runs] == [(0, 3), (6, 8)]
    assert runs[0].next_pos == runs[1].first_pos


def test_runs_are_cut_at_an_index(tmp_path: Path) -> None:
    run = scanned(open_replica(write_log(tmp_path / "n0", LOG)))[0]
    assert isinstance(run, Run)
    cut = up_to(run, 4)
    assert cut is not None
    assert (cut.count, cut.first_index, cut.last_index) == (5, 0, 4)
    assert cut.next_pos == run.first_pos + run.offsets[5]
    assert entries([cut]) == entries([run])[:5]
    assert up_to(run, None) is run
    assert up_to(run, -1) is None


def test_the_unwritten_part_of_a_sparse_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log(tmp_path / "n0", LOG[:5])
    size = 256 * 1024 * 1024
    (path,) = (root / "dledger-n0" / "data").iterdir()
    os.truncate(path, size)
    read = 0
    really_pread = os.pread

    def counting(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = really_pread(descriptor, length, offset)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    found = scanned(open_replica(root))
    assert sum(rest.end_pos - rest.pos for rest in found if isinstance(rest, Rest)) > size - FILE_SIZE
    assert read < size // 4


def test_a_commit_log_of_java_is_found_alike(tmp_path: Path) -> None:
    replica = open_replica(cut_out("single-4.9.5-clean", tmp_path))
    whole = entries(scanned(replica))
    assert len(whole) == 1185
    for count in (2, 16, 101):
        assert entries(scanned(replica, count)) == whole


class PicklingRunner(LocalRunner):
    """As workers elsewhere get and give it; results in any order."""

    def map(
        self,
        work: Callable[[Any], Iterable[Any]],
        units: Sequence[Any],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Any]:
        sent = pickle.loads(pickle.dumps((work, list(units))))
        results = list(super().map(sent[0], sent[1], on_done))
        yield from pickle.loads(pickle.dumps(results[::-1]))

    def map_grouped(
        self,
        work: Callable[[Any], Iterable[Any]],
        units: Sequence[Any],
        judge: Callable[[Any, list[Any]], Iterable[Any]],
        on_done: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Any]:
        yield from super().map_grouped(work, units, pickle.loads(pickle.dumps(judge)), on_done)


def test_work_that_is_sent_elsewhere_finds_the_same(tmp_path: Path) -> None:
    group = Replicas(write_group(tmp_path, LOG, changed(LOG, 30, 30, text="b"), LOG))
    group.flip("n2", group.places[20].end_pos - 1)
    here = validate(group.roots, runner=LocalRunner(), unit_count=16)
    there = validate(group.roots, runner=PicklingRunner(), unit_count=16)
    assert here.findings == there.findings
    assert {finding.kind for finding in here.findings.shown} == {Kind.BODY_CRC, Kind.COMMITTED_DIVERGENCE}


def test_headers_that_claim_the_rest_of_the_file_are_not_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    size = 16 * 1024 * 1024
    content = bytearray(size)
    for pos in range(0, 48 * 200, 48):
        length = size - pos - 48
        content[pos : pos + 48] = ENTRY_HEADER.pack(1, size - pos, 1, 1, pos, 0, 7, 7, length)
    last = 48 * 200
    body = bytes(size - last - 48 - 100)
    content[last : last + 48] = ENTRY_HEADER.pack(1, 48 + len(body), 1, 1, last, 0, 7, crc32(body), len(body))
    (data / f"{0:020d}").write_bytes(content)
    read = 0
    really_pread = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal read
        read += count
        return really_pread(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    found = scanned(open_replica(tmp_path), 1)
    assert [run.first_pos for run in found if isinstance(run, Run)] == [last]
    assert read < 5 * size


@pytest.mark.parametrize("size", [0, 1, 5, 47, 48, 49, 200])
def test_a_range_s_crc_is_that_of_its_bytes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_crc, "BLOCK_SIZE", 16)
    data = bytes(number * 7 % 251 for number in range(600))
    crcs = RangeCrc(lambda offset, count: data[offset : offset + count])
    for offset in (100, 100, 101, 116, 300, 20, 399):
        assert crcs.of(offset, size) == crc32(data[offset : offset + size])
