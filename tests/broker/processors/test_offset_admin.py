"""Offsets moved by hand: reset by time, by number, for consumers at work and away; copied to another group."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, commit_fields, heart_beat, pull_fields, send_fields
from test_send_message import create

from remoting.bodies.admin_bodies import ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

RESET = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
SUSPEND = "6"


@pytest.fixture
def sent(broker: OneBroker) -> OneBroker:
    """Five messages in queue 0; the group has consumed all of them."""
    fill(broker)
    return broker


def fill(broker: OneBroker) -> None:
    for _ in range(5):
        assert broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m").code == ResponseCode.SUCCESS
        broker.run_for(1000)
    assert commit(broker, 5).code == ResponseCode.SUCCESS


def commit(broker: OneBroker, offset: int) -> RemotingCommand:
    return broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(offset))


def pull(broker: OneBroker, offset: int, **more: str) -> RemotingCommand:
    return broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", 0, offset, **more))


def reset(broker: OneBroker, **more: str) -> dict[int, int]:
    answer = broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, **more})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = ResetOffsetBody.decode(answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_a_reset_by_time_moves_every_queue(sent: OneBroker) -> None:
    third_ms = sent.store.reads.store_timestamp("T", 0, 2)
    assert reset(sent, timestamp=str(third_ms)) == {0: 2, 1: 0, 2: 0, 3: 0}
    assert sent.store.reads.query_offset("g", "T", 0) == 2


def test_a_negative_time_means_the_end_of_each_queue(sent: OneBroker) -> None:
    commit(sent, 1)
    assert reset(sent, timestamp="-1", queueId="-1", offset="-1") == {0: 5, 1: 0, 2: 0, 3: 0}


def test_one_queue_is_reset_to_an_offset(sent: OneBroker) -> None:
    assert reset(sent, queueId="0", offset="3") == {0: 3}
    assert sent.store.reads.query_offset("g", "T", 0) == 3


def test_an_offset_counts_for_a_queue_that_is_named_alone(broker: OneBroker) -> None:
    """Also where the topic has no other: which queue an offset is meant for is not guessed."""
    create(broker, "T", readQueueNums="1", writeQueueNums="1")
    fill(broker)
    assert reset(broker, offset="3") == {0: 0}
    assert reset(broker, queueId="0", offset="3") == {0: 3}


def test_a_consumer_at_work_is_told_at_its_next_pull_and_cannot_undo_the_reset(sent: OneBroker) -> None:
    reset(sent, queueId="0")
    answer = commit(sent, 5)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
    told = pull(sent, 5, sysFlag="5", commitOffset="5")
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert told.ext_fields["nextBeginOffset"] == "0"
    sent.run_for(100)
    assert sent.store.reads.query_offset("g", "T", 0) == 0
    assert pull(sent, 0).remark == "FOUND"
    assert commit(sent, 4).remark is None
    assert sent.store.reads.query_offset("g", "T", 0) == 4


def test_a_oneway_commit_that_waits_does_not_overtake_the_reset(sent: OneBroker) -> None:
    sent.receive([sent.new_request(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(4), oneway=True)])
    reset(sent, queueId="0", offset="1")
    sent.run_for(100)
    assert sent.store.reads.query_offset("g", "T", 0) == 1


def test_a_pull_behind_the_one_that_is_told_does_not_commit_over_the_reset(sent: OneBroker) -> None:
    reset(sent, queueId="0", offset="1")
    old = pull_fields("T", 0, 5, sysFlag="5", commitOffset="5")
    sent.receive([sent.new_request(RequestCode.PULL_MESSAGE, old) for _ in range(2)])
    sent.run_for(100)
    assert sent.store.reads.query_offset("g", "T", 0) == 1


def test_a_consumer_that_is_told_of_a_reset_while_another_is_on_its_way_is_told_of_both(
    sent: OneBroker,
) -> None:
    reset(sent, queueId="0", offset="3")
    fields = {**RESET, "queueId": "0", "offset": "1"}
    second = sent.new_request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    pulled = sent.new_request(RequestCode.PULL_MESSAGE, pull_fields("T", 0, 5))
    sent.receive([second, pulled])
    sent.run_for(100)
    told = sent.channel.response_to(pulled.opaque)
    assert told is not None
    assert told.ext_fields["nextBeginOffset"] == "3"
    assert commit(sent, 4).remark == "Offset has been previously reset"
    told = pull(sent, 4)
    assert (told.remark, told.ext_fields["nextBeginOffset"]) == ("OFFSET_RESET", "1")


def test_a_held_pull_is_told_at_once(sent: OneBroker) -> None:
    command = sent.new_request(RequestCode.PULL_MESSAGE, pull_fields("T", 0, 5, sysFlag=SUSPEND))
    channel = RecordingChannel(5)
    sent.receive([command], channel)
    assert channel.response_to(command.opaque) is None
    reset(sent, queueId="0")
    told = channel.response_to(command.opaque)
    assert told is not None
    assert told.remark == "OFFSET_RESET"


def test_a_reset_outlives_a_restart_with_its_mark(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    fill(broker)
    reset(broker, queueId="0", offset="1")
    broker.close()
    again = OneBroker(tmp_path, now_ms=broker.now_ms + 1000)
    assert commit(again, 5).remark == "Offset has been previously reset"
    assert pull(again, 5).ext_fields["nextBeginOffset"] == "1"
    again.close()


def test_a_follower_that_is_read_sends_the_consumer_to_the_leader_to_be_told(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "slaveReadEnable=true\n")
    fill(broker)
    reset(broker, queueId="0")
    broker.step_down()
    assert pull(broker, 3).remark == "FOUND", "without a leader there is nowhere to go"
    broker.store.leader_id = "n1"
    told = pull(broker, 3)
    assert (told.code, told.ext_fields["suggestWhichBrokerId"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "0")
    assert told.ext_fields["nextBeginOffset"] == "3"
    broker.close()


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "Topic none does not exist"),
        ({"group": "none"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group none does not exist"),
        (
            {"queueId": "0", "offset": "6"},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 6 not in consume queue range [0-5]",
        ),
        ({"queueId": "4"}, ResponseCode.SYSTEM_ERROR, "queue 4 of topic T: it has 4 to read from"),
    ],
)
def test_resets_that_are_refused(sent: OneBroker, more: dict[str, str], code: int, remark: str) -> None:
    answer = sent.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**RESET, **more})
    assert (answer.code, answer.remark) == (code, remark)
    assert sent.store.reads.query_offset("g", "T", 0) == 5


@pytest.mark.parametrize("is_server_side", ["true", "false"])
def test_a_member_that_does_not_serve_resets_and_copies_nothing(tmp_path: Path, is_server_side: str) -> None:
    broker = OneBroker(tmp_path, f"useServerSideResetOffset={is_server_side}\n")
    fill(broker)
    client = RecordingChannel(5)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    broker.step_down()
    copy = {"srcGroup": "unheard of", "destGroup": "g", "topic": "T", "offline": "true"}
    for code, fields in (
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET),
        (RequestCode.CLONE_GROUP_OFFSET, copy),
    ):
        assert broker.ask(code, fields).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert RequestCode.RESET_CONSUMER_CLIENT_OFFSET not in [command.code for command in client.received]
    broker.close()


def test_without_server_side_resets_the_clients_are_told(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "useServerSideResetOffset=false\n")
    fill(broker)
    answer = broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RESET)
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    client = RecordingChannel(7)
    broker.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), client)
    assert reset(broker)[0] == 0
    (told,) = [c for c in client.received if c.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    table = ResetOffsetBody.decode(told.body).offset_table
    assert {queue.queue_id: offset for queue, offset in table.items()} == {0: 0, 1: 0, 2: 0, 3: 0}
    assert broker.store.reads.query_offset("g", "T", 0) == 5
    commit(broker, 1)
    assert reset(broker, timestamp="-1", isForce="false")[0] == 1
    broker.close()


def test_offsets_are_copied_to_another_group(sent: OneBroker) -> None:
    fields = {"srcGroup": "g", "destGroup": "h", "topic": "T", "offline": "false"}
    assert sent.ask(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUCCESS
    assert sent.store.reads.query_offset("h", "T", 0) == 5
    fields = {"srcGroup": "h", "destGroup": "i"}
    assert sent.ask(RequestCode.CLONE_GROUP_OFFSET, fields).code == ResponseCode.SUCCESS
    assert sent.store.reads.query_offset("i", "T", 0) == 5
    assert (
        sent.ask(RequestCode.CLONE_GROUP_OFFSET, {**fields, "srcGroup": "none"}).code == ResponseCode.SUCCESS
    )


def test_a_topic_that_the_source_s_clients_no_longer_subscribe_is_copied_only_on_demand(
    sent: OneBroker,
) -> None:
    sent.ask(RequestCode.HEART_BEAT, {}, heart_beat("c1", topics=("U",)))
    fields = {"srcGroup": "g", "destGroup": "h", "topic": "T"}
    sent.ask(RequestCode.CLONE_GROUP_OFFSET, {**fields, "offline": "false"})
    assert sent.store.reads.query_offset("h", "T", 0) == -1
    sent.ask(RequestCode.CLONE_GROUP_OFFSET, {**fields, "offline": "true"})
    assert sent.store.reads.query_offset("h", "T", 0) == 5


def test_deleting_a_group_takes_its_marks_along(sent: OneBroker) -> None:
    reset(sent, queueId="0")
    sent.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    assert sent.store.tables.consumer_offset_table.resets == {}
