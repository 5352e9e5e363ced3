"""Replicas that are sound each by itself, or were written wrong, or were changed by who knew how to."""

import shutil
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from damage import Found, Replicas, as_found
from derived_store import made_once, rewrite_entry
from made_store import Entry, changed, three_terms, write_group, write_log

from disk.real_disk import RealDisk
from dledger.entry import seal_entries
from dledger.log.synced_mark import SyncedMark, SyncedMarkFile
from verify.findings import Kind
from verify.replica import ReplicaError
from verify.runner import LocalRunner
from verify.validation import validate

LOG = three_terms()
LAST = LOG[-1].index


def group_of(directory: Path, *logs: list[Entry], sealed: bool = True) -> Replicas:
    return Replicas(write_group(directory, *logs, sealed=sealed))


@pytest.fixture
def stored(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    """As our own members made them."""
    template = made_once(tmp_path_factory)
    roots = [tmp_path / name for name in ("n0", "n1", "n2")]
    for root in roots:
        shutil.copytree(template / root.name, root)
    return Replicas(roots)


@pytest.mark.parametrize("sealed", [True, False])
def test_equal_logs_are_clean(tmp_path: Path, sealed: bool) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG, sealed=sealed)
    report = group.report()
    assert report.findings.shown == ()
    assert report.committed_index == report.common_index == LAST
    assert report.replicas[0].file_count >= 5


@pytest.mark.parametrize("sealed", [True, False])
def test_a_log_that_leaves_indexes_out_has_a_gap(tmp_path: Path, sealed: bool) -> None:
    log = [entry for entry in LOG if not 50 <= entry.index <= 52]
    group = group_of(tmp_path, log, log, log, sealed=sealed)
    assert group.found() == [Found(Kind.GAP, name, 50, 52, 3) for name in ("n0", "n1", "n2")]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_log_that_has_indexes_twice(tmp_path: Path, sealed: bool) -> None:
    log = [*LOG[:60], *LOG[58:]]
    group = group_of(tmp_path, log, log, log, sealed=sealed)
    assert group.found() == [Found(Kind.DUPLICATE_INDEX, name, 58, 59, 2) for name in ("n0", "n1", "n2")]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_log_whose_entries_are_out_of_order(tmp_path: Path, sealed: bool) -> None:
    log = [*LOG[:50], *LOG[52:54], *LOG[50:52], *LOG[54:]]
    group = group_of(tmp_path, log, log, log, sealed=sealed)
    assert group.found() == [Found(Kind.ORDER, name, 50, 51, 2) for name in ("n0", "n1", "n2")]


@pytest.mark.parametrize("sealed", [True, False])
def test_a_log_in_which_the_term_falls(tmp_path: Path, sealed: bool) -> None:
    log = changed(LOG, 70, 72, term=1)
    group = group_of(tmp_path, log, log, log, sealed=sealed)
    assert group.found() == [Found(Kind.NON_MONOTONIC_TERM, name, 70, 72, 3) for name in ("n0", "n1", "n2")]


def test_java_entries_behind_ours_have_no_chain(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG)
    for place in group.places[-4:]:
        group.write("n0", place.pos + 36, bytes(8))
    assert group.found() == [Found(Kind.CHAIN_CRC, "n0", LAST - 3, LAST, 4)]


@pytest.mark.parametrize("odd", ["n0", "n1", "n2"])
def test_an_entry_that_was_sealed_again_differs_and_the_next_one_does_not_follow(
    stored: Replicas, odd: str
) -> None:
    def other_body(record: bytearray) -> None:
        record[100] ^= 1
        fix_body_crc(record)

    rewrite_entry(stored.roots[int(odd[1])], 200, other_body)
    [finding] = stored.findings()
    assert as_found(finding) == Found(Kind.COMMITTED_DIVERGENCE, odd, 200, 200)
    assert finding.file == stored.file(odd, stored.places[200].pos)
    agreeing = " and ".join(name for name in ("n0", "n1", "n2") if name != odd)
    assert finding.sentence.startswith(f"{agreeing} agree, {odd} stands alone")
    assert f"in {odd} the next entry does not follow" in finding.sentence


def fix_body_crc(record: bytearray) -> None:
    length = int.from_bytes(record[84:88], "big")
    record[8:12] = (crc32(record[88 : 88 + length]) & 0x7FFFFFFF).to_bytes(4, "big")


def test_a_change_whose_whole_chain_was_recomputed_is_found_by_comparing(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, changed(LOG, 70, 70, text="b"), LOG)
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [Found(Kind.COMMITTED_DIVERGENCE, "n1", 70, 70)]
    assert "in n1 the chain holds" in findings[0].sentence
    assert findings[0].sentence.endswith(
        f"; and {LAST - 70} entries after it follow from that: their chain values differ"
    )


def test_a_changed_entry_of_java_is_found_by_comparing(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, changed(LOG, 70, 70, text="b"), sealed=False)
    assert group.found() == [Found(Kind.COMMITTED_DIVERGENCE, "n2", 70, 70)]


def test_another_term_in_the_middle_is_a_divergence(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, changed(LOG, 38, 39, term=2), LOG, sealed=False)
    assert group.found() == [Found(Kind.COMMITTED_DIVERGENCE, "n1", 38, 39, 2)]


def test_where_nobody_agrees_no_replica_is_named(tmp_path: Path) -> None:
    group = group_of(
        tmp_path, LOG, changed(LOG, 60, 60, text="b"), changed(LOG, 60, 60, text="c"), sealed=False
    )
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [Found(Kind.COMMITTED_DIVERGENCE, "", 60, 60)]
    assert findings[0].sentence.startswith("n0 stands alone, n1 stands alone, n2 stands alone")


def test_of_two_replicas_that_differ_none_is_named(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, changed(LOG, 60, 60, text="b"), sealed=False)
    assert group.found() == [Found(Kind.COMMITTED_DIVERGENCE, "", 60, 60)]


def test_tails_above_the_commit_that_differ_are_an_info(tmp_path: Path) -> None:
    one = [*LOG, Entry(LAST + 1, 4, "x"), Entry(LAST + 2, 4, "x")]
    other = [*LOG, Entry(LAST + 1, 5, "y")]
    group = group_of(tmp_path, LOG, one, other)
    report = group.report(committed_index=LAST)
    assert [as_found(finding) for finding in report.findings.shown] == [
        Found(Kind.TAIL_DIFFERENCE, "", LAST + 1, LAST + 1),
        Found(Kind.SHORTER_REPLICA, "n0", LAST + 1, LAST + 2, 2),
        Found(Kind.SHORTER_REPLICA, "n2", LAST + 2, LAST + 2),
    ]
    assert report.is_clean
    assert (report.committed_index, report.common_index) == (LAST, LAST)


def test_the_tail_of_a_leader_that_was_down_while_others_went_on_is_an_info(tmp_path: Path) -> None:
    went_on = [*LOG, *(Entry(index, 5, "new") for index in range(LAST + 1, LAST + 9))]
    was_down = [*LOG, *(Entry(index, 4, "old") for index in range(LAST + 1, LAST + 4))]
    group = group_of(tmp_path, went_on, was_down, went_on)
    report = group.report()
    assert [as_found(finding) for finding in report.findings.shown] == [
        Found(Kind.TAIL_DIFFERENCE, "n1", LAST + 1, LAST + 3, 3),
        Found(Kind.SHORTER_REPLICA, "n1", LAST + 4, LAST + 8, 5),
    ]
    assert report.committed_index == LAST + 8


def test_a_tail_of_the_same_term_as_the_committed_one_is_a_divergence(tmp_path: Path) -> None:
    went_on = [*LOG, *(Entry(index, 5, "new") for index in range(LAST + 1, LAST + 9))]
    other = [*LOG, *(Entry(index, 5, "other") for index in range(LAST + 1, LAST + 4))]
    group = group_of(tmp_path, went_on, other, went_on)
    assert group.found()[0] == Found(Kind.COMMITTED_DIVERGENCE, "n1", LAST + 1, LAST + 3, 3)


def test_a_shorter_replica_is_an_info(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG[:-7], LOG)
    report = group.report()
    assert [as_found(finding) for finding in report.findings.shown] == [
        Found(Kind.SHORTER_REPLICA, "n1", LAST - 6, LAST, 7)
    ]
    assert report.is_clean
    assert (report.committed_index, report.common_index) == (LAST, LAST - 7)


def test_a_replica_without_entries_has_lost_them(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, [])
    assert group.found() == [Found(Kind.EMPTY_REPLICA, "n2", 0, LAST)]


def test_replicas_of_a_group_without_entries_lack_nothing(tmp_path: Path) -> None:
    assert group_of(tmp_path, LOG, [], []).found() == [
        Found(Kind.SHORTER_REPLICA, name, 0, LAST, LAST + 1) for name in ("n1", "n2")
    ], "nothing says that it was committed"


def test_a_replica_that_begins_later_is_whole(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG)
    for number in range(2):
        group.path("n2", number * group.file_size).unlink()
    report = group.report()
    assert report.findings.shown == ()
    assert report.replicas[2].begin_index == next(
        place.index for place in group.places if place.pos == 2 * group.file_size
    )


def torn_by_half_an_entry(group: Replicas) -> None:
    last = group.places[-1]
    middle = (last.pos + last.end_pos) // 2
    group.write("n1", middle, bytes(last.end_pos - middle))


def torn_within_a_header(group: Replicas) -> None:
    last = group.places[-1]
    group.write("n1", last.pos + 20, bytes(last.end_pos - last.pos - 20))


def torn_with_garbage(group: Replicas) -> None:
    last = group.places[-1]
    group.write("n1", last.pos + 8, b"\xa5" * 100)


@pytest.mark.parametrize("tear", [torn_by_half_an_entry, torn_within_a_header, torn_with_garbage])
def test_a_torn_last_entry_is_an_info_after_a_crash_and_damage_after_a_clean_stop(
    tmp_path: Path, tear: Callable[[Replicas], None]
) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG)
    tear(group)
    stopped = group.report()
    assert [
        (one.kind in (Kind.BODY_CRC, Kind.DAMAGED_HEADER), one.first_index) for one in stopped.findings.shown
    ] == [(True, LAST)]
    assert not stopped.is_clean
    (group.roots[1] / "abort").write_bytes(b"")
    crashed = group.report()
    assert [as_found(finding) for finding in crashed.findings.shown] == [
        Found(Kind.TORN_TAIL, "n1", LAST, LAST),
        Found(Kind.SHORTER_REPLICA, "n1", LAST, LAST),
    ]
    assert crashed.is_clean


def test_units_of_what_a_cut_file_lost_behind_other_damage_are_not_extra(stored: Replicas) -> None:
    places = [
        place
        for place in stored.places
        if stored.path("n1", place.pos) == stored.path("n1", 3 * stored.file_size)
    ]
    for place in places[5:7]:
        stored.flip("n1", place.end_pos - 1)
    with stored.path("n1", places[7].pos).open("r+b") as file:
        file.truncate(places[7].pos % stored.file_size + 30)
    lost = places[7].index, places[-1].index
    assert stored.found() == [
        Found(Kind.BODY_CRC, "n1", places[5].index, places[6].index, 2),
        Found(Kind.MISSING_FILE, "n1", *lost, lost[1] - lost[0] + 1),
    ]


def test_damage_below_the_synced_mark_is_damage_after_a_crash_too(stored: Replicas) -> None:
    (stored.roots[1] / "abort").write_bytes(b"")
    last = stored.places[-1]
    stored.flip("n1", last.end_pos - 1)
    assert stored.found() == [Found(Kind.BODY_CRC, "n1", last.index, last.index)]


def test_entries_of_an_older_log_behind_the_end_are_stale(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG[:-2])
    older = Replicas([write_log(tmp_path / "other" / "n0", [*LOG[:-2], *changed(LOG[-2:], 0, LAST, term=2)])])
    for place in older.places[-1:]:
        assert place.pos // group.file_size == group.end_pos // group.file_size
        group.write("n0", place.pos, older.read("n0", place.pos, place.end_pos - place.pos))
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [Found(Kind.STALE_BYTES, "n0")]
    assert f"lies entry {LAST} of term 2, which does not follow" in findings[0].sentence


def test_a_body_that_holds_a_sound_entry_for_its_place_is_a_body(tmp_path: Path) -> None:
    log = changed(three_terms(90), 45, 45, body=bytes(400))
    place = Replicas([write_log(tmp_path / "first" / "n0", log)]).places[45]
    body_at = 100
    inner, _ = seal_entries([b"bait" * 8], [place.pos + 48 + 88 + body_at], 999, 9, 0, 0)
    bait = b"".join(inner)
    body = bytes(body_at) + bait + bytes(400 - body_at - len(bait))
    root = write_log(tmp_path / "n0", changed(log, 45, 45, body=body))
    repeated = []
    for count in (1, 2, 16, 64, 300):
        reading: list[int] = []

        def note(stage: str, done: int, total: int, reading: list[int] = reading) -> None:
            if stage == "reading" and done == 0:
                reading.append(total)

        report = validate([root], runner=LocalRunner(), unit_count=count, on_progress=note)
        assert report.findings.shown == ()
        assert report.replicas[0].entry_count == 90
        repeated.append(len(reading) > 1)
    assert any(repeated), "no unit began between the entry and its bait"


def test_the_only_file_of_a_replica_cut_short_is_found(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG[:10], LOG[:10], LOG[:10])
    place = group.places[7]
    assert place.pos < group.file_size
    with group.path("n1", 0).open("r+b") as file:
        file.truncate(place.pos + 60)
    assert group.found() == [
        Found(Kind.MISSING_FILE, "n1", 7, 7),
        Found(Kind.SHORTER_REPLICA, "n1", 7, 9, 3),
    ]


def test_a_file_cut_short_behind_its_last_entry_is_found(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG)
    with group.path("n1", group.end_pos).open("r+b") as file:
        file.truncate(group.end_pos % group.file_size + 20)
    assert group.found() == [Found(Kind.MISSING_FILE, "n1")]


def test_an_empty_file_is_found_apart_from_the_damage_before_it(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG)
    last = max(place for place in group.places if place.pos < 2 * group.file_size)
    following = [
        place.index for place in group.places if 2 * group.file_size <= place.pos < 3 * group.file_size
    ]
    group.flip("n1", last.end_pos - 1)
    group.flip("n1", last.end_pos)
    group.path("n1", 2 * group.file_size).write_bytes(b"")
    findings = group.findings()
    assert [as_found(finding) for finding in findings] == [
        Found(Kind.BODY_CRC, "n1", last.index, last.index),
        Found(Kind.MISSING_FILE, "n1", following[0], following[-1], len(following)),
        Found(Kind.BAD_BLANK, "n1"),
    ]
    assert findings[1].file == group.file("n1", 2 * group.file_size)


def test_empty_files_one_behind_the_other_are_the_range_of_their_entries(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, LOG)
    lost = [place.index for place in group.places if 2 * group.file_size <= place.pos < 4 * group.file_size]
    for number in (2, 3):
        group.path("n1", number * group.file_size).write_bytes(b"")
    assert group.found() == [Found(Kind.MISSING_FILE, "n1", lost[0], lost[-1], len(lost))]


@pytest.mark.parametrize("between", [0, 1])
def test_data_files_of_different_sizes_are_refused(tmp_path: Path, between: int) -> None:
    """Whatever stands `between` the two without a file that could tell."""
    group = group_of(tmp_path, LOG, *[[]] * between, LOG)
    for path in group.path(group.roots[-1].name, 0).parent.iterdir():
        with path.open("r+b") as file:
            file.truncate(2 * group.file_size)
    with pytest.raises(ReplicaError, match="not of one group"):
        validate(group.roots, runner=LocalRunner())


def test_replicas_of_different_kinds_are_refused(tmp_path: Path) -> None:
    ours = write_log(tmp_path / "n0", LOG)
    other = tmp_path / "n1"
    (other / "commitlog").mkdir(parents=True)
    (other / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    with pytest.raises(ReplicaError, match="n1 a commitlog one"):
        validate([ours, other], runner=LocalRunner())


@pytest.mark.parametrize("line", [b"committedIndex=\xb2", b"endIndex=--5", b"endIndex=" + b"9" * 5000])
def test_a_checkpoint_of_java_that_says_no_number_says_nothing(tmp_path: Path, line: bytes) -> None:
    group = group_of(tmp_path, LOG)
    (group.roots[0] / "dledger-n0" / "checkpoint").write_bytes(line + b"\n")
    assert group.found() == []


def test_a_log_that_began_anew_and_has_no_entry_yet_lacks_nothing(tmp_path: Path) -> None:
    group = group_of(tmp_path, LOG, LOG, [])
    own = tmp_path / "n2" / "dledger-n2" / "pydledger"
    own.mkdir()
    before = group.header("n0", 49)
    chain = before.chain_crc
    end_pos = group.places[49].end_pos
    mark = SyncedMark(
        before.index,
        before.term,
        end_pos,
        chain,
        data_file_size=group.file_size,
        before_begin_index=before.index,
        before_begin_term=before.term,
        before_begin_chain=chain,
    )
    mark_file = SyncedMarkFile(RealDisk(), str(own))
    mark_file.write(mark)
    mark_file.close()
    assert group.found() == [Found(Kind.SHORTER_REPLICA, "n2", 50, LAST, LAST - 49)]
