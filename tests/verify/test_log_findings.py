"""Damage to the log of real replicas: exactly what was done is found, at exactly the entry that has it."""

import builtins
import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import Found, Replicas, as_found
from derived_store import cut_out, made_once
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from disk.real_disk import RealDisk
from dledger.entry import ENTRY_HEADER, EntryKind
from dledger.log.synced_mark import SyncedMarkFile
from verify.findings import Kind

HEADER_FIELDS = [
    # name, first byte, size, kind of the finding
    ("magic", 0, 4, Kind.DAMAGED_HEADER),
    ("size", 4, 4, Kind.DAMAGED_HEADER),
    ("index", 8, 8, Kind.DAMAGED_HEADER),
    ("term", 16, 8, Kind.NON_MONOTONIC_TERM),
    ("pos", 24, 8, Kind.WRONG_POS),
    ("channel", 32, 4, Kind.CHAIN_CRC),
    ("chain_crc", 36, 4, Kind.CHAIN_CRC),
    ("body_crc", 40, 4, Kind.BODY_CRC),
    ("body_length", 44, 4, Kind.DAMAGED_HEADER),
]
NOT_LOG = shutil.ignore_patterns("index")


@pytest.fixture
def group(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    return copy_of(made_once(tmp_path_factory), tmp_path)


def copy_of(template: Path, directory: Path) -> Replicas:
    roots = [directory / name for name in ("n0", "n1", "n2")]
    for root in roots:
        shutil.copytree(template / root.name, root, ignore=NOT_LOG)
    return Replicas(roots)


def test_replicas_of_three_terms_and_five_files_are_clean(group: Replicas) -> None:
    report = group.report()
    assert report.findings.shown == ()
    assert report.is_clean
    assert report.common_index == report.committed_index == group.places[-1].index
    for replica in report.replicas:
        assert replica.file_count >= 5
        assert len(replica.term_runs) >= 3
        assert all(run.leader_host for run in replica.term_runs)


@pytest.mark.parametrize(("field", "at", "size", "kind"), HEADER_FIELDS)
@pytest.mark.parametrize("end", ["first byte", "last byte"])
def test_a_flipped_bit_in_a_header_is_found_at_its_entry(
    group: Replicas, field: str, at: int, size: int, kind: Kind, end: str
) -> None:
    place = group.places[300]
    group.flip("n1", place.pos + at + (0 if end == "first byte" else size - 1), 0x10)
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [Found(kind, "n1", 300, 300)]
    assert findings[0].file == group.file("n1", place.pos)


@pytest.mark.slow
@pytest.mark.parametrize(("field", "at", "size", "kind"), HEADER_FIELDS)
def test_a_flipped_bit_in_the_header_of_a_state_record_is_nothing_else(
    group: Replicas, field: str, at: int, size: int, kind: Kind
) -> None:
    state = [place.index for place in group.places if group.header("n0", place.index).kind == EntryKind.STATE]
    index = state[len(state) // 2]
    for name in ("n0", "n1", "n2"):
        group.flip(name, group.places[index].pos + at + size - 1)
    # Where all have it, whoever is replayed has it.
    kinds = {kind, Kind.CHAIN_CRC} if field == "term" else {kind}
    found = group.found()
    assert {one.kind for one in found} <= kinds
    assert [one[1:] for one in found] == [(name, index, index, 1) for name in ("n0", "n1", "n2")]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["first", "last", "first of a file", "last of a file"])
@pytest.mark.parametrize(("field", "at", "size", "kind"), HEADER_FIELDS)
def test_a_flipped_bit_at_an_edge_of_the_log_is_found_at_its_entry(
    group: Replicas, which: str, field: str, at: int, size: int, kind: Kind
) -> None:
    index = {
        "first": 0,
        "last": group.places[-1].index,
        "first of a file": first_of_file(group, 3),
        "last of a file": first_of_file(group, 3) - 1,
    }[which]
    group.flip("n2", group.places[index].pos + at + size - 1, 0x40)
    found = group.found()
    # Nothing behind the last entry and no term before the first can say that a term rose too far.
    kinds = {kind, Kind.CHAIN_CRC} if field == "term" else {kind}
    assert [(one.replica, one.first_index, one.last_index, one.count) for one in found] == [
        ("n2", index, index, 1)
    ]
    assert found[0].kind in kinds


def first_of_file(group: Replicas, number: int) -> int:
    return next(place.index for place in group.places if place.pos == number * group.file_size)


def test_a_flipped_bit_in_a_body_is_found_at_its_entry(group: Replicas) -> None:
    group.flip("n0", group.places[123].end_pos - 1)
    assert group.found() == [Found(Kind.BODY_CRC, "n0", 123, 123)]


@pytest.mark.parametrize("at", [0, 4, 8, -1])
def test_a_flipped_bit_in_a_blank_is_found(group: Replicas, at: int) -> None:
    start = group.places[first_of_file(group, 3) - 1].end_pos
    pos = start + at if at >= 0 else 3 * group.file_size - 1
    group.flip("n1", pos)
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [Found(Kind.BAD_BLANK, "n1")]
    assert findings[0].file == group.file("n1", start)


def test_a_blank_that_was_never_written_is_found(group: Replicas) -> None:
    start = group.places[first_of_file(group, 2) - 1].end_pos
    group.write("n1", start, bytes(8))
    assert group.found() == [Found(Kind.BAD_BLANK, "n1")]


def test_a_zeroed_block_is_the_body_that_it_cut_and_the_headers_that_it_took(group: Replicas) -> None:
    first = next(place for place in group.places if place.index > 100 and place.end_pos - place.pos > 300)
    start = first.pos + 200
    last = next(place for place in group.places if place.pos < start + 4096 - 48 < place.end_pos)
    assert last.pos // group.file_size == start // group.file_size
    group.write("n1", start, bytes(last.pos + 48 - start))
    assert group.found() == [
        Found(Kind.DAMAGED_HEADER, "n1", first.index + 1, last.index, last.index - first.index),
        Found(Kind.BODY_CRC, "n1", first.index, first.index),
    ]


def test_a_block_of_garbage_is_found_as_a_range(group: Replicas) -> None:
    first, last = group.places[200], group.places[204]
    group.write("n1", first.pos, b"\xa5" * (last.pos + 10 - first.pos))
    assert group.found() == [Found(Kind.DAMAGED_HEADER, "n1", 200, 204, 5)]


def test_a_zeroed_file_is_the_range_of_its_entries(group: Replicas) -> None:
    first, behind = first_of_file(group, 2), first_of_file(group, 3)
    group.write("n1", 2 * group.file_size, bytes(group.file_size))
    assert group.found() == [Found(Kind.DAMAGED_HEADER, "n1", first, behind - 1, behind - first)]


def test_damaged_entries_that_follow_each_other_are_one_finding(group: Replicas) -> None:
    for index in (310, 311, 312):
        group.flip("n2", group.places[index].end_pos - 1)
    assert group.found() == [Found(Kind.BODY_CRC, "n2", 310, 312, 3)]


def test_a_file_that_is_gone_is_found_with_its_entries(group: Replicas) -> None:
    first, behind = first_of_file(group, 3), first_of_file(group, 4)
    group.path("n2", 3 * group.file_size).unlink()
    assert group.found() == [Found(Kind.MISSING_FILE, "n2", first, behind - 1, behind - first)]
    assert group.findings()[0].file == group.file("n2", 3 * group.file_size)


def test_a_file_cut_short_is_found_with_the_entries_that_it_lost(group: Replicas) -> None:
    place, behind = group.places[first_of_file(group, 2) + 5], first_of_file(group, 3)
    path = group.path("n0", place.pos)
    with path.open("r+b") as file:
        file.truncate(place.pos % group.file_size + 100)
    assert group.found() == [Found(Kind.MISSING_FILE, "n0", place.index, behind - 1, behind - place.index)]


def test_a_file_cut_short_in_its_blank_is_found(group: Replicas) -> None:
    start = group.places[first_of_file(group, 3) - 1].end_pos
    with group.path("n0", start).open("r+b") as file:
        file.truncate(start % group.file_size + 8)
    assert group.found() == [Found(Kind.MISSING_FILE, "n0")]


def test_two_swapped_files_each_say_where_they_belong(group: Replicas) -> None:
    bounds = [first_of_file(group, number) for number in (2, 3, 4, 5)]
    one, other = group.path("n1", 2 * group.file_size), group.path("n1", 4 * group.file_size)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert [(finding.kind, finding.replica, finding.file) for finding in group.findings()] == [
        (Kind.WRONG_FILE_BASE, "n1", group.file("n1", 2 * group.file_size)),
        (Kind.WRONG_FILE_BASE, "n1", group.file("n1", 4 * group.file_size)),
    ]
    # What is in them, not what should be.
    assert [(finding.first_index, finding.last_index) for finding in group.findings()] == [
        (bounds[2], bounds[3] - 1),
        (bounds[0], bounds[1] - 1),
    ]


def test_two_neighbouring_files_swapped(group: Replicas) -> None:
    one, other = group.path("n1", 2 * group.file_size), group.path("n1", 3 * group.file_size)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert [(finding.kind, finding.replica, finding.file) for finding in group.findings()] == [
        (Kind.WRONG_FILE_BASE, "n1", group.file("n1", 2 * group.file_size)),
        (Kind.WRONG_FILE_BASE, "n1", group.file("n1", 3 * group.file_size)),
    ]


def test_bytes_behind_the_end_are_found(group: Replicas) -> None:
    group.write("n2", group.end_pos + 512, b"left over")
    assert group.found() == [Found(Kind.STALE_BYTES, "n2")]


def test_headers_that_claim_what_lies_behind_them_are_damage_of_what_they_lie_on(group: Replicas) -> None:
    first, last = group.places[300], group.places[303]
    assert first.pos // group.file_size == last.pos // group.file_size
    file_end = first.pos - first.pos % group.file_size + group.file_size
    for pos in range(first.pos, last.pos - 47, 48):
        size = file_end - pos
        group.write("n1", pos, ENTRY_HEADER.pack(1, size, 5, 1, pos, 0, 7, 7, size - 48))
    assert group.found() == [Found(Kind.DAMAGED_HEADER, "n1", 300, 302, 3)]


def test_what_only_looks_like_a_data_file_is_none(group: Replicas) -> None:
    data = group.path("n1", 0).parent
    for name in ("17", "9" * 20, "²", "٣" * 20, f"{group.file_size}.old"):
        (data / name).write_bytes(b"x")
    (data / f"{40 * group.file_size:020d}").mkdir()
    (data / f"{41 * group.file_size:020d}").symlink_to(data / "nowhere")
    assert group.found() == []


@pytest.mark.parametrize("name", ["n0", "n1"])
@pytest.mark.parametrize("content", [b"", b"x", bytes(100)])
def test_a_file_whose_name_lies_inside_of_another_is_found(
    group: Replicas, name: str, content: bytes
) -> None:
    stray = group.path(name, 0).parent / f"{group.file_size + 17:020d}"
    stray.write_bytes(content)
    assert group.found() == [Found(Kind.WRONG_FILE_BASE, name)]
    assert group.findings()[0].file == f"dledger-{name}/data/{stray.name}"


def test_a_log_that_ends_before_its_own_commit_is_found(group: Replicas) -> None:
    last = group.places[-1].index
    start = group.places[-3].pos
    group.write("n1", start, bytes(group.end_pos - start))
    assert group.found() == [
        Found(Kind.COMMIT_BEYOND_END, "n1", last - 2, last, 3),
        Found(Kind.SHORTER_REPLICA, "n1", last - 2, last, 3),
    ]


def test_the_last_file_gone_is_a_log_that_ends_before_its_commit(group: Replicas) -> None:
    last = group.places[-1]
    first = next(
        place.index for place in group.places if place.pos // group.file_size == last.pos // group.file_size
    )
    for path in group.path("n1", 0).parent.iterdir():
        if int(path.name) >= last.pos - last.pos % group.file_size:
            path.unlink()
    count = last.index - first + 1
    assert group.found() == [
        Found(Kind.COMMIT_BEYOND_END, "n1", first, last.index, count),
        Found(Kind.SHORTER_REPLICA, "n1", first, last.index, count),
    ]


def test_the_first_files_gone_are_missed_where_the_mark_says_that_the_log_begins_with_them(
    group: Replicas,
) -> None:
    behind = first_of_file(group, 2)
    for number in range(2):
        group.path("n2", number * group.file_size).unlink()
    assert group.found() == [Found(Kind.MISSING_FILE, "n2", 0, behind - 1, behind)]
    assert group.findings()[0].file == group.file("n2", 0)


def test_the_first_files_gone_are_retention_where_the_mark_was_moved_before(group: Replicas) -> None:
    behind = first_of_file(group, 3)
    for number in range(2):
        group.path("n2", number * group.file_size).unlink()
    # It was to delete one more.
    move_begin(group, "n2", behind - 1)
    assert group.found() == []
    group.path("n2", 2 * group.file_size).unlink()
    assert group.found() == []
    group.path("n2", 3 * group.file_size).unlink()
    last = first_of_file(group, 4) - 1
    assert group.found() == [Found(Kind.MISSING_FILE, "n2", behind, last, last - behind + 1)]
    assert group.findings()[0].file == group.file("n2", 3 * group.file_size)


def move_begin(group: Replicas, name: str, index: int) -> None:
    """Has the synced mark say that `index` is the last entry that retention took."""
    path = group.path(name, 0).parent.parent / "pydledger"
    mark_file = SyncedMarkFile(RealDisk(), str(path))
    assert mark_file.mark is not None
    header = group.header("n0", index)
    before = (header.index, header.term, header.chain_crc)
    fields = ("before_begin_index", "before_begin_term", "before_begin_chain")
    mark_file.write(replace(mark_file.mark, **dict(zip(fields, before, strict=True))))
    mark_file.close()


@pytest.mark.parametrize("kept", [20, 47, 60])
def test_a_tail_zeroed_from_inside_an_entry_on_ends_before_its_own_commit(group: Replicas, kept: int) -> None:
    last, place = group.places[-1].index, group.places[-4]
    group.write("n1", place.pos + kept, bytes(group.end_pos - place.pos - kept))
    assert group.found() == [
        Found(Kind.BODY_CRC if kept > 48 else Kind.DAMAGED_HEADER, "n1", last - 3, last - 3),
        Found(Kind.COMMIT_BEYOND_END, "n1", last - 2, last, 3),
        Found(Kind.SHORTER_REPLICA, "n1", last - 2, last, 3),
    ]


def test_garbage_over_the_last_entries_is_one_range(group: Replicas) -> None:
    last, place = group.places[-1].index, group.places[-4]
    group.write("n1", place.pos, b"x" * (group.end_pos - place.pos))
    assert group.found() == [Found(Kind.DAMAGED_HEADER, "n1", last - 3, last, 4)]


def test_damage_behind_a_raised_term_is_damage_and_not_the_log_s_end(group: Replicas) -> None:
    group.flip("n0", group.places[498].pos + 16, 0x20)
    group.flip("n0", group.places[499].pos + 29, 0x10)
    assert [(found.replica, found.first_index, found.last_index) for found in group.found()] == [
        ("n0", 498, 498),
        ("n0", 499, 499),
    ]


def test_an_index_raised_behind_damage_hides_nothing(group: Replicas) -> None:
    group.flip("n0", group.places[498].end_pos - 1)
    group.flip("n0", group.places[499].pos + 9)
    assert group.found() == [
        Found(Kind.DAMAGED_HEADER, "n0", 499, 499),
        Found(Kind.BODY_CRC, "n0", 498, 498),
    ]


def test_a_file_that_cannot_be_read_is_found(group: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    first, behind = first_of_file(group, 3), first_of_file(group, 4)
    broken = str(group.path("n1", 3 * group.file_size))
    really_open = builtins.open

    def open_unless_broken(file: object, *args: object, **named: object) -> object:
        if str(file) == broken:
            raise OSError(errno.EIO, "Input/output error")
        return really_open(file, *args, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", open_unless_broken)
    assert group.found() == [Found(Kind.UNREADABLE_FILE, "n1", first, behind - 1, behind - first)]
    assert group.findings()[0].file == group.file("n1", 3 * group.file_size)


def flip_body(group: Replicas, name: str, index: int) -> Found:
    group.flip(name, group.places[index].end_pos - 1)
    return Found(Kind.BODY_CRC, name, index, index)


def flip_field(at: int, kind: Kind) -> Callable[[Replicas, str, int], Found]:
    def flip(group: Replicas, name: str, index: int) -> Found:
        group.flip(name, group.places[index].pos + at, 0x10)
        return Found(kind, name, index, index)

    return flip


def test_ten_kinds_of_damage_at_once_are_ten_findings(group: Replicas) -> None:
    expected = [
        flip_body(group, "n0", 20),
        flip_field(0, Kind.DAMAGED_HEADER)(group, "n1", 40),
        flip_field(15, Kind.DAMAGED_HEADER)(group, "n2", 60),
        flip_field(20, Kind.NON_MONOTONIC_TERM)(group, "n0", 130),
        flip_field(28, Kind.WRONG_POS)(group, "n1", 150),
        flip_field(37, Kind.CHAIN_CRC)(group, "n2", 170),
    ]
    first, behind = first_of_file(group, 3), first_of_file(group, 4)
    group.path("n1", 3 * group.file_size).unlink()
    expected.append(Found(Kind.MISSING_FILE, "n1", first, behind - 1, behind - first))
    group.flip("n2", 5 * group.file_size - 1)
    expected.append(Found(Kind.BAD_BLANK, "n2"))
    group.write("n0", group.end_pos + 100, b"left over")
    expected.append(Found(Kind.STALE_BYTES, "n0"))
    last = group.places[-1].index
    group.write("n2", group.places[-2].pos, bytes(group.end_pos - group.places[-2].pos))
    expected.append(Found(Kind.COMMIT_BEYOND_END, "n2", last - 1, last, 2))
    expected.append(Found(Kind.SHORTER_REPLICA, "n2", last - 1, last, 2))
    assert sorted(group.found(), key=repr) == sorted(expected, key=repr)


def test_the_list_is_capped_and_the_totals_are_not(group: Replicas) -> None:
    for index in range(100, 140, 2):
        group.flip("n1", group.places[index].end_pos - 1)
    findings = group.report(findings_max=5).findings
    assert len(findings.shown) == 5
    assert findings.left_out == 15
    assert findings.totals == {Kind.BODY_CRC: 20}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    return copy_of(made_once(tmp_path_factory), tmp_path_factory.mktemp("shared"))


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_flipped_bit_below_the_end_is_found_at_the_entry_that_holds_it(
    shared: Replicas, data: st.DataObject
) -> None:
    pos = data.draw(st.integers(0, shared.end_pos - 1))
    if data.draw(st.booleans()):
        place = data.draw(st.sampled_from(shared.places))
        pos = place.pos + data.draw(st.integers(0, 47))
    mask = 1 << data.draw(st.integers(0, 7))
    shared.flip("n1", pos, mask)
    try:
        findings = shared.findings()
    finally:
        shared.flip("n1", pos, mask)
    holder = next((place.index for place in shared.places if place.pos <= pos < place.end_pos), None)
    assert [finding.replica for finding in findings] == ["n1"]
    assert findings[0].first_index == findings[0].last_index == holder
    assert (findings[0].kind is Kind.BAD_BLANK) is (holder is None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single-5.5.0-clean", "single-4.9.5-clean"])
def test_recorded_stores_of_java_are_clean(tmp_path: Path, name: str) -> None:
    group = Replicas([cut_out(name, tmp_path)])
    assert group.found() == []


@pytest.mark.slow
def test_recorded_replicas_of_java_are_clean(tmp_path: Path) -> None:
    roots = [cut_out("dledger-5.5.0-3nodes", tmp_path, root=name) for name in ("n0", "n1", "n2")]
    report = Replicas(roots).report()
    assert report.findings.shown == ()
    assert report.common_index == report.committed_index == 2110
    assert [(run.term, run.first_index, run.last_index) for run in report.replicas[0].term_runs] == [
        (1, 0, 849),
        (2, 850, 1468),
        (3, 1469, 2110),
    ]


@pytest.mark.slow
def test_a_flipped_body_of_a_java_entry_is_found_by_its_record(tmp_path: Path) -> None:
    roots = [cut_out("dledger-5.5.0-3nodes", tmp_path, root=name) for name in ("n0", "n1", "n2")]
    group = Replicas(roots)
    group.flip("n1", group.places[1000].pos + 48 + 88 + 5)
    assert group.found() == [Found(Kind.BODY_CRC, "n1", 1000, 1000)]


@pytest.mark.slow
def test_the_torn_tail_of_a_killed_java_store_is_an_info(tmp_path: Path) -> None:
    group = Replicas([cut_out("single-5.5.0-torn", tmp_path)])
    assert [found.kind for found in group.found()] == [Kind.TORN_TAIL]
    assert group.report().is_clean
