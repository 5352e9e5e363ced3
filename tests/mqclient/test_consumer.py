import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from fake_group import FIRST, FakeBroker, FakeGroup

from message.decoder import decode_message
from mqclient import (
    BrokerResponseError,
    ConsumeBatch,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    sql,
)
from remoting.channel import Channel
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand

FIRST = replace(FIRST, redeliver_after_s=0.001)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def member(
    group: FakeGroup,
    subscriptions: dict[str, str],
    *,
    config: ConsumerConfig | None = None,
    instance_name: str = "",
) -> PushConsumer:
    return PushConsumer(
        group.address,
        "g",
        subscriptions,
        config=config,
        instance_name=instance_name,
        on_assignment=group.changed,
    )


async def read(consumer: PushConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    async with asyncio.timeout(20):
        async for message in consumer:
            bodies.append(message.body.decode())
            if len(bodies) == count:
                break
    return bodies


def held_queues(broker: FakeBroker) -> set[str]:
    return {command.ext_fields["queueId"] for _, command in broker.held}


async def send(group: FakeGroup, bodies: list[str], tags: str = "") -> None:
    async with Producer(group.address, "p") as producer:
        await producer.send_batch([Message("T", body.encode(), tags=tags) for body in bodies])


def test_a_new_group_reads_from_the_first_message_on_and_later_ones_as_they_come() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["a", "b", "c"])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                assert sorted(await read(consumer, 3)) == ["a", "b", "c"]
                await send(group, ["d"])
                assert await read(consumer, 1) == ["d"]

    run(story())


def test_a_new_group_that_begins_at_the_end_sees_only_what_comes_after() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["old"])
            async with member(group, {"T": "*"}) as consumer:
                await group.until(lambda: len(consumer.queues) == 4)
                await send(group, ["new"])
                assert await read(consumer, 1) == ["new"]

    run(story())


def test_a_new_group_that_begins_at_a_time_sees_what_was_stored_then_or_later() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["old"])
            (record,) = [record for records in group.queues.values() for record in records]
            stored_ms = decode_message(record).store_timestamp
            for group_name, timestamp_ms in (("from_then", stored_ms), ("from_later", stored_ms + 3_600_000)):
                config = replace(
                    FIRST, consume_from=ConsumeFromWhere.TIMESTAMP, consume_timestamp_ms=timestamp_ms
                )
                async with PushConsumer(
                    group.address, group_name, {"T": "*"}, config=config, on_assignment=group.changed
                ) as consumer:
                    if group_name == "from_then":
                        assert await read(consumer, 1) == ["old"]
                    else:
                        await group.until(lambda one=consumer: len(one.queues) == 4)
                        await send(group, ["new"])
                        assert await read(consumer, 1) == ["new"]

    run(story())


def test_offsets_go_on_where_the_last_member_was_done() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, [f"{i}" for i in range(8)])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                for _ in range(4):
                    batch = await consumer.take()
                    assert batch is not None
                    batch.done()
            assert sum(group.offsets.values()) == 8
            await send(group, ["next"])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                assert await read(consumer, 1) == ["next"]

    run(story())


def test_a_batch_that_is_not_done_is_delivered_again_to_the_next_member() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["x"])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                assert await consumer.take() is not None
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                assert await read(consumer, 1) == ["x"]

    run(story())


def test_messages_with_another_tag_of_the_same_hash_are_not_shown() -> None:
    async def story() -> None:
        # "Aa" and "BB" have one Java hash; a broker that filters by hash delivers both.
        async with FakeGroup() as group:
            await send(group, ["no"], tags="BB")
            await send(group, ["yes"], tags="Aa")
            async with member(group, {"T": "Aa"}, config=FIRST) as consumer:
                assert await read(consumer, 1) == ["yes"]

    run(story())


def test_the_offset_moves_over_messages_that_do_not_match() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["no"] * 4, tags="B")
            async with member(group, {"T": "A"}, config=FIRST):
                await group.until(lambda: len(group.brokers[0].held) == 4)
            assert sum(group.offsets.values()) == 4

    run(story())


def test_sql_selects_messages_by_their_properties(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            async with Producer(group.address, "p") as producer:
                prices = [{"price": str(price)} for price in (5, 15, 25)]
                await producer.send_batch([Message("T", b"x", properties=each) for each in prices])
            subscriptions = {"T": sql("price > 10 AND price < 20 please")}
            async with PushConsumer(group.address, "g", subscriptions, config=FIRST) as consumer:
                async for message in consumer:
                    assert message.properties["price"] == "15"
                    break
            broker = group.brokers[0]
            wanted = broker.heartbeats[0].consumer_data_set[0].subscription_data_set
            assert {(data.topic, data.expression_type) for data in wanted} == {
                ("T", "SQL92"),
                ("%RETRY%g", "TAG"),
            }
            checked = [body.subscription_data for body in broker.checked]
            assert [data and data.sub_string for data in checked] == ["price > 10 AND price < 20 please"]

    run(story())
    assert "only the part in front of 'please' counts" in caplog.text


def test_expression_that_a_broker_refuses_ends_the_start() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            for broker in group.brokers:
                broker.check_code = ResponseCode.SYSTEM_ERROR
            consumer = PushConsumer(group.address, "g", {"T": sql("a = 1")}, config=FIRST)
            with pytest.raises(BrokerResponseError, match="checked"):
                async with consumer:
                    pass

    run(story())


def test_what_is_no_sql_expression_is_a_value_error_before_any_broker_is_asked() -> None:
    with pytest.raises(ValueError, match="column 3: '!' is no part of an expression"):
        sql("a != 1")


def test_pulls_follow_the_leader() -> None:
    async def story() -> None:
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=FIRST) as consumer,
        ):
            await group.until(lambda: len(group.brokers[0].held) == 4)
            group.lead(group.brokers[2])
            await group.until(lambda: len(group.brokers[2].held) == 4)
            await send(group, ["after"])
            assert await read(consumer, 1) == ["after"]

    run(story())


def test_members_that_live_are_handed_nothing_again_after_a_change_of_leader() -> None:
    """Nothing is committed yet, so a member that asked for its offsets anew would begin at 0."""

    async def story() -> None:
        taken: list[str] = []

        async def take_all(consumer: PushConsumer) -> None:
            async for message in consumer:
                taken.append(message.body.decode())
                group.changed()

        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=FIRST) as one,
            member(group, {"T": "*"}, config=FIRST) as two,
        ):
            await group.until(lambda: len(one.queues) == 2 and len(two.queues) == 2)
            queues = one.queues, two.queues
            readers = [asyncio.create_task(take_all(consumer)) for consumer in (one, two)]
            for round_, leader in enumerate((group.brokers[0], group.brokers[1], group.brokers[2])):
                group.lead(leader)
                await group.until(lambda leader=leader: len(held_queues(leader)) == 4)
                await send(group, [f"{round_}-{number}" for number in range(40)])
                await group.until(lambda round_=round_: len(taken) >= 40 * (round_ + 1))
            await group.until(lambda: len(held_queues(group.brokers[2])) == 4)
            assert not any(group.offsets.values())
            assert sorted(taken) == sorted(
                f"{round_}-{number}" for round_ in range(3) for number in range(40)
            )
            assert (one.queues, two.queues) == queues
            for reader in readers:
                reader.cancel()

    run(story())


def test_every_member_of_the_group_of_brokers_hears_the_heartbeat() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "A || B"}) as consumer:
            await group.until(lambda: all(consumer.client_id in broker.channels for broker in group.brokers))
            (data,) = group.brokers[1].heartbeats[0].consumer_data_set
            assert (data.group_name, data.consume_type, data.message_model) == (
                "g",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
            )
            subscription = {one.topic: one for one in data.subscription_data_set}
            assert subscription["T"].tags_set == ["A", "B"]
            assert subscription["T"].code_set == [65, 66]
            assert subscription["%RETRY%g"].sub_string == "*"

    run(story())


def test_a_broker_that_moved_the_offset_is_obeyed() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, [f"{i}" for i in range(12)])
            group.offsets = {("g", "T", i): 0 for i in range(4)}
            group.min_offset = 2
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                assert len(await read(consumer, 4)) == 4

    run(story())


def test_a_batch_that_cannot_be_sent_back_comes_again_here_and_holds_its_offset() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["x"])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                first = await consumer.take()
                assert first is not None
                group.lead(None)  # nobody to take it back
                await consumer.send_back(first)
                group.lead(group.brokers[0])
                async with asyncio.timeout(20):
                    assert await consumer.take() is first
                await consumer.commit()
                assert all(offset == 0 for offset in group.offsets.values())

    run(story())


def test_of_a_batch_only_what_failed_is_sent_back_and_only_what_is_left_comes_again_here() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            async with Producer(group.address, "p") as producer:
                messages = [Message("T", body) for body in (b"a", b"b", b"c")]
                await producer.send_batch(messages, queue=MessageQueue("T", "G", 0))
            group.brokers[0].takes_back = 1
            async with member(group, {"T": "*"}, config=replace(FIRST, max_reconsume_times=3)) as consumer:
                batch = await consumer.take()
                assert batch is not None
                await consumer.send_back(batch, batch.messages[1:], delay_level=5)
                (fields,) = group.brokers[0].sent_back
                assert (fields["delayLevel"], fields["maxReconsumeTimes"]) == ("5", "3")
                async with asyncio.timeout(20):
                    again = await consumer.take()
                assert again is not None
                assert [message.body for message in again.messages] == [b"c"]
                group.brokers[0].takes_back = 2
                await consumer.send_back(again)
                assert len(group.brokers[0].sent_back) == 2
            assert group.offsets["g", "T", 0] == 3

    run(story())


def test_a_message_that_cannot_be_read_stops_its_queue_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["x"])
            ((queue, records),) = group.queues.items()
            whole = records[0]
            records[0] = whole.replace(
                b"\0\0\0\x01x", b"\0\0\0\x01y"
            )  # the body behind its length, whose CRC stays
            pulls = 0
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                ask = group.brokers[0].pull_message

                def pull(channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
                    nonlocal pulls
                    pulls += int(command.ext_fields["queueId"]) == queue[1]
                    return ask(channel, command)

                group.brokers[0].pull_message = pull  # type: ignore[method-assign]
                await group.until(lambda: pulls > 3)
                assert caplog.text.count("no message can be read, the queue stands still") == 1
                records[0] = whole
                assert await read(consumer, 1) == ["x"]

    run(story())


def test_closing_ends_the_readers_that_wait() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            consumer = member(group, {"T": "*"}, config=FIRST)
            await consumer.start()

            async def wait() -> ConsumeBatch | None:
                return await consumer.take()

            waiting = [asyncio.create_task(wait()), asyncio.create_task(wait())]
            await group.until(lambda: len(consumer.queues) == 4)
            await consumer.close()
            assert await asyncio.gather(*waiting) == [None, None]
            assert all(broker.unregistered[0]["consumerGroup"] == "g" for broker in group.brokers)

    run(story())


def test_a_topic_that_comes_later_is_found(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with (
            FakeGroup(topics=()) as group,
            member(group, {"T": "*"}, config=FIRST) as consumer,
        ):
            await group.until(lambda: len(group.namesrv.requests) > 3)
            group.topics.add("T")
            await group.until(lambda: len(consumer.queues) == 4)
            assert [record.levelname for record in caplog.records] == ["WARNING"]
            assert "no route yet, looking on topic=T reason=topic T is not known" in caplog.text

    run(story())


def test_a_retry_topic_that_comes_later_is_found_without_a_rebalance() -> None:
    async def story() -> None:
        config = replace(FIRST, rebalance_interval_s=3600.0)
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=config) as consumer,
        ):
            await group.until(lambda: len(consumer.queues) == 4)
            group.topics.add("%RETRY%g")
            await group.until(lambda: MessageQueue("%RETRY%g", "G", 0) in consumer.queues)

    run(story())


@pytest.mark.parametrize(
    ("group", "topic", "expression"), [("", "T", "*"), ("g b", "T", "*"), ("g", "T", "||"), ("g", "a b", "*")]
)
def test_a_name_or_expression_that_is_none_is_refused(group: str, topic: str, expression: str) -> None:
    with pytest.raises(ValueError, match=r"group|topic|split"):
        PushConsumer("127.0.0.1:9876", group, {topic: expression})


def test_who_leaves_without_a_last_commit_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, ["a"])
            async with member(group, {"T": "*"}, config=FIRST) as consumer:
                await read(consumer, 1)
                group.brokers[0].refuses_offsets = True
            assert "left group=g without a last commit" in caplog.text

    run(story())
