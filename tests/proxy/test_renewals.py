"""More time for what push consumers have, while the proxy lives; and what an older handle is worth meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_brokers import TOPIC, FakeBroker, FakeBrokers, until

from message.pop_handle import PopHandle
from mqclient.answer import Answer
from mqclient.errors import BrokerResponseError
from proxy.config import ProxyConfig
from proxy.popped import PoppedMessages
from proxy.renewals import Renewals
from remoting.codes import ResponseCode

# Of a client that may have a message for as long as it needs to be renewed.
SHORT_MS, LONG_MS = 10_000, 60_000


class Fixture:
    def __init__(self, **config: int) -> None:
        self.brokers = FakeBrokers("a")
        self.broker: FakeBroker = self.brokers.at["a"]
        self.renewals = Renewals(
            ProxyConfig(namesrv_addr=("127.0.0.1:1",), renew_schedule_period_ms=1, **config),
            PoppedMessages(self.brokers),
        )
        self.renewals.start()

    def hold(self, invisible_ms: int, client_id: str = "c1") -> PopHandle:
        """A message that the client has now."""
        handle = self.broker.hand_out(invisible_ms)
        self.renewals.hold(client_id, "g", TOPIC, handle)
        return handle


def run(story: Callable[[Fixture], Coroutine[Any, Any, None]], **config: int) -> None:
    async def whole() -> None:
        fixture = Fixture(**config)
        try:
            async with asyncio.timeout(20):
                await story(fixture)
        finally:
            await fixture.renewals.close()
            await fixture.brokers.close()

    asyncio.run(whole())


def test_a_message_whose_time_is_nearly_over_gets_more() -> None:
    async def story(fixture: Fixture) -> None:
        handle, other = fixture.hold(SHORT_MS), fixture.hold(LONG_MS)
        await until(lambda: fixture.broker.changed)
        assert fixture.broker.changed == [(0, 60_000, False)]
        assert fixture.broker.in_flight[1] == other
        lease = await fixture.renewals.take("g", TOPIC, handle)
        assert lease is not None
        assert lease.handle == fixture.broker.in_flight[0]
        assert len(fixture.renewals) == 1

    run(story)


def test_what_is_taken_gets_no_more_time_unless_it_is_put_back() -> None:
    async def story(fixture: Fixture) -> None:
        handle = fixture.hold(SHORT_MS)
        lease = await fixture.renewals.take("g", TOPIC, handle)
        assert await fixture.renewals.take("g", TOPIC, handle) is None
        fixture.hold(SHORT_MS)
        await until(lambda: fixture.broker.changed)
        assert [offset for offset, *_ in fixture.broker.changed] == [1]
        fixture.renewals.put_back(lease)
        await until(lambda: len(fixture.broker.changed) == 2)
        assert [offset for offset, *_ in fixture.broker.changed] == [1, 0]

    run(story)


def test_a_message_that_is_being_renewed_is_taken_with_its_new_handle() -> None:
    async def story(fixture: Fixture) -> None:
        handle = fixture.hold(SHORT_MS)
        await until(lambda: fixture.broker.asked)  # the change is on its way
        lease = await fixture.renewals.take("g", TOPIC, handle)
        assert lease is not None
        assert lease.handle == fixture.broker.in_flight[0] != handle

    run(story)


def test_a_take_that_is_cancelled_while_it_waits_leaves_the_lease() -> None:
    """As when the deadline of an ack passes: the client still has the message, and tries again."""

    async def story(fixture: Fixture) -> None:
        asked = asyncio.Event()

        async def answers_nothing(*_: object, **__: object) -> None:
            asked.set()
            await asyncio.get_running_loop().create_future()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fixture.brokers, "ask_once", answers_nothing)
            handle = fixture.hold(SHORT_MS)
            await asked.wait()
        taking = asyncio.ensure_future(fixture.renewals.take("g", TOPIC, handle))
        await asyncio.sleep(0)
        assert not taking.done()
        taking.cancel()
        await asyncio.wait([taking])
        assert len(fixture.renewals) == 1

    run(story)


def test_a_handle_of_an_earlier_pop_ends_nothing() -> None:
    async def story(fixture: Fixture) -> None:
        handle = fixture.hold(LONG_MS)
        earlier = handle._replace(pop_time=handle.pop_time - 1)
        assert await fixture.renewals.take("g", TOPIC, earlier) is None
        assert len(fixture.renewals) == 1

    run(story)


def test_messages_of_a_client_that_is_gone_come_again_soon() -> None:
    async def story(fixture: Fixture) -> None:
        fixture.hold(LONG_MS, "gone")
        fixture.hold(LONG_MS, "here")
        fixture.renewals.client_gone("gone")
        await until(lambda: fixture.broker.changed)
        assert fixture.broker.changed == [(0, 1000, False)]
        assert len(fixture.renewals) == 1

    run(story)


def test_a_message_that_cannot_be_given_more_time_is_left_to_itself() -> None:
    async def story(fixture: Fixture) -> None:
        fixture.broker.trouble = BrokerResponseError(
            ResponseCode.NO_PERMISSION, "not this group", "127.0.0.1:1"
        )
        fixture.hold(SHORT_MS)
        await until(lambda: not len(fixture.renewals))
        assert len(fixture.broker.asked) >= 1

    run(story, max_renew_retry_times=1)


def test_a_message_is_left_to_itself_after_the_longest_time() -> None:
    async def story(fixture: Fixture) -> None:
        fixture.hold(LONG_MS)
        await until(lambda: not len(fixture.renewals))
        assert fixture.broker.changed == []

    run(story, renew_max_time_ms=1)


def test_brokers_that_do_not_answer_hold_up_no_renewals_at_others() -> None:
    """A message whose time is over meanwhile would be given to a second client."""

    async def story(fixture: Fixture) -> None:
        fixture.brokers.at["b"] = other = FakeBroker("b")
        ask_once = fixture.brokers.ask_once
        silent: list[str] = []

        async def asked(topic: str, broker_name: str, *request: Any, **options: Any) -> Answer:
            if broker_name == "a":
                silent.append(broker_name)
                await asyncio.get_running_loop().create_future()
            return await ask_once(topic, broker_name, *request, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(fixture.brokers, "ask_once", asked)
            for _ in range(100):
                fixture.hold(SHORT_MS)
            await until(lambda: silent)
            fixture.renewals.hold("c1", "g", TOPIC, other.hand_out(SHORT_MS))
            await until(lambda: other.changed)

    run(story)
