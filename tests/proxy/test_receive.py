"""ReceiveMessage: what a consumer gets, from where, and what becomes of messages that do not reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_brokers import TOPIC, FakeBrokers, until
from fake_call import FakeCall, permit

from mqclient.errors import BrokerResponseError, NoMasterError
from proxy.arrivals import Arrivals, Source
from proxy.config import ProxyConfig
from proxy.grpc.call import GrpcError
from proxy.metadata import Metadata
from proxy.popped import PoppedMessages
from proxy.pops import Pops
from proxy.protocol.definition import Code, FilterType, Message
from proxy.protocol.service import ReceiveMessageRequest, ReceiveMessageResponse
from proxy.renewals import Renewals
from proxy.services import methods
from proxy.services.methods import server_stream
from proxy.services.receive import ReceiveService
from proxy.sessions import Sessions
from remoting.codes import RequestCode, ResponseCode

GONE_MS = 1000


class Fixture:
    """A proxy's receives, over brokers in memory."""

    def __init__(self, brokers: FakeBrokers) -> None:
        config = ProxyConfig(namesrv_addr=("127.0.0.1:1",))
        self.brokers = brokers
        self.arrivals = Arrivals(brokers)
        popped = PoppedMessages(brokers)
        self.renewals = Renewals(config, popped)
        self.sessions = Sessions(120)
        self.sessions.on_client_gone = self.renewals.client_gone
        self.service = ReceiveService(
            config,
            Metadata(brokers, topic_fresh_s=20, group_fresh_s=20),
            Pops(brokers, self.arrivals, popped, GONE_MS),
            popped,
            self.renewals,
            self.sessions,
        )

    def receive(self, request: ReceiveMessageRequest, deadline_s: float | None = None) -> Receive:
        loop = asyncio.get_running_loop()
        deadline = None if deadline_s is None else loop.time() + deadline_s
        call = FakeCall(request, name="ReceiveMessage", deadline=deadline)
        handle = server_stream(
            ReceiveMessageRequest, ReceiveMessageResponse, self.service.receive_message, permit
        )
        return Receive(call, loop.create_task(handle(call)))  # type: ignore[arg-type]

    async def got(self, request: ReceiveMessageRequest, deadline_s: float | None = None) -> Got:
        return await self.receive(request, deadline_s).end()


class Got:
    def __init__(self, responses: list[ReceiveMessageResponse]) -> None:
        self.kinds = [response.WhichOneof("content") for response in responses]
        self.statuses = [response.status for response in responses if response.HasField("status")]
        self.messages: list[Message] = [
            response.message for response in responses if response.HasField("message")
        ]

    @property
    def code(self) -> int:
        (status,) = self.statuses
        return status.code

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Receive:
    def __init__(self, call: FakeCall, task: asyncio.Task[None]) -> None:
        self.call = call
        self.task = task

    async def end(self) -> Got:
        await self.task
        sent = [self.call.outgoing.get_nowait() for _ in range(self.call.outgoing.qsize())]
        return Got([ReceiveMessageResponse.FromString(each) for each in sent])


def asked(*, wait_ms: int | None = 0, **fields: Any) -> ReceiveMessageRequest:
    request = ReceiveMessageRequest(batch_size=32, **fields)
    request.group.name = "g"
    request.message_queue.topic.name = TOPIC
    request.filter_expression.type = FilterType.TAG
    request.filter_expression.expression = "*"
    if not request.HasField("invisible_duration"):
        request.invisible_duration.seconds = 30
    if wait_ms is not None:
        request.long_polling_timeout.FromMilliseconds(wait_ms)
    return request


def run(story: Callable[[Fixture], Coroutine[Any, Any, None]], *names: str, **group: Any) -> None:
    async def whole() -> None:
        fixture = Fixture(FakeBrokers(*(names or ("a",)), **group))
        try:
            async with asyncio.timeout(20):
                await story(fixture)
        finally:
            await fixture.renewals.close()
            await fixture.arrivals.close()
            await fixture.brokers.close()

    asyncio.run(whole())


def test_status_messages_and_the_time_come_in_this_order() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store(b"one")
        broker.store(b"two")
        got = await fixture.got(asked())
        assert got.kinds == ["status", "message", "message", "delivery_timestamp"]
        assert (got.code, got.bodies) == (Code.OK, [b"one", b"two"])
        system = got.messages[1].system_properties
        assert system.receipt_handle == f"0 {broker.pop_time} 30000 0 0 a 0 1 1001"
        assert system.delivery_attempt == 1

    run(story)


def test_nothing_is_told_with_a_status() -> None:
    async def story(fixture: Fixture) -> None:
        got = await fixture.got(asked())
        assert got.kinds == ["status", "delivery_timestamp"]
        assert (got.code, got.statuses[0].message) == (Code.MESSAGE_NOT_FOUND, "no new message")

    run(story)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_client_that_waits_gets_what_comes_to_any_broker(name: str) -> None:
    async def story(fixture: Fixture) -> None:
        receiving = fixture.receive(asked(wait_ms=15_000))
        await until(lambda: fixture.brokers.at[name].count(RequestCode.NOTIFICATION))
        fixture.brokers.at[name].store(b"late")
        assert (await receiving.end()).bodies == [b"late"]

    run(story, "a", "b")


def test_a_push_consumer_waits_at_the_broker_that_it_names() -> None:
    """It has another receive for each of the others."""

    async def story(fixture: Fixture) -> None:
        request = asked(auto_renew=True)
        request.message_queue.broker.name = "b"
        fixture.brokers.at["a"].store()
        assert (await fixture.got(request)).code == Code.MESSAGE_NOT_FOUND
        request.message_queue.broker.name = "gone"
        assert (await fixture.got(request)).code == Code.OK

    run(story, "a", "b")


def test_many_clients_that_wait_are_one_request_at_the_broker_and_one_of_them_pops() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        receiving = [fixture.receive(asked(wait_ms=15_000)) for _ in range(20)]
        await until(lambda: fixture.arrivals.waiting_count == 20)
        broker.store()
        await asyncio.wait([each.task for each in receiving], return_when=asyncio.FIRST_COMPLETED)
        assert broker.count(RequestCode.POP_MESSAGE) == 21
        assert broker.count(RequestCode.NOTIFICATION) <= 2
        fixture.arrivals.end_waiting()
        ends = [await each.end() for each in receiving]
        assert sorted(len(end.messages) for end in ends) == [0] * 19 + [1]

    run(story)


def test_a_client_that_leaves_while_it_waits_takes_nothing() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        gone = fixture.receive(asked(wait_ms=15_000))
        await until(lambda: broker.count(RequestCode.NOTIFICATION))
        gone.task.cancel()
        await asyncio.wait([gone.task])
        broker.store(b"for the next one")
        assert (await fixture.got(asked())).bodies == [b"for the next one"]
        assert broker.changed == []

    run(story)


def test_a_client_that_leaves_during_its_pop_has_the_messages_given_back() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store()
        leaving = fixture.receive(asked())
        broker.before_pop = lambda: bool(leaving.task.cancel()) and None
        await asyncio.wait([leaving.task])
        await fixture.brokers.given_back()
        assert leaving.task.cancelled()
        assert broker.changed == [(0, GONE_MS, True)]

    run(story)


def test_what_could_not_be_sent_is_given_back() -> None:
    class Breaks(FakeCall):
        async def send(self, payload: bytes) -> None:
            await super().send(payload)
            self.closed = self.outgoing.qsize() == 2  # the status, and the first of three messages

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        for _ in range(3):
            broker.store()
        call = Breaks(asked(), name="ReceiveMessage")
        handle = server_stream(
            ReceiveMessageRequest, ReceiveMessageResponse, fixture.service.receive_message, permit
        )
        with pytest.raises(Exception):  # noqa: B017, PT011 (the carrier's)
            await handle(call)
        await fixture.brokers.given_back()
        assert broker.changed == [(1, GONE_MS, True), (2, GONE_MS, True)]

    run(story)


def test_what_a_client_does_not_read_is_given_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "READ_SECONDS", 0.01)

    class ReadsOne(FakeCall):
        async def send(self, payload: bytes) -> None:
            if self.outgoing.qsize() == 2:  # the status, and the first of three messages
                await asyncio.Event().wait()
            await super().send(payload)

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        for _ in range(3):
            broker.store()
        call = ReadsOne(asked(), name="ReceiveMessage")
        handle = server_stream(
            ReceiveMessageRequest, ReceiveMessageResponse, fixture.service.receive_message, permit
        )
        with pytest.raises(GrpcError, match="DEADLINE_EXCEEDED"):
            await handle(call)
        await fixture.brokers.given_back()
        assert broker.changed == [(1, GONE_MS, True), (2, GONE_MS, True)]

    run(story)


def test_messages_of_other_tags_end_here() -> None:
    """Brokers know tags by their hash."""

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store(b"red", TAGS="Aa")
        broker.store(b"other", TAGS="BB")
        broker.store(b"none")
        request = asked()
        request.filter_expression.expression = "Aa || x"
        got = await fixture.got(request)
        assert got.bodies == [b"red"]
        assert list(broker.in_flight) == [0]
        broker.store(b"other", TAGS="BB")
        got = await fixture.got(request)
        assert (got.code, got.statuses[0].message) == (Code.MESSAGE_NOT_FOUND, "no match message")

    run(story)


def test_a_message_after_its_last_attempt_goes_to_the_dead_letters() -> None:
    """RocketMQ's brokers leave it to others to count."""

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store(b"last", reconsume_times=2)
        broker.store(b"over", reconsume_times=3)
        got = await fixture.got(asked())
        assert got.bodies == [b"last"]
        assert got.messages[0].system_properties.delivery_attempt == 3
        assert broker.dead == [1001]
        assert list(broker.in_flight) == [0]

    run(story, retry_max_times=2)


@pytest.mark.parametrize("is_order", [False, True])
def test_whether_messages_come_in_order_is_for_the_group_to_say(is_order: bool) -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store()
        await fixture.got(asked(attempt_id="attempt"))
        (fields,) = [fields for code, fields in broker.asked if code == RequestCode.POP_MESSAGE]
        assert (fields["order"], fields["attemptId"]) == (str(is_order).lower(), "attempt")

    run(story, is_order=is_order)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda request: request.message_queue.topic.ClearField("name"), Code.ILLEGAL_TOPIC),
        (lambda request: setattr(request.message_queue.topic, "name", "rmq_sys_x"), Code.ILLEGAL_TOPIC),
        (lambda request: setattr(request.message_queue.topic, "name", "unknown"), Code.TOPIC_NOT_FOUND),
        (lambda request: setattr(request.group, "name", "a b"), Code.ILLEGAL_CONSUMER_GROUP),
        (lambda request: setattr(request.invisible_duration, "seconds", 9), Code.ILLEGAL_INVISIBLE_TIME),
        (lambda request: setattr(request.invisible_duration, "seconds", 43_201), Code.ILLEGAL_INVISIBLE_TIME),
        (
            lambda request: setattr(request.filter_expression, "expression", "||"),
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
        (
            lambda request: setattr(request.filter_expression, "expression", "a||" * 300_000),
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[ReceiveMessageRequest], None], code: int) -> None:
    async def story(fixture: Fixture) -> None:
        request = asked()
        change(request)
        assert (await fixture.got(request)).code == code
        assert not fixture.brokers.at["a"].count(RequestCode.POP_MESSAGE)

    run(story)


def test_a_topic_without_queues_to_read_is_forbidden() -> None:
    async def story(fixture: Fixture) -> None:
        await fixture.got(asked())  # the group is known
        fixture.brokers.at.clear()
        await fixture.brokers.look_for_leader(TOPIC)
        assert (await fixture.got(asked())).code == Code.FORBIDDEN

    run(story)


def test_a_push_consumer_leaves_the_invisible_time_to_the_proxy() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store()
        request = asked(auto_renew=True)
        request.invisible_duration.seconds = 1
        got = await fixture.got(request)
        assert got.code == Code.OK
        assert broker.in_flight[0].invisible_ms == 60_000
        assert len(fixture.renewals) == 1

    run(story)


def test_what_a_client_has_that_says_nothing_of_itself_comes_again_once_it_is_gone() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.store()
        await fixture.got(asked(auto_renew=True))
        assert fixture.sessions.expire(asyncio.get_running_loop().time() + 121) == ["c1"]
        assert not len(fixture.renewals)
        await until(lambda: broker.changed)

    run(story)


def test_a_broker_is_not_asked_on_and_on_for_a_client_that_has_a_turn_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.arrivals._PAUSE_S", 3600)

    async def story(fixture: Fixture) -> None:
        first, other = fixture.brokers.at["a"], fixture.brokers.at["b"]
        sources = [Source("g", TOPIC, name, False) for name in ("a", "b")]
        first.store()
        async with fixture.arrivals.turn(sources, asyncio.get_running_loop().time() + 10) as turn:
            assert turn is not None
            other.store()
            for _ in range(100):
                await asyncio.sleep(0)
            assert other.count(RequestCode.NOTIFICATION) == 1

    run(story, "a", "b")


def test_the_number_of_messages_is_what_brokers_allow() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        for _ in range(40):
            broker.store()
        request = asked()
        request.batch_size = 100
        assert len((await fixture.got(request)).messages) == 32
        request.batch_size = 0
        assert len((await fixture.got(request)).messages) == 1

    run(story)


def test_a_wait_ends_before_the_deadline() -> None:
    async def story(fixture: Fixture) -> None:
        loop = asyncio.get_running_loop()
        for wait_ms in (20_000, None):
            request = asked(wait_ms=wait_ms)
            until, deadline = fixture.service._times(request, FakeCall(deadline=loop.time() + 5))
            assert until <= deadline < loop.time() + 5
        got = await fixture.got(asked(wait_ms=20_000), deadline_s=0.3)
        assert got.code == Code.MESSAGE_NOT_FOUND

    run(story)


def test_a_broker_that_cannot_be_asked_is_waited_for() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        await fixture.got(asked())  # the group is known
        broker.store(b"there")
        broker.trouble = NoMasterError("broker a has no leader now")
        receiving = fixture.receive(asked(wait_ms=15_000))
        await until(lambda: broker.count(RequestCode.NOTIFICATION))
        broker.trouble = None
        assert (await receiving.end()).bodies == [b"there"]

    run(story)


def test_a_broker_that_cannot_be_asked_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "proxy.arrivals")
    monkeypatch.setattr("proxy.arrivals._TROUBLE_PAUSE_S", 0.0)

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        await fixture.got(asked())  # the group is known
        broker.trouble = NoMasterError("broker a has no leader now")
        receiving = fixture.receive(asked(wait_ms=15_000))
        await until(lambda: broker.count(RequestCode.NOTIFICATION) > 5)
        fixture.arrivals.end_waiting()
        await receiving.end()

    run(story)
    assert len(caplog.records) == 1


def test_of_several_brokers_one_that_cannot_be_asked_does_not_hold_up_the_others() -> None:
    async def story(fixture: Fixture) -> None:
        fixture.brokers.at["a"].trouble = NoMasterError("broker a has no leader now")
        receiving = fixture.receive(asked(wait_ms=15_000))
        await until(lambda: fixture.brokers.at["b"].count(RequestCode.NOTIFICATION))
        fixture.brokers.at["b"].store(b"there")
        assert (await receiving.end()).bodies == [b"there"]

    run(story, "a", "b")


@pytest.mark.parametrize(
    ("answered", "code"),
    [
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_what_brokers_refuse_until_the_end_is_told(answered: ResponseCode, code: int) -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        await fixture.got(asked())  # the group is known
        broker.trouble = BrokerResponseError(answered, "says why", "127.0.0.1:1")
        got = await fixture.got(asked())
        assert got.code == code
        assert "says why" in got.statuses[0].message

    run(story)
