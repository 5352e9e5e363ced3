"""Delay levels, messages that consumers give back, retry topics and dead letters, as clients see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_values import HOSTILE_VALUES
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields
from test_send_message import create, stored

from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt, decode_message, decode_messages
from message.message_id import decode_offset_message_id
from message.names import SCHEDULE_TOPIC
from remoting.bodies import bodies
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import dumps_fastjson
from remoting.frame.command import RemotingCommand
from store.store_config import DELAY_LEVELS

SEND = RequestCode.SEND_MESSAGE_V2
SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
DELAYED = "TAGS\x01A\x02DELAY\x011\x02"


def messages_of(broker: OneBroker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    result = broker.store.reads.get_message(topic, queue_id, 0, 32, 1 << 20)
    return decode_messages(b"".join(result.buffers))


def sent(broker: OneBroker, body: bytes = b"hello") -> int:
    """Physical offset of a new message of topic T."""
    answer = broker.ask(SEND, send_fields("T"), body)
    return decode_offset_message_id(answer.ext_fields["msgId"])[1]


def send_back(broker: OneBroker, phy_offset: int, **more: str) -> RemotingCommand:
    fields = {"offset": str(phy_offset), "group": "g", "delayLevel": "0", "unitMode": "false", **more}
    return broker.ask(SEND_BACK, fields)


def put_group(broker: OneBroker, **settings: object) -> None:
    body = dumps_fastjson({"groupName": "g", **settings})
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert answer.code == ResponseCode.SUCCESS


class TestDelayedSends:
    def test_a_delayed_send_is_answered_at_once_and_the_message_arrives_after_its_level(
        self, broker: OneBroker
    ) -> None:
        answer = broker.ask(SEND, send_fields("T", 2, DELAYED), b"later")
        assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "2")
        waiting = decode_message(stored(broker, answer))
        assert (waiting.topic, waiting.queue_id) == (SCHEDULE_TOPIC, 0)
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "2")
        broker.run_until(lambda: broker.now_ms >= waiting.store_timestamp + 990)
        assert broker.store.reads.max_offset("T", 2) == 0
        broker.run_for(200)
        (arrived,) = messages_of(broker, "T", 2)
        assert arrived.store_timestamp >= waiting.store_timestamp + 1000
        assert (arrived.body, arrived.tags, arrived.uniq_key) == (b"later", "A", waiting.uniq_key)

    def test_how_far_each_level_is_delivered_is_told_as_rocketmq_tells_it(self, broker: OneBroker) -> None:
        for level in ("2", "1", "18", "1"):
            broker.ask(SEND, send_fields("T", 0, f"DELAY\x01{level}\x02"), b"m")
        broker.run_for(6_000)
        answer = broker.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
        version = broker.store.tables.delay_offset_table.data_version
        state_version = 0 if broker.config.dledger is None else 1
        assert bytes(answer.body).decode() == (
            f'{{"dataVersion":{{"counter":{version.counter},"stateVersion":{state_version},'
            f'"timestamp":{version.timestamp}}},'
            '"offsetTable":{1:2,2:1}}'
        )

    def test_of_the_sends_of_one_read_only_the_delayed_one_waits(self, broker: OneBroker) -> None:
        create(broker, "T")
        commands = [
            broker.new_request(SEND, send_fields("T", 0, properties), body)
            for properties, body in (("KEYS\x01k\x02", b"1"), (DELAYED, b"3"), ("KEYS\x01k\x02", b"2"))
        ]
        broker.receive(commands)
        broker.run_until(lambda: all(broker.channel.response_to(command.opaque) for command in commands))
        assert [message.body for message in messages_of(broker, "T")] == [b"1", b"2"]
        broker.run_for(1500)
        assert [message.body for message in messages_of(broker, "T")] == [b"1", b"2", b"3"]

    def test_levels_are_those_of_the_conf_and_beyond_the_last_is_the_last(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path, "messageDelayLevel=2s 3s")
        answer = broker.ask(SEND, send_fields("T", 0, "DELAY\x0118\x02"), b"x")
        waiting = decode_message(stored(broker, answer))
        assert (waiting.queue_id, waiting.properties["DELAY"]) == (1, "2")
        broker.run_for(2500)
        assert broker.store.reads.max_offset("T", 0) == 0
        broker.run_for(700)
        assert broker.store.reads.max_offset("T", 0) == 1
        broker.close()

    @pytest.mark.slow
    def test_what_waits_in_a_level_that_the_conf_has_no_more_is_delivered_too(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path)
        broker.ask(SEND, send_fields("T", 0, "DELAY\x013\x02"), b"x")
        broker.close()
        broker = OneBroker(tmp_path, "messageDelayLevel=1s 2s")
        broker.run_for(12_000)
        assert broker.store.reads.max_offset("T", 0) == 1
        broker.close()

    def test_a_level_takes_precedence_over_a_timer(self, broker: OneBroker) -> None:
        properties = f"{DELAYED}TIMER_DELAY_SEC\x01900\x02"
        waiting = decode_message(stored(broker, broker.ask(SEND, send_fields("T", 0, properties), b"x")))
        assert "TIMER_DELAY_SEC" not in waiting.properties

    def test_a_batch_cannot_be_delayed(self, broker: OneBroker) -> None:
        create(broker, "T")
        body = encode_batch([BatchMessage(0, b"x", b"")])
        answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("T", 0, DELAYED, m="true"), body)
        assert (answer.code, answer.remark) == (
            ResponseCode.MESSAGE_ILLEGAL,
            "property DELAY: a batch cannot be delayed",
        )

    def test_a_held_pull_is_answered_when_the_message_arrives(self, broker: OneBroker) -> None:
        broker.ask(SEND, send_fields("T", 0, DELAYED), b"later")
        pull = broker.new_request(
            RequestCode.PULL_MESSAGE, pull_fields("T", sysFlag="6", suspendTimeoutMillis="15000")
        )
        channel = RecordingChannel(7)
        broker.receive([pull], channel)
        broker.run_for(900)
        assert channel.response_to(pull.opaque) is None
        broker.run_for(400)
        answer = channel.response_to(pull.opaque)
        assert answer is not None
        assert [message.body for message in decode_messages(answer.body)] == [b"later"]


class TestSendBack:
    def test_the_message_comes_again_through_the_retry_topic(self, broker: OneBroker) -> None:
        phy_offset = sent(broker)
        original = decode_message(broker.store.reads.look_message_by_offset(phy_offset) or b"")
        assert send_back(broker, phy_offset, delayLevel="1").code == ResponseCode.SUCCESS
        broker.run_for(900)
        assert broker.store.reads.max_offset("%RETRY%g", 0) == 0
        broker.run_for(300)
        (again,) = messages_of(broker, "%RETRY%g")
        assert again.reconsume_times == 1
        assert again.properties == {
            **original.properties,
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": original.msg_id,
            "WAIT": "false",
            "DELAY": "1",
            "REAL_TOPIC": "%RETRY%g",
            "REAL_QID": "0",
        }
        for name in ("body", "flag", "sys_flag", "born_timestamp", "born_host", "tags"):
            assert getattr(again, name) == getattr(original, name)
        config = broker.controller.topics.select("%RETRY%g")
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)

    @pytest.mark.slow
    def test_left_to_the_broker_the_delay_grows_with_each_try(self, broker: OneBroker) -> None:
        phy_offset = sent(broker)
        levels = []
        for number in range(3):
            assert send_back(broker, phy_offset).code == ResponseCode.SUCCESS
            level = 3 + number
            (waiting,) = messages_of(broker, SCHEDULE_TOPIC, level - 1)
            levels.append((waiting.properties["DELAY"], waiting.reconsume_times))
            broker.run_for(DELAY_LEVELS[level] + 500)
            again = messages_of(broker, "%RETRY%g")[-1]
            assert again.properties["ORIGIN_MESSAGE_ID"] == messages_of(broker, "T")[0].msg_id
            phy_offset = again.phy_offset
        assert levels == [("3", 1), ("4", 2), ("5", 3)]

    @pytest.mark.parametrize(
        ("more", "settings"),
        [({"delayLevel": "-1"}, {}), ({"maxReconsumeTimes": "0"}, {}), ({}, {"retryMaxTimes": 0})],
        ids=["asked for", "by the consumer's limit", "by the group's limit"],
    )
    def test_what_was_tried_often_enough_is_a_dead_letter_at_once(
        self, broker: OneBroker, more: dict[str, str], settings: dict[str, int]
    ) -> None:
        put_group(broker, **settings)
        phy_offset = sent(broker)
        assert send_back(broker, phy_offset, **more).code == ResponseCode.SUCCESS
        (dead,) = messages_of(broker, "%DLQ%g")
        assert (dead.reconsume_times, dead.properties["DELAY"]) == (1, "0")
        assert (dead.properties["RETRY_TOPIC"], dead.body) == ("T", b"hello")
        config = broker.controller.topics.select("%DLQ%g")
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)

    def test_the_consumer_s_limit_counts_more_than_the_group_s(self, broker: OneBroker) -> None:
        put_group(broker, retryMaxTimes=0)
        assert send_back(broker, sent(broker), maxReconsumeTimes="5").code == ResponseCode.SUCCESS
        assert broker.store.reads.max_offset("%DLQ%g", 0) == 0
        assert broker.store.reads.max_offset(SCHEDULE_TOPIC, 2) == 1

    def test_the_retry_topic_s_own_queues_count_where_the_group_was_given_more_since(
        self, broker: OneBroker
    ) -> None:
        create(broker, "%RETRY%g", readQueueNums="1", writeQueueNums="1")
        put_group(broker, retryQueueNums=8)
        phy_offset = sent(broker)
        for _ in range(10):
            send_back(broker, phy_offset, delayLevel="1")
        broker.run_for(2_000)
        assert len(messages_of(broker, "%RETRY%g")) == 10

    def test_a_group_without_retry_queues_gives_nothing_back(self, broker: OneBroker) -> None:
        put_group(broker, retryQueueNums=0)
        assert send_back(broker, sent(broker)).code == ResponseCode.SUCCESS
        assert broker.controller.topics.select("%RETRY%g") is None

    def test_an_unknown_group_is_refused_where_groups_are_not_made_by_use(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path, "autoCreateSubscriptionGroup=false")
        answer = send_back(broker, sent(broker))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith("subscription group not exist, g ")
        broker.close()

    def test_a_broker_that_takes_no_messages_takes_none_back(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path, "brokerPermission=4")
        answer = send_back(broker, 100)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] sending message is forbidden",
        )
        broker.close()

    def test_a_retry_topic_that_must_not_be_written_to_is_respected(self, broker: OneBroker) -> None:
        create(broker, "%RETRY%g", perm="4")
        answer = send_back(broker, sent(broker))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the topic[%RETRY%g] sending message is forbidden",
        )

    def test_so_is_a_dead_letter_topic_that_must_not_be_written_to(self, broker: OneBroker) -> None:
        create(broker, "%DLQ%g", perm="4")
        answer = send_back(broker, sent(broker), delayLevel="-1")
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the topic[%DLQ%g] sending message is forbidden",
        )

    @pytest.mark.parametrize("offset", [-1, 0, 7, 1 << 62])
    def test_a_place_without_a_message_is_an_error(self, broker: OneBroker, offset: int) -> None:
        sent(broker)
        answer = send_back(broker, offset)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset}",
        )
        assert broker.store.tables.topic_config_table.get("%RETRY%g") is None

    def test_the_broker_s_own_records_are_no_messages_to_give_back(self, broker: OneBroker) -> None:
        phy_offset = broker.replica.log.head_size  # of the no-op
        assert send_back(broker, phy_offset).remark == f"look message by offset failed, {phy_offset}"

    def test_a_member_that_does_not_serve_says_so_with_a_code_that_clients_try_again(
        self, broker: OneBroker
    ) -> None:
        phy_offset = sent(broker)
        broker.step_down()
        assert send_back(broker, phy_offset).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("name", ["DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"])
def test_whatever_a_delayed_send_says_of_itself_it_waits_for_its_own_topic_or_is_refused(
    tmp_path: Path, name: str
) -> None:
    broker = OneBroker(tmp_path, "messageDelayLevel=1s 2s")
    accepted = 0
    for value in (*HOSTILE_VALUES, "SCHEDULE_TOPIC_XXXX", "1"):
        properties = f"DELAY\x011\x02{name}\x01{value}\x02"
        answer = broker.ask(SEND, send_fields("T", 0, properties), b"x")
        accepted += answer.code == ResponseCode.SUCCESS
    broker.run_for(3_000)
    assert broker.store.reads.max_offset("T", 0) == accepted > 0
    assert broker.store.tables.delay_offset_table.offsets.keys() <= {1, 2}
    broker.close()


class TestSendsToRetryTopics:
    """What a Java consumer does when its send-back has failed: it sends the message to its retry topic by itself."""

    def retry(self, broker: OneBroker, times: int, **more: str) -> RemotingCommand:
        properties = "RETRY_TOPIC\x01T\x02DELAY\x014\x02"
        return broker.ask(
            SEND, send_fields("%RETRY%g", 0, properties, j=str(times), **{"l": "3", **more}), b"again"
        )

    def test_it_waits_for_its_level(self, broker: OneBroker) -> None:
        assert self.retry(broker, 3).code == ResponseCode.SUCCESS
        (waiting,) = messages_of(broker, SCHEDULE_TOPIC, 3)
        assert (waiting.reconsume_times, waiting.properties["REAL_TOPIC"]) == (3, "%RETRY%g")

    def test_beyond_the_limit_it_is_a_dead_letter(self, broker: OneBroker) -> None:
        for _ in range(2):
            assert self.retry(broker, 4).code == ResponseCode.SUCCESS
        dead = messages_of(broker, "%DLQ%g")
        assert [(letter.body, letter.properties["DELAY"]) for letter in dead] == 2 * [(b"again", "-1")]
        assert broker.store.reads.max_offset(SCHEDULE_TOPIC, 3) == 0

    def test_without_a_limit_of_its_own_the_group_s_counts(self, broker: OneBroker) -> None:
        put_group(broker, retryMaxTimes=1)
        self.retry(broker, 2, l="")
        assert len(messages_of(broker, "%DLQ%g")) == 1

    def test_a_group_that_consumes_in_order_has_its_message_as_a_dead_letter_at_once(
        self, broker: OneBroker
    ) -> None:
        queue = bodies.MessageQueue(topic="T", broker_name="golden-a", queue_id=0)
        body = bodies.LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=[queue])
        assert broker.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode()).code == ResponseCode.SUCCESS
        self.retry(broker, 1)
        assert len(messages_of(broker, "%DLQ%g")) == 1

    @pytest.mark.parametrize("times", [0, 4])
    def test_a_batch_is_refused_and_no_topic_made(self, broker: OneBroker, times: int) -> None:
        body = encode_batch([BatchMessage(0, b"x", b"")])
        fields = send_fields("%RETRY%g", 0, "", j=str(times), m="true", l="3")
        answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.store.tables.topic_config_table.configs == {}

    def test_an_unknown_group_is_refused_and_no_topic_made(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path, "autoCreateSubscriptionGroup=false")
        assert self.retry(broker, 1).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert broker.controller.topics.select("%RETRY%g") is None
        broker.close()
