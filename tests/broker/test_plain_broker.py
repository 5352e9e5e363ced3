"""What is particular about a broker whose log is a plain CommitLog."""

from pathlib import Path

import pytest
from one_broker import OneBroker, pull_fields, send_fields

from message.decoder import decode_message
from pyspark_dledger.replica import open_replica
from remoting.codes import RequestCode, ResponseCode
from store.put_message import PutMessage, PutRefusal, PutStatus
from store.state.state_record import CommitOffset
from store.system_message import NO_OP_TOPIC, STATE_TOPIC

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
    begin = broker.store.min_offset("T", 0)
    assert begin > 300
    files = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    assert files[0] == broker.store.min_phy_offset > 0
    for is_clean in (False, True, False):
        broker.close(clean=is_clean)
        broker = OneBroker(tmp_path, SMALL.replace("fileReservedTime=0", "fileReservedTime=9"), is_plain=True)
        assert (broker.store.min_offset("T", 0), broker.store.max_offset("T", 0)) == (begin, 600)
        assert (broker.store.min_offset("Idle", 0), broker.store.max_offset("Idle", 0)) == (1, 1)
        assert broker.store.query_offset("g", "T", 0) == 5
        answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", offset=begin))
        assert decode_message(answer.body).queue_offset == begin
    assert send(broker, "Idle") == 1
    broker.close()
    for path in (tmp_path / "pydledger" / "pydledger").glob("applied-state-*"):
        path.unlink()
    broker = OneBroker(tmp_path, SMALL.replace("fileReservedTime=0", "fileReservedTime=9"), is_plain=True)
    assert (broker.store.min_offset("T", 0), broker.store.max_offset("Idle", 0)) == (begin, 2), (
        "by the log alone"
    )
    assert broker.store.query_offset("g", "T", 0) == 5
    broker.close()


def test_no_client_writes_a_record_that_is_taken_for_one_of_ours(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, is_plain=True)
    for topic in (NO_OP_TOPIC, STATE_TOPIC):
        # Stored as a message, if at all: the flag that makes a record ours is not a client's to set.
        broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic.decode(), f="12"), b"leader of term 9")
        message = PutMessage(topic, 0, b"leader of term 9", b"", 0, 1, bytes(8), sys_flag=12)
        refused = broker.store.put_messages([message], lambda status: None, broker.now_ms)
        assert isinstance(refused, PutRefusal)
        assert refused.status is PutStatus.MESSAGE_ILLEGAL
    send(broker)
    assert broker.store.applied_index == broker.replica.log.ledger_end_index
    broker.close()
    broker = OneBroker(tmp_path, is_plain=True)
    assert broker.store.term == 2
    broker.close()


def test_how_large_its_index_files_are_is_known_to_readers_of_the_store(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, is_plain=True)
    send(broker)
    broker.close(clean=True)
    shape = open_replica(tmp_path).index_file_shape
    assert shape is not None
    assert (shape.slot_count, shape.index_count_max) == (97, 300)
