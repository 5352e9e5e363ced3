"""The classes without an event loop: they run in a thread of these tests, the fake group in the loop."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from fake_group import FIRST, FakeGroup

from message.decoder import MessageExt
from mqclient import (
    ClientClosedError,
    ConsumerConfig,
    LocalOffsetsError,
    Message,
    MessageIllegalError,
    MessageModel,
    MessageQueue,
    OffsetIllegalError,
    SendError,
    SendResult,
)
from mqclient.loop_thread import LoopThread
from mqclient.producer.transaction_producer import TransactionState
from mqclient.sync import LitePullConsumer, Producer, PushConsumer, TransactionProducer

ONE = MessageQueue("T", "G", 0)


def with_group(story: Callable[[FakeGroup], None]) -> FakeGroup:
    group = FakeGroup()

    async def run() -> None:
        async with group, asyncio.timeout(20):
            await asyncio.to_thread(story, group)

    before = threading.active_count()
    asyncio.run(run())
    assert threading.active_count() == before, "every thread has ended"
    return group


def send(group: FakeGroup, bodies: str) -> None:
    with Producer(group.address, "p") as producer:
        producer.send_batch([Message("T", body.encode()) for body in bodies], queue=ONE)


def test_sends_return_or_raise_what_the_asyncio_ones_do() -> None:
    def story(group: FakeGroup) -> None:
        with Producer(group.address, "p") as producer:
            assert producer.send(Message("T", b"a", sharding_key="a")).message_queue.queue_id == 1
            outcomes = producer.send_batch([Message("T", b"b"), Message("T", b"c")])
            assert all(isinstance(outcome, SendResult) for outcome in outcomes)
            futures = [producer.send_async(Message("T", b"d")) for _ in range(10)]
            assert {future.result(20).status for future in futures} == {0}
            with pytest.raises(MessageIllegalError):
                producer.send(Message("T", b""))
            group.brokers[0].steps = [13]
            with pytest.raises(SendError) as caught:
                producer.send(Message("T", b"f"))
            assert (caught.value.definite, caught.value.code) == (True, 13)
            producer.send_oneway(Message("T", b"e"), queue=ONE)
            producer.send(Message("T", b"behind it"), queue=ONE)

    assert with_group(story).records == 15


def test_what_is_closed_or_not_started_says_so() -> None:
    def story(group: FakeGroup) -> None:
        producer = Producer(group.address, "p")
        with pytest.raises(ClientClosedError, match="not started"):
            producer.send(Message("T", b"x"))
        producer.close()
        producer.start()
        producer.close()
        producer.close()
        with pytest.raises(ClientClosedError, match="closed"):
            producer.send_async(Message("T", b"x"))

    with_group(story)


def test_a_start_that_fails_leaves_no_thread_behind() -> None:
    def story(group: FakeGroup) -> None:
        nowhere = Path("/dev/null/offsets")
        config = ConsumerConfig(message_model=MessageModel.BROADCASTING, local_offset_store_dir=nowhere)
        consumer = LitePullConsumer(group.address, "g", {"T": "*"}, config=config)
        with pytest.raises(LocalOffsetsError):
            consumer.start()

    with_group(story)


def test_a_selector_that_calls_its_producer_is_told_that_it_would_wait_for_itself() -> None:
    def story(group: FakeGroup) -> None:
        with Producer(group.address, "p") as producer:

            def select(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
                producer.send(message)
                return queues[0]

            with pytest.raises(SendError, match="wait for itself") as caught:
                producer.send(Message("T", b"x"), selector=select)
            assert isinstance(caught.value.__cause__, RuntimeError)

    with_group(story)


def test_a_listener_gets_each_message_and_those_it_fails_with_are_given_back() -> None:
    def story(group: FakeGroup) -> None:
        send(group, "abcdef")
        seen: list[bytes] = []
        all_seen = threading.Event()

        def listen(message: MessageExt) -> None:
            seen.append(message.body)
            if len(seen) == 6:
                all_seen.set()
            if message.body in (b"b", b"e"):
                raise KeyError("no such thing")

        with PushConsumer(group.address, "g", {"T": "*"}, listen, thread_count=1, config=FIRST) as consumer:
            assert all_seen.wait(20)
            assert ONE in consumer.queues
        assert seen == [b"a", b"b", b"c", b"d", b"e", b"f"]

    group = with_group(story)
    assert len(group.brokers[0].sent_back) == 2
    assert group.offsets["g", "T", 0] == 6


def test_a_listener_that_would_end_the_program_ends_neither_its_thread_nor_the_consumer() -> None:
    def story(group: FakeGroup) -> None:
        send(group, "ab")
        seen: list[bytes] = []
        all_seen = threading.Event()

        def listen(message: MessageExt) -> None:
            seen.append(message.body)
            if len(seen) == 2:
                all_seen.set()
            raise SystemExit

        with PushConsumer(group.address, "g", {"T": "*"}, listen, thread_count=1, config=FIRST):
            assert all_seen.wait(20)
        assert seen == [b"a", b"b"]

    assert len(with_group(story).brokers[0].sent_back) == 2


def test_a_close_waits_for_the_call_under_way_and_leaves_the_rest_to_the_next_member() -> None:
    def story(group: FakeGroup) -> None:
        send(group, "abc")
        entered, leave = threading.Event(), threading.Event()

        def listen(message: MessageExt) -> None:
            entered.set()
            assert leave.wait(20)

        consumer = PushConsumer(group.address, "g", {"T": "*"}, listen, config=FIRST)
        consumer.start()
        assert entered.wait(20)
        closing: Future[None] = Future()
        thread = threading.Thread(target=lambda: closing.set_result(consumer.close()))
        thread.start()
        consumer._is_closing.wait(20)
        assert not closing.done()
        leave.set()
        closing.result(20)
        thread.join()

    assert with_group(story).offsets["g", "T", 0] == 1


def test_an_application_polls_and_seeks() -> None:
    def story(group: FakeGroup) -> None:
        send(group, "abcd")
        config = replace(FIRST, pull_batch_size=2)
        with LitePullConsumer(group.address, "g", auto_commit=False, config=config) as consumer:
            assert consumer.fetch_message_queues("T")[0] == ONE
            consumer.assign([ONE])
            assert consumer.assignment == [ONE]
            first = consumer.poll(20)
            assert [message.body for message in first] == [b"a", b"b"]
            assert consumer.offset_for_timestamp(ONE, first[0].store_timestamp) == 0
            consumer.commit()
            assert consumer.committed(ONE) == 2
            consumer.seek(ONE, 3)
            assert [message.body for message in consumer.poll(20)] == [b"d"]
            consumer.seek_to_begin(ONE)
            consumer.pause(ONE)
            assert consumer.poll(0.001) == []
            consumer.resume(ONE)
            assert [message.body for message in consumer.poll(20)] == [b"a", b"b"]
            consumer.seek_to_end(ONE)
            assert consumer.poll(0.001) == []
            with pytest.raises(OffsetIllegalError):
                consumer.seek(ONE, 5)

    with_group(story)


def test_a_poll_that_waits_in_another_thread_ends_when_the_consumer_is_closed() -> None:
    def story(group: FakeGroup) -> None:
        consumer = LitePullConsumer(group.address, "g", {"T": "*"}, config=FIRST)
        consumer.start()
        ends: list[str] = []

        def poll() -> None:
            try:
                while True:
                    assert consumer.poll(3600) == []
            except ClientClosedError as error:
                ends.append(str(error))

        thread = threading.Thread(target=poll)
        thread.start()
        consumer.close()
        thread.join(20)
        assert ends == ["closed"]

    with_group(story)


def test_work_that_a_close_breaks_off_has_an_unknown_outcome() -> None:
    thread = LoopThread("test")
    thread.start()
    entered = threading.Event()

    async def work() -> None:
        entered.set()
        await asyncio.Event().wait()

    errors: list[ClientClosedError] = []

    def wait() -> None:
        try:
            thread.call(work())
        except ClientClosedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert entered.wait(20)
    thread.close()
    waiting.join(20)
    (error,) = errors
    assert not error.definite


def test_a_check_may_call_its_producer_while_that_closes() -> None:
    """It is told that the producer is closed."""
    started, closed = threading.Event(), threading.Event()
    ends: list[str] = []

    def story(group: FakeGroup) -> None:
        producer = TransactionProducer(group.address, "p", check=lambda message: check(producer))
        close = producer._client.close

        async def close_and_say_so() -> None:
            await close()
            closed.set()

        producer._client.close = close_and_say_so  # type: ignore[method-assign]
        with producer:
            future = producer._thread.submit(producer._checked(None))  # type: ignore[arg-type]
            assert started.wait(5)
        assert future.done()

    def check(producer: TransactionProducer) -> TransactionState:
        started.set()
        assert closed.wait(5)
        try:
            producer.send(Message("T", b"a"))
        except ClientClosedError:
            ends.append("closed")
        return TransactionState.UNKNOWN

    with_group(story)
    assert ends == ["closed"]
