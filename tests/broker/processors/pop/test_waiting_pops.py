"""Pops and notifications that wait, and looks that take nothing."""

from hostile_requests import TOPIC_CONFIG, as_json
from one_broker import OneBroker, RecordingChannel
from pops import PopClient, bodies, popped

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode


def test_a_pop_waits_for_a_message_of_its_topic(client: PopClient) -> None:
    client.ack(*client.pop())
    requests = [client.begin() for _ in range(2)]
    broker = client.broker
    broker.run_for(1000)
    assert [broker.channel.response_to(request.opaque) for request in requests] == [None, None]
    client.send(b"5")
    broker.run_for(100)
    answers = [broker.channel.response_to(request.opaque) for request in requests]
    assert answers[1] is None
    assert answers[0] is not None
    messages = popped(answers[0])
    assert bodies(messages) == [b"5"]
    client.ack(*messages)
    broker.run_for(20_000)
    late = broker.channel.response_to(requests[1].opaque)
    assert late is not None
    assert late.code == ResponseCode.POLLING_TIMEOUT


def test_a_pop_that_waits_gets_what_has_expired(client: PopClient) -> None:
    client.ack(*client.pop()[1:])
    request = client.begin()
    client.broker.run_for(11_000)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert [message.message.reconsume_times for message in popped(answer)] == [1]


class CountingChannel(RecordingChannel):
    """Counts how often somebody asks whether the client is there."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "is_open":
            type(self).looks += 1
        return super().__getattribute__(name)


def test_what_is_for_one_pop_costs_nothing_for_the_others_that_wait(client: PopClient) -> None:
    client.ack(*client.pop())
    broker, waiting = client.broker, client.broker.controller.waiting_pops
    other = PopClient(broker, "U")
    other.send(b"0")
    other.ack(*other.pop())
    channels = [CountingChannel(number) for number in range(2, 602)]
    for channel in channels[:300]:
        client.begin(channel)
    for channel in channels[300:]:
        other.begin(channel)
    CountingChannel.looks = 0
    client.send(b"5")
    broker.settle()
    assert len(waiting) == 599
    for channel in channels[200:]:
        channel.close()
        broker.controller.pipeline.channel_closed(channel)
    assert CountingChannel.looks < 20
    assert len(waiting) == 199
    broker.run_for(21_000)
    assert len(waiting) == 0


def test_a_client_that_has_gone_leaves_its_messages_to_others(client: PopClient) -> None:
    client.pop()
    other = RecordingChannel(2)
    client.begin(other)
    other.close()
    client.broker.controller.pipeline.channel_closed(other)
    request = client.begin()
    client.send(b"5")
    client.broker.run_for(100)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"5"]


LOOK = {"consumerGroup": "g", "topic": "T", "queueId": "-1"}


def test_a_topic_of_many_queues_is_popped_from_in_several_records(broker: OneBroker) -> None:
    """The first pop of a group sets its offset in each of them."""
    config = {
        **TOPIC_CONFIG,
        "topicName": "Wide",
        "readQueueNums": 300,
        "writeQueueNums": 300,
        "attributes": {},
    }
    body = as_json({"topicConfigList": [config]})
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == ResponseCode.SUCCESS
    client = PopClient(broker, "Wide")
    request = client.begin()
    broker.run_for(200)
    assert broker.channel.response_to(request.opaque) is None
    assert len(broker.store.tables.consumer_offset_table.queues_of("g", "Wide")) == 300
    client.send(b"0", queue_id=299)
    broker.run_for(100)
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer, "Wide")) == [b"0"]


def test_a_peek_shows_what_is_next_and_takes_nothing(client: PopClient) -> None:
    fields = {**LOOK, "maxMsgNums": "4"}
    for _ in range(2):
        answer = client.broker.ask(RequestCode.PEEK_MESSAGE, fields)
        assert len(decode_messages(answer.body)) == 4
        assert answer.ext_fields["restNum"] == "1"
    client.pop()
    assert client.broker.ask(RequestCode.PEEK_MESSAGE, fields).code == ResponseCode.PULL_NOT_FOUND
    assert client.broker.ask(RequestCode.PEEK_MESSAGE, {**fields, "topic": "U"}).code == (
        ResponseCode.TOPIC_NOT_EXIST
    )


def test_a_notification_comes_when_there_is_a_message_and_leaves_it_to_pops(client: PopClient) -> None:
    broker = client.broker
    asked = {**LOOK, "pollTime": "5000", "bornTime": "0"}
    assert broker.ask(RequestCode.NOTIFICATION, asked).ext_fields["hasMsg"] == "true"
    client.ack(*client.pop())
    notification = broker.new_request(RequestCode.NOTIFICATION, {**asked, "bornTime": str(broker.now_ms)})
    broker.receive([notification])
    pop = client.begin()
    answer = broker.ask(RequestCode.POLLING_INFO, LOOK)
    assert answer.ext_fields == {"pollingNum": "2"}
    client.send(b"5")
    broker.run_for(100)
    told, found = (broker.channel.response_to(each.opaque) for each in (notification, pop))
    assert told is not None
    assert told.ext_fields == {"hasMsg": "true", "pollingFull": "false"}
    assert found is not None
    assert bodies(popped(found)) == [b"5"]


def test_a_notification_that_nothing_comes_to_ends_with_its_time(client: PopClient) -> None:
    client.ack(*client.pop())
    broker = client.broker
    asked = {**LOOK, "pollTime": "500", "bornTime": str(broker.now_ms)}
    notification = broker.new_request(RequestCode.NOTIFICATION, asked)
    broker.receive([notification])
    assert broker.channel.response_to(notification.opaque) is None
    broker.run_for(1000)
    told = broker.channel.response_to(notification.opaque)
    assert told is not None
    assert told.ext_fields == {"hasMsg": "false", "pollingFull": "false"}


def test_a_notification_whose_client_leaves_the_time_to_the_broker_ends(client: PopClient) -> None:
    client.ack(*client.pop())
    broker = client.broker
    notification = broker.new_request(RequestCode.NOTIFICATION, {**LOOK, "pollTime": "500", "bornTime": "0"})
    broker.receive([notification])
    broker.run_for(1000)
    told = broker.channel.response_to(notification.opaque)
    assert told is not None
    assert told.ext_fields == {"hasMsg": "false", "pollingFull": "false"}


def test_a_notification_comes_when_a_queue_of_fifo_consumers_gives_messages_again(client: PopClient) -> None:
    broker = client.broker
    assert client.pop(order="true", invisibleTime="2000")
    asked = {**LOOK, "pollTime": "20000", "bornTime": "0", "order": "true"}
    notification = broker.new_request(RequestCode.NOTIFICATION, asked)
    broker.receive([notification])
    broker.run_for(1500)
    assert broker.channel.response_to(notification.opaque) is None
    broker.run_for(1000)
    told = broker.channel.response_to(notification.opaque)
    assert told is not None
    assert told.ext_fields == {"hasMsg": "true", "pollingFull": "false"}


def test_a_message_tells_all_that_wait_to_be_notified_and_the_pop_behind_them(client: PopClient) -> None:
    """They are many enough that a call in a call in a call would not end."""
    client.ack(*client.pop())
    broker = client.broker
    asked = {**LOOK, "pollTime": "5000", "bornTime": str(broker.now_ms)}
    notifications = [broker.new_request(RequestCode.NOTIFICATION, asked) for _ in range(600)]
    broker.receive(notifications)
    pop = client.begin()
    client.send(b"5")
    broker.run_for(100)
    told = [broker.channel.response_to(each.opaque) for each in notifications]
    assert {answer.ext_fields["hasMsg"] for answer in told if answer is not None} == {"true"}
    assert None not in told
    found = broker.channel.response_to(pop.opaque)
    assert found is not None
    assert bodies(popped(found)) == [b"5"]
