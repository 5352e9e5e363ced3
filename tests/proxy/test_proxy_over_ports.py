"""A proxy, a broker and a NameServer on real ports, and a gRPC client that is not ours."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TypeVar

import grpc.aio
import pytest
import uvloop
from google.protobuf.message import Message as AnyMessage
from one_broker import pull_fields
from proxy_group import message, producer_settings, proxying
from test_broker_server import ask, config_of, routed, run, running

from broker.server import Broker
from message.decoder import decode_messages
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from proxy.protocol.definition import AddressScheme, Code, Message, MessageType, TransactionResolution
from proxy.protocol.service import (
    EndTransactionRequest,
    EndTransactionResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    TelemetryCommand,
)
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from remoting.client import RemotingClient
from remoting.codes import RequestCode

METADATA = (("x-mq-client-id", "c1"), ("x-mq-language", "PYTHON"))
ResponseT = TypeVar("ResponseT", bound=AnyMessage)


class Client:
    def __init__(self, proxy: Proxy) -> None:
        self.channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{proxy.port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )

    async def call(self, name: str, request: AnyMessage, kind: type[ResponseT]) -> ResponseT:
        method = self.channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        answer: ResponseT = await method(request, metadata=METADATA, timeout=20)
        return answer

    async def send(self, *messages: Message) -> SendMessageResponse:
        return await self.call("SendMessage", SendMessageRequest(messages=messages), SendMessageResponse)


async def create(client: RemotingClient, namesrv: str, topic: str, kind: str) -> str:
    """The address of the topic's broker, once routes name it."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={kind}",
    }
    address = await routed(client, namesrv, "TBW102")
    answer = await ask(client, address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer.remark
    return await routed(client, namesrv, topic)


async def bodies(client: RemotingClient, address: str, topic: str, count: int) -> list[bytes]:
    """The first messages of the topic's queue, once there are so many."""
    found: list[bytes] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            fields = pull_fields(topic, 0, len(found), sysFlag="6")
            answer = await ask(client, address, RequestCode.PULL_MESSAGE, fields)
            found += [one.body for one in decode_messages(bytes(answer.body))]
    return found


@pytest.mark.slow
def test_messages_of_all_types_reach_the_broker(tmp_path: Path) -> None:
    async def scenario(remoting: RemotingClient, broker: Broker, namesrv: str) -> None:
        for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
            address = await create(remoting, namesrv, kind.title(), kind)
        async with proxying(namesrv) as proxy:
            client = Client(proxy)
            request = QueryRouteRequest()
            request.topic.name = "Fifo"
            request.endpoints.scheme = AddressScheme.IPv4
            request.endpoints.addresses.add(host="127.0.0.1", port=proxy.port)
            route = await client.call("QueryRoute", request, QueryRouteResponse)
            (queue,) = route.message_queues
            assert queue.broker.endpoints == request.endpoints
            assert list(queue.accept_message_types) == [MessageType.FIFO]

            assert (await client.send(message("Normal", b"n"))).status.code == Code.OK
            told = await client.send(*(message("Fifo", b"%d" % n, message_group="g") for n in range(3)))
            assert [entry.offset for entry in told.entries] == [0, 1, 2]
            assert await bodies(remoting, address, "Fifo", 3) == [b"0", b"1", b"2"]
            wrong = await client.send(message("Normal", message_group="g"))
            assert wrong.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE

            now_s = int(time.time())
            told = await client.send(
                message("Delay", b"late", delivery_timestamp={"seconds": now_s + 60}),
                message("Delay", b"due", delivery_timestamp={"seconds": now_s - 60}),
            )
            assert {entry.status.code for entry in told.entries} == {Code.OK}
            recall = RecallMessageRequest(recall_handle=told.entries[0].recall_handle)
            recall.topic.name = "Delay"
            recalled = await client.call("RecallMessage", recall, RecallMessageResponse)
            assert (recalled.status.code, recalled.message_id) == (Code.OK, "01AB")
            assert await bodies(remoting, address, "Delay", 1) == [b"due"]

            for how in (TransactionResolution.ROLLBACK, TransactionResolution.COMMIT):
                body = TransactionResolution.Name(how).encode()
                told = await client.send(message("Transaction", body, message_type=MessageType.TRANSACTION))
                end = EndTransactionRequest(
                    message_id="01AB", transaction_id=told.entries[0].transaction_id, resolution=how
                )
                end.topic.name = "Transaction"
                ended = await client.call("EndTransaction", end, EndTransactionResponse)
                assert ended.status.code == Code.OK
            assert await bodies(remoting, address, "Transaction", 1) == [b"COMMIT"]
            await client.channel.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_stream_ends_with_unavailable_when_the_proxy_stops(tmp_path: Path) -> None:
    async def scenario(remoting: RemotingClient, broker: Broker, namesrv: str) -> None:
        async with proxying(namesrv) as proxy:
            client = Client(proxy)
            stream = client.channel.stream_stream(
                SERVICE + "Telemetry",
                request_serializer=TelemetryCommand.SerializeToString,
                response_deserializer=TelemetryCommand.FromString,
            )(metadata=METADATA)
            await stream.write(TelemetryCommand(settings=producer_settings("T")))
            assert (await stream.read()).status.code == Code.OK
        assert await stream.code() == grpc.StatusCode.UNAVAILABLE
        await client.channel.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_methods_that_are_not_served_say_what_to_do_instead(tmp_path: Path) -> None:
    async def scenario(remoting: RemotingClient, broker: Broker, namesrv: str) -> None:
        async with proxying(namesrv) as proxy:
            client = Client(proxy)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await client.call("QueryOffset", QueryRouteRequest(), QueryRouteResponse)
            assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
            assert (
                error.value.details()
                == "QueryOffset is not served here: mq admin shows the offsets of queues"
            )
            await client.channel.close()

    run(tmp_path, scenario)


@pytest.mark.slow
def test_a_proxy_comes_before_its_brokers_and_outlives_them(tmp_path: Path) -> None:
    async def story() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        address = f"127.0.0.1:{namesrv.port}"
        config = config_of(tmp_path, namesrv.port)
        remoting = RemotingClient()
        async with proxying(address) as proxy:
            client = Client(proxy)

            async def sent(code: Code) -> None:
                """Sends until that is the answer."""
                async with asyncio.timeout(30):
                    while (await client.send(message("T"))).status.code != code:
                        pass

            await sent(Code.TOPIC_NOT_FOUND)
            async with running(config):
                await create(remoting, address, "T", "NORMAL")
                await sent(Code.OK)
            await sent(Code.INTERNAL_SERVER_ERROR)  # clients keep the route that they have, and try again
            async with running(config):
                await sent(Code.OK)
            await client.channel.close()
        await remoting.close()
        await namesrv.close()

    uvloop.run(story())
