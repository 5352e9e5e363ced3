"""Ends of transactions, and questions of brokers about those that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from fake_call import FakeCall, answer
from fake_group import HOST, FakeBroker, FakeGroup
from proxy_group import message, producer_settings, proxying, run

from message import const
from message.encoder import encode_record
from message.properties import encode_properties
from proxy.access import Access, Need, publishes
from proxy.grpc.call import Call
from proxy.messages.transaction_id import TransactionId
from proxy.protocol.definition import Code, MessageType, TransactionResolution, TransactionSource
from proxy.protocol.service import (
    EndTransactionRequest,
    EndTransactionResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    SendMessageRequest,
    SendMessageResponse,
    TelemetryCommand,
)
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from proxy.status import StatusError
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import request

COMMIT = TransactionResolution.COMMIT


async def end(
    proxy: Proxy, transaction_id: str, how: TransactionResolution = COMMIT, *, checked: bool = False
) -> EndTransactionResponse:
    source = TransactionSource.SOURCE_SERVER_CHECK if checked else TransactionSource.SOURCE_CLIENT
    wanted = EndTransactionRequest(
        transaction_id=transaction_id, message_id="01AB", resolution=how, source=source
    )
    wanted.topic.name = "T"
    return await answer(proxy.handlers, "EndTransaction", wanted, EndTransactionResponse)


async def prepare(proxy: Proxy) -> str:
    """The id of a transaction that is begun."""
    prepared = message(message_type=MessageType.TRANSACTION)
    told = await answer(
        proxy.handlers, "SendMessage", SendMessageRequest(messages=[prepared]), SendMessageResponse
    )
    assert told.status.code == Code.OK
    return told.entries[0].transaction_id


def test_any_proxy_can_end_a_transaction() -> None:
    async def story() -> None:
        async with FakeGroup() as group:
            async with proxying(group.address) as one:
                await prepare(one)
                transaction_id = await prepare(one)
            async with proxying(group.address) as another:
                assert (await end(another, transaction_id)).status.code == Code.OK
            known = TransactionId.decode(transaction_id)
            assert group.brokers[0].ended == [
                {
                    "topic": "T",
                    "producerGroup": "T",
                    "tranStateTableOffset": str(known.queue_offset),
                    "commitLogOffset": str(known.phy_offset),
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "false",
                    "msgId": "01AB",
                    "transactionId": "01AB",
                    "bname": "G",
                }
            ]
            assert known.phy_offset > 0

    run(story())


def test_the_verdict_is_the_brokers() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            transaction_id = await prepare(proxy)
            group.brokers[0].steps = [ResponseCode.SYSTEM_ERROR]
            assert (await end(proxy, transaction_id)).status.code == Code.INTERNAL_SERVER_ERROR

    run(story())


def test_the_next_leader_ends_it() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            transaction_id = await prepare(proxy)
            group.lead(group.brokers[1])
            told = await end(proxy, transaction_id, TransactionResolution.ROLLBACK, checked=True)
            assert told.status.code == Code.OK
            (fields,) = group.brokers[1].ended
            assert (fields["commitOrRollback"], fields["fromTransactionCheck"]) == ("12", "true")

    run(story())


def test_an_end_that_nobody_knows_is_left_to_the_next_question() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            transaction_id = await prepare(proxy)
            told = await end(proxy, transaction_id, TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED)
            assert told.status.code == Code.OK
            assert group.brokers[0].ended == []

    run(story())


@pytest.mark.parametrize("transaction_id", ["", " ", "0102FC000000010D8C0B1C7BD700000009"])
def test_what_is_no_transaction_id_is_refused(transaction_id: str) -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert (await end(proxy, transaction_id)).status.code == Code.INVALID_TRANSACTION_ID

    run(story())


def ask(broker: FakeBroker, *, bname: str | None = "G") -> None:
    """Asks the broker's first producer about a transaction."""
    properties = {const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "01AB", const.PRODUCER_GROUP: "T", "own": "1"}
    record = encode_record(
        *(b"T", 1, 0, 7, 4096, 4, 0, HOST, 0, HOST, 0, 0, b"body", encode_properties(properties))
    )
    fields = {"tranStateTableOffset": "7", "commitLogOffset": "4096"} | ({"bname": bname} if bname else {})
    command = request(RequestCode.CHECK_TRANSACTION_STATE, fields, record, opaque=1, oneway=True)
    next(iter(broker.producers.values())).write(command.encode())


def test_a_client_that_may_not_send_to_the_topic_any_more_is_given_no_half_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[Call] = []

    async def check(access: Access, call: Call, needs: Iterable[Need], topic: str = "") -> None:
        if call in refused:
            assert [*needs] == [publishes("T")]
            raise StatusError(Code.UNAUTHORIZED, "User:u is disabled.")

    monkeypatch.setattr(Access, "check", check)

    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.topic_types["T"] = "TRANSACTION"
            calls = [FakeCall(name="Telemetry", client_id=name, ended=False) for name in ("first", "second")]
            serving = [asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call)) for call in calls]
            for call in calls:
                call.say(TelemetryCommand(settings=producer_settings("T")))
                assert (await call.next(TelemetryCommand)).HasField("settings")
            broker = group.brokers[0]
            await group.until(lambda: broker.producers)
            refused.append(calls[0])
            for _ in range(2):
                ask(broker)
                async with asyncio.timeout(20):
                    told = await calls[1].next(TelemetryCommand)
                assert told.HasField("recover_orphaned_transaction_command")
            assert calls[0].outgoing.empty()
            for call in calls:
                call.end()
            await asyncio.gather(*serving)

    run(story())


@pytest.mark.parametrize("bname", ["G", None])
def test_a_question_goes_to_a_client_with_the_topic_and_its_answer_to_the_broker(bname: str | None) -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.topic_types["T"] = "TRANSACTION"
            call = FakeCall(name="Telemetry", ended=False)
            serving = asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call))
            call.say(TelemetryCommand(settings=producer_settings("T")))
            assert (await call.next(TelemetryCommand)).HasField("settings")
            broker = group.brokers[0]
            await group.until(lambda: broker.producers)
            ask(broker, bname=bname)
            question = (await call.next(TelemetryCommand)).recover_orphaned_transaction_command
            assert question.message.body == b"body"
            assert dict(question.message.user_properties) == {"own": "1"}
            assert TransactionId.decode(question.transaction_id) == TransactionId("G", 7, 4096, "01AB")
            assert (await end(proxy, question.transaction_id, checked=True)).status.code == Code.OK
            assert broker.ended[0]["commitLogOffset"] == "4096"
            call.end()
            await serving

    run(story())


def test_brokers_know_the_topics_of_producers_for_as_long_as_these_can_be_asked() -> None:
    """Only those that may have transactions, and followers know them as well."""

    async def story() -> None:
        async with FakeGroup(topics=("T", "M", "N")) as group, proxying(group.address) as proxy:
            group.topic_types |= {"T": "TRANSACTION", "M": "MIXED", "N": "NORMAL"}
            call = FakeCall(name="Telemetry", ended=False)
            serving = asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call))
            call.say(TelemetryCommand(settings=producer_settings("T", "M", "N")))
            for broker in group.brokers:
                await group.until(lambda broker=broker: broker.heartbeats)  # type: ignore[misc]
                producers = [data.group_name for data in broker.heartbeats[-1].producer_data_set]
                assert producers == ["M", "T"]
            leaving = NotifyClientTerminationRequest()
            await answer(proxy.handlers, "NotifyClientTermination", leaving, NotifyClientTerminationResponse)
            for broker in group.brokers:
                await group.until(lambda broker=broker: len(broker.unregistered) == 2)  # type: ignore[misc]
                assert sorted(fields["producerGroup"] for fields in broker.unregistered) == ["M", "T"]
            call.end()
            await serving

    run(story())


def test_a_client_that_takes_no_questions_is_passed_over_until_its_next_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each question would stay in memory for as long as its stream is open."""
    monkeypatch.setattr("proxy.services.transaction._QUESTION_S", 0)

    class Deaf(FakeCall):
        async def send(self, payload: bytes) -> None:
            if TelemetryCommand.FromString(payload).HasField("recover_orphaned_transaction_command"):
                await asyncio.Event().wait()
            await super().send(payload)

    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.topic_types["T"] = "TRANSACTION"
            calls = [
                Deaf(name="Telemetry", client_id="deaf", ended=False),
                FakeCall(name="Telemetry", client_id="there", ended=False),
            ]
            serving = [asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call)) for call in calls]
            for call in calls:
                call.say(TelemetryCommand(settings=producer_settings("T")))
                await call.next(TelemetryCommand)
            broker = group.brokers[0]
            await group.until(lambda: broker.producers)
            ask(broker)
            question = await calls[1].next(TelemetryCommand)
            assert question.HasField("recover_orphaned_transaction_command")
            for client_id, can_be_asked in (("deaf", False), ("there", True)):
                session = proxy.sessions.get(client_id)
                assert session is not None
                assert (session.stream is not None) == can_be_asked
            for call in calls:
                call.end()
            await asyncio.gather(*serving)

    run(story())


def test_topics_whose_brokers_say_nothing_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they would take a second each, and brokers would forget this proxy's producers meanwhile."""

    async def story() -> None:
        async with FakeGroup(topics=("T",)) as group, proxying(group.address) as proxy:
            asked: list[str] = []
            both = asyncio.Event()

            async def topic_type(topic: str) -> str:
                asked.append(topic)
                if len(set(asked)) == 2:
                    both.set()
                await both.wait()
                return "TRANSACTION"

            monkeypatch.setattr(proxy._transactions._metadata, "topic_type", topic_type)
            call = FakeCall(
                TelemetryCommand(settings=producer_settings("Silent", "T")), name="Telemetry", ended=False
            )
            serving = asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call))
            for broker in group.brokers:
                await group.until(lambda broker=broker: broker.heartbeats)  # type: ignore[misc]
                (producer,) = broker.heartbeats[-1].producer_data_set
                assert producer.group_name == "T"
            call.end()
            await serving

    run(story())


def test_a_client_whose_stream_is_gone_is_passed_over() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.topic_types["T"] = "TRANSACTION"
            calls = [FakeCall(name="Telemetry", client_id=name, ended=False) for name in ("gone", "there")]
            serving = [asyncio.ensure_future(proxy.handlers[SERVICE + "Telemetry"](call)) for call in calls]
            for call in calls:
                call.say(TelemetryCommand(settings=producer_settings("T")))
                await call.next(TelemetryCommand)
            broker = group.brokers[0]
            await group.until(lambda: broker.producers)
            calls[0].closed = True  # and the proxy does not know it yet
            ask(broker)
            question = await calls[1].next(TelemetryCommand)
            assert question.HasField("recover_orphaned_transaction_command")
            for call in calls:
                call.end()
            await asyncio.gather(*serving)

    run(story())
