"""A topic that was deleted and made again begins empty, by whatever request one asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, commit_fields, pull_fields, send_fields
from test_send_message import CREATE, SEND, create

from message.decoder import decode_messages
from remoting.bodies.admin_bodies import ConsumeStats, TopicStatsTable
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from store.put_message import PutMessage

KEYED = "KEYS\x01k1\x02"


def send(broker: OneBroker, body: bytes, properties: str = KEYED, topic: str = "T") -> int:
    answer = broker.ask(SEND, send_fields(topic, 0, properties), body)
    assert answer.code == ResponseCode.SUCCESS
    return int(answer.ext_fields["queueOffset"])


def delete(broker: OneBroker, topic: str = "T") -> None:
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == ResponseCode.SUCCESS


def bodies(answer: RemotingCommand) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_messages(answer.body)]


def pull(broker: OneBroker, offset: int, group: str = "g", topic: str = "T") -> RemotingCommand:
    return broker.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, 0, offset, consumerGroup=group))


def offset_of_group(broker: OneBroker, group: str) -> RemotingCommand:
    fields = {"consumerGroup": group, "topic": "T", "queueId": "0"}
    return broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)


def found_by_key(broker: OneBroker) -> RemotingCommand:
    fields = {"topic": "T", "key": "k1", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    return broker.ask(RequestCode.QUERY_MESSAGE, fields)


def lag(broker: OneBroker, group: str) -> int:
    answer = broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": "T"})
    offsets = ConsumeStats.decode(answer.body).offset_table.values()
    return sum(item.broker_offset - item.consumer_offset for item in offsets)


def messages_by_status(broker: OneBroker) -> int:
    answer = broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
    offsets = TopicStatsTable.decode(answer.body).offset_table.values()
    return sum(item.max_offset - item.min_offset for item in offsets)


@pytest.fixture(params=["group", "plain"])
def remade(tmp_path: Path, request: pytest.FixtureRequest) -> OneBroker:
    """Ten messages of T were there, four of them consumed by the group g."""
    broker = OneBroker(tmp_path, is_plain=request.param == "plain")
    create(broker, "T")
    for number in range(10):
        send(broker, b"old%d" % number)
    assert bodies(pull(broker, 0))
    broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(4))
    delete(broker)
    create(broker, "T")
    return broker


def test_it_is_empty_at_first(remade: OneBroker) -> None:
    assert messages_by_status(remade) == 0
    assert found_by_key(remade).code == ResponseCode.QUERY_NOT_FOUND
    for group in ("g", "new"):
        assert lag(remade, group) == 0
        assert offset_of_group(remade, group).code == ResponseCode.QUERY_NOT_FOUND
        for offset in (0, 4, 10):
            assert pull(remade, offset, group).code == ResponseCode.PULL_NOT_FOUND
    remade.close()


def test_every_reader_gets_the_new_messages_and_no_other(remade: OneBroker) -> None:
    new = [b"new%d" % number for number in range(6)]
    first = min([send(remade, body) for body in new])
    assert messages_by_status(remade) == 6
    assert bodies(found_by_key(remade)) == new
    for group in ("g", "new"):
        assert lag(remade, group) == 6
        assert offset_of_group(remade, group).ext_fields["offset"] == str(first)
        for offset in (0, 4, first):
            answer = pull(remade, offset, group)
            assert bodies(answer) == new
            assert answer.ext_fields["nextBeginOffset"] == str(first + 6)
    for timestamp in ("0", str(remade.now_ms - 3_600_000)):
        fields = {"topic": "T", "queueId": "0", "timestamp": timestamp}
        found = remade.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        assert found.ext_fields["offset"] == str(first)
    remade.close()


def test_a_consumer_that_stayed_connected_goes_on_with_the_new_messages(remade: OneBroker) -> None:
    """It commits what it had of the old ones, and waits where it was."""
    remade.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(7))
    assert lag(remade, "g") == 0
    held = remade.new_request(
        RequestCode.PULL_MESSAGE, pull_fields("T", 0, 7, sysFlag="6", suspendTimeoutMillis="60000")
    )
    remade.receive([held])
    remade.run_for(10_000)
    assert remade.channel.response_to(held.opaque) is None
    send(remade, b"new")
    answer = remade.channel.response_to(held.opaque)
    assert answer is not None
    assert bodies(answer) == [b"new"]
    remade.close()


@pytest.mark.parametrize("is_made_before", [True, False])
def test_delayed_messages_go_with_their_topic(broker: OneBroker, is_made_before: bool) -> None:
    """Whether they come due before the topic is made again, or after."""
    create(broker, "T")
    create(broker, "Other")
    for topic in ("T", "Other"):
        broker.ask(SEND, send_fields(topic, 0, "DELAY\x013\x02"), b"old")
    delete(broker)
    if is_made_before:
        create(broker, "T")
        broker.ask(SEND, send_fields("T", 0, "DELAY\x013\x02"), b"new")
    broker.run_until(lambda: broker.store.reads.max_offset("Other", 0) == 1, 2_000)
    if not is_made_before:
        create(broker, "T")
        broker.ask(SEND, send_fields("T", 0, "DELAY\x013\x02"), b"new")
    broker.run_until(lambda: broker.store.reads.max_offset("T", 0) == 1, 2_000)
    broker.run_for(11_000)
    assert bodies(pull(broker, 0)) == [b"new"]
    assert bodies(pull(broker, 0, topic="Other")) == [b"old"]


def test_what_is_sent_while_the_topic_is_deleted_is_refused_or_the_old_topics(broker: OneBroker) -> None:
    """A message behind the deletion in the log would be the new topic's."""
    create(broker, "T")
    commands = []
    channels = [RecordingChannel(number) for number in range(2, 9)]
    for number, channel in enumerate(channels):
        send_command = broker.new_request(SEND, send_fields("T", 0, c="none"), b"old")
        broker.receive([send_command], channel)
        if number == 3:
            # As the handler does, once the request is noted.
            broker.controller.topics.delete("T", lambda status: None, broker.now_ms)
        commands.append(send_command)
    make = broker.new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": "T"})
    broker.receive([make])
    broker.run_until(lambda: broker.channel.response_to(make.opaque) is not None)
    answers = [
        channel.response_to(command.opaque) for command, channel in zip(commands, channels, strict=True)
    ]
    codes = [answer.code for answer in answers if answer is not None]
    assert codes == [ResponseCode.SUCCESS] * 4 + [ResponseCode.TOPIC_NOT_EXIST] * 3
    assert messages_by_status(broker) == 0


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g"])
def test_topics_of_a_groups_retries_begin_empty_as_others_do(broker: OneBroker, topic: str) -> None:
    create(broker, topic)
    message = PutMessage(topic.encode(), 0, b"old", b"", 0, broker.now_ms, bytes(8))
    broker.put(message)
    broker.run_until(lambda: broker.store.reads.max_offset(topic, 0) == 1)
    delete(broker, topic)
    create(broker, topic)
    assert pull(broker, 0, topic=topic).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("loses", ["nothing", "checkpoints", "checkpoints and queues"])
def test_it_stays_so_over_a_restart(tmp_path: Path, is_clean: bool, loses: str) -> None:
    broker = OneBroker(tmp_path)
    create(broker, "T")
    for number in range(10):
        send(broker, b"old%d" % number)
    broker.run_for(70_000)  # a checkpoint
    delete(broker)
    create(broker, "T")
    new = [b"new%d" % number for number in range(6)]
    for body in new:
        send(broker, body)

    def check(broker: OneBroker) -> None:
        assert messages_by_status(broker) == 6
        assert bodies(pull(broker, 0)) == new
        assert offset_of_group(broker, "new").ext_fields["offset"] == "10"
        broker.run_until(lambda: found_by_key(broker).code == ResponseCode.SUCCESS)
        assert bodies(found_by_key(broker)) == new

    check(broker)
    broker.close(clean=is_clean)
    if loses != "nothing":
        for path in tmp_path.glob("dledger-n0/pydledger/applied-state-*"):
            path.unlink()
    if "queues" in loses:
        for path in tmp_path.glob("consumequeue/*/*/*"):
            path.unlink()
    broker = OneBroker(tmp_path, now_ms=broker.now_ms)
    check(broker)
    broker.close()


def test_queue_files_of_a_deleted_topic_go_by_themselves(broker: OneBroker, tmp_path: Path) -> None:
    def files() -> set[str]:
        return {path.parent.parent.name for path in tmp_path.glob("consumequeue/*/*/*")}

    for topic in ("Gone", "Kept"):
        create(broker, topic)
        send(broker, b"m", topic=topic)
    broker.run_until(lambda: files() == {"Gone", "Kept"}, 10_000)
    delete(broker, "Gone")
    broker.run_until(lambda: files() == {"Kept"}, 2_000)
    create(broker, "Gone")
    send(broker, b"new", topic="Gone")
    assert bodies(pull(broker, 0, topic="Gone")) == [b"new"]


def test_a_topic_made_while_its_deletion_is_on_the_way_is_there_afterwards(broker: OneBroker) -> None:
    create(broker, "T")
    gone = broker.new_request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    made = broker.new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": "T"})
    broker.receive([gone, made])
    broker.run_until(lambda: broker.channel.response_to(made.opaque) is not None)
    assert broker.controller.topics.select("T") is not None
