"""Which member of a group reads which queues."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_group import FakeGroup
from test_consumer import FIRST, member, read, run, send

from mqclient import (
    AVG_BY_CIRCLE,
    AllocateStrategy,
    MessageQueue,
    by_config,
)


def test_two_members_share_the_queues_and_one_takes_over_when_the_other_leaves() -> None:
    async def story() -> None:
        async with FakeGroup() as group, member(group, {"T": "*"}, config=FIRST) as one:
            await group.until(lambda: len(one.queues) == 4)
            async with member(group, {"T": "*"}, config=FIRST) as two:
                await group.until(lambda: len(one.queues) == 2 and len(two.queues) == 2)
                assert sorted(one.queues + two.queues) == [MessageQueue("T", "G", i) for i in range(4)]
            await group.until(lambda: len(one.queues) == 4)

    run(story())


def test_the_configured_strategy_shares_the_queues_out() -> None:
    async def story() -> None:
        config = replace(FIRST, allocate_strategy=AVG_BY_CIRCLE)
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=config, instance_name="1") as one,
            member(group, {"T": "*"}, config=config, instance_name="2") as two,
        ):
            await group.until(lambda: len(one.queues) == 2 and len(two.queues) == 2)
            assert [queue.queue_id for queue in one.queues] == [0, 2]
            assert [queue.queue_id for queue in two.queues] == [1, 3]

    run(story())


def test_members_are_put_in_javas_order_whatever_their_names_are() -> None:
    """Java compares UTF-16 units: what is beyond the 16th bit comes before the end of what is within it."""

    async def story() -> None:
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=FIRST, instance_name="\uff5e") as one,
            member(group, {"T": "*"}, config=FIRST, instance_name="\U0001f600") as two,
        ):
            await group.until(lambda: len(one.queues) == 2 and len(two.queues) == 2)
            assert [queue.queue_id for queue in two.queues] == [0, 1]

    run(story())


def test_queues_from_a_list_are_read_with_their_own_topic() -> None:
    async def story() -> None:
        queues = [MessageQueue("T", "G", 1), MessageQueue("U", "G", 2)]
        config = replace(FIRST, allocate_strategy=by_config([MessageQueue("other", "G", 0), *queues]))
        async with (
            FakeGroup(topics=("T", "U", "other")) as group,
            member(group, {"T": "*", "U": "*"}, config=config) as consumer,
        ):
            await group.until(lambda: len(group.brokers[0].held) == 2)
            assert consumer.queues == queues

    run(story())


def test_a_strategy_that_fails_leaves_the_queues_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        faults = 0
        is_broken = False

        def allocate(
            client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
        ) -> list[MessageQueue]:
            nonlocal faults
            if is_broken:
                faults += 1
                group.changed()
                raise KeyError("no such room")
            return list(queues)

        config = replace(FIRST, allocate_strategy=AllocateStrategy("OURS", allocate))
        async with (
            FakeGroup() as group,
            member(group, {"T": "*"}, config=config) as consumer,
        ):
            await group.until(lambda: len(consumer.queues) == 4)
            is_broken = True
            group.brokers[0].notify()
            await group.until(lambda: faults > 1)
            assert "strategy failed, queues stay as they are name=OURS topic=T" in caplog.text
            await send(group, ["x"])
            assert await read(consumer, 1) == ["x"]
            assert len(consumer.queues) == 4

    run(story())
