"""Transactions as producers and consumers see them: sends, ends, and what is visible when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from message.decoder import MessageExt, decode_message, decode_messages
from message.message_id import decode_offset_message_id
from message.names import (
    TOOLS_CONSUMER_GROUP,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    retry_topic,
)
from remoting.bodies.admin_bodies import PendingTransactions
from remoting.bodies.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

SEND = RequestCode.SEND_MESSAGE_V2
COMMIT, ROLLBACK = 8, 12


class Transaction:
    """One prepared message, and how its producer ends it."""

    def __init__(self, broker: OneBroker, body: bytes = b"m", topic: str = "T", **properties: str) -> None:
        self.broker = broker
        properties = {
            "KEYS": "k",
            "TRAN_MSG": "true",
            "UNIQ_KEY": "ID",
            "PGROUP": "p",
            "TAGS": "A",
            **properties,
        }
        born = {"g": properties.pop("g")} if "g" in properties else {}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        self.answer = broker.ask(SEND, send_fields(topic, 2, text, f="4", **born), body)

    @property
    def phy_offset(self) -> int:
        return decode_offset_message_id(self.answer.ext_fields["msgId"])[1]

    def fields(self, verdict: int, **more: str) -> dict[str, str]:
        return {
            "topic": "T",
            "producerGroup": "p",
            "tranStateTableOffset": self.answer.ext_fields["queueOffset"],
            "commitLogOffset": str(self.phy_offset),
            "commitOrRollback": str(verdict),
            "fromTransactionCheck": "false",
            "msgId": "ID",
            "transactionId": "ID",
            **more,
        }

    def end(self, verdict: int, **more: str) -> RemotingCommand:
        return self.broker.ask(RequestCode.END_TRANSACTION, self.fields(verdict, **more))


def messages(broker: OneBroker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    fields = pull_fields(topic, queue_id, consumerGroup=TOOLS_CONSUMER_GROUP)
    answer = broker.ask(RequestCode.PULL_MESSAGE, fields)
    return decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []


def bodies(broker: OneBroker, topic: str = "T", queue_id: int = 2) -> list[bytes]:
    return [message.body for message in messages(broker, topic, queue_id)]


def test_a_prepared_message_waits_in_the_half_topic_as_rocketmq_writes_it(broker: OneBroker) -> None:
    sent = Transaction(broker)
    fields = sent.answer.ext_fields
    assert (sent.answer.code, fields["queueId"], fields["queueOffset"], fields["transactionId"]) == (
        0,
        "2",
        "0",
        "ID",
    )
    assert bodies(broker) == []
    (half,) = messages(broker, TRANS_HALF_TOPIC)
    assert (half.phy_offset, half.sys_flag, half.body, half.queue_id) == (sent.phy_offset, 0, b"m", 0)
    added = {"__transactionId__": "ID", "REAL_TOPIC": "T", "REAL_QID": "2"}
    assert half.properties == {
        "KEYS": "k",
        "TRAN_MSG": "true",
        "UNIQ_KEY": "ID",
        "PGROUP": "p",
        "TAGS": "A",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "GoldenCluster",
        **added,
    }
    topics = broker.store.tables.topic_config_table.configs
    for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
        config = topics[topic]
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_what_is_committed_is_visible_and_what_is_rolled_back_never_is(broker: OneBroker) -> None:
    first, second = Transaction(broker, b"kept"), Transaction(broker, b"dropped")
    assert first.end(COMMIT).code == ResponseCode.SUCCESS
    assert second.end(ROLLBACK).code == ResponseCode.SUCCESS
    (half, _) = messages(broker, TRANS_HALF_TOPIC)
    (message,) = messages(broker, "T", 2)
    assert (message.body, message.sys_flag, message.prepared_transaction_offset) == (
        b"kept",
        8,
        half.phy_offset,
    )
    assert (message.born_timestamp, message.born_host) == (half.born_timestamp, half.born_host)
    left_out = {"REAL_TOPIC", "REAL_QID"}
    assert message.properties == {name: half.properties[name] for name in half.properties.keys() - left_out}
    ops = messages(broker, TRANS_OP_HALF_TOPIC)
    assert [op.body for op in ops] == [b"0,", b"1,"]
    assert (ops[0].properties, ops[0].sys_flag) == ({"WAIT": "true", "TAGS": "d"}, 0)
    assert ops[0].born_host == ops[0].store_host
    assert broker.store.services.transaction_service.pending_count == 0
    figures = broker.store.figures()
    assert (
        figures["rocketmq_commit_messages_total"] == figures["rocketmq_rollback_messages_total"] == {"T": 1}
    )


def test_how_long_a_commit_took_is_counted_by_topic_since_the_birth(broker: OneBroker) -> None:
    for age_ms, verdict in ((4000, COMMIT), (61_000, COMMIT), (-3000, COMMIT), (4000, ROLLBACK)):
        Transaction(broker, g=str(broker.now_ms - age_ms)).end(verdict)
    latencies: Any = broker.store.figures()["rocketmq_finish_message_latency"]
    assert {topic: found.counts for topic, found in latencies.items()} == {"T": [2, 0, 1, 0, 0, 0, 0]}
    assert 65 <= latencies["T"].sum < 66


@pytest.mark.parametrize("topic", [TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC])
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("sys_flag", ["0", "4"])
def test_no_consumer_is_given_what_is_not_decided(
    broker: OneBroker, topic: str, code: RequestCode, sys_flag: str
) -> None:
    """Whether its subscription came with its heartbeat or comes with the pull."""
    Transaction(broker).end(ROLLBACK)
    consumer = ConsumerData(
        group_name="g", subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")]
    )
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[consumer])
    assert broker.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode()).code == ResponseCode.SUCCESS
    answer = broker.ask(code, pull_fields(topic, sysFlag=sys_flag))
    assert (answer.code, answer.body, answer.ext_fields["forbiddenType"]) == (
        ResponseCode.NO_PERMISSION,
        b"",
        "3",
    )
    assert answer.remark == (
        f"the topic[{topic}] holds what is not decided yet: no consumer is given it. "
        "Tools read it as group TOOLS_CONSUMER"
    )
    assert len(messages(broker, topic)) == 1


def test_what_no_consumer_was_given_none_can_give_back(broker: OneBroker) -> None:
    sent = Transaction(broker)
    fields = {"offset": str(sent.phy_offset), "group": "g", "delayLevel": "0", "unitMode": "false"}
    answer = broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {sent.phy_offset}"
    assert retry_topic("g") not in broker.store.tables.topic_config_table.configs


def test_tools_find_a_half_by_its_id_and_its_keys(broker: OneBroker) -> None:
    sent = Transaction(broker)
    broker.run_for(200)
    by_id = broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(sent.phy_offset)})
    fields = {
        "topic": TRANS_HALF_TOPIC,
        "key": "k",
        "maxNum": "1",
        "beginTimestamp": "0",
        "endTimestamp": str(2**62),
    }
    by_key = broker.ask(RequestCode.QUERY_MESSAGE, fields)
    assert by_id.body == by_key.body != b""


@pytest.mark.parametrize("verdicts", [(COMMIT, COMMIT), (COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_an_ended_transaction_stays_as_it_ended(broker: OneBroker, verdicts: tuple[int, int]) -> None:
    sent = Transaction(broker)
    for verdict in verdicts:
        assert sent.end(verdict).code == ResponseCode.SUCCESS
    assert bodies(broker) == ([b"m"] if verdicts[0] == COMMIT else [])
    assert [op.body for op in messages(broker, TRANS_OP_HALF_TOPIC)] == [b"0,"]


def test_ends_of_one_read_are_one_batch_and_the_first_of_a_transaction_counts(broker: OneBroker) -> None:
    sent = [Transaction(broker, b"%d" % number) for number in range(3)]
    verdicts = [
        (sent[0], COMMIT),
        (sent[1], ROLLBACK),
        (sent[1], COMMIT),
        (sent[2], COMMIT),
        (sent[0], ROLLBACK),
    ]
    before = broker.replica.log.ledger_end_index
    commands = [
        broker.new_request(RequestCode.END_TRANSACTION, transaction.fields(verdict))
        for transaction, verdict in verdicts
    ]
    broker.receive(commands)
    broker.run_until(lambda: all(broker.channel.response_to(command.opaque) for command in commands))
    count = broker.replica.log.ledger_end_index - before
    assert count == 4, "the record, two messages, and RocketMQ's op record"
    assert [command.code for command in broker.channel.received[-5:]] == [0] * 5
    assert bodies(broker) == [b"0", b"2"]
    assert [op.body for op in messages(broker, TRANS_OP_HALF_TOPIC)] == [b"0,2,1,"]


def test_a_delay_counts_from_the_commit_on(broker: OneBroker) -> None:
    sent = Transaction(broker, DELAY="2")
    broker.run_for(6000)
    assert sent.end(COMMIT).code == ResponseCode.SUCCESS
    broker.run_for(4500)
    assert bodies(broker) == []
    broker.run_for(1000)
    assert bodies(broker) == [b"m"]


def test_an_end_that_says_nothing_is_not_answered(broker: OneBroker) -> None:
    sent = Transaction(broker)
    commands = [
        broker.new_request(RequestCode.END_TRANSACTION, sent.fields(verdict)) for verdict in (0, 4, 7, 99)
    ]
    broker.receive(commands)
    broker.run_for(200)
    assert not any(broker.channel.response_to(command.opaque) for command in commands)
    assert broker.store.services.transaction_service.pending_count == 1


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commitLogOffset": "7"}, "Find prepared transaction message failed"),
        ({"producerGroup": "q"}, "The producer group wrong"),
        ({"tranStateTableOffset": "1"}, "The transaction state table offset wrong"),
    ],
)
def test_an_end_of_another_message_is_refused_in_rocketmqs_words(
    broker: OneBroker, fields: dict[str, str], remark: str
) -> None:
    sent = Transaction(broker)
    answer = sent.end(COMMIT, **fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(broker) == []


def test_only_a_half_can_be_ended(broker: OneBroker) -> None:
    plain = broker.ask(SEND, send_fields("T", 2, "PGROUP\x01p\x02"), b"plain")
    sent = Transaction(broker)
    sent.answer = plain
    answer = sent.end(COMMIT)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "Find prepared transaction message failed",
    )


def test_a_late_end_of_a_message_with_an_immunity_of_its_own_is_left_to_the_check(broker: OneBroker) -> None:
    sent = Transaction(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="2")
    assert sent.end(COMMIT).code == ResponseCode.ILLEGAL_OPERATION, "it was born long ago"
    assert sent.end(COMMIT, fromTransactionCheck="true").code == ResponseCode.SUCCESS
    assert bodies(broker) == [b"m"]


def test_a_member_that_does_not_serve_ends_nothing(broker: OneBroker) -> None:
    sent = Transaction(broker)
    broker.step_down()
    assert sent.end(COMMIT).code == ResponseCode.SLAVE_NOT_AVAILABLE


@pytest.mark.slow
def test_a_restart_forgets_neither_what_is_undecided_nor_what_has_ended(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    first, second, third = (Transaction(broker, b"%d" % number) for number in range(3))
    assert second.end(COMMIT).code == ResponseCode.SUCCESS
    broker.close()
    broker = OneBroker(tmp_path)
    assert broker.store.services.transaction_service.pending_count == 2
    for sent, verdict in ((second, COMMIT), (first, COMMIT), (third, ROLLBACK)):
        sent.broker = broker
        assert sent.end(verdict).code == ResponseCode.SUCCESS
    assert bodies(broker) == [b"1", b"0"]
    assert broker.store.services.transaction_service.pending_count == 0
    broker.close()


def test_prepared_sends_are_refused_above_the_limit_and_where_the_conf_says_so(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "pyDLedgerMaxPendingTransactions=2\n")
    sent = [Transaction(broker) for _ in range(2)]
    refused = Transaction(broker).answer
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert refused.remark == (
        "2 transactions are undecided, and pyDLedgerMaxPendingTransactions=2 are allowed: end them, or raise it"
    )
    sent[1].end(ROLLBACK)
    assert Transaction(broker).answer.code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"rejectTransactionMessage=true\n").code == 0
    refused = Transaction(broker).answer
    assert (refused.code, refused.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] sending transaction message is forbidden",
    )
    broker.close()


@pytest.mark.parametrize("channel_count", [1, 2])
def test_what_comes_at_once_is_taken_up_to_the_limit_and_no_further(
    tmp_path: Path, channel_count: int
) -> None:
    """Of one connection or several; plain messages among them do not count."""
    broker = OneBroker(tmp_path, "pyDLedgerMaxPendingTransactions=3\n")
    Transaction(broker)
    text = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"
    codes: list[int] = []
    for round_count in (2, 0):
        requests = []
        for channel_id in range(channel_count):
            channel = RecordingChannel(20 + channel_id)
            sends = [
                broker.new_request(SEND, send_fields("T", 0, text if number % 2 else ""), b"m")
                for number in range(8)
            ]
            broker.receive(sends, channel)
            requests += [(channel, request.opaque) for request in sends[1::2]]
        broker.run_for(200)
        answers = [channel.response_to(opaque) for channel, opaque in requests]
        codes = [answer.code for answer in answers if answer is not None]
        refused = 4 * channel_count - round_count
        assert codes == [ResponseCode.SUCCESS] * round_count + [ResponseCode.SYSTEM_BUSY] * refused
    assert broker.store.services.transaction_service.pending_count == 3
    broker.close()


def test_a_transaction_goes_with_its_topic(broker: OneBroker) -> None:
    sent = Transaction(broker)
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == ResponseCode.SUCCESS
    broker.run_for(200)
    assert Transaction(broker, b"new").answer.code == ResponseCode.SUCCESS
    assert sent.end(COMMIT).code == ResponseCode.SUCCESS
    assert bodies(broker) == []
    assert broker.store.services.transaction_service.pending_count == 1


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


def test_a_committed_message_waits_for_its_time(broker: OneBroker) -> None:
    transaction = Transaction(broker, TIMER_DELAY_MS="3000")
    broker.run_for(5_000)
    transaction.end(COMMIT)
    broker.run_for(2_900)
    assert bodies(broker) == []
    broker.run_for(300)
    assert bodies(broker) == [b"m"]


def test_a_prepared_message_with_a_time_too_far_is_refused(broker: OneBroker) -> None:
    answer = Transaction(broker, TIMER_DELAY_SEC="300000").answer
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_prepared_message_that_could_not_wait_for_its_time_is_refused(broker: OneBroker) -> None:
    """Committed, it would be lost when it is due."""
    assert Transaction(broker, NOTE="n" * 32_450).answer.code == ResponseCode.SUCCESS
    answer = Transaction(broker, TIMER_DELAY_SEC="3", NOTE="n" * 32_450).answer
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
