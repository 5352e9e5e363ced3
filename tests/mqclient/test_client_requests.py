"""What brokers ask of our consumers, most of it for an operator's tool."""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop
from fake_group import FIRST, FakeGroup

import mqclient.consumer.group_member
import mqclient.sync
from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt
from message.encoder import encode_record
from message.sys_flag import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from mqclient import (
    ConsumeBatch,
    ConsumerConfig,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
)
from mqclient.client_instance import ClientInstance
from mqclient.consumer.offset_store import RemoteBrokerOffsetStore
from remoting.bodies import bodies
from remoting.bodies.admin_bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

ONE, TWO = MessageQueue("T", "G", 0), MessageQueue("T", "G", 1)
RESET = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def push(group: FakeGroup, *, config: ConsumerConfig = FIRST) -> PushConsumer:
    return PushConsumer(
        group.address, "g", {"T": "*"}, config=config, on_assignment=group.changed, now_ms=lambda: 12_345
    )


def lite(group: FakeGroup, *, auto_commit: bool = True) -> LitePullConsumer:
    return LitePullConsumer(
        group.address, "g", {"T": "*"}, config=FIRST, auto_commit=auto_commit, on_assignment=group.changed
    )


async def send(group: FakeGroup, text: str) -> None:
    async with Producer(group.address, "p") as producer:
        await producer.send_batch([Message("T", letter.encode()) for letter in text], queue=ONE)


async def take(consumer: PushConsumer) -> ConsumeBatch:
    async with asyncio.timeout(20):
        batch = await consumer.take()
    assert batch is not None
    return batch


def text_of(messages: list[MessageExt]) -> str:
    return b"".join(message.body for message in messages).decode()


def wire_queue(queue_id: int) -> bodies.MessageQueue:
    return bodies.MessageQueue(topic="T", broker_name="G", queue_id=queue_id)


def offsets(table: dict[int, int]) -> bytes:
    return ResetOffsetBody(
        offset_table={wire_queue(queue_id): offset for queue_id, offset in table.items()}
    ).encode()


async def running_info(group: FakeGroup, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
    fields = {"consumerGroup": "g", "clientId": client_id, "jstackEnable": "true" if stacks else "false"}
    answer = await group.brokers[0].ask(client_id, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert answer.code == ResponseCode.SUCCESS
    return ConsumerRunningInfo.decode(answer.body)


def tell_to_consume(group: FakeGroup, client_id: str, offset: int) -> int:
    """The request's opaque."""
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    fields = {"consumerGroup": "g", "clientId": client_id, "brokerName": "G"}
    return group.brokers[0].tell(client_id, code, fields, group.queues["T", 0][offset], oneway=False)


async def hand_over(group: FakeGroup, client_id: str, offset: int) -> RemotingCommand:
    await group.until(lambda: client_id in group.brokers[0].channels)
    return await group.brokers[0].answer(tell_to_consume(group, client_id, offset))


def test_a_reset_has_a_consumer_go_on_there_and_what_it_had_before_moves_nothing() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group) as consumer:
                before = await take(consumer)
                assert text_of(before.messages) == "abcd"
                group.brokers[0].tell(
                    consumer.client_id, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RESET, offsets({0: 1})
                )
                await group.until(lambda: group.offsets.get(("g", "T", 0)) == 1)
                assert before.is_dropped
                before.done()
                await consumer.commit()
                assert group.offsets["g", "T", 0] == 1
                after = await take(consumer)
                assert text_of(after.messages) == "bcd"
                after.done()
            assert group.offsets["g", "T", 0] == 4

    run(story())


def test_a_reset_forgets_what_waits_to_be_taken() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group, config=replace(FIRST, pull_batch_size=1)) as consumer:
                await group.until(lambda: len(group.brokers[0].held) == 4)
                reset = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                answer = await group.brokers[0].ask(consumer.client_id, reset, RESET, offsets({0: 3}))
                assert answer.code == ResponseCode.SUCCESS
                assert text_of((await take(consumer)).messages) == "d"

    run(story())


def test_a_reset_is_committed_also_where_commits_are_the_applications() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with lite(group, auto_commit=False) as consumer:
                assert text_of(await consumer.poll(20)) == "abcd"
                reset = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                await group.brokers[0].ask(consumer.client_id, reset, RESET, offsets({0: 2, 9: 5}))
                assert group.offsets == {("g", "T", 0): 2}, "queue 9 is not ours"
                assert text_of(await consumer.poll(20)) == "cd"

    run(story())


def test_a_reset_that_could_not_be_committed_is_committed_later() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group) as consumer:
                (await take(consumer)).done()
                group.brokers[0].refuses_offsets = True
                reset = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                await group.brokers[0].ask(consumer.client_id, reset, RESET, offsets({0: 0}))
                assert group.offsets == {}
                group.brokers[0].refuses_offsets = False
                await consumer.commit()
                assert group.offsets["g", "T", 0] == 0

    run(story())


def test_resets_of_other_topics_and_to_no_offset_are_passed_over() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group) as consumer:
                batch = await take(consumer)
                reset = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                for fields, table in ((RESET | {"topic": "U"}, {0: 1}), (RESET, {0: -1})):
                    await group.brokers[0].ask(consumer.client_id, reset, fields, offsets(table))
                assert not batch.is_dropped
                assert group.offsets == {}

    run(story())


def test_commits_of_one_queue_reach_the_broker_in_their_order() -> None:
    async def story() -> None:
        committed: list[tuple[MessageQueue, int]] = []
        asked: list[MessageQueue] = []
        route_found = asyncio.Event()

        async def master_address(queue: MessageQueue) -> str:
            asked.append(queue)
            if len(asked) == 1:
                await route_found.wait()
            elif queue == TWO:
                route_found.set()
            return "a:1"

        async def update(address: str, group: str, queue: MessageQueue, offset: int) -> None:
            committed.append((queue, offset))

        api = SimpleNamespace(update_consumer_offset=update)
        instance = cast("ClientInstance", SimpleNamespace(master_address=master_address, api=api))
        store = RemoteBrokerOffsetStore(instance, "g")
        before = asyncio.ensure_future(store.commit({ONE: 7}))
        after = asyncio.ensure_future(store.commit({ONE: 0}))
        behind = asyncio.ensure_future(
            store.commit({TWO: 1})
        )  # asks when the other two have come as far as they can
        await asyncio.gather(before, after, behind)
        assert [offset for queue, offset in committed if queue == ONE] == [7, 0]

    run(story())


def test_a_consumer_tells_how_far_it_is_by_its_own_account() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group) as consumer:
                (await take(consumer)).done()
                await group.until(lambda: len(consumer.queues) == 4)
                status = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
                answer = await group.brokers[0].ask(consumer.client_id, status, {"topic": "T", "group": "g"})
                table = GetConsumerStatusBody.decode(answer.body).message_queue_table
                assert table == {wire_queue(0): 4, wire_queue(1): 0, wire_queue(2): 0, wire_queue(3): 0}
                assert group.offsets == {}

    run(story())


def test_running_info_shows_what_a_push_consumer_holds() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group, config=replace(FIRST, pull_batch_size=2)) as consumer:
                (await take(consumer)).done()
                await group.until(lambda: len(group.brokers[0].held) == 4)
                info = await running_info(group, consumer.client_id)
                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "12345"
                assert info.properties["PROP_NAMESERVER_ADDR"] == f"{group.address};"
                assert [one.topic for one in info.subscription_set] == ["T", "%RETRY%g"]
                assert len(info.mq_table) == 4
                queue = info.mq_table[wire_queue(0)]
                assert (queue.commit_offset, queue.cached_msg_count) == (2, 2)
                assert (queue.cached_msg_min_offset, queue.cached_msg_max_offset) == (2, 3)
                assert (queue.last_pull_timestamp, queue.last_consume_timestamp) == (12_345, 12_345)
                assert info.jstack is None

    run(story())


def test_running_info_shows_how_fast_topics_were_pulled_and_consumed() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcdef")
            now_ms = 600_000
            consumer = PushConsumer(
                group.address,
                "g",
                {"T": "*"},
                config=replace(FIRST, pull_batch_size=3),
                on_assignment=group.changed,
                now_ms=lambda: now_ms,
            )
            async with consumer:
                await group.until(lambda: len(group.brokers[0].held) == 4)
                good, bad = await take(consumer), await take(consumer)
                now_ms += 100
                good.done()
                good.done()
                now_ms += 100
                await consumer.send_back(bad, bad.messages[:2])
                status = (await running_info(group, consumer.client_id)).status_table["T"]
                assert (status.pull_rt, status.pull_tps) == (0.0, 0.1)
                assert (status.consume_rt, status.consume_ok_tps) == (150.0, pytest.approx(4 / 60))
                assert (status.consume_failed_tps, status.consume_failed_msgs) == (pytest.approx(2 / 60), 2)
                now_ms += 60_000
                status = (await running_info(group, consumer.client_id)).status_table["T"]
                assert (status.pull_tps, status.consume_rt, status.consume_failed_msgs) == (0.0, 0.0, 2)
                now_ms += 3_600_000
                status = (await running_info(group, consumer.client_id)).status_table["T"]
                assert status.consume_failed_msgs == 0

    run(story())


def test_running_info_of_a_consumer_that_polls_says_so_and_shows_stacks_when_asked() -> None:
    async def story() -> None:
        async with FakeGroup() as group, lite(group) as consumer:
            await group.until(lambda: len(consumer.assignment) == 4)
            info = await running_info(group, consumer.client_id, stacks=True)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert info.jstack is not None
            assert "thread MainThread" in info.jstack
            assert "puller.py" in info.jstack, "the stack of a task"

    run(story())


def test_a_message_that_a_tool_hands_over_comes_before_what_waits_and_moves_no_offset() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "abcd")
            async with push(group, config=replace(FIRST, pull_batch_size=1)) as consumer:
                await group.until(lambda: len(group.brokers[0].held) == 4)
                asked = tell_to_consume(group, consumer.client_id, 2)
                await running_info(group, consumer.client_id)  # asked behind it, on the same connection
                direct, oldest = await take(consumer), await take(consumer)
                assert (text_of(direct.messages), text_of(oldest.messages)) == ("c", "a")
                direct.done()
                result = ConsumeMessageDirectlyResult.decode((await group.brokers[0].answer(asked)).body)
                assert (result.consume_result, result.remark) == ("CR_SUCCESS", None)
                await consumer.commit()
                assert group.offsets["g", "T", 0] == 0

    run(story())


def test_a_message_that_a_tool_hands_over_and_that_is_sent_back_stays_out_of_the_retry_topic() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a")
            async with push(group) as consumer:
                (await take(consumer)).done()
                asked = asyncio.ensure_future(hand_over(group, consumer.client_id, 0))
                batch = await take(consumer)
                assert (text_of(batch.messages), batch.queue) == ("a", ONE)
                await consumer.send_back(batch)
                batch.done()  # what follows when batches() is asked for the next one
                result = ConsumeMessageDirectlyResult.decode((await asked).body)
                assert result.consume_result == "CR_LATER"
                assert group.brokers[0].sent_back == []
            assert group.offsets["g", "T", 0] == 1

    run(story())


def test_of_an_inner_batch_that_a_tool_hands_over_each_message_is_consumed() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            body = encode_batch(BatchMessage(0, text, b"") for text in (b"a", b"b"))
            host, flags = bytes(8), INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
            record = encode_record(
                b"T", 0, 0, 4, 0, flags, 0, host, 0, host, 0, 0, body, b"INNER_NUM\x012\x02"
            )
            async with push(group) as consumer:
                await group.until(lambda: consumer.client_id in group.brokers[0].channels)
                asked = asyncio.ensure_future(
                    group.brokers[0].ask(
                        consumer.client_id,
                        RequestCode.CONSUME_MESSAGE_DIRECTLY,
                        {"consumerGroup": "g", "clientId": consumer.client_id, "brokerName": "G"},
                        record,
                    )
                )
                batch = await take(consumer)
                assert [(message.body, message.queue_offset) for message in batch.messages] == [
                    (b"a", 4),
                    (b"b", 5),
                ]
                batch.done()
                assert ConsumeMessageDirectlyResult.decode((await asked).body).consume_result == "CR_SUCCESS"

    run(story())


def test_a_message_that_nobody_takes_in_time_is_said_to_be_not_consumed_and_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqclient.consumer.group_member, "HAND_OVER_TIMEOUT_S", 0.01)

    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a")
            async with push(group) as consumer:
                (await take(consumer)).done()
                answer = await hand_over(group, consumer.client_id, 0)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "nothing was consumed" in (answer.remark or "")
                await send(group, "b")
                assert text_of((await take(consumer)).messages) == "b"

    run(story())


def test_a_consumer_that_polls_is_handed_nothing_and_says_why() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a")
            async with lite(group) as consumer:
                answer = await hand_over(group, consumer.client_id, 0)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert "that polls is handed no messages" in (answer.remark or "")

    run(story())


def test_a_listener_is_called_with_a_message_that_a_tool_hands_over() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a")
            calls: list[str] = []
            first_done = threading.Event()

            def listener(message: MessageExt) -> None:
                calls.append(message.body.decode())
                first_done.set()
                if len(calls) > 1:
                    raise KeyError("no such account")

            consumer = mqclient.sync.PushConsumer(
                group.address, "g", {"T": "*"}, listener, thread_count=1, config=FIRST
            )
            await asyncio.to_thread(consumer.start)
            await asyncio.to_thread(first_done.wait, 20)
            answer = await hand_over(group, consumer.client_id, 0)
            await asyncio.to_thread(consumer.close)
            result = ConsumeMessageDirectlyResult.decode(answer.body)
            assert result.consume_result == "CR_THROW_EXCEPTION"
            assert result.remark == "KeyError: 'no such account'"
            assert calls == ["a", "a"]
            assert group.brokers[0].sent_back == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "fields", "body", "answer_code", "reason"),
    [
        (RequestCode.CHECK_TRANSACTION_STATE, {}, b"", 3, "39 not supported"),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"}, b"", 1, "clientId"),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "h", "clientId": "c"}, b"", 1, "group h"),
        (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "h"}, b"", 1, "group h"),
        (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RESET | {"group": "h"}, b"", 1, "group h"),
        (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RESET, b"{[", 1, "body of 2 bytes"),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g"}, b"", 1, "record"),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "h"}, b"", 1, "group h"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    code: int, fields: dict[str, str], body: bytes, answer_code: int, reason: str
) -> None:
    async def story() -> None:
        async with FakeGroup() as group, push(group) as consumer:
            await group.until(lambda: consumer.client_id in group.brokers[0].channels)
            answer = await group.brokers[0].ask(consumer.client_id, code, fields, body)
            assert answer.code == answer_code
            assert reason in (answer.remark or "")

    run(story())
