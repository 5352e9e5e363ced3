"""What a producer was promised, and replicas that a process is still writing."""

import fcntl
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from damage import Found, Replicas, as_found
from made_store import Entry, three_terms, write_group

from dledger.entry import Index
from dledger.log.committed_mark import COMMITTED_MARK_FILE_NAME, pack_committed_mark
from message.decoder import decode_message
from verify.findings import Kind
from verify.history_check import HistoryError, read_history
from verify.report.text_report import verdict

LOG = three_terms()
LAST = LOG[-1].index


def with_keys(group: Replicas) -> list[dict[str, object]]:
    """A send per entry, as its producer would have noted it."""
    sends: list[dict[str, object]] = []
    for place in group.places:
        record = decode_message(group.read("n0", place.pos + 48, place.end_pos - place.pos - 48))
        sends.append(
            {
                "outcome": "ok",
                "broker": "a",
                "topic": record.topic,
                "queue_id": record.queue_id,
                "queue_offset": place.index,
                "phy_offset": place.pos + 48,
                "msg_id": record.uniq_key,
            }
        )
    return sends


def written(path: Path, sends: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(send) + "\n" for send in sends), encoding="utf-8")
    return path


@pytest.fixture
def group(tmp_path: Path) -> Replicas:
    return Replicas(write_group(tmp_path, LOG, LOG, LOG))


def test_every_acknowledged_message_is_found(group: Replicas, tmp_path: Path) -> None:
    report = group.report(history=written(tmp_path / "h", with_keys(group)))
    assert report.findings.shown == ()
    assert (report.acknowledged, report.acknowledged_found) == (LAST + 1, LAST + 1)


def test_messages_that_no_log_has_are_lost(group: Replicas, tmp_path: Path) -> None:
    sends = with_keys(group)
    sends[5] |= {"msg_id": "another"}
    sends[50] |= {"phy_offset": group.places[50].pos + 49}
    sends[-1] |= {"phy_offset": group.end_pos + 10_000}
    report = group.report(history=written(tmp_path / "h", sends))
    assert [
        (one.kind, one.topic, one.queue_id, one.first_offset, one.last_offset)
        for one in report.findings.shown
    ] == [(Kind.LOST_MESSAGE, "T", 0, index, index) for index in (5, 50, LAST)]
    assert report.acknowledged_found == LAST - 2


def test_only_acknowledged_sends_were_promised_anything(group: Replicas, tmp_path: Path) -> None:
    sends = with_keys(group)
    sends[5] |= {"msg_id": "another", "outcome": "unknown"}
    sends[6] = {"outcome": "fail", "broker": "a", "topic": "T"}
    report = group.report(history=written(tmp_path / "h", sends))
    assert report.findings.shown == ()
    assert report.acknowledged == LAST - 1


def test_a_message_that_one_replica_lost_is_that_replicas_damage(group: Replicas, tmp_path: Path) -> None:
    history = written(tmp_path / "h", with_keys(group))
    group.flip("n1", group.places[70].end_pos - 1)
    assert group.found(history=history) == [Found(Kind.BODY_CRC, "n1", 70, 70)]


def test_a_message_that_all_replicas_lost_is_lost(group: Replicas, tmp_path: Path) -> None:
    history = written(tmp_path / "h", with_keys(group))
    for name in ("n0", "n1", "n2"):
        group.flip(name, group.places[70].end_pos - 1)
    found = group.found(history=history)
    assert found == [
        *(Found(Kind.BODY_CRC, name, 70, 70) for name in ("n0", "n1", "n2")),
        Found(Kind.LOST_MESSAGE),
    ]


def test_a_message_above_the_commit_is_lost(tmp_path: Path) -> None:
    longer = [*LOG, Entry(LAST + 1, 4, "x", key="k")]
    group = Replicas(write_group(tmp_path, longer, LOG, LOG))
    findings = group.findings(history=written(tmp_path / "h", with_keys(group)))
    assert [as_found(finding) for finding in findings] == [
        Found(Kind.LOST_MESSAGE),
        Found(Kind.SHORTER_REPLICA, "n1", LAST + 1, LAST + 1),
        Found(Kind.SHORTER_REPLICA, "n2", LAST + 1, LAST + 1),
    ]
    assert "not committed" in findings[0].sentence


def test_a_history_of_several_brokers_needs_a_choice(group: Replicas, tmp_path: Path) -> None:
    sends = with_keys(group)
    sends[7] |= {"broker": "b"}
    path = written(tmp_path / "h", sends)
    with pytest.raises(HistoryError, match="sends to a, b"):
        read_history(path)
    assert len(read_history(path, "b")) == 1
    with pytest.raises(HistoryError, match="no send to c"):
        read_history(path, "c")


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"outcome": "ok"}',
        *(
            '{"outcome": "ok", "msg_id": "m", "topic": "T", "queue_id": 0, "queue_offset": 0, "phy_offset": '
            + said
            + "}"
            for said in ('"x"', '"7"', "7.5", "1e30", "true", "null", "99999999999999999999")
        ),
    ],
)
def test_a_line_that_is_no_send_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(HistoryError, match="h:2 is no send"):
        read_history(path)


@contextmanager
def running(root: Path) -> Iterator[None]:
    """Another process has the store open; one's own locks cannot be seen."""
    context = multiprocessing.get_context("fork")
    locked, done = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(root / "lock", locked, done))
    process.start()
    try:
        assert locked.wait(30)
        yield
    finally:
        done.set()
        process.join()


def _hold(path: Path, locked: Event, done: Event) -> None:
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        locked.set()
        done.wait(60)


def java_commit(root: Path, index: int) -> None:
    (root / f"dledger-{root.name}" / "checkpoint").write_text(f"endIndex={index}\ncommittedIndex={index}\n")


@pytest.mark.slow
def test_a_running_replica_is_judged_up_to_its_own_commit(group: Replicas) -> None:
    for root in group.roots:
        java_commit(root, 100)
    # It is being written: half an entry, and the rest of the log is still to come.
    group.write("n1", group.places[110].pos + 30, bytes(4096 - (group.places[110].pos + 30) % 4096))
    with running(group.roots[1]):
        report = group.report()
        assert report.findings.shown == ()
        assert [(replica.is_live, replica.end_index) for replica in report.replicas] == [
            (False, LAST),
            (True, 100),
            (False, LAST),
        ]
        assert report.common_index == 100
        group.flip("n1", group.places[99].end_pos - 1)
        assert group.found() == [Found(Kind.BODY_CRC, "n1", 99, 99)]
        group.flip("n1", group.places[99].end_pos - 1)
        # The caller knows of more.
        assert group.report(committed_index=105).replicas[1].end_index == 105
    assert group.found() != []


def told_commit(root: Path, index: int) -> None:
    own = root / f"dledger-{root.name}" / "pydledger"
    own.mkdir(exist_ok=True)
    (own / COMMITTED_MARK_FILE_NAME).write_bytes(pack_committed_mark(Index(index)))


@pytest.mark.slow
def test_running_replicas_are_judged_up_to_what_they_told_last(group: Replicas) -> None:
    """Not only to what a checkpoint of the state says, which comes once a minute."""
    for root in group.roots:
        java_commit(root, 20)
        told_commit(root, 100)
    told_commit(group.roots[2], 90)
    with running(group.roots[0]), running(group.roots[1]), running(group.roots[2]):
        report = group.report()
        assert report.findings.shown == ()
        assert [replica.end_index for replica in report.replicas] == [100, 100, 90]
        assert (report.committed_index, report.common_index) == (100, 90)
        assert verdict(report).detail == (
            "The group has committed up to index 100; n2 runs, and its files told of the commit up to index 90 when "
            "the validation began: no more was looked at."
        )
        group.flip("n1", group.places[99].end_pos - 1)
        assert group.found() == [Found(Kind.BODY_CRC, "n1", 99, 99)]


def test_what_a_process_told_that_runs_no_more_does_not_count(group: Replicas) -> None:
    """After a power loss its file may tell of entries that the disk never got."""
    start = group.places[-2].pos
    for root in group.roots:
        told_commit(root, LAST)
        group.write(root.name, start, bytes(group.end_pos - start))
    assert group.found() == []


@pytest.mark.slow
def test_a_running_replica_that_lacks_what_it_committed_is_found(group: Replicas) -> None:
    for root in group.roots:
        java_commit(root, LAST)
    start = group.places[-2].pos
    group.write("n1", start, bytes(group.end_pos - start))
    with running(group.roots[1]):
        assert group.found() == [Found(Kind.COMMIT_BEYOND_END, "n1", LAST - 1, LAST, 2)]


@pytest.mark.slow
def test_what_running_replicas_acknowledged_is_found_before_their_files_say_that_it_is_committed(
    group: Replicas, tmp_path: Path
) -> None:
    sends = with_keys(group)
    with running(group.roots[0]), running(group.roots[1]), running(group.roots[2]):
        report = group.report(history=written(tmp_path / "h", sends))
        assert report.findings.shown == ()
        assert report.acknowledged_found == LAST + 1
        sends[-1] |= {"msg_id": "another"}
        assert group.found(history=written(tmp_path / "h", sends)) == [Found(Kind.LOST_MESSAGE)]


def test_a_commit_that_the_caller_knows_of_and_no_replica_holds_is_found(group: Replicas) -> None:
    assert group.found(committed_index=LAST) == []
    assert group.found(committed_index=LAST + 5) == [Found(Kind.COMMIT_BEYOND_END, "", LAST + 1, LAST + 5, 5)]
