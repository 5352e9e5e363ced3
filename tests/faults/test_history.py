"""The history file: what is written is read, whatever a kill left of its last line, and `mq validate` reads it too."""

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_history import made_history, of_kind
from made_kinds import made_kinds

from faults.history import (
    AnyRecord,
    Delivered,
    Healed,
    HistoryWriter,
    LeaderSeen,
    Poll,
    Send,
    read_history,
    read_records,
)
from mq.history import send_as_dict
from mqclient import MessageQueue, SendError, SendResult, SendStatus
from verify.history_check import HistoryError
from verify.history_check import read_history as acknowledged_of


def written(path: Path, records: list[AnyRecord]) -> Path:
    with HistoryWriter(path) as history:
        for record in records:
            history.note(record)
    return path


@pytest.fixture
def records() -> list[AnyRecord]:
    return made_history(random.Random(1))


def test_what_is_noted_is_read(tmp_path: Path, records: list[AnyRecord]) -> None:
    assert list(read_records(written(tmp_path / "h", records))) == records


def test_records_of_all_kinds_of_messages_are_read_and_passed_over_by_mq_validate(tmp_path: Path) -> None:
    kinds = made_kinds(random.Random(1))
    path = written(tmp_path / "h", kinds)
    assert list(read_records(path)) == kinds
    assert acknowledged_of(path) == []


def test_a_delivery_need_not_say_when_it_was_stored(tmp_path: Path) -> None:
    """As Java's recorder leaves it out."""
    fields = '"offset": 0, "next_offset": 1, "messages": [[0, "p", 7, "id"]]'
    (tmp_path / "h").write_text(f'{{"kind": "poll", "at_ns": 1, {QUEUE}, {fields}}}\n')
    (poll,) = of_kind(read_records(tmp_path / "h"), Poll)
    assert poll.messages == (Delivered(0, "p", 7, "id", store_ms=0),)


def test_a_record_is_on_file_before_the_next_step(tmp_path: Path, records: list[AnyRecord]) -> None:
    with HistoryWriter(tmp_path / "h") as history:
        history.note(records[0])
        assert list(read_records(tmp_path / "h")) == records[:1]


def test_a_file_that_is_there_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("")
    with pytest.raises(FileExistsError):
        HistoryWriter(tmp_path / "h")


@given(st.data())
def test_wherever_a_kill_cuts_the_last_line_what_is_before_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    records = made_history(random.Random(2), steps=20)
    path = written(tmp_path_factory.mktemp("cut") / "h", records)
    whole = path.read_bytes()
    size = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:size])
    assert list(read_records(path)) == records[: whole[:size].count(b"\n")]
    acknowledged_of(path)


QUEUE = '"group": "g", "consumer": "c", "broker": "a", "topic": "T", "queue_id": 0'
SEND = '"kind": "send", "at_ns": 1, "begun_ns": 1, "producer": "p", "topic": "T"'


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"kind": "sent", "at_ns": 1}',
        '{"kind": "healed"}',
        "\xff",
        "{" + SEND + ', "sequence": 0, "outcome": "ok"}',
        "{" + SEND + ', "sequence": 0, "outcome": "perhaps"}',
        "{" + SEND + ', "sequence": -1, "outcome": "fail"}',
        "{" + QUEUE + ', "kind": "assigned", "at_ns": 1, "offset": -1}',
        "{" + QUEUE + ', "kind": "poll", "at_ns": 1, "offset": 0, "next_offset": 1000000000000000}',
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "h", [Healed(at_ns=1)])
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    with pytest.raises(HistoryError, match="h:2 is no record"):
        list(read_records(path))


def test_a_file_whose_time_falls_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "h", [Healed(at_ns=2), Healed(at_ns=1)])
    with pytest.raises(HistoryError, match="h:2 is older"):
        list(read_records(path))


@given(st.randoms(use_true_random=False))
def test_files_of_several_processes_are_read_in_the_order_of_time(
    tmp_path_factory: pytest.TempPathFactory, dice: random.Random
) -> None:
    records: list[AnyRecord] = [
        LeaderSeen(at_ns=at_ns, broker="a", term=at_ns, leader="n0", seen_by="n0") for at_ns in range(1, 20)
    ]
    of_whom: list[list[AnyRecord]] = [[], [], []]
    for record in records:
        dice.choice(of_whom).append(record)
    top = tmp_path_factory.mktemp("files")
    paths = [written(top / str(number), own) for number, own in enumerate(of_whom)]
    assert list(read_history(paths)) == records


def test_what_was_acknowledged_is_what_mq_validate_reads(tmp_path: Path, records: list[AnyRecord]) -> None:
    acknowledged = [send for send in of_kind(records, Send) if send.outcome == "ok"]
    assert acknowledged
    read = acknowledged_of(written(tmp_path / "h", records))
    assert sorted((ack.phy_offset, ack.msg_id, ack.queue_id, ack.queue_offset) for ack in read) == sorted(
        (send.phy_offset, send.msg_id, send.queue_id, send.queue_offset) for send in acknowledged
    )


def test_a_send_has_the_fields_that_mq_produce_gives_it() -> None:
    queue = MessageQueue("T", "a", 1)
    for outcome in (
        SendResult(SendStatus.SEND_OK, "id", "7F00000100002A9F0000000000000007", queue, 5, 1, False),
        SendError("timed out", definite=False, retriable=True, attempts=3),
        SendError("refused", definite=True, retriable=False, attempts=1),
    ):
        told = send_as_dict(1, "T", outcome)
        del told["line"]  # mq produce sends lines of a file; here a producer has its sequence
        send = Send(at_ns=2, begun_ns=1, producer="p", sequence=0, **told)
        assert told.items() <= msgspec.to_builtins(send).items()
