"""What a proxy with access control asks brokers before each method, and that nothing passes without their answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import uvloop
from fake_call import FakeCall
from msgspec.structs import replace
from one_broker import send_fields
from proxy_group import message, proxying
from test_broker_server import ask, config_of, running
from test_proxy_over_ports import create

from auth.credentials import Credentials
from auth.user import User, UserType
from broker.config.access_settings import AccessConfig
from message.message_id import decode_offset_message_id
from message.pop_handle import PopHandle
from mqclient.answer import Answer
from mqclient.errors import NoAnswerError
from mqclient.route.route_table import RouteTable
from mqclient.route.topic_route import TopicRoute
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import NamesrvConfig
from proxy.access import Access, looks_up, signature_of
from proxy.grpc.call import GrpcError
from proxy.protocol import service as v2
from proxy.protocol.definition import ClientType, Code, Settings, Status
from proxy.server import Proxy
from proxy.services.methods import SERVICE
from proxy.services.permissions import Permissions
from proxy.services.table import NOT_SERVED
from proxy.status import StatusError
from proxy.tasks import Tasks
from remoting.bodies.auth_bodies import (
    AclInfo,
    CheckAccessRequestBody,
    CheckAccessResponseBody,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from remoting.bodies.bodies import BrokerData, ClusterInfo, RemotingBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingTimeoutError
from remoting.frame.command import request, response

if TYPE_CHECKING:
    from proxy.brokers import Brokers

ROOT = Credentials("root", "root-secret")
NOWHERE = "127.0.0.1:1"
DATE = "20260101T000000Z"


def signed(secret: str = "u-secret", username: str = "u") -> dict[str, str]:
    """The metadata of a client's call, as Go's client writes them."""
    proof = hmac.digest(secret.encode(), DATE.encode(), hashlib.sha1).hex().upper()
    return {
        "authorization": f"MQv2-HMAC-SHA1 Credential={username}//Rocketmq, SignedHeaders=x-mq-date-time, "
        f"Signature={proof}",
        "x-mq-date-time": DATE,
    }


def consumer_settings() -> Settings:
    settings = Settings(client_type=ClientType.PUSH_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "T"
    return settings


TOPIC, GROUP = {"topic": {"name": "T"}}, {"group": {"name": "g"}}
PUB, SUB, OF_GROUP = ("Topic:T", ["Pub"]), ("Topic:T", ["Sub"]), ("Group:g", ["Sub"])
# By method: a request, and what it needs.
METHODS: Mapping[str, tuple[Any, list[tuple[str, list[str]]]]] = {
    "QueryRoute": (v2.QueryRouteRequest(**TOPIC), [("Topic:T", ["Get", "Pub", "Sub"])]),
    "QueryAssignment": (v2.QueryAssignmentRequest(**TOPIC, **GROUP), [SUB, OF_GROUP]),
    "Telemetry": (v2.TelemetryCommand(settings=consumer_settings()), [OF_GROUP, SUB]),
    "Heartbeat": (v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER, **GROUP), [OF_GROUP]),
    "NotifyClientTermination": (v2.NotifyClientTerminationRequest(**GROUP), [OF_GROUP]),
    "SendMessage": (v2.SendMessageRequest(messages=[message()]), [PUB]),
    "RecallMessage": (v2.RecallMessageRequest(recall_handle="h", **TOPIC), [PUB]),
    "EndTransaction": (v2.EndTransactionRequest(transaction_id="t", **TOPIC), [PUB]),
    "ReceiveMessage": (v2.ReceiveMessageRequest(message_queue=TOPIC, **GROUP), [SUB, OF_GROUP]),
    "AckMessage": (v2.AckMessageRequest(**TOPIC, **GROUP), [SUB, OF_GROUP]),
    "ChangeInvisibleDuration": (v2.ChangeInvisibleDurationRequest(**TOPIC, **GROUP), [SUB, OF_GROUP]),
    "ForwardMessageToDeadLetterQueue": (
        v2.ForwardMessageToDeadLetterQueueRequest(**TOPIC, **GROUP),
        [SUB, OF_GROUP],
    ),
}
OF_NO_TOPIC = {"Telemetry", "Heartbeat", "NotifyClientTermination"}
ANSWERS = {name: getattr(v2, f"{name}Response", v2.TelemetryCommand) for name in METHODS}


async def told(proxy: Proxy, name: str, one: Any, metadata: Mapping[str, str]) -> Any:
    """The status of the answer."""
    call = FakeCall(one, name=name, metadata=metadata)
    try:
        await proxy.handlers[SERVICE + name](call)
    except GrpcError as error:
        return Status(code=Code.INTERNAL_SERVER_ERROR, message=str(error))
    return (await call.next(ANSWERS[name])).status


class Group:
    """Two members of a group, as a proxy asks them."""

    def __init__(self, **answer: Any) -> None:
        self.tasks = Tasks()
        self.api = self
        self.routes = RouteTable([NOWHERE], self._route)
        self.answer = CheckAccessResponseBody(**answer)
        self.gone: set[str] = set()
        self.asked: list[tuple[str, CheckAccessRequestBody]] = []
        self.access = Access(cast("Brokers", self), is_on=True)

    async def _route(self, namesrv: str, topic: str) -> TopicRoute | None:
        return TopicRoute(topic, {"G": {0: "leader", 2: "follower"}}, (), ()) if topic == "T" else None

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(broker_addr_table={"G": BrokerData("C", "G", {1: "any"})})

    async def call(
        self, address: str, code: int, fields: dict[str, str], body: bytes, *, timeout_s: float
    ) -> Answer:
        self.asked.append((address, CheckAccessRequestBody.decode(body)))
        if address in self.gone:
            raise NoAnswerError(RemotingTimeoutError(f"{address}: no response"))
        answer = response(request(code, {}, b"", opaque=1), body=self.answer.encode())
        return Answer(address, RequestCode(code), answer)


def test_each_method_says_what_it_needs() -> None:
    methods = {method.name for method in v2.DESCRIPTOR.services_by_name["MessagingService"].methods}
    assert set(METHODS) == methods - set(NOT_SERVED)

    async def story() -> None:
        for name, (one, needs) in METHODS.items():
            group = Group(authenticated=True, allowed=True)
            check = getattr(Permissions(group.access), re.sub("(?<!^)(?=[A-Z])", "_", name).lower())
            await check(one, FakeCall(metadata=signed(), peer="10.1.2.3:5"))
            ((address, asked),) = group.asked
            assert [(need.resource, need.actions) for need in asked.needs] == needs, name
            assert (asked.username, asked.content, asked.source_ip) == ("u", DATE, "10.1.2.3")
            assert address == ("leader" if name not in OF_NO_TOPIC else "any"), name

    uvloop.run(story())


@pytest.mark.parametrize("name", METHODS)
def test_nothing_passes_without_a_signature_or_without_an_answer_of_a_broker(name: str) -> None:
    async def story() -> None:
        async with proxying(NOWHERE, authentication_enabled=True, inner_client_credentials=ROOT) as proxy:
            one, _ = METHODS[name]
            status = await told(proxy, name, one, {})
            assert (status.code, status.message) == (Code.UNAUTHORIZED, "username cannot be null.")
            status = await told(proxy, name, one, signed())
            assert status.code == Code.INTERNAL_SERVER_ERROR
            assert "no broker has said whether 'u' may do this" in status.message

    uvloop.run(story())


def test_a_broker_is_asked_once_a_second_and_the_next_member_where_the_leader_says_nothing() -> None:
    async def story() -> None:
        group = Group(authenticated=True, allowed=True)
        group.gone = {"leader"}
        call = FakeCall(metadata=signed())
        await asyncio.gather(*(group.access.check(call, [looks_up("T")], "T") for _ in range(3)))
        assert [address for address, _ in group.asked] == ["leader", "follower"]
        await group.access.check(call, [looks_up("T")], "T")
        await group.access.check(FakeCall(metadata=signed("other")), [looks_up("T")], "T")
        assert len(group.asked) == 4
        group.answer = CheckAccessResponseBody(authenticated=True, remark="no more")

        async def until_refused() -> None:
            while True:
                await group.access.check(call, [looks_up("T")], "T")
                await asyncio.sleep(0)

        with pytest.raises(StatusError, match="FORBIDDEN: no more"):
            await asyncio.wait_for(until_refused(), 20)

    uvloop.run(story())


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("MQv2-HMAC-SHA1 Credential=u, SignedHeaders=x-mq-date-time, Signature=0a0B", ("u", "Cgs=")),
        ("MQv2-HMAC-SHA1 Credential=u/region/Rocketmq,Signature=00", ("u", "AA==")),
        ("MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=", ("", "")),
        ("MQv2-HMAC-SHA1 Credential=u, Credential=root, Signature=no hex", ("u", "")),
        ("nothing", ("", "")),
        ("a b=c=d,,=,\x00", ("", "")),
    ],
)
def test_signatures_are_read_as_clients_write_them(header: str, found: tuple[str, str]) -> None:
    signature = signature_of(FakeCall(metadata={"authorization": header, "x-mq-date-time": DATE}))
    assert (signature.username, signature.proof) == found
    with pytest.raises(StatusError, match="datetime is null"):
        signature_of(FakeCall(metadata={"authorization": header}))


@pytest.mark.slow
def test_a_broker_decides_for_the_clients_of_a_proxy(tmp_path: Path) -> None:
    async def main() -> None:
        namesrv = Namesrv(NamesrvConfig(bind_address="127.0.0.1", listen_port=0))
        await namesrv.start()
        client = RemotingClient(before_request=ROOT.sign)
        access = AccessConfig(
            authentication_enabled=True,
            authorization_enabled=True,
            init_authentication_user=User("root", "root-secret", UserType.SUPER),
        )
        config = replace(config_of(tmp_path, namesrv.port), access=access)
        try:
            async with running(config):
                at = f"127.0.0.1:{namesrv.port}"
                await scenario(client, await create(client, at, "T", "NORMAL"), at)
        finally:
            await client.close()
            await namesrv.close()

    async def scenario(client: RemotingClient, broker: str, namesrv: str) -> None:
        async def change(code: RequestCode, fields: dict[str, str], body: RemotingBody) -> None:
            assert (await ask(client, broker, code, fields, body.encode())).code == ResponseCode.SUCCESS

        await change(
            RequestCode.AUTH_CREATE_USER, {"username": "u"}, UserInfo(username="u", password="u-secret")
        )
        entries = [
            PolicyEntryInfo(resource=resource, actions=["Pub", "Sub"], decision="Allow")
            for resource in ("Topic:T", "Group:g")
        ]
        acl = AclInfo(subject="User:u", policies=[PolicyInfo(policy_type="Custom", entries=entries)])
        await change(RequestCode.AUTH_CREATE_ACL, {"subject": "User:u"}, acl)
        async with proxying(namesrv, authentication_enabled=True, inner_client_credentials=ROOT) as proxy:
            send = v2.SendMessageRequest(messages=[message()])
            for metadata, code, words in (
                (signed(), Code.OK, "OK"),
                (signed("wrong"), Code.UNAUTHORIZED, "check signature failed."),
                (signed(username="nobody"), Code.UNAUTHORIZED, "User:nobody is not found."),
            ):
                status = await told(proxy, "SendMessage", send, metadata)
                assert (status.code, status.message) == (code, words)
            other = v2.SendMessageRequest(messages=[message("Other")])
            assert (await told(proxy, "SendMessage", other, signed())).code == Code.FORBIDDEN
            one = METHODS["ReceiveMessage"][0]
            one.batch_size, one.invisible_duration.seconds = 1, 30
            one.filter_expression.expression = "*"
            assert (await told(proxy, "ReceiveMessage", one, signed())).code == Code.OK
            sent = await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_fields("Secret"), b"m")
            _, phy_offset = decode_offset_message_id(sent.ext_fields["msgId"])
            forged = METHODS["ForwardMessageToDeadLetterQueue"][0]
            forged.receipt_handle = (
                PopHandle(0, 1 << 62, 30_000, 0, "0", "G", 0, 0).encode() + f" {phy_offset}"
            )
            status = await told(proxy, "ForwardMessageToDeadLetterQueue", forged, signed())
            assert status.code == Code.FORBIDDEN
            assert "User:u has no permission to access Topic:Secret from 127.0.0.1," in status.message
            disabled = UserInfo(username="u", user_status="disable")
            await change(RequestCode.AUTH_UPDATE_USER, {"username": "u"}, disabled)
            async with asyncio.timeout(20):
                while (status := await told(proxy, "SendMessage", send, signed())).code == Code.OK:
                    pass
            assert (status.code, status.message) == (Code.UNAUTHORIZED, "User:u is disabled.")

    uvloop.run(main())
