"""A finding names the entry or the file that was changed, and nothing innocent beside it: what follows is counted."""

from pathlib import Path
from shutil import copy, rmtree

import pytest
from damage import Found, Replicas
from derived_store import made_once
from test_group_findings import fix_body_crc
from test_log_findings import copy_of

from verify.findings import Kind


@pytest.fixture
def group(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    return copy_of(made_once(tmp_path_factory), tmp_path)


def other_body(record: bytearray) -> None:
    record[100] ^= 1
    fix_body_crc(record)


@pytest.mark.parametrize(
    ("number", "files_ahead"),
    [(3, 27), (3, 0.5), (3, -0.5), (3, 1 / 65536), (0, 40), (0, 0.5), (-1, 1), (-1, 5), (-2, 70)],
)
def test_a_renamed_file_is_the_one_finding(group: Replicas, number: int, files_ahead: float) -> None:
    """Wherever its name says that it lies. Its neighbours are not named, nor entries that are there or never were."""
    number %= group.end_pos // group.file_size + 1
    pos = int((number + files_ahead) * group.file_size)
    group.rename("n1", number, pos)
    [finding] = group.findings()
    assert (finding.kind, finding.replica, finding.count) == (Kind.WRONG_FILE_BASE, "n1", 1)
    assert finding.file == f"dledger-n1/data/{pos:020d}"
    assert finding.sentence == (
        f"the file's name says position {pos}, its entries begin with position {number * group.file_size}: was it "
        "renamed? They were looked at in their place"
    )


def test_damage_in_a_renamed_file_is_found_as_well(group: Replicas) -> None:
    place = next(place for place in group.places if place.pos // group.file_size == 3)
    group.flip("n1", group.places[place.index + 5].end_pos - 1)
    group.rename("n1", 3, 70 * group.file_size)
    assert group.found() == [
        Found(Kind.BODY_CRC, "n1", place.index + 5, place.index + 5),
        Found(Kind.WRONG_FILE_BASE, "n1"),
    ]


def test_a_copy_of_a_file_far_behind_the_end_misses_nothing_between(group: Replicas) -> None:
    source = group.path("n1", 3 * group.file_size)
    copy(source, source.parent / f"{40 * group.file_size:020d}")
    [finding] = group.findings()
    assert (finding.kind, finding.file) == (Kind.WRONG_FILE_BASE, group.file("n1", 40 * group.file_size))


@pytest.mark.parametrize("to_the_end", [False, True])
@pytest.mark.parametrize(("index", "term"), [(100, 2), (100, 9), (300, 1)])
def test_one_entry_of_another_term_is_the_one_finding(
    group: Replicas, index: int, term: int, to_the_end: bool
) -> None:
    group.reseal("n1", index, term=term, to_the_end=to_the_end)
    [finding] = group.findings()
    assert (finding.kind, finding.replica) == (Kind.NON_MONOTONIC_TERM, "n1")
    assert (finding.first_index, finding.last_index, finding.count) == (index, index, 1)
    following = group.places[-1].index - index
    told = f"; and {following} entries after it follow from that: their chain values differ"
    assert finding.sentence.endswith(told) is to_the_end


def test_one_entry_of_another_term_in_all_replicas_is_named_alone(group: Replicas) -> None:
    for name in ("n0", "n1", "n2"):
        group.reseal(name, 100, term=9, to_the_end=True)
    assert group.found() == [Found(Kind.NON_MONOTONIC_TERM, name, 100, 100) for name in ("n0", "n1", "n2")]


def test_two_changes_in_a_log_that_was_sealed_again_are_two_findings(group: Replicas) -> None:
    messages = [place.index for place in group.places if place.end_pos - place.pos > 700]
    first, second = messages[50], messages[90]
    group.reseal("n1", second, change=other_body)
    group.reseal("n1", first, change=other_body, to_the_end=True)
    findings = group.findings()
    assert [(one.kind, one.first_index, one.last_index) for one in findings] == [
        (Kind.COMMITTED_DIVERGENCE, first, first),
        (Kind.COMMITTED_DIVERGENCE, second, second),
    ]
    assert f"; and {second - first - 1} entries after it follow from that" in findings[0].sentence


def test_a_wholly_empty_store_among_three_is_a_finding(group: Replicas) -> None:
    rmtree(group.roots[2])
    (group.roots[2] / "dledger-n2" / "data").mkdir(parents=True)
    report = group.report()
    [finding] = report.findings.shown
    assert (finding.kind, finding.replica) == (Kind.EMPTY_REPLICA, "n2")
    assert not report.is_clean
