"""What clients say of themselves on their Telemetry streams and in heartbeats, and what they are told."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_call import FakeCall, answer
from fake_group import FakeGroup
from google.protobuf.message import Message
from proxy_group import producer_settings, proxying, run

from proxy.grpc.call import GrpcError, GrpcStatus
from proxy.protocol.definition import ClientType, Code, Settings
from proxy.protocol.service import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    TelemetryCommand,
    ThreadStackTrace,
)
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from remoting.bodies.bodies import SubscriptionGroupConfig

# A NameServer that is not there.
NOWHERE = "127.0.0.1:1"


def consumer_settings(
    group: str = "g", topic: str = "T", kind: ClientType = ClientType.PUSH_CONSUMER
) -> Settings:
    settings = Settings(client_type=kind)
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add().topic.name = topic
    return settings


@asynccontextmanager
async def telemetry(proxy: Proxy, client_id: str = "c1") -> AsyncIterator[FakeCall]:
    """A stream that is open."""
    call = FakeCall(name="Telemetry", client_id=client_id, ended=False)
    serving = asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call))
    yield call
    call.end()
    await serving


async def failed(proxy: Proxy, settings: Settings) -> GrpcError:
    call = FakeCall(TelemetryCommand(settings=settings), name="Telemetry")
    with pytest.raises(GrpcError) as error:
        await proxy.handlers[SERVICE + "Telemetry"](call)
    return error.value


async def beat(proxy: Proxy, kind: ClientType, group: str = "", client_id: str = "c1") -> HeartbeatResponse:
    request = HeartbeatRequest(client_type=kind)
    if group:
        request.group.name = group
    return await answer(proxy.handlers, "Heartbeat", request, HeartbeatResponse, client_id)


def test_settings_are_answered_each_time_and_headers_at_once() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy, telemetry(proxy) as call:
            for topics in ((), ("T",), ("T", "U")):
                call.say(TelemetryCommand(settings=producer_settings(*topics)))
                told = await call.next(TelemetryCommand)
                assert told.status.code == Code.OK
                assert [topic.name for topic in told.settings.publishing.topics] == list(topics)
            assert call.has_headers

    run(story())


def test_consumers_are_told_what_their_group_is_configured_to_do() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy, telemetry(proxy) as call:
            group.group_configs["g"] = SubscriptionGroupConfig(
                consume_message_orderly=True, retry_max_times=3
            )
            call.say(TelemetryCommand(settings=consumer_settings()))
            told = (await call.next(TelemetryCommand)).settings
            assert told.subscription.fifo
            assert told.backoff_policy.max_attempts == 4
            call.say(TelemetryCommand(settings=consumer_settings("unknown", kind=ClientType.SIMPLE_CONSUMER)))
            told = (await call.next(TelemetryCommand)).settings
            assert not told.subscription.fifo
            assert told.backoff_policy.max_attempts == 17
            group.group_configs["endless"] = SubscriptionGroupConfig(retry_max_times=2**31 - 1)
            call.say(TelemetryCommand(settings=consumer_settings("endless")))
            told = (await call.next(TelemetryCommand)).settings
            assert told.backoff_policy.max_attempts == 2**31 - 1

    run(story())


def test_settings_are_answered_while_brokers_say_nothing() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy, telemetry(proxy) as call:
            for broker in group.brokers:
                broker.is_mute = True
            call.say(TelemetryCommand(settings=consumer_settings()))
            assert (await call.next(TelemetryCommand)).status.code == Code.OK
            assert any("_refresh" in repr(task) for task in asyncio.all_tasks())  # the question is still out

    run(story())


def test_what_else_a_client_says_is_passed_over() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy, telemetry(proxy) as call:
            call.say(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce="n")))
            call.say(TelemetryCommand(settings=producer_settings("T")))
            assert (await call.next(TelemetryCommand)).HasField("settings")

    run(story())


def test_wrong_settings_end_the_stream() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            for settings, reason in (
                (Settings(), "there is no publishing or subscription data in settings"),
                (producer_settings("a b"), "illegal characters"),
                (consumer_settings("a b"), "illegal characters"),
                (consumer_settings(topic="TBW102"), "cannot access system topic"),
            ):
                error = await failed(proxy, settings)
                assert error.status == GrpcStatus.INVALID_ARGUMENT
                assert reason in error.message

    run(story())


def test_settings_of_megabytes_are_not_kept() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            error = await failed(proxy, producer_settings(*(f"{number:0127}" for number in range(8200))))
            assert error.status == GrpcStatus.INVALID_ARGUMENT
            assert "1048576 are allowed" in error.message
            assert len(proxy.sessions) == 0

    run(story())


def test_topics_that_the_proxy_has_no_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.sessions.TOPICS_SIZE_MAX", 500)

    async def story() -> None:
        async with proxying(NOWHERE) as proxy, telemetry(proxy) as taken:
            taken.say(TelemetryCommand(settings=producer_settings("T")))
            assert (await taken.next(TelemetryCommand)).status.code == Code.OK
            command = TelemetryCommand(settings=producer_settings("T"))
            refused = FakeCall(command, name="Telemetry", client_id="c2", ended=False)
            await proxy.handlers[SERVICE + "Telemetry"](refused)
            told = (await refused.next(TelemetryCommand)).status
            assert told.code == Code.TOO_MANY_REQUESTS
            assert "try again later" in told.message
            assert (await beat(proxy, ClientType.PRODUCER, client_id="c2")).status.code == Code.OK

    run(story())


def test_of_settings_that_were_answered_little_is_held() -> None:
    """A consumer's subscriptions are for its own use: the proxy goes by the group's, and by each request."""

    async def story() -> None:
        async with proxying(NOWHERE) as proxy, telemetry(proxy) as call:
            settings = consumer_settings()
            settings.subscription.subscriptions[0].expression.expression = "x" * 1_000_000
            command = TelemetryCommand(settings=settings)
            tracemalloc.start()
            try:
                call.say(command)
                await call.next(TelemetryCommand)
                assert tracemalloc.get_traced_memory()[0] < 500_000
            finally:
                tracemalloc.stop()

    run(story())


def test_a_client_of_a_kind_that_is_not_served_is_told_so() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            settings = consumer_settings(kind=ClientType.LITE_PUSH_CONSUMER)
            call = FakeCall(TelemetryCommand(settings=settings), name="Telemetry", ended=False)
            await proxy.handlers[SERVICE + "Telemetry"](call)
            told = (await call.next(TelemetryCommand)).status
            assert told.code == Code.UNRECOGNIZED_CLIENT_TYPE
            assert "LITE_PUSH_CONSUMER is not served here" in told.message
            beaten = await beat(proxy, ClientType.PULL_CONSUMER)
            assert beaten.status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    run(story())


def test_a_stream_without_a_client_id_is_told_so_and_ends() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            call = FakeCall(name="Telemetry", client_id="")
            await proxy.handlers[SERVICE + "Telemetry"](call)
            assert (await call.next(TelemetryCommand)).status.code == Code.CLIENT_ID_REQUIRED

    run(story())


def test_a_client_that_the_proxy_does_not_know_may_go_on() -> None:
    """Such as after a restart of the proxy, until its stream is open again."""

    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            assert (await beat(proxy, ClientType.PUSH_CONSUMER, "g")).status.code == Code.OK
            assert (await beat(proxy, ClientType.PRODUCER)).status.code == Code.OK
            told = await beat(proxy, ClientType.PUSH_CONSUMER, "a b")
            assert told.status.code == Code.ILLEGAL_CONSUMER_GROUP

    run(story())


def test_a_client_that_ends_is_forgotten() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy, telemetry(proxy) as call:
            call.say(TelemetryCommand(settings=consumer_settings()))
            await call.next(TelemetryCommand)
            assert proxy.sessions.get("c1") is not None
            request = NotifyClientTerminationRequest()
            request.group.name = "g"
            told = await answer(
                proxy.handlers, "NotifyClientTermination", request, NotifyClientTerminationResponse
            )
            assert told.status.code == Code.OK
            assert proxy.sessions.get("c1") is None

    run(story())


def test_nobody_ends_the_client_of_another_user() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            handlers, told = proxy.handlers, []
            request = NotifyClientTerminationRequest()
            request.group.name = "g"
            await handlers[SERVICE + "Heartbeat"](
                of_user("alice", HeartbeatRequest(client_type=ClientType.PRODUCER), "Heartbeat")
            )
            for username in ("mallory", "alice"):
                await handlers[SERVICE + "NotifyClientTermination"](
                    of_user(username, request, "NotifyClientTermination")
                )
                told.append(proxy.sessions.get("alice/c1") is not None)
            assert told == [True, False]

    run(story())


def of_user(username: str, request: Message, name: str) -> FakeCall:
    """A call of the client `c1`; whether it is this user's is looked at elsewhere."""
    header = f"MQv2-HMAC-SHA1 Credential={username}//Rocketmq, SignedHeaders=x-mq-date-time, Signature=00"
    return FakeCall(request, name=name, metadata={"authorization": header})


def test_a_proxy_that_stops_has_clients_open_their_streams_elsewhere() -> None:
    async def story() -> None:
        async with proxying(NOWHERE) as proxy:
            call = FakeCall(name="Telemetry", ended=False)
            serving = asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call))
            call.say(TelemetryCommand(settings=producer_settings("T")))
            await call.next(TelemetryCommand)
        with pytest.raises(GrpcError) as error:
            await serving
        assert error.value.status == GrpcStatus.UNAVAILABLE

    run(story())
