from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

import pytest

from message.message_id import offset_message_id, pack_host
from mq.ack_file import AckFile, read_acks
from mq.quickstart import count_lines
from mq.quickstart_reader import RECEIPT
from mq.quickstart_report import QuickstartReport, Received, compare_receipts
from mq.quickstart_sender import End, Ledger
from mq.replica_files import Verdict
from mqclient import MessageQueue, SendError, SendResult, SendStatus

SOUND = Verdict([], 9, "", [], 4)
ALL_RECEIVED = Received(4, 0, 0, 0)
TWO_TERMS: Mapping[int, str] = {1: "n0", 2: "n1"}


def result(phy_offset: int, *, maybe_duplicate: bool = False) -> SendResult:
    offset_msg_id = offset_message_id(pack_host("127.0.0.1:10911"), phy_offset)
    queue = MessageQueue("T", "G", 0)
    return SendResult(SendStatus.SEND_OK, f"KEY{phy_offset}", offset_msg_id, queue, 0, 1, maybe_duplicate)


def ledger() -> Ledger:
    made = Ledger(4)
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
    assert made.acknowledged() == {100: b"line\x010\x02", 200: b"line\x011\x02"}
    assert made.first_trouble == "timed out"


def test_receipts_are_compared_with_what_was_sent(tmp_path: Path) -> None:
    made = ledger()
    assert compare_receipts(made, receipts(tmp_path / "all", 0, 1, 2, 3)) == Received(4, 0, 0, 0)
    assert compare_receipts(made, receipts(tmp_path / "twice", 0, 1, 1, 0, 1)) == Received(5, 3, 0, 0)
    assert compare_receipts(made, receipts(tmp_path / "one", 1, 2)) == Received(2, 0, 1, 0)
    assert compare_receipts(made, receipts(tmp_path / "wrong", 0, 1, body=b"x")) == Received(2, 0, 2, 2)
    assert compare_receipts(made, receipts(tmp_path / "unsent", 0, 1, 77)) == Received(3, 0, 0, 1)


def test_a_receipt_that_is_only_half_written_does_not_count(tmp_path: Path) -> None:
    path = receipts(tmp_path / "torn", 0, 1)
    path.write_bytes(path.read_bytes()[:-1])
    assert compare_receipts(ledger(), path) == Received(1, 0, 1, 0)


def report(
    *,
    received: Received = ALL_RECEIVED,
    leaders: Mapping[int, str] = TWO_TERMS,
    gap_ms: float | None = 99.0,
    verdict: Verdict = SOUND,
    refused: int = 0,
) -> QuickstartReport:
    return QuickstartReport(4, 4, 0, refused, received, leaders, "n0", 1, gap_ms, verdict, "", 1.0)


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
        (report(verdict=Verdict([], 9, "the replicas part behind index 3", [], 4)), "part behind"),
        (report(verdict=Verdict([], 9, "", [100], 4)), "1 acknowledged records are missing"),
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


def test_acknowledgements_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "acks"
    with AckFile(path) as acks:
        acks.note(result(100))
        acks.note(result(200))
    assert read_acks(path) == {100: b"KEY100", 200: b"KEY200"}
    assert read_acks(path, "G") == read_acks(path)
    with pytest.raises(ValueError, match="no acknowledgement of H"):
        read_acks(path, "H")
    path.write_text(path.read_text() + "H\t5\tK\n")
    with pytest.raises(ValueError, match="G, H: choose one"):
        read_acks(path)
    path.write_text("what\n")
    with pytest.raises(ValueError, match="acks:1 is no acknowledgement"):
        read_acks(path)
