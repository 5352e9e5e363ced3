import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_group import FakeGroup

from message.sys_flag import PULL_SUBSCRIPTION
from mqclient import (
    ConsumeFromWhere,
    ConsumerConfig,
    LocalOffsetsError,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
)
from remoting.channel import Channel
from remoting.codes import ResponseCode
from remoting.frame.command import RemotingCommand, response


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def member(group: FakeGroup, directory: Path, instance_name: str = "") -> PushConsumer:
    config = ConsumerConfig(
        message_model=MessageModel.BROADCASTING,
        local_offset_store_dir=directory,
        consume_from=ConsumeFromWhere.FIRST,
        retry_pause_s=0.001,
        retry_pause_max_s=0.01,
        poll_name_server_interval_s=0.02,
    )
    return PushConsumer(
        group.address,
        "g",
        {"T": "*"},
        config=config,
        instance_name=instance_name,
        on_assignment=group.changed,
    )


async def read(consumer: PushConsumer, count: int) -> list[str]:
    """What `count` messages say, each batch done."""
    bodies: list[str] = []
    async with asyncio.timeout(20):
        while len(bodies) < count:
            batch = await consumer.take()
            assert batch is not None
            bodies += [message.body.decode() for message in batch.messages]
            batch.done()
    return sorted(bodies)


async def send(group: FakeGroup, *bodies: str) -> None:
    async with Producer(group.address, "p") as producer:
        await producer.send_batch([Message("T", body.encode()) for body in bodies])


def test_every_member_reads_every_queue(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            FakeGroup() as group,
            member(group, tmp_path, "1") as one,
            member(group, tmp_path, "2") as two,
        ):
            await send(group, "a", "b", "c", "d", "e")
            for consumer in (one, two):
                assert await read(consumer, 5) == ["a", "b", "c", "d", "e"]
                assert [queue.queue_id for queue in consumer.queues] == [0, 1, 2, 3]
            assert group.offsets == {}

    run(story())


def test_a_member_goes_on_where_it_ended(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "a", "b")
            async with member(group, tmp_path) as consumer:
                assert await read(consumer, 2) == ["a", "b"]
            await send(group, "c")
            async with member(group, tmp_path) as consumer:
                assert await read(consumer, 1) == ["c"]
            address, _, instance_name = consumer.client_id.partition("@")
            assert instance_name == "DEFAULT"
            assert (tmp_path / f"{address}@DEFAULT" / "g" / "offsets.json").exists()
            async with member(group, tmp_path, "another") as consumer:
                assert await read(consumer, 3) == ["a", "b", "c"]

    run(story())


def test_what_is_sent_back_is_given_up_and_the_offset_moves_over_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            await send(group, "bad")
            async with member(group, tmp_path) as consumer:
                batch = await consumer.take()
                assert batch is not None
                await consumer.send_back(batch)  # the broker of these tests would not know the request
            assert "given up, the group is broadcasting queue=" in caplog.text
            await send(group, "good")
            async with member(group, tmp_path) as consumer:
                assert await read(consumer, 1) == ["good"]

    run(story())


def test_the_group_registers_as_broadcasting_without_a_retry_topic_and_pulls_by_what_it_registered(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, tmp_path) as consumer:
            await group.until(lambda: len(group.brokers[0].held) == 4)
            (data,) = group.brokers[0].heartbeats[0].consumer_data_set
            assert data.message_model == "BROADCASTING"
            assert [subscription.topic for subscription in data.subscription_data_set] == ["T"]
            assert {queue.topic for queue in consumer.queues} == {"T"}
            flags = {int(command.ext_fields["sysFlag"]) for _, command in group.brokers[0].held}
            assert not any(flag & PULL_SUBSCRIPTION for flag in flags)
            assert all(request.ext_fields["topic"] == "T" for request in group.namesrv.requests)

    run(story())


def test_a_broker_that_knows_an_older_subscription_of_the_group_is_greeted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            leader = group.brokers[0]
            pull_message = leader.pull_message

            def pull(channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
                if len(leader.heartbeats) < 2:
                    return response(command, ResponseCode.SUBSCRIPTION_NOT_LATEST, "not latest")
                return pull_message(channel, command)

            monkeypatch.setattr(leader, "pull_message", pull)
            await send(group, "a")
            async with member(group, tmp_path) as consumer:
                assert await read(consumer, 1) == ["a"]

    run(story())


def test_a_second_member_of_the_same_name_is_refused_and_the_first_one_reads_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, tmp_path) as consumer:
            with pytest.raises(LocalOffsetsError, match="instance_name"):
                await member(group, tmp_path).start()
            await send(group, "a")
            assert await read(consumer, 1) == ["a"]

    run(story())


def test_a_start_that_is_given_up_leaves_its_name_and_its_offsets_to_the_next_member(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            group.namesrv.is_mute = True
            starting = asyncio.create_task(member(group, tmp_path).start())
            await group.until(lambda: bool(group.namesrv.unanswered))
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            group.namesrv.is_mute = False
            await send(group, "a")
            async with member(group, tmp_path) as consumer:
                assert await read(consumer, 1) == ["a"]

    run(story())


def test_a_close_that_is_cut_short_leaves_no_task_and_no_lock_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            consumer = member(group, tmp_path)
            await consumer.start()
            await group.until(lambda: len(group.brokers[0].held) == 4)
            begun = asyncio.Event()

            async def close() -> None:
                begun.set()
                await consumer.close()

            closing = asyncio.create_task(close())
            await begun.wait()
            closing.cancel()
            with suppress(asyncio.CancelledError):
                await closing
            async with asyncio.timeout(20):
                assert await consumer.take() is None
            async with member(group, tmp_path) as next_one:
                await group.until(lambda: len(next_one.queues) == 4)

    run(story())


def test_offsets_are_kept_while_it_reads(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, tmp_path) as consumer:
            await send(group, "a")
            assert await read(consumer, 1) == ["a"]
            await group.until(lambda: len(consumer.queues) == 4)
            await consumer.commit()
            text = file_text(tmp_path)
            assert (text.count("}:1"), text.count("}:0")) == (1, 3)

    run(story())


def file_text(directory: Path) -> str:
    (file,) = directory.rglob("offsets.json")
    return file.read_text()


def test_a_name_that_would_leave_the_offsets_directory_is_refused() -> None:
    with pytest.raises(ValueError, match="instance_name"):
        PushConsumer(
            "127.0.0.1:9876",
            "g",
            {"T": "*"},
            config=ConsumerConfig(message_model=MessageModel.BROADCASTING),
            instance_name="../x",
        )
