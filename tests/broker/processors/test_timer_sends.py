"""Timer messages and their recalls, as clients see them."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest
from one_broker import OneBroker, send_fields
from test_retries import messages_of
from test_send_message import create, stored

from message.batch import BatchMessage, encode_batch
from message.decoder import decode_message
from message.names import TIMER_TOPIC
from message.recall_handle import RecallHandle
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads_fastjson
from remoting.frame.command import RemotingCommand

SEND = RequestCode.SEND_MESSAGE_V2
TOO_FAR = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del msg, "
    "the delay time should be bigger than the current time"
)


def send_timer(
    broker: OneBroker, body: bytes = b"later", topic: str = "T", **asked: object
) -> RemotingCommand:
    properties = "".join(f"{name}\x01{value}\x02" for name, value in asked.items())
    return broker.ask(SEND, send_fields(topic, 0, f"TAGS\x01A\x02{properties}"), body)


def recall(broker: OneBroker, handle: str, topic: str = "T") -> RemotingCommand:
    fields = {"producerGroup": "p", "topic": topic, "recallHandle": handle, "bname": "broker-a"}
    return broker.ask(RequestCode.RECALL_MESSAGE, fields)


@pytest.mark.parametrize(
    ("name", "value", "delay_ms"), [("SEC", 2, 2_000), ("MS", 1_500, 1_500), ("MS", 7_003, 7_003)]
)
def test_a_message_with_a_delay_arrives_after_it(
    broker: OneBroker, name: str, value: int, delay_ms: int
) -> None:
    create(broker, "T")
    sent_ms = broker.now_ms
    answer = send_timer(broker, **{f"TIMER_DELAY_{name}": value})
    assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "0")
    waiting = decode_message(stored(broker, answer))
    assert (waiting.topic, waiting.queue_id) == (TIMER_TOPIC, 0)
    slot_ms = (sent_ms + delay_ms - 1) // 1000 * 1000
    assert waiting.properties["TIMER_OUT_MS"] == str(slot_ms)
    handle = urlsafe_b64decode(answer.ext_fields["recallHandle"]).decode()
    assert handle == f"v1 T {broker.config.broker_name} {slot_ms + 1} {waiting.uniq_key}"
    broker.run_until(lambda: broker.now_ms >= sent_ms + delay_ms - 20)
    assert broker.store.reads.max_offset("T", 0) == 0
    broker.run_for(200)
    (arrived,) = messages_of(broker, "T")
    assert 0 <= arrived.store_timestamp - waiting.store_timestamp - delay_ms <= 100
    assert (arrived.body, arrived.tags, arrived.uniq_key) == (b"later", "A", waiting.uniq_key)


def test_the_first_of_the_three_properties_counts(broker: OneBroker) -> None:
    answer = send_timer(broker, TIMER_DELIVER_MS=1, TIMER_DELAY_MS=1, TIMER_DELAY_SEC=100)
    waiting = decode_message(stored(broker, answer))
    assert int(waiting.properties["TIMER_OUT_MS"]) > broker.now_ms + 98_000


@pytest.mark.parametrize("asked", [{"TIMER_DELAY_SEC": 0}, {"TIMER_DELIVER_MS": 17}, {"TIMER_DELAY_MS": -5}])
def test_what_is_due_already_is_a_message_like_any_other(broker: OneBroker, asked: dict[str, int]) -> None:
    answer = send_timer(broker, **asked)
    assert "recallHandle" not in answer.ext_fields
    assert decode_message(stored(broker, answer)).topic == "T"


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELAY_SEC": 259_201},
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELAY_MS": "1_000"},
        {"TIMER_DELIVER_MS": 9_999_999_999_999},
        {"TIMER_DELAY_SEC": 0, "TIMER_DEL_UNIQKEY": "k"},
    ],
)
def test_what_is_too_far_or_no_time_is_refused_in_rocketmq_s_words(
    broker: OneBroker, asked: dict[str, object]
) -> None:
    answer = send_timer(broker, **asked)
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, TOO_FAR)
    assert broker.store.reads.max_offset(TIMER_TOPIC, 0) == 0
    assert "T" not in broker.store.tables.topic_config_table.configs


def test_the_limit_is_the_conf_s_up_to_a_month(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "timerMaxDelaySec=2592000\n")
    assert send_timer(broker, TIMER_DELAY_SEC=2_592_000).code == ResponseCode.SUCCESS
    assert send_timer(broker, TIMER_DELAY_SEC=2_592_001).code == ResponseCode.MESSAGE_ILLEGAL
    broker.close()


def test_timers_that_are_off_are_refused(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "timerWheelEnable=false\n")
    answer = send_timer(broker, TIMER_DELAY_SEC=1)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    )
    broker.close()


def test_a_slot_takes_no_more_than_twice_its_limit(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "timerCongestNumEachSlot=10\n")
    create(broker, "T")
    deliver_ms = broker.now_ms + 60_000
    answers = []
    for _ in range(60):
        answers.append(send_timer(broker, TIMER_DELIVER_MS=deliver_ms))
        broker.tick()
    codes = [answer.code for answer in answers]
    assert codes[:11] == [ResponseCode.SUCCESS] * 11
    assert 11 < codes.count(ResponseCode.SUCCESS) <= 21
    assert "under flow control" in (answers[-1].remark or "")
    assert send_timer(broker, TIMER_DELIVER_MS=deliver_ms + 5_000).code == ResponseCode.SUCCESS
    broker.close()


@pytest.mark.parametrize("conf", ["", "timerStopDequeue=true\n"])
def test_delivery_is_stopped_and_goes_on_while_the_broker_runs(tmp_path: Path, conf: str) -> None:
    broker = OneBroker(tmp_path, conf)
    create(broker, "T")
    if not conf:
        assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"timerStopDequeue=true").code == 0
    answers = [send_timer(broker, TIMER_DELAY_MS=3_500) for _ in range(9)]
    for answer in answers[1:]:
        assert recall(broker, answer.ext_fields["recallHandle"]).code == ResponseCode.SUCCESS
    broker.run_for(5_000)
    assert broker.store.reads.max_offset("T", 0) == 0
    assert not broker.store._commit_log.recalls_under_way, "those that are dispatched are forgotten"
    assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"timerStopDequeue=false").code == 0
    broker.run_for(200)
    (arrived,) = messages_of(broker, "T")
    assert arrived.uniq_key == decode_message(stored(broker, answers[0])).uniq_key
    broker.close()


def test_a_batch_is_not_timed(broker: OneBroker) -> None:
    create(broker, "T")
    body = encode_batch([BatchMessage(0, b"x", b"")])
    fields = send_fields("T", 0, "TIMER_DELAY_SEC\x015\x02", m="true")
    answer = broker.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_properties_that_leave_no_room_for_the_timer_s_are_refused(broker: OneBroker) -> None:
    create(broker, "T")
    answer = send_timer(broker, TIMER_DELAY_SEC=5, NOTE="n" * 32_450)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    broker.run_for(100)
    assert broker.store.reads.max_offset("T", 0) == 0


@pytest.mark.parametrize("real_topic", ["T", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "n" * 300])
def test_nothing_is_sent_right_into_the_timer_topic(broker: OneBroker, real_topic: str) -> None:
    """What lies there would go wherever it says, past all checks."""
    create(broker, "T")
    answer = send_timer(broker, topic=TIMER_TOPIC, REAL_TOPIC=real_topic, REAL_QID="0", TIMER_OUT_MS="1")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert broker.store.reads.max_offset(TIMER_TOPIC, 0) == 0


def test_a_message_that_was_delivered_may_be_sent_again(broker: OneBroker) -> None:
    """With all the properties that it arrived with."""
    create(broker, "T")
    send_timer(broker, TIMER_DELAY_MS=700)
    broker.run_for(1_000)
    (arrived,) = messages_of(broker, "T")
    send_timer(broker, b"again", **arrived.properties)
    assert [message.body for message in messages_of(broker, "T")] == [b"later", b"again"]


def test_of_a_topic_that_was_changed_meanwhile_it_comes_to_the_queue_that_it_was_sent_to(
    broker: OneBroker,
) -> None:
    create(broker, "T")
    asked = "TIMER_DELAY_MS\x01500\x02"
    assert broker.ask(SEND, send_fields("T", 3, asked), b"m").code == ResponseCode.SUCCESS
    create(broker, "T", readQueueNums="1", writeQueueNums="1", perm="4")
    broker.run_for(1_000)
    assert [message.body for message in messages_of(broker, "T", 3)] == [b"m"]


def test_a_property_of_the_commercial_broker_is_the_user_s_own(broker: OneBroker) -> None:
    answer = send_timer(broker, __STARTDELIVERTIME=broker.now_ms + 60_000)
    message = decode_message(stored(broker, answer))
    assert (message.topic, "recallHandle" in answer.ext_fields) == ("T", False)
    assert message.properties["__STARTDELIVERTIME"] == str(broker.now_ms + 60_000)


class TestRecall:
    @pytest.mark.parametrize("message_id", ["", "a\x01b\x02c", "\x02", "n" * 40_000])
    def test_what_cannot_name_a_message_is_refused_and_nothing_is_stored(
        self, broker: OneBroker, message_id: str
    ) -> None:
        """Without the name it would be a message like any other, and be delivered."""
        create(broker, "T")
        handle = RecallHandle("T", broker.config.broker_name, broker.now_ms + 5_000, message_id)
        answer = recall(broker, handle.encode())
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert broker.store.reads.max_offset(TIMER_TOPIC, 0) == 0

    def test_a_recalled_message_does_not_arrive(self, broker: OneBroker) -> None:
        answer = send_timer(broker, TIMER_DELAY_SEC=5)
        recalled = recall(broker, answer.ext_fields["recallHandle"])
        assert recalled.code == ResponseCode.SUCCESS
        assert recalled.ext_fields == {
            "msgId": answer.ext_fields["transactionId"],
            "MSG_REGION": "DefaultRegion",
        }
        broker.run_for(10_000)
        assert broker.store.reads.max_offset("T", 0) == 0

    def test_its_record_is_rocketmq_s(self, broker: OneBroker) -> None:
        answer = send_timer(broker, TIMER_DELAY_SEC=5)
        target = decode_message(stored(broker, answer))
        recall(broker, answer.ext_fields["recallHandle"])
        _, record = messages_of(broker, TIMER_TOPIC)
        slot_ms = int(target.properties["TIMER_OUT_MS"])
        assert (record.body, record.tags) == (b"0", "_RECALL_TAG_")
        assert record.properties == {
            "TIMER_DEL_UNIQKEY": target.uniq_key,
            "UNIQ_KEY": target.uniq_key,
            "TIMER_DELIVER_MS": str(slot_ms + 1),
            "TIMER_OUT_MS": str(slot_ms),
            "BORN_TIMESTAMP": str(record.born_timestamp),
            "PGROUP": "p",
            "TAGS": "_RECALL_TAG_",
            "REAL_TOPIC": "T",
            "REAL_QID": "0",
        }

    def test_recalls_may_be_switched_off(self, tmp_path: Path) -> None:
        broker = OneBroker(tmp_path, "recallMessageEnable=false\n")
        handle = send_timer(broker, TIMER_DELAY_SEC=5).ext_fields["recallHandle"]
        answer = recall(broker, handle)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "recall failed, operation is forbidden",
        )
        broker.close()

    @pytest.mark.parametrize(
        ("changes", "code", "remark"),
        [
            ({"topic": "U"}, ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match"),
            (
                {"broker_name": "other"},
                ResponseCode.ILLEGAL_OPERATION,
                "recall failed, broker service not available",
            ),
            ({"timestamp": 17}, ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
            (
                {"timestamp": 9_999_999_999_999},
                ResponseCode.ILLEGAL_OPERATION,
                "recall failed, timestamp invalid",
            ),
        ],
    )
    def test_a_handle_of_something_else_is_refused(
        self, broker: OneBroker, changes: dict[str, object], code: int, remark: str
    ) -> None:
        text = send_timer(broker, TIMER_DELAY_SEC=5).ext_fields["recallHandle"]
        handle = RecallHandle.decode(text)._replace(**changes)
        answer = recall(broker, handle.encode())
        assert (answer.code, answer.remark) == (code, remark)

    @pytest.mark.parametrize("text", ["", "x", "äöü", "djIgYSBiIGMgZA==", "djEgYSBi", "/w=="])
    def test_what_is_no_handle_is_refused(self, broker: OneBroker, text: str) -> None:
        create(broker, "T")
        answer = recall(broker, text)
        assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")

    def test_of_an_unknown_topic_nothing_can_be_recalled(self, broker: OneBroker) -> None:
        answer = recall(broker, RecallHandle("No", "broker-a", broker.now_ms + 99_999, "k").encode(), "No")
        assert (answer.code, answer.remark) == (
            ResponseCode.TOPIC_NOT_EXIST,
            "recall failed, the topic[No] not exist",
        )


class TestTools:
    def test_how_many_wait_is_told_by_topic(self, broker: OneBroker) -> None:
        for topic, delay_s in (("T", 5), ("T", 60), ("U", 90)):
            send_timer(broker, topic=topic, TIMER_DELAY_SEC=delay_s)
        broker.run_for(6_000)
        body = bytes(broker.ask(RequestCode.GET_TIMER_METRICS).body)
        told = loads_fastjson(body)
        assert isinstance(told, dict)
        counts = {topic: metric["count"] for topic, metric in told["timingCount"].items()}
        assert counts == {"T": 1, "U": 1}
        figures = broker.store.figures()
        assert figures["rocketmq_timing_messages"] == counts
        assert figures["rocketmq_timer_enqueue_total"] == {"T": 2, "U": 1}
        assert figures["rocketmq_timer_dequeue_total"] == {"T": 1}
        assert (figures["rocketmq_timer_enqueue_lag"], figures["rocketmq_timer_dequeue_lag"]) == (0, 0)
        table = loads_fastjson(bytes(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body))
        assert isinstance(table, dict)
        info = table["table"]
        assert (info["timerReadBehind"], info["timerOffsetBehind"], info["timerCongestNum"]) == (
            "0",
            "0",
            "2",
        )

    def test_the_check_point_has_rocketmq_s_layout(self, broker: OneBroker) -> None:
        send_timer(broker, TIMER_DELAY_SEC=5)
        broker.run_for(6_000)
        values = struct.unpack(">7q", bytes(broker.ask(RequestCode.GET_TIMER_CHECK_POINT).body))
        version = broker.store.tables.timer_table.data_version
        assert values == (broker.now_ms, 0, 1, 1, 0, version.timestamp, version.counter)

    def test_what_comes_next_of_a_message_is_told(self, broker: OneBroker) -> None:
        answer = send_timer(broker, TIMER_DELIVER_MS=(deliver_ms := broker.now_ms + 70 * 3_600_000))
        waiting = decode_message(stored(broker, answer))
        fields = {"offset": str(waiting.phy_offset)}
        state = broker.ask(RequestCode.GET_TIMER_STATE, fields).ext_fields
        assert state == {
            "queueOffset": "0",
            "realTopic": "T",
            "realQueueId": "0",
            "deliverMs": str(deliver_ms),
            "rollMs": str(waiting.store_timestamp + 48 * 3_600_000),
            "rollTimes": "0",
            "state": "WAITING",
        }
        near = decode_message(stored(broker, send_timer(broker, TIMER_DELAY_MS=500)))
        broker.run_for(1_000)
        state = broker.ask(RequestCode.GET_TIMER_STATE, {"offset": str(near.phy_offset)}).ext_fields
        assert state["state"] == "ENDED"
        assert "rollMs" not in state
