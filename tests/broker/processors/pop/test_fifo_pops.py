"""FIFO pops: a queue's messages in their order, and the next ones once all before have their ack."""

from pathlib import Path

from hostile_requests import as_json
from one_broker import OneBroker, pull_fields
from pops import PopClient, bodies, pop_fields, popped

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode


def let_retry(broker: OneBroker, times: int) -> None:
    """Set how often messages of group f come again."""
    config = {"groupName": "f", "retryMaxTimes": times}
    broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, as_json(config))


def dead_bodies(broker: OneBroker) -> list[bytes]:
    """What the dead letter topic of group f has."""
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%f"))
    return [message.body for message in decode_messages(answer.body)]


def test_fifo_consumers_get_the_next_messages_once_all_have_their_ack(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0")
    messages = fifo.pop(maxMsgNums="2", attemptId="a")
    assert [message.body for message in messages] == [b"0", b"1"]
    assert fifo.pop(attemptId="b") == []
    again = fifo.pop(maxMsgNums="2", attemptId="a")
    assert [(message.body, message.count) for message in again] == [(b"0", 0), (b"1", 0)]
    fifo.ack(again[1])
    assert fifo.pop(attemptId="b") == []
    client.broker.run_for(11_000)
    third = fifo.pop(attemptId="b")
    assert [(message.body, message.count) for message in third] == [(b"0", 1), (b"2", 0)]
    fifo.ack(*third)
    client.send(b"5")
    assert [message.body for message in fifo.pop(attemptId="c")] == [b"5"]


def test_fifo_queues_that_nobody_comes_back_to_leave_pops_their_room(tmp_path: Path) -> None:
    """What FIFO consumers have of a queue stays until it has its ack, also when it has expired."""
    client = PopClient(OneBroker(tmp_path, "pyDLedgerMaxPoppedMessages=32\n"))
    for queue_id in range(4):
        client.send(*[b"x"] * 20, queue_id=queue_id)
    gone = PopClient(client.broker, group="gone", order="true")
    for queue_id in range(4):
        assert len(gone.pop(queueId=str(queue_id))) == 20
    client.broker.run_for(11_000)
    assert client.broker.store.tables.pop_table.in_flight_count == 80
    assert len(client.pop()) == 32
    assert len(gone.pop(queueId="0")) == 20


def test_a_fifo_pop_that_waits_is_woken_by_the_ack(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0")
    messages = fifo.pop(maxMsgNums="2")
    request = fifo.begin()
    fifo.ack(*messages)
    client.broker.run_for(100)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"2"]


def test_a_fifo_message_that_may_come_again_at_once_does(client: PopClient) -> None:
    fifo = PopClient(client.broker, group="f", order="true", queueId="0", maxMsgNums="1")
    (message,) = fifo.pop()
    request = fifo.begin()
    fifo.change(message, 500)
    client.broker.run_for(1000)
    answer = client.broker.channel.response_to(request.opaque)
    assert answer is not None
    assert [(each.body, each.count) for each in popped(answer)] == [(b"0", 1)]


def test_a_fifo_message_whose_attempts_are_over_is_dead_and_blocks_nobody(client: PopClient) -> None:
    broker = client.broker
    let_retry(broker, 1)
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    counts = []
    for _ in range(2):
        (message,) = fifo.pop()
        counts.append((message.body, message.count))
        broker.run_for(11_000)
    assert counts == [(b"0", 0), (b"0", 1)]
    assert [message.body for message in fifo.pop()] == [b"1"]
    assert dead_bodies(broker) == [b"0"]


def test_a_fifo_message_whose_attempts_are_over_is_not_popped_before_it_is_dead(client: PopClient) -> None:
    """The pop comes when the last attempt has just expired, and the leader has not ended it yet."""
    broker = client.broker
    let_retry(broker, 0)
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    assert bodies(fifo.pop()) == [b"0"]
    broker.now_ms += 10_000
    assert fifo.pop() == []
    broker.run_for(100)
    assert bodies(fifo.pop()) == [b"1"]
    assert dead_bodies(broker) == [b"0"]


def test_fewer_attempts_than_a_fifo_message_has_had_end_it(client: PopClient) -> None:
    """It had expired, and was to come again, when its group was set so."""
    broker = client.broker
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    fifo.pop()
    broker.run_for(11_000)
    let_retry(broker, 0)
    request = fifo.begin()
    broker.run_for(500)
    answer = broker.channel.response_to(request.opaque)
    assert answer is not None
    assert bodies(popped(answer)) == [b"1"]


def test_a_fifo_message_dies_once_though_its_last_attempt_expires_while_it_is_asked_for_again(
    client: PopClient,
) -> None:
    """The client has not got the answer, and asks again when the message's time is nearly over."""
    broker = client.broker
    let_retry(broker, 0)
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="1")
    fifo.pop(attemptId="a")
    broker.now_ms += 9_990
    again = broker.new_request(RequestCode.POP_MESSAGE, pop_fields(**fifo.fields, attemptId="a"))
    broker.receive([again])
    broker.tick(20)
    answer = broker.channel.response_to(again.opaque)
    assert answer is not None
    assert [(message.body, message.count) for message in popped(answer)] == [(b"0", 0)]
    broker.run_for(11_000)
    assert bodies(fifo.pop()) == [b"1"]
    assert dead_bodies(broker) == [b"0"]


def test_a_fifo_message_whose_time_is_being_changed_is_not_given_to_another(client: PopClient) -> None:
    """The change came in time, and is on its way into the log when somebody else asks."""
    broker = client.broker
    fifo = PopClient(broker, group="f", order="true", queueId="0", maxMsgNums="2")
    _, second = fifo.pop(attemptId="a")
    broker.now_ms += 9_990
    fields = {**fifo.ack_fields(second), "invisibleTime": "5000"}
    change = broker.new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
    broker.receive([change])
    broker.now_ms += 20
    pop = broker.new_request(RequestCode.POP_MESSAGE, pop_fields(**fifo.fields, attemptId="b"))
    broker.receive([pop])
    broker.settle()
    answers = [broker.channel.response_to(request.opaque) for request in (change, pop)]
    codes = [answer and answer.code for answer in answers]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT]
    fifo.ack(second)
    broker.run_for(10_000)
    assert bodies(fifo.pop(attemptId="c")) == [b"0"]
