"""Old entries behind the end of a log: the validator ends the log where the member's own start does, and what lies
behind is one finding, whatever it is.
"""

from pathlib import Path

import pytest
from damage import Found, Replicas
from derived_store import made_once
from msgspec.structs import replace
from store_group import DATA_FILE_SIZE
from test_log_findings import copy_of

from disk.real_disk import RealDisk
from dledger.entry import Pos
from dledger.log.config import LogConfig
from dledger.log.log_store import LogStore
from dledger.log.synced_mark import SyncedMarkFile
from verify.findings import Kind


@pytest.fixture
def group(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Replicas:
    return copy_of(made_once(tmp_path_factory), tmp_path)


def add_stale(group: Replicas, form: str, name: str = "n1") -> None:
    last = group.places[-1].index
    term = group.header("n0", last).term
    index, stale_term, count, at_next_file = {
        "the same indexes from the first on": (0, 1, 60, False),
        "indexes that go on, of an earlier term": (last + 1, term - 1, 60, False),
        "indexes that go on, of the same term": (last + 1, term, 60, False),
        "indexes that go on, of a later term": (last + 1, term + 1, 60, False),
        "indexes far ahead": (last + 5000, term, 60, False),
        "the last index again": (last, term, 3, False),
        "one entry": (last + 1, term, 1, False),
        "over several files": (20, 1, 900, False),
        "in the next file alone": (20, 1, 200, True),
    }[form]
    group.add_stale(name, count, index=index, term=stale_term, at_next_file=at_next_file)


FORMS = pytest.mark.parametrize(
    "form",
    [
        "the same indexes from the first on",
        "indexes that go on, of an earlier term",
        "indexes that go on, of the same term",
        "indexes that go on, of a later term",
        "indexes far ahead",
        "the last index again",
        "one entry",
        "over several files",
        "in the next file alone",
    ],
)


@FORMS
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_old_entries_behind_the_end_are_one_finding(group: Replicas, form: str, stop: str) -> None:
    last = group.places[-1]
    add_stale(group, form)
    if stop == "crash":
        (group.roots[1] / "abort").touch()
    report = group.report()
    [finding] = report.findings.shown
    assert (finding.kind, finding.replica, finding.count) == (Kind.STALE_BYTES, "n1", 1)
    assert f"the log ends at position {last.end_pos} with entry {last.index}; behind it " in finding.sentence
    assert {(one.end_index, one.end_pos, one.entry_count) for one in report.replicas} == {
        (last.index, last.end_pos, len(group.places))
    }
    assert report.common_index == report.committed_index == last.index


@FORMS
def test_the_member_s_own_start_ends_the_log_at_the_same_place(group: Replicas, form: str) -> None:
    add_stale(group, form)
    [found] = [replica for replica in group.report().replicas if replica.name == "n1"]
    directory = str(group.roots[1] / "dledger-n1")
    log = LogStore.open(RealDisk(), LogConfig(directory=directory, data_file_size=DATA_FILE_SIZE))
    assert (log.ledger_end_index, log.ledger_end_pos) == (found.end_index, found.end_pos)
    log.close(clean=True)
    assert group.found() == []


def test_old_entries_in_all_replicas_are_a_finding_for_each(group: Replicas) -> None:
    for name in ("n0", "n1", "n2"):
        add_stale(group, "over several files", name)
    assert group.found() == [Found(Kind.STALE_BYTES, name) for name in ("n0", "n1", "n2")]


def test_damage_to_the_last_entries_is_told_from_old_entries_behind_them(group: Replicas) -> None:
    last = group.places[-1].index
    group.add_stale("n1", 60, index=7, term=1)
    group.flip("n1", group.places[last].end_pos - 1)
    assert group.found() == [Found(Kind.BODY_CRC, "n1", last, last), Found(Kind.STALE_BYTES, "n1")]


def test_entries_that_follow_behind_the_mark_are_the_log_s(group: Replicas) -> None:
    """A mark lags: a crash leaves sound entries behind it, and the next start takes them."""
    (group.roots[1] / "abort").touch()
    mark_file = SyncedMarkFile(RealDisk(), str(group.roots[1] / "dledger-n1" / "pydledger"))
    assert mark_file.mark is not None
    place = group.places[400]
    header = group.header("n1", 400)
    mark_file.write(
        replace(
            mark_file.mark,
            index=header.index,
            term=header.term,
            end_pos=Pos(place.end_pos),
            chain_crc=header.chain_crc,
        )
    )
    mark_file.close()
    assert group.found() == []
    group.add_stale("n1", 60, index=7, term=1)
    assert group.found() == [Found(Kind.STALE_BYTES, "n1")]
