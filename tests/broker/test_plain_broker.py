"""What is particular about a broker whose log is a plain CommitLog."""

from pathlib import Path

import pytest
from one_broker import OneBroker, pull_fields, send_fields
from test_send_message import create

from message.batch import BatchMessage, encode_batch
from message.decoder import decode_message
from remoting.codes import RequestCode, ResponseCode
from store.put_message import PutMessage, PutRefusal, PutStatus
from store.state.tables.consumer_offset_table import CommitOffset
from store.system_message import NO_OP_TOPIC, STATE_TOPIC
from verify.replica import open_replica

SMALL = """
mapedFileSizeCommitLog=65536
mapedFileSizeConsumeQueue=2000
fileReservedTime=0
flushConsumeQueueThoroughInterval=500
deleteWhen=0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23
"""


def send(broker: OneBroker, topic: str = "T", size: int = 1000) -> int:
    """The queue offset."""
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), bytes(size))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext_fields["queueOffset"])


@pytest.mark.slow
def test_old_files_go_and_what_is_left_keeps_its_offsets(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    assert send(broker, "Idle") == 0
    broker.store.propose(CommitOffset("g", "T", 0, 5), None, broker.now_ms)
    for _ in range(600):
        send(broker)
        broker.tick(20)
    broker.run_for(30_000)
    begin = broker.store.reads.min_offset("T", 0)
    assert begin > 300
    files = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    assert files[0] == broker.store.reads.min_phy_offset > 0
    for is_clean in (False, True, False):
        broker.close(clean=is_clean)
        broker = OneBroker(tmp_path, SMALL.replace("fileReservedTime=0", "fileReservedTime=9"), is_plain=True)
        assert (broker.store.reads.min_offset("T", 0), broker.store.reads.max_offset("T", 0)) == (begin, 600)
        assert (broker.store.reads.min_offset("Idle", 0), broker.store.reads.max_offset("Idle", 0)) == (1, 1)
        assert broker.store.reads.query_offset("g", "T", 0) == 5
        answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", offset=begin))
        assert decode_message(answer.body).queue_offset == begin
    assert send(broker, "Idle") == 1
    broker.close()
    for path in (tmp_path / "pydledger" / "pydledger").glob("applied-state-*"):
        path.unlink()
    broker = OneBroker(tmp_path, SMALL.replace("fileReservedTime=0", "fileReservedTime=9"), is_plain=True)
    assert (broker.store.reads.min_offset("T", 0), broker.store.reads.max_offset("Idle", 0)) == (begin, 2), (
        "by the log alone"
    )
    assert broker.store.reads.query_offset("g", "T", 0) == 5
    broker.close()


def test_no_client_writes_a_record_that_is_taken_for_one_of_ours(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, is_plain=True)
    for topic in (NO_OP_TOPIC, STATE_TOPIC):
        # Stored as a message, if at all: the flag that makes a record ours is not a client's to set.
        broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic.decode(), f="12"), b"leader of term 9")
        message = PutMessage(topic, 0, b"leader of term 9", b"", 0, 1, bytes(8), sys_flag=12)
        refused = broker.put(message)
        assert isinstance(refused, PutRefusal)
        assert refused.status is PutStatus.MESSAGE_ILLEGAL
    send(broker)
    assert broker.store.reads.applied_index == broker.replica.log.ledger_end_index
    broker.close()
    broker = OneBroker(tmp_path, is_plain=True)
    assert broker.store.term == 2
    broker.close()


def test_how_large_its_index_files_are_is_known_to_readers_of_the_store(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, is_plain=True)
    send(broker)
    broker.close(clean=True)
    mark = open_replica(tmp_path).index_file_mark
    assert mark is not None
    assert (mark.shape.slot_count, mark.shape.index_count_max) == (97, 300)


def test_a_pull_that_meets_damage_is_refused_until_it_is_mended(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    for _ in range(40):
        send(broker)
    broker.close(clean=True)
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    sound = path.read_bytes()
    damage(path, 20 * 20, bytes(60))
    pull = pull_fields("T", offset=20)
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "unit 20 says 0 bytes at 0" in (answer.remark or "")
    broker.run_for(200)
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull)
    assert answer.code == ResponseCode.SUCCESS
    assert decode_message(answer.body).queue_offset == 20
    assert path.read_bytes() == sound
    broker.close()


def test_a_damaged_record_of_a_queue_of_batches_is_refused_and_costs_nobody_else_an_answer(
    tmp_path: Path,
) -> None:
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    create(broker, "B", attributes="+queue.type=BatchCQ")
    body = encode_batch([BatchMessage(0, b"a body that is found", b"UNIQ_KEY\x01K\x02")])
    answer = broker.ask(
        RequestCode.SEND_BATCH_MESSAGE, send_fields("B", 0, "UNIQ_KEY\x01WHOLE\x02", m="true"), body
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    send(broker)
    broker.close(clean=True)
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    (path,) = (tmp_path / "commitlog").glob("0*0")
    damage(path, path.read_bytes().index(body) - 4, b"\x7f")  # of the body's length
    pulls = [broker.new_request(RequestCode.PULL_MESSAGE, pull_fields(t, offset=0)) for t in "TBT"]
    broker.receive(pulls)
    broker.settle()
    answers = [broker.channel.response_to(pull.opaque) for pull in pulls]
    assert [answer and answer.code for answer in answers] == [
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SUCCESS,
    ]
    broker.close()


def test_it_has_nobody_to_hand_over_to_and_says_why(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, is_plain=True)
    for transferee in ({}, {"transfereeId": "n1"}):
        answer = broker.ask(RequestCode.LEADERSHIP_TRANSFER, transferee)
        assert answer.code == ResponseCode.INVALID_PARAMETER, "asking again does not help"
        assert "this is a plain broker" in (answer.remark or "")
    broker.close()


def test_the_scrub_mends_the_units_of_a_plain_broker_too(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    for _ in range(90):
        send(broker)
    broker.close(clean=True)
    broker = OneBroker(tmp_path, SMALL, is_plain=True)
    (path,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    sound = path.read_bytes()
    for at in range(20):
        damage(path, 20 * (2 * at + 1) + at, bytes([sound[20 * (2 * at + 1) + at] ^ 4]))
    scrubber = broker.store.replica.scrubber
    scrubber.start_round(broker.now_ms)
    broker.run_for(2_000)
    assert (scrubber.rounds, scrubber.faults, scrubber.mended) == (1, 1, 1)
    assert broker.store.figures()["consume_queue_mended_total"] == 20
    assert path.read_bytes() == sound
    broker.close()


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
