"""Producers are asked how undecided transactions end; what none decides is given up, and may be resumed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, send_fields
from transactions import COMMIT, ROLLBACK, SEND, Transaction, bodies, messages

from message.decoder import decode_message
from message.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from remoting.bodies.admin_bodies import PendingTransactions
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand


class Producer:
    """A client of group p that heartbeats, and what it was asked."""

    def __init__(self, broker: OneBroker, channel_id: int, group: str = "p") -> None:
        self.broker = broker
        self.channel = RecordingChannel(channel_id)
        data = HeartbeatData(client_id=f"c{channel_id}", producer_data_set=[ProducerData(group_name=group)])
        assert (
            broker.ask(RequestCode.HEART_BEAT, {}, data.encode(), self.channel).code == ResponseCode.SUCCESS
        )

    def checks(self) -> list[RemotingCommand]:
        return [asked for asked in self.channel.received if asked.code == RequestCode.CHECK_TRANSACTION_STATE]

    def answer(self, asked: RemotingCommand, verdict: int) -> None:
        """As RocketMQ's clients do: to a question in the half topic, one-way."""
        fields = asked.ext_fields
        ends = {
            "topic": fields["topic"],
            "producerGroup": "p",
            "tranStateTableOffset": fields["tranStateTableOffset"],
            "commitLogOffset": fields["commitLogOffset"],
            "commitOrRollback": str(verdict),
            "fromTransactionCheck": "true",
            "msgId": fields["msgId"],
            "transactionId": fields["transactionId"],
        }
        request = self.broker.new_request(RequestCode.END_TRANSACTION, ends, oneway=True)
        self.broker.receive([request], self.channel)
        self.broker.run_for(200)


def test_a_producer_is_asked_how_an_undecided_transaction_ends_and_its_word_counts(broker: OneBroker) -> None:
    producer = Producer(broker, 7)
    kept, dropped = Transaction(broker, b"kept"), Transaction(broker, b"dropped", UNIQ_KEY="OTHER")
    broker.run_for(10_000)
    checks = producer.checks()
    assert [asked.is_oneway for asked in checks] == [True, True]
    asked = checks[0]
    assert asked.ext_fields == {
        "topic": TRANS_HALF_TOPIC,
        "tranStateTableOffset": "0",
        "commitLogOffset": str(kept.phy_offset),
        "msgId": "ID",
        "transactionId": "ID",
        "offsetMsgId": kept.answer.ext_fields["msgId"],
        "bname": "golden-a",
    }
    message = decode_message(bytes(asked.body))
    assert (message.topic, message.queue_id, message.body, message.queue_offset) == ("T", 2, b"kept", 0)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    producer.answer(checks[0], COMMIT)
    producer.answer(checks[1], ROLLBACK)
    assert bodies(broker) == [b"kept"]
    broker.run_for(100_000)
    assert len(producer.checks()) == 2
    assert dropped.end(COMMIT).code == ResponseCode.SUCCESS
    assert bodies(broker) == [b"kept"]
    assert len(messages(broker, TRANS_HALF_TOPIC)) == 2, "nothing is put again"


@pytest.mark.slow
def test_a_question_comes_at_each_interval_and_after_the_last_the_message_is_given_up(tmp_path: Path) -> None:
    conf = "transactionCheckMax=3\ntransactionCheckInterval=20000\ntransactionTimeOut=5000\n"
    broker = OneBroker(tmp_path, conf)
    producer = Producer(broker, 7)
    sent = Transaction(broker, KEYS="mine")
    times = []
    for count in range(1, 4):
        broker.run_until(lambda count=count: len(producer.checks()) == count, 10_000)
        times.append(broker.now_ms)
        assert decode_message(bytes(producer.checks()[-1].body)).properties["TRANSACTION_CHECK_TIMES"] == str(
            count
        )
    assert [later - earlier for earlier, later in pairwise(times)] == [20_000, 20_000]
    assert messages(broker, TRANS_CHECK_MAX_TIME_TOPIC) == []
    broker.run_until(lambda: broker.store.services.transaction_service.pending_count == 0, 10_000)
    (given_up,) = messages(broker, TRANS_CHECK_MAX_TIME_TOPIC)
    half = messages(broker, TRANS_HALF_TOPIC)[0]
    assert (given_up.properties, given_up.body, given_up.sys_flag) == (half.properties, half.body, 0)
    assert sent.end(COMMIT).code == ResponseCode.SUCCESS
    assert bodies(broker) == []
    assert len(producer.checks()) == 3
    given = broker.store.figures()
    assert (given["transactions_given_up_total"], given["rocketmq_half_messages"]) == ({"T": 1}, {})

    # An operator has it asked about once more.
    resumed = broker.ask(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        {"topic": TRANS_CHECK_MAX_TIME_TOPIC, "msgId": given_up.msg_id},
    )
    assert resumed.code == ResponseCode.SUCCESS
    broker.run_until(lambda: len(producer.checks()) == 4, 1000)
    producer.answer(producer.checks()[-1], COMMIT)
    assert bodies(broker) == [b"m"]
    broker.close()


def test_only_what_was_given_up_is_asked_about_once_more(broker: OneBroker) -> None:
    """A half that has ended would be put again, and could end in another way."""
    sent = Transaction(broker)
    sent.end(ROLLBACK)
    timer = broker.ask(SEND, send_fields("T", 0, "TIMER_DELAY_SEC\x015\x02"), b"t")
    for answer in (sent.answer, timer):
        fields = {"topic": TRANS_CHECK_MAX_TIME_TOPIC, "msgId": answer.ext_fields["msgId"]}
        assert broker.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields).code == ResponseCode.SYSTEM_ERROR
    assert len(messages(broker, TRANS_HALF_TOPIC)) == 1


class GivenUp:
    """A broker with a message that was given up, for its producer says nothing."""

    def __init__(self, tmp_path: Path) -> None:
        conf = "transactionCheckMax=1\ntransactionCheckInterval=1000\ntransactionTimeOut=1000\n"
        self.broker = OneBroker(tmp_path, conf)
        self.producer = Producer(self.broker, 7)
        Transaction(self.broker)
        pending = self.broker.store.services.transaction_service
        self.broker.run_until(lambda: pending.pending_count == 0)
        (self.message,) = messages(self.broker, TRANS_CHECK_MAX_TIME_TOPIC)

    def request(self) -> RemotingCommand:
        fields = {"topic": TRANS_CHECK_MAX_TIME_TOPIC, "msgId": self.message.msg_id}
        return self.broker.new_request(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)

    def resume(self) -> tuple[int, str | None]:
        request = self.request()
        answer = self.broker.ask(request.code, request.ext_fields)
        return answer.code, answer.remark


def test_what_was_given_up_is_resumed_once(tmp_path: Path) -> None:
    """A second half would be a second message, if the producer commits both."""
    story = GivenUp(tmp_path)
    broker = story.broker
    refused = (
        ResponseCode.SYSTEM_ERROR,
        f"'{story.message.msg_id}' was resumed before: its producers are asked, or have ended it",
    )
    assert story.resume() == (ResponseCode.SUCCESS, None)
    assert story.resume() == refused
    broker.run_until(lambda: len(story.producer.checks()) == 2)
    story.producer.answer(story.producer.checks()[-1], COMMIT)
    assert bodies(broker) == [b"m"]
    assert story.resume() == refused
    broker.close()
    story.broker = OneBroker(tmp_path)
    assert story.resume() == refused
    assert len(messages(story.broker, TRANS_HALF_TOPIC)) == 2
    story.broker.close()


def test_of_two_resumes_at_once_one_counts(tmp_path: Path) -> None:
    story = GivenUp(tmp_path)
    requests = [story.request(), story.request()]
    story.broker.receive(requests)
    story.broker.run_for(200)
    answers = [story.broker.channel.response_to(request.opaque) for request in requests]
    assert [answer and answer.code for answer in answers] == [
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
    ]
    assert len(messages(story.broker, TRANS_HALF_TOPIC)) == 2
    story.broker.close()


def test_what_was_given_up_goes_with_its_topic(tmp_path: Path) -> None:
    story = GivenUp(tmp_path)
    Transaction(story.broker)
    assert story.broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    story.broker.run_for(5000)
    assert len(messages(story.broker, TRANS_CHECK_MAX_TIME_TOPIC)) == 1
    assert story.broker.store.services.transaction_service.pending_count == 0
    code, remark = story.resume()
    assert (code, "was deleted since" in (remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert len(messages(story.broker, TRANS_HALF_TOPIC)) == 2
    story.broker.close()


def test_a_member_that_does_not_serve_resumes_nothing(tmp_path: Path) -> None:
    story = GivenUp(tmp_path)
    story.broker.step_down()
    code, remark = story.resume()
    assert (code, remark) == (
        ResponseCode.SYSTEM_ERROR,
        "this member does not serve as leader now: ask the leader",
    )
    story.broker.close()


@pytest.mark.slow
def test_without_a_producer_nobody_is_asked_and_nothing_counts(broker: OneBroker) -> None:
    Producer(broker, 3, group="another")
    Transaction(broker)
    broker.run_for(200_000)
    producer = Producer(broker, 7)
    broker.run_until(lambda: len(producer.checks()) == 1, 200)
    message = decode_message(bytes(producer.checks()[0].body))
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    broker.controller.pipeline.channel_closed(producer.channel)
    other = Producer(broker, 8)
    broker.run_for(32_000)
    assert len(other.checks()) == 1, "another one of the group is asked"


def test_producers_of_a_group_are_asked_in_turn_and_not_one_that_takes_nothing(broker: OneBroker) -> None:
    producers = [Producer(broker, channel_id) for channel_id in (7, 8, 9)]
    producers[2].channel.paused = True
    for number in range(6):
        Transaction(broker, b"%d" % number)
    broker.run_for(10_000)
    assert [len(producer.checks()) for producer in producers] == [4, 2, 0]


@pytest.mark.slow
@pytest.mark.parametrize("immunity", [None, "9999999999"])
def test_a_half_that_is_older_than_messages_are_kept_is_given_up_with_one_line(
    tmp_path: Path, immunity: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever its immunity says, or it would keep the log for ever."""
    broker = OneBroker(tmp_path, "fileReservedTime=1\n")
    Transaction(broker, **({"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity else {}))
    broker.run_for(3_500_000)
    assert broker.store.services.transaction_service.pending_count == 1
    broker.run_for(200_000)
    assert broker.store.services.transaction_service.pending_count == 0
    assert [message.body for message in messages(broker, TRANS_CHECK_MAX_TIME_TOPIC)] == [b"m"]
    assert [op.body for op in messages(broker, TRANS_OP_HALF_TOPIC)] == [b"0,"]
    assert broker.store.figures()["transactions_given_up_total"] == {"T": 1}
    (line,) = [line for line in caplog.messages if "given up" in line]
    assert line == (
        "transaction given up, its message goes to TRANS_CHECK_MAX_TIME_TOPIC topic=T group=p offset=0: "
        "it is older than 1 hours, fileReservedTime"
    )
    broker.close()


@pytest.mark.slow
def test_nothing_is_kept_of_transactions_that_have_ended(broker: OneBroker) -> None:
    """They had an immunity of a year, and ended after a second or two, when the leader had read them."""
    for _ in range(30):
        sent = [
            Transaction(broker, g=str(broker.now_ms), CHECK_IMMUNITY_TIME_IN_SECONDS="30000000")
            for _ in range(4)
        ]
        broker.run_for(2200)
        for transaction in sent:
            assert transaction.end(COMMIT).code == ResponseCode.SUCCESS
    checks = broker.store.services.transaction_service.checks
    assert not checks.pending
    assert len(checks._due) <= 10


def test_a_message_with_an_immunity_of_its_own_is_asked_about_when_that_is_over(broker: OneBroker) -> None:
    producer = Producer(broker, 7)
    Transaction(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="60", g=str(broker.now_ms))
    broker.run_for(59_000)
    assert producer.checks() == []
    broker.run_for(4_000)
    assert len(producer.checks()) == 1


@pytest.mark.slow
def test_a_new_leader_asks_about_what_the_one_before_left_undecided(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    for number in range(600):
        Transaction(broker, b"%d" % number)
    broker.run_for(3000)
    broker.close()
    broker = OneBroker(tmp_path)
    producer = Producer(broker, 7)
    broker.run_until(lambda: len(producer.checks()) == 600, 300)
    broker.run_for(5000)
    assert len(producer.checks()) == 600
    assert broker.store.services.transaction_service.checks.counts == {"T": 600}
    broker.close()


def test_tools_see_how_many_are_undecided_and_what_comes_next_of_one(broker: OneBroker) -> None:
    Producer(broker, 7)
    ended, undecided = Transaction(broker), Transaction(broker)
    ended.end(COMMIT)
    stored_ms = broker.now_ms
    broker.run_for(9000)
    seen = PendingTransactions.decode(bytes(broker.ask(RequestCode.GET_PENDING_TRANSACTIONS).body))
    (of_topic,) = seen.topics.values()
    assert (seen.total, list(seen.topics), of_topic.count) == (1, ["T"], 1)
    assert stored_ms - 100 < of_topic.oldest_ms <= stored_ms
    states = [
        broker.ask(RequestCode.GET_TRANSACTION_STATE, {"offset": str(sent.phy_offset)}).ext_fields
        for sent in (ended, undecided)
    ]
    assert [state["state"] for state in states] == ["ENDED", "PENDING"]
    assert (states[1]["checkTimes"], states[1]["nextCheckMs"]) == ("1", str(of_topic.next_check_ms))
    assert (states[1]["producerGroup"], states[1]["realTopic"], states[1]["transactionId"]) == (
        "p",
        "T",
        "ID",
    )
    assert broker.ask(RequestCode.GET_TRANSACTION_STATE, {"offset": "5"}).code == ResponseCode.QUERY_NOT_FOUND
    broker.step_down()
    for code, fields in (
        (RequestCode.GET_PENDING_TRANSACTIONS, {}),
        (RequestCode.GET_TRANSACTION_STATE, {"offset": "5"}),
    ):
        assert broker.ask(code, fields).code == ResponseCode.SERVICE_NOT_AVAILABLE
