import json
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import pytest

from message.message_id import offset_message_id, pack_host
from mq.cluster import ClusterError
from mq.history import HistoryFile
from mq.quickstart.command import count_lines, killed_term
from mq.quickstart.reader import RECEIPT
from mq.quickstart.report import QuickstartReport, Received, compare_receipts
from mq.quickstart.sender import End, Ledger
from mqclient import MessageQueue, SendError, SendResult, SendStatus
from verify.findings import Finding, Kind, gather
from verify.validation_report import TermRun, ValidationReport

ALL_RECEIVED = Received(4, 0, 0, 0)
TWO_TERMS: Mapping[int, str] = {1: "n0", 2: "n1"}
FORK = Finding(
    kind=Kind.COMMITTED_DIVERGENCE, replica="n1", first_index=3, last_index=3, sentence="n1 differs"
)
LOST = Finding(
    kind=Kind.LOST_MESSAGE, topic="T", queue_id=0, first_offset=7, last_offset=7, sentence="it is gone"
)


def validation(
    *findings: Finding, common_index: int = 9, acknowledged: int = 4, found: int = 4
) -> ValidationReport:
    return ValidationReport(
        replicas=(),
        findings=gather(findings, 10),
        committed_index=9,
        common_index=common_index,
        queue_count=8,
        acknowledged=acknowledged,
        acknowledged_found=found,
        began_at="2026-11-21T19:30:00Z",
        seconds=1.0,
        runner="in process",
        unit_count=3,
    )


SOUND = validation()


def result(phy_offset: int, *, maybe_duplicate: bool = False) -> SendResult:
    offset_msg_id = offset_message_id(pack_host("127.0.0.1:10911"), phy_offset)
    queue = MessageQueue("T", "G", 0)
    return SendResult(SendStatus.SEND_OK, f"KEY{phy_offset}", offset_msg_id, queue, 0, 1, maybe_duplicate)


def ledger() -> Ledger:
    made = Ledger(4, HistoryFile(None, "T"))
    for line in range(4):
        made.body_crcs[line] = crc32(b"%d" % line)
    made.note(0, result(100))
    made.note(1, result(200))
    made.note(2, SendError("timed out", definite=False, retriable=True, attempts=3))
    made.note(3, SendError("refused", definite=True, retriable=False, attempts=1))
    return made


def receipts(path: Path, *lines: int, body: bytes = b"") -> Path:
    path.write_bytes(b"".join(RECEIPT.pack(line, 0, crc32(body or b"%d" % line)) for line in lines))
    return path


def test_the_ledger_keeps_the_three_ends_apart() -> None:
    made = ledger()
    assert [made.count(end) for end in (End.ACKNOWLEDGED, End.UNKNOWN, End.REFUSED)] == [2, 1, 1]
    assert made.first_trouble == "timed out"


def test_receipts_are_compared_with_what_was_sent(tmp_path: Path) -> None:
    made = ledger()
    assert compare_receipts(made, receipts(tmp_path / "all", 0, 1, 2, 3)) == Received(4, 0, 0, 0)
    assert compare_receipts(made, receipts(tmp_path / "twice", 0, 1, 1, 0, 1)) == Received(5, 3, 0, 0)
    assert compare_receipts(made, receipts(tmp_path / "one", 1, 2)) == Received(2, 0, 1, 0)
    assert compare_receipts(made, receipts(tmp_path / "wrong", 0, 1, body=b"x")) == Received(2, 0, 2, 2)
    assert compare_receipts(made, receipts(tmp_path / "unsent", 0, 1, 77)) == Received(3, 0, 0, 1)


def test_duplicates_that_are_stored_twice_are_told_from_those_handed_out_again(tmp_path: Path) -> None:
    path = receipts(tmp_path / "twice", 0, 1, 1)
    path.write_bytes(path.read_bytes() + RECEIPT.pack(0, 4096, crc32(b"0")))
    assert compare_receipts(ledger(), path) == Received(4, 2, 0, 0, stored_twice=1)


def test_a_receipt_that_is_only_half_written_does_not_count(tmp_path: Path) -> None:
    path = receipts(tmp_path / "torn", 0, 1)
    path.write_bytes(path.read_bytes()[:-1])
    assert compare_receipts(ledger(), path) == Received(1, 0, 1, 0)


def report(
    *,
    received: Received = ALL_RECEIVED,
    leaders: Mapping[int, str] = TWO_TERMS,
    gap_ms: float | None = 99.0,
    proof: ValidationReport = SOUND,
    refused: int = 0,
    killed_in: int = 1,
) -> QuickstartReport:
    return QuickstartReport(4, 4, 0, refused, received, leaders, "n0", killed_in, gap_ms, 9, proof, "", 1.0)


def test_a_run_in_which_all_is_well_holds() -> None:
    assert report().holds
    assert report(received=Received(9, 5, 0, 0)).holds, "duplicates are no loss"


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (report(received=Received(3, 0, 1, 0)), "1 acknowledged messages did not reach"),
        (report(received=Received(4, 0, 0, 1)), "other bytes than were sent"),
        (report(leaders={1: "n0"}), "did not change the term"),
        (report(gap_ms=None), "no send was acknowledged by another leader"),
        (report(killed_in=0), "did not change the term"),
        (report(proof=validation(FORK)), "committed divergence: n1, index 3: n1 differs"),
        (report(proof=validation(LOST, found=3)), "T · queue 0 · offset 7: it is gone"),
        (report(proof=validation(common_index=8)), "equal up to index 8 only, and 9 was committed"),
        (report(proof=validation(acknowledged=3)), "3 of 4 acknowledgements were held against"),
        (report(refused=2), "2 sends were refused"),
    ],
)
def test_each_broken_promise_is_named(made: QuickstartReport, fault: str) -> None:
    assert not made.holds
    assert any(fault in one for one in made.faults())
    assert made.as_dict()["holds"] is False


def test_empty_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\nb\r\n\r\nc")
    assert count_lines(path) == 3


def test_a_file_that_cannot_be_sent_is_told_before_a_cluster_is_started(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"b" * 4_194_305 + b"\nc")
    with pytest.raises(ValueError, match="line 2 is longer than 4194304 bytes"):
        count_lines(path)
    with pytest.raises(ClusterError, match="/dev/zero is no regular file"):
        count_lines(Path("/dev/zero"))


def test_the_killed_leaders_term_is_the_one_that_another_ended() -> None:
    runs = [TermRun(1, 0, 9, "a"), TermRun(2, 10, 19, "a"), TermRun(4, 20, 29, "b"), TermRun(5, 30, 39, "a")]
    assert killed_term(runs, "a") == 2
    assert killed_term(runs, "b") == 4
    assert killed_term(runs[3:], "a") == 0
    assert killed_term([], "a") == 0


def test_a_history_has_a_line_for_each_end_of_a_send(tmp_path: Path) -> None:
    path = tmp_path / "history"
    with HistoryFile(path, "T") as history:
        history.note(1, result(100))
        history.note(2, SendError("timed out", definite=False, retriable=True, attempts=3))
        history.note(3, SendError("refused", definite=True, retriable=False, attempts=1))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {
            "outcome": "ok",
            "broker": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": 0,
            "phy_offset": 100,
            "msg_id": "KEY100",
            "line": 1,
        },
        {"outcome": "unknown", "topic": "T", "line": 2, "reason": "timed out"},
        {"outcome": "fail", "topic": "T", "line": 3, "reason": "refused"},
    ]


def test_without_a_path_a_history_goes_nowhere() -> None:
    with HistoryFile(None, "T") as history:
        history.note(1, result(100))
