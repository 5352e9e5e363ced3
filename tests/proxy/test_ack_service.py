"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: what is said by handle, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_brokers import TOPIC, FakeBrokers, until
from fake_call import FakeCall

from mqclient.errors import BrokerResponseError, NoAnswerError, NoMasterError
from proxy.access import Access
from proxy.config import ProxyConfig
from proxy.messages.receipt_handle import ReceiptHandle
from proxy.popped import PoppedMessages
from proxy.protocol.definition import Code
from proxy.protocol.service import (
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueRequest,
)
from proxy.renewals import Renewals
from proxy.services.ack import AckService
from proxy.services.dead_letter import DeadLetterService
from proxy.status import StatusError
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingTimeoutError

LONG_AGO = 1_700_000_000_000


class Fixture:
    """A proxy's acks, over brokers in memory."""

    def __init__(self, *names: str) -> None:
        config = ProxyConfig(namesrv_addr=("127.0.0.1:1",))
        self.brokers = FakeBrokers(*names)
        popped = PoppedMessages(self.brokers)
        self.renewals = Renewals(config, popped)
        self.acks = AckService(config, popped, self.renewals)
        self.dead_letters = DeadLetterService(popped, self.renewals, Access(self.brokers, is_on=False))

    def pop(self, name: str = "a") -> str:
        """Returns the handle of a message that a client has now."""
        handle = self.brokers.at[name].hand_out(30_000)
        return ReceiptHandle(handle, 1000 + handle.start).encode()

    async def ack(self, *handles: str, topic: str = TOPIC) -> AckMessageResponse:
        request = AckMessageRequest()
        request.topic.name, request.group.name = topic, "g"
        for number, handle in enumerate(handles):
            request.entries.add(message_id=f"id{number}", receipt_handle=handle)
        return await self.acks.ack_message(request, self.call())

    async def change(self, handle: str, seconds: float = 20) -> ChangeInvisibleDurationResponse:
        request = ChangeInvisibleDurationRequest(receipt_handle=handle, message_id="id")
        request.topic.name, request.group.name = TOPIC, "g"
        request.invisible_duration.FromMilliseconds(round(seconds * 1000))
        return await self.acks.change_invisible_duration(request, self.call())

    async def forward(self, handle: str) -> None:
        request = ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle, message_id="id")
        request.topic.name, request.group.name = TOPIC, "g"
        await self.dead_letters.forward_message_to_dead_letter_queue(request, self.call())

    def call(self) -> FakeCall:
        return FakeCall(deadline=asyncio.get_running_loop().time() + 3)


def run(story: Callable[[Fixture], Coroutine[Any, Any, None]], *names: str) -> None:
    async def whole() -> None:
        fixture = Fixture(*(names or ("a",)))
        try:
            async with asyncio.timeout(20):
                await story(fixture)
        finally:
            await fixture.renewals.close()
            await fixture.brokers.close()

    asyncio.run(whole())


def test_messages_of_a_broker_are_acknowledged_in_one_request() -> None:
    async def story(fixture: Fixture) -> None:
        handles = [fixture.pop("a"), fixture.pop("b"), fixture.pop("a")]
        response = await fixture.ack(*handles)
        assert response.status.code == Code.OK
        assert [(each.message_id, each.receipt_handle, each.status.code) for each in response.entries] == [
            (f"id{number}", handle, Code.OK) for number, handle in enumerate(handles)
        ]
        a, b = fixture.brokers.at["a"], fixture.brokers.at["b"]
        assert not a.in_flight
        assert not b.in_flight
        assert [code for code, _ in a.asked] == [RequestCode.BATCH_ACK_MESSAGE]
        assert [code for code, _ in b.asked] == [RequestCode.ACK_MESSAGE]

    run(story, "a", "b")


def test_each_entry_is_told_how_it_ended() -> None:
    async def story(fixture: Fixture) -> None:
        good = fixture.pop()
        refused = good.replace(" a ", " gone ")
        response = await fixture.ack(good, "no handle", refused, f"0 {LONG_AGO} 60000 0 0 a 0 0 1000")
        assert response.status.code == Code.MULTIPLE_RESULTS
        statuses = [each.status for each in response.entries]
        assert [status.code for status in statuses] == [Code.OK] + [Code.INVALID_RECEIPT_HANDLE] * 3
        assert statuses[2].message == "cannot find broker gone"
        assert statuses[3].message == "receipt handle is expired"

    run(story)


def test_a_message_is_acknowledged_as_long_as_it_is_the_clients() -> None:
    """Another proxy has given the message more time and stopped since. The client has only the first handle."""

    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        broker.pop_time = LONG_AGO
        renewed, over = fixture.pop(), fixture.pop()
        del broker.in_flight[1]
        assert (await fixture.change(renewed)).status.code == Code.INVALID_RECEIPT_HANDLE
        response = await fixture.ack(renewed, over)
        assert [each.status.code for each in response.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
        assert not broker.in_flight

    run(story)


def test_an_ack_of_too_many_messages_is_refused_as_a_whole() -> None:
    async def story(fixture: Fixture) -> None:
        handle = fixture.pop()
        with pytest.raises(StatusError, match="1025 entries in one call, at most 1024 are taken") as refused:
            await fixture.ack(*[handle] * 1025)
        assert refused.value.code == Code.PAYLOAD_TOO_LARGE
        assert fixture.brokers.at["a"].in_flight
        assert (await fixture.ack(*[handle] * 1024)).status.code == Code.OK

    run(story)


def test_an_ack_of_nothing_is_refused() -> None:
    async def story(fixture: Fixture) -> None:
        with pytest.raises(StatusError) as refused:
            await fixture.ack()
        assert refused.value.code == Code.BAD_REQUEST

    run(story)


@pytest.mark.parametrize(
    "trouble",
    [
        NoMasterError("broker a has no leader now"),
        NoAnswerError(RemotingTimeoutError("no answer")),
        BrokerResponseError(ResponseCode.SYSTEM_BUSY, "elected, and does not serve yet", "127.0.0.1:1"),
        BrokerResponseError(ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader", "127.0.0.1:1"),
    ],
)
def test_an_ack_and_a_change_go_to_the_next_leader(trouble: Exception) -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        acknowledged, changed = fixture.pop(), fixture.pop()
        broker.trouble = trouble  # type: ignore[assignment]
        asyncio.get_running_loop().call_later(0.05, setattr, broker, "trouble", None)
        ack, change = await asyncio.gather(fixture.ack(acknowledged), fixture.change(changed))
        assert (ack.status.code, change.status.code) == (Code.OK, Code.OK)
        assert (await fixture.ack(change.receipt_handle)).status.code == Code.OK
        assert not broker.in_flight

    run(story)


def test_an_ack_that_is_broken_off_leaves_the_message_its_time() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        handle = fixture.pop()
        fixture.renewals.hold("c1", "g", TOPIC, ReceiptHandle.decode(handle).pop)
        broker.trouble = NoMasterError("broker a has no leader now")
        asking = asyncio.ensure_future(fixture.ack(handle))
        await until(lambda: broker.asked)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert len(fixture.renewals) == 1

    run(story)


def test_a_change_answers_the_handle_that_counts() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        fixture.pop()
        handle = fixture.pop()
        response = await fixture.change(handle, 0.25)
        assert response.status.code == Code.OK
        assert broker.changed == [(1, 250, False)]
        assert response.receipt_handle == f"1 {broker.pop_time + 1} 250 0 0 a 0 1 1001"
        assert (await fixture.ack(response.receipt_handle)).status.code == Code.OK
        assert list(broker.in_flight) == [0]

    run(story)


@pytest.mark.parametrize(
    ("seconds", "code"), [(-1, Code.ILLEGAL_INVISIBLE_TIME), (43_201, Code.ILLEGAL_INVISIBLE_TIME)]
)
def test_a_change_that_fails_answers_the_handle_that_came(seconds: float, code: int) -> None:
    """Java's SimpleConsumer takes over whatever comes."""

    async def story(fixture: Fixture) -> None:
        handle = fixture.pop()
        response = await fixture.change(handle, seconds)
        assert (response.status.code, response.receipt_handle) == (code, handle)
        for bad in ("no handle", handle.replace(" a ", " gone ")):
            response = await fixture.change(bad)
            assert (response.status.code, response.receipt_handle) == (Code.INVALID_RECEIPT_HANDLE, bad)

    run(story)


def test_a_message_that_is_given_up_becomes_a_dead_letter_and_is_acknowledged() -> None:
    async def story(fixture: Fixture) -> None:
        broker = fixture.brokers.at["a"]
        await fixture.forward(fixture.pop())
        assert broker.dead == [1000]
        assert not broker.in_flight
        (code, fields), *_ = broker.asked
        assert code == RequestCode.CONSUMER_SEND_MSG_BACK
        assert (fields["group"], fields["delayLevel"], fields["maxReconsumeTimes"]) == ("g", "-1", "0")
        for bad, message in (
            ("no handle", "no receipt handle"),
            (f"0 {broker.pop_time} 30000 0 0 a 0 0", "commit log offset is empty"),
        ):
            with pytest.raises(StatusError, match=message) as refused:
                await fixture.forward(bad)
            assert refused.value.code == Code.INVALID_RECEIPT_HANDLE

    run(story)
