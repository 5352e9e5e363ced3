import asyncio
import zlib
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from fake_group import FakeGroup

from message.decoder import decode_message
from message.received_messages import received_messages
from mqclient import (
    ClientClosedError,
    Message,
    MessageIllegalError,
    MessageQueue,
    Producer,
    ProducerConfig,
    SendError,
    SendResult,
    SendStatus,
    by_sharding_key,
)

QUICK = ProducerConfig(send_timeout_s=20, retry_pause_s=0.001, retry_pause_max_s=0.002, stalled_after_s=0.01)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def test_send_returns_where_the_message_lies() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            result = await producer.send(
                Message("T", b"hello", tags="A", keys=("k1", "k2"), properties={"p": "v"})
            )
            assert result.status is SendStatus.SEND_OK
            assert (result.attempts, result.maybe_duplicate) == (1, False)
            queue = result.message_queue
            stored = decode_message(group.queues["T", queue.queue_id][result.queue_offset])
            assert (stored.body, stored.tags, stored.keys) == (b"hello", "A", "k1 k2")
            assert stored.properties["p"] == "v"
            assert stored.uniq_key == result.msg_id
            assert stored.phy_offset == result.phy_offset

    run(story())


def test_a_batch_goes_round_the_queues_and_keeps_the_order_of_outcomes() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            outcomes = await producer.send_batch([Message("T", b"%d" % i) for i in range(40)])
            assert [len(group.queues["T", i]) for i in range(4)] == [10, 10, 10, 10]
            for i, outcome in enumerate(outcomes):
                assert isinstance(outcome, SendResult)
                record = group.queues["T", outcome.message_queue.queue_id][outcome.queue_offset]
                assert decode_message(record).body == b"%d" % i

    run(story())


def test_messages_with_one_sharding_key_share_a_queue_in_order() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            await producer.send_batch([Message("T", b"%d" % i, sharding_key="order-7") for i in range(20)])
            (records,) = [records for records in group.queues.values() if records]
            assert [decode_message(record).body for record in records] == [b"%d" % i for i in range(20)]

    run(story())


def test_a_large_body_is_compressed_and_read_back_whole() -> None:
    async def story() -> None:
        body = b"abcdefgh" * 1000
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            result = await producer.send(Message("T", body))
            record = group.queues["T", result.message_queue.queue_id][0]
            stored = decode_message(record)
            assert zlib.decompress(stored.body) == body
            assert stored.sys_flag == 0x301
            assert [message.body for message in received_messages(record)] == [body]

    run(story())


def test_a_refused_send_waits_for_the_group_to_elect_and_costs_no_try() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.brokers[0].steps = [14] * 10
            result = await producer.send(Message("T", b"x"))
            assert not result.maybe_duplicate
            assert group.records == 1

    run(story())


def test_sends_follow_the_leader_to_another_member() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            await producer.send(Message("T", b"1"))
            group.lead(group.brokers[1])
            await producer.send(Message("T", b"2"))
            assert len(group.brokers[1].sends) == 1
            assert group.records == 2

    run(story())


def test_without_a_leader_the_send_ends_definite_when_its_time_is_up() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.lead(None)
            with pytest.raises(SendError, match="no leader") as caught:
                await producer.send(Message("T", b"x"), timeout_s=0.05)
            assert caught.value.definite
            assert caught.value.retriable
            assert caught.value.attempts == 0

    run(story())


def test_a_refusal_by_rule_is_final_at_once() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            group.brokers[0].steps = [13]
            with pytest.raises(SendError, match="told to answer 13") as caught:
                await producer.send(Message("T", b"x"))
            assert (caught.value.definite, caught.value.retriable, caught.value.code) == (True, False, 13)
            assert caught.value.attempts == 1

    run(story())


def test_a_queue_that_the_broker_does_not_have_is_chosen_anew_from_a_new_route() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            group.brokers[0].steps = ["illegal queue"]
            result = await producer.send(Message("T", b"x"))
            assert result.attempts == 2
            assert len(group.namesrv.requests) == 2
            group.brokers[0].steps = ["illegal queue"]
            with pytest.raises(SendError, match="queueId") as caught:
                await producer.send(Message("T", b"x"), queue=result.message_queue)
            assert (caught.value.definite, caught.value.code) == (True, 29)

    run(story())


@pytest.mark.slow
def test_lets_go_of_a_leader_that_answers_nothing_once_another_one_leads() -> None:
    async def story() -> None:
        config = ProducerConfig(stalled_after_s=0.01)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            await producer.send(Message("T", b"1"))
            group.brokers[0].is_mute = True
            send = asyncio.create_task(producer.send(Message("T", b"2")))
            group.lead(group.brokers[1])
            result = await send
            assert (result.attempts, result.maybe_duplicate) == (2, True)

    run(story())


def test_while_a_group_elects_only_one_message_of_a_batch_knocks() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.brokers[0].steps = [14] * 50 + [14] * 3
            outcomes = await producer.send_batch([Message("T", b"%d" % i) for i in range(50)])
            assert all(isinstance(outcome, SendResult) for outcome in outcomes)
            assert len(group.brokers[0].sends) == 50 + 3 + 50

    run(story())


def test_sends_go_on_while_the_namesrv_is_away() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            await producer.send(Message("T", b"1"))
            await group.namesrv.server.close(flush_seconds=0)
            group.brokers[0].steps = ["close", 14]
            result = await producer.send(Message("T", b"2"))
            assert result.attempts == 3

    run(story())


def test_answers_that_come_late_are_not_kept_waiting_by_a_namesrv_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqclient.client_api.ROUTE_TIMEOUT_S", 60)

    async def story() -> None:
        config = ProducerConfig(send_timeout_s=60, stalled_after_s=0.01)
        async with FakeGroup() as group, Producer(group.address, "g", config=config) as producer:
            await producer.send(Message("T", b"1"))
            group.namesrv.is_mute = True
            group.brokers[0].steps = ["late"]
            send = asyncio.create_task(producer.send(Message("T", b"2")))
            await group.until(lambda: group.brokers[0].late and group.namesrv.unanswered)
            group.brokers[0].release()
            async with asyncio.timeout(10):
                assert (await send).attempts == 1

    run(story())


def test_a_topic_that_nobody_knows_is_made_by_the_first_send() -> None:
    async def story() -> None:
        async with FakeGroup(topics=("TBW102",)) as group, Producer(group.address, "g") as producer:
            result = await producer.send(Message("New", b"x"))
            assert result.message_queue.topic == "New"
            assert group.brokers[0].sends[0].ext_fields["c"] == "TBW102"

    run(story())


def test_sends_go_to_another_group_when_one_refuses_and_come_back_when_it_answers() -> None:
    async def story() -> None:
        async with (
            FakeGroup(name="H") as other,
            FakeGroup(neighbours=(other,)) as group,
            Producer(group.address, "g", config=QUICK) as producer,
        ):
            group.lead(None, registered=False)  # its leader lost the others and is still registered
            for i in range(16):
                result = await producer.send(Message("T", b"%d" % i))
                assert result.message_queue.broker_name == "H"
            assert other.records == 16
            assert len(group.brokers[0].sends) < 8  # now and then one of them looks whether it can
            group.lead(group.brokers[0])
            while not group.records:
                await producer.send(Message("T", b"x"))

    run(story())


def test_a_group_that_answers_nothing_is_left_alone_while_another_one_works() -> None:
    async def story() -> None:
        config = ProducerConfig(send_timeout_s=20, stalled_after_s=0.001)
        async with (
            FakeGroup(name="H") as other,
            FakeGroup(neighbours=(other,)) as group,
            Producer(group.address, "g", config=config) as producer,
        ):
            group.brokers[0].is_mute = True
            stalled = asyncio.create_task(producer.send(Message("T", b"x"), queue=MessageQueue("T", "G", 0)))
            await group.until(lambda: len(group.namesrv.requests) > 2)  # that it stalls has been looked at
            for _ in range(8):
                assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "H"
            stalled.cancel()
            await asyncio.gather(stalled, return_exceptions=True)

    run(story())


@pytest.mark.parametrize(
    ("key", "queue_id"), [("polygenelubricants", 0), ("a", 1), ("key-1", 3), ("Bestellung-7", 1)]
)
def test_a_sharding_key_chooses_the_queue_that_java_chooses(key: str, queue_id: int) -> None:
    """The first hash is the least int there is, the last one is negative, too; Java drops the remainder's sign."""
    queues = [MessageQueue("T", "G", i) for i in range(4)]
    assert by_sharding_key(queues, Message("T", b"x", sharding_key=key)) == queues[queue_id]
    assert by_sharding_key(queues[:3], Message("T", b"x", sharding_key="polygenelubricants")) == queues[2]


def test_a_selector_of_the_application_sees_the_queues_and_the_message() -> None:
    async def story() -> None:
        def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            return queues[int(message.tags)]

        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            for number in (3, 1):
                result = await producer.send(Message("T", b"x", tags=str(number)), selector=select)
                assert result.message_queue == MessageQueue("T", "G", number)
            with pytest.raises(ValueError, match="contradict"):
                await producer.send(Message("T", b"x"), selector=select, queue=result.message_queue)

    run(story())


def test_a_message_without_an_answer_is_sent_once() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            await producer.send_oneway(Message("T", b"x", sharding_key="a"))
            await group.until(lambda: group.brokers[0].sends)
            assert group.brokers[0].sends[0].is_oneway
            assert len(group.queues["T", 1]) == 1
            with pytest.raises(SendError) as caught:
                await producer.send_oneway(Message("Nowhere", b"y"))
            assert (caught.value.definite, caught.value.attempts) == (True, 0)

    run(story())


def test_a_delay_level_goes_along_as_the_property_that_brokers_know() -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            await producer.send(Message("T", b"x", delay_level=3))
            record = group.queues["SCHEDULE_TOPIC_XXXX", 2][0]
            assert decode_message(record).properties["DELAY"] == "3"

    run(story())


def test_a_large_batch_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqclient.producer.producer.WRITE_SIZE_MAX", 100)

    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.brokers[0].steps = ["late"]
            bodies = [bytes(40), bytes(40), bytes(40), bytes(200), b"x"]
            sending = asyncio.create_task(producer.send_batch([Message("T", body) for body in bodies]))
            await group.until(lambda: len(group.brokers[0].sends) == 2)
            group.brokers[0].release()
            outcomes = await sending
            assert all(isinstance(outcome, SendResult) for outcome in outcomes)
            assert [len(command.body) for command in group.brokers[0].sends] == [40, 40, 40, 200, 1]

    run(story())


def test_parts_of_a_batch_that_never_left_are_told_what_kept_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqclient.producer.producer.WRITE_SIZE_MAX", 10)

    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            broker = group.brokers[0]
            broker.steps = [14] * 1000
            # The time is up as soon as the first part has been refused.
            clock = SimpleNamespace(time=lambda: 1000.0 if broker.sends else 0.0)
            module = SimpleNamespace(**vars(asyncio) | {"get_running_loop": lambda: clock})
            monkeypatch.setattr("mqclient.producer.producer.asyncio", module)
            outcomes = await producer.send_batch([Message("T", bytes(10)) for _ in range(3)])
            assert len(broker.sends) == 1
            for outcome in outcomes:
                assert isinstance(outcome, SendError)
                assert "last trouble: 127.0.0.1:" in str(outcome)

    run(story())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", b""), "0 bytes"),
        (Message("T", b"x" * 4_194_305), "4194305 bytes"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("T", b"x", keys=("a\x01",)), "end names and values"),
        (Message("T", b"x", tags="half a pair \ud800"), "cannot be UTF-8: surrogates not allowed"),
        (Message("T", b"x", properties={"TAGS": "x"}), "fields of their own"),
        (Message("T", b"x", properties={"DELAY": "1"}), "fields of their own"),
        (Message("T", b"x", delay_level=-1), "delay_level -1"),
        (Message("T", "x"), "encode it to bytes"),  # type: ignore[arg-type]
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "nothing can be sent to it"),
        (Message("T", b"x", properties={"p": "v" * 40_000}), "more than 32767"),
    ],
)
def test_a_message_that_breaks_a_rule_is_not_sent(message: Message, reason: str) -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            with pytest.raises(MessageIllegalError, match=reason):
                await producer.send(message)
            assert group.brokers[0].sends == []

    run(story())


def test_a_closed_producer_says_so_and_has_taken_leave() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            producer = Producer(group.address, "g")
            with pytest.raises(ClientClosedError, match="not started"):
                await producer.send(Message("T", b"x"))
            await producer.start()
            await producer.send(Message("T", b"x"))
            await producer.close()
            assert group.brokers[0].unregistered[0]["producerGroup"] == "g"
            with pytest.raises(ClientClosedError, match="closed"):
                await producer.send(Message("T", b"x"))

    run(story())


@pytest.mark.parametrize("step", ["close", 14])
def test_a_close_ends_a_send_that_is_being_tried_again(step: str | int) -> None:
    async def story() -> None:
        async with FakeGroup() as group, asyncio.timeout(20):
            producer = Producer(group.address, "g")
            await producer.start()
            await producer.send(Message("T", b"x"))
            group.brokers[0].steps, group.namesrv.is_mute = [step], True
            send = asyncio.create_task(producer.send(Message("T", b"y"), timeout_s=3600))
            await group.until(lambda: group.namesrv.unanswered)
            await producer.close()
            with pytest.raises(SendError, match="closed") as caught:
                await send
            assert (caught.value.definite, caught.value.attempts) == (step == 14, 1)

    run(story())


def test_a_selector_that_fails_loses_no_outcome() -> None:
    async def story() -> None:
        chosen: list[bytes] = []

        def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
            if message.body in chosen:
                raise LookupError("my queue is gone")
            chosen.append(message.body)
            return queues[0]

        async with FakeGroup() as group, Producer(group.address, "g", config=QUICK) as producer:
            group.brokers[0].steps = [0, 14, "close"]
            messages = [Message("T", b"stored"), Message("T", b"refused"), Message("T", b"unknown")]
            stored, refused, unknown = await producer.send_batch(messages, selector=select)
            assert isinstance(stored, SendResult)
            for outcome, definite in ((refused, True), (unknown, False)):
                assert isinstance(outcome, SendError)
                assert "my queue is gone" in str(outcome)
                assert (outcome.definite, outcome.attempts) == (definite, 1)

    run(story())


@pytest.mark.parametrize(
    ("message", "pair"),
    [
        (Message("T", b"x", delay=timedelta(milliseconds=1500)), "TIMER_DELAY_MS\x011500\x02"),
        (Message("T", b"x", delay=timedelta(microseconds=1)), "TIMER_DELAY_MS\x011\x02"),
        (
            Message("T", b"x", deliver_at=datetime(2026, 1, 31, 8, 0, 0, 1, tzinfo=UTC)),
            "TIMER_DELIVER_MS\x011769846400001\x02",
        ),
    ],
)
def test_a_time_is_sent_as_rocketmq_s_property_rounded_up_to_ms(message: Message, pair: str) -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            await producer.send(message)
            assert pair in group.brokers[0].sends[-1].ext_fields["i"]

    run(story())


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay=timedelta(seconds=-1)),
        Message("T", b"x", delay=timedelta(seconds=1), delay_level=1),
        Message("T", b"x", delay=timedelta(seconds=1), deliver_at=datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_times_that_contradict_each_other_are_refused(message: Message) -> None:
    async def story() -> None:
        async with FakeGroup() as group, Producer(group.address, "g") as producer:
            with pytest.raises(MessageIllegalError):
                await producer.send(message)

    run(story())
