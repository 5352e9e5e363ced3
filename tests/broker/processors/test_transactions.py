"""Transactions as producers and consumers see them: sends, ends, and what is visible when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields
from transactions import COMMIT, ROLLBACK, SEND, Transaction, bodies, messages

from message.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    retry_topic,
)
from remoting.bodies.bodies import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode


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
