"""Sends before groups that elect, refuse and break off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fake_call import FakeCall, answer
from fake_group import FakeGroup
from proxy_group import message, proxying, run

from proxy.messages.consistent_hash import bucket_of
from proxy.protocol.definition import Code, Message
from proxy.protocol.service import (
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from remoting.codes import ResponseCode


async def send(proxy: Proxy, *messages: Message) -> SendMessageResponse:
    request = SendMessageRequest(messages=messages)
    return await answer(proxy.handlers, "SendMessage", request, SendMessageResponse)


def codes(response: SendMessageResponse) -> list[int]:
    return [entry.status.code for entry in response.entries]


def sends(group: FakeGroup) -> Sequence[dict[str, str]]:
    return [command.ext_fields for broker in group.brokers for command in broker.sends]


def test_messages_are_spread_over_the_queues_and_told_where_they_lie() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            answers = [await send(proxy, message()) for _ in range(8)]
            assert {code for one in answers for code in codes(one)} == {Code.OK}
            assert answers[0].entries[0].message_id == "01AB"
            assert sorted(one.entries[0].offset for one in answers) == [0] * 4 + [1] * 4
            assert sorted(len(records) for records in group.queues.values()) == [2] * 4

    run(story())


def test_a_send_of_too_many_messages_is_refused_as_a_whole() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert len((await send(proxy, *[message()] * 1024)).entries) == 1024
            answered = await send(proxy, *[message()] * 1025)
            assert answered.status.code == Code.PAYLOAD_TOO_LARGE
            assert (
                answered.status.message
                == "1025 messages in one call, at most 1024 are taken: send them in parts"
            )
            assert group.records == 1024

    run(story())


def test_a_message_group_keeps_to_its_queue_whichever_proxy_sends_it() -> None:
    async def story() -> None:
        async with FakeGroup(name="H") as other, FakeGroup(neighbours=(other,)) as group:
            for _ in range(2):
                async with proxying(group.address) as proxy:
                    for name in ("order-1", "order-2", "order-3"):
                        await send(proxy, message(message_group=name))
            sent = {(fields["i"], fields["n"], fields["e"]) for fields in (*sends(group), *sends(other))}
            assert len(sent) == 3
            wanted = bucket_of("order-1", 8)
            assert ("GH"[wanted // 4], str(wanted % 4)) in {(broker, queue) for _, broker, queue in sent}

    run(story())


def test_the_next_leader_gets_what_the_former_one_refused() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            await send(proxy, message())
            group.lead(None)
            sending = asyncio.create_task(send(proxy, message(), message(message_group="g")))
            asked = len(group.namesrv.requests)
            await group.until(lambda: len(group.namesrv.requests) > asked + 2)
            group.lead(group.brokers[1])
            assert codes(await sending) == [Code.OK, Code.OK]
            assert group.records == 3

    run(story())


def test_another_group_takes_what_needs_no_order_and_the_rest_waits() -> None:
    async def story() -> None:
        async with FakeGroup(name="H") as other, FakeGroup(neighbours=(other,)) as group:
            name = next(name for name in map(str, range(100)) if bucket_of(name, 8) < 4)  # G comes first
            async with proxying(group.address) as proxy:
                await send(proxy, message())
                group.lead(None)
                answers = [await send(proxy, message()) for _ in range(8)]
                assert {code for one in answers for code in codes(one)} == {Code.OK}
                waiting = asyncio.create_task(send(proxy, message(message_group=name)))
                taken = other.records
                asked = len(group.namesrv.requests)
                await group.until(lambda: len(group.namesrv.requests) > asked + 2)
                group.lead(group.brokers[2])
                assert codes(await waiting) == [Code.OK]
                assert other.records == taken

    run(story())


def test_what_may_be_stored_already_is_not_sent_again() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert group.leader is not None
            group.leader.steps = ["close"]
            assert codes(await send(proxy, message())) == [Code.INTERNAL_SERVER_ERROR]
            assert group.records == 1

    run(story())


def test_a_leader_that_stalls_is_let_go_of_when_another_one_leads() -> None:
    """Its connection stays open. Nothing but its successor's registration tells."""

    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            await send(proxy, message())
            group.brokers[0].is_mute = True
            sending = asyncio.create_task(send(proxy, message()))
            asked = len(group.namesrv.requests)
            await group.until(lambda: len(group.namesrv.requests) > asked)
            group.lead(group.brokers[1])
            assert codes(await sending) == [
                Code.INTERNAL_SERVER_ERROR
            ]  # unknown, long before its time is over
            assert codes(await send(proxy, message())) == [Code.OK]

    run(story())


def test_refusals_and_doubts_are_told_as_they_are() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert group.leader is not None
            for step, code in (
                (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
                (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
                (ResponseCode.MESSAGE_ILLEGAL, Code.INTERNAL_SERVER_ERROR),
                (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
                (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
                (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
            ):
                group.leader.steps = [step]
                told = await send(proxy, message())
                assert codes(told) == [code]
                assert told.status.code == code

    run(story())


def test_each_message_of_a_batch_has_an_entry_of_its_own() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert group.leader is not None
            group.leader.steps = [0, ResponseCode.SYSTEM_BUSY, 0]
            told = await send(proxy, *(message(message_id=f"id{number}") for number in range(3)))
            assert codes(told) == [Code.OK, Code.TOO_MANY_REQUESTS, Code.OK]
            assert [entry.message_id for entry in told.entries] == ["id0", "", "id2"]
            assert told.status.code == Code.MULTIPLE_RESULTS

    run(story())


def test_a_batch_keeps_the_order_of_its_message_group() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            batch = [message(message_id=f"id{number}", message_group="g") for number in range(5)]
            told = await send(proxy, *batch)
            assert [entry.offset for entry in told.entries] == [0, 1, 2, 3, 4]

    run(story())


def test_after_a_failure_a_batch_sends_nothing_more_of_that_message_group() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            for broker in group.brokers:
                broker.steps = [ResponseCode.MESSAGE_ILLEGAL]
            told = await send(proxy, *(message(message_group=name) for name in ("g", "h", "g", "g")))
            assert told.status.code == Code.MULTIPLE_RESULTS
            failed = Code.INTERNAL_SERVER_ERROR
            assert codes(told) == [failed, Code.OK, failed, failed]
            assert group.records == 1

    run(story())


def test_requests_that_make_no_sense_are_refused() -> None:
    async def story() -> None:
        async with FakeGroup(topics=("T", "F")) as group, proxying(group.address) as proxy:
            group.topic_types |= {"F": "FIFO", "T": "NORMAL"}
            for messages, code in (
                ([], Code.MESSAGE_CORRUPTED),
                ([message("T"), message("F")], Code.MESSAGE_CORRUPTED),
                ([message("a b")], Code.ILLEGAL_TOPIC),
                ([message("TBW102")], Code.ILLEGAL_TOPIC),
                ([message("")], Code.ILLEGAL_TOPIC),
                ([message("F")], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
                ([message("T", message_group="g")], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
                ([message("T", b"")], Code.MESSAGE_BODY_EMPTY),
            ):
                told = await send(proxy, *messages)
                assert told.status.code == code
                assert not told.entries
            assert not sends(group)

    run(story())


def test_a_topic_of_an_old_broker_takes_all_messages() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            assert codes(await send(proxy, message(message_group="g"))) == [Code.OK]

    run(story())


def test_a_topic_that_nobody_knows_is_not_found() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            told = await send(proxy, message("Nowhere"))
            assert codes(told) == [Code.TOPIC_NOT_FOUND]
            assert "No topic route info in name server for the topic" in told.status.message
            assert "Nowhere" in told.status.message

    run(story())


def test_without_a_name_server_the_trouble_is_told_and_ends_with_it() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            group.namesrv.is_mute = True
            assert codes(await send(proxy, message())) == [Code.INTERNAL_SERVER_ERROR]
            group.namesrv.is_mute = False
            assert codes(await send(proxy, message())) == [Code.OK]

    run(story())


def test_the_client_is_answered_before_its_deadline() -> None:
    async def story() -> None:
        async with FakeGroup() as group, proxying(group.address) as proxy:
            await send(proxy, message())
            group.brokers[0].is_mute = True
            deadline = asyncio.get_running_loop().time() + 0.5
            call = FakeCall(SendMessageRequest(messages=[message()]), name="SendMessage", deadline=deadline)
            await proxy.handlers[SERVICE + "SendMessage"](call)
            assert codes(await call.next(SendMessageResponse)) == [Code.PROXY_TIMEOUT]

    run(story())


def test_a_recall_goes_to_the_broker_of_its_handle() -> None:
    async def recall(proxy: Proxy, topic: str, handle: str) -> RecallMessageResponse:
        request = RecallMessageRequest(recall_handle=handle)
        request.topic.name = topic
        return await answer(proxy.handlers, "RecallMessage", request, RecallMessageResponse)

    async def story() -> None:
        from message.recall_handle import RecallHandle

        async with FakeGroup(topics=("T", "D")) as group, proxying(group.address) as proxy:
            group.topic_types |= {"T": "NORMAL", "D": "DELAY"}
            handle = RecallHandle("D", "G", 5, "id").encode()
            assert (await recall(proxy, "D", handle)).status.code == Code.OK
            assert (await recall(proxy, "T", handle)).status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            assert (await recall(proxy, "D", "x")).status.message == "recall handle is invalid: 'x'"
            elsewhere = RecallHandle("D", "X", 5, "id").encode()
            assert (await recall(proxy, "D", elsewhere)).status.code == Code.BAD_REQUEST

    run(story())
