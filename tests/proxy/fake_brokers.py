"""Brokers in memory as the proxy asks them: each has one queue, and does with popped messages as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from message.decoder import decode_message
from message.encoder import encode_record
from message.message_id import pack_host
from message.pop_handle import ORDER_REVIVE_QUEUE, PopHandle
from message.properties import encode_properties
from mqclient.answer import Answer
from mqclient.errors import BrokerResponseError, MQClientError
from mqclient.message_queue import MessageQueue
from mqclient.route.route_table import RouteTable
from mqclient.route.topic_route import TopicRoute
from proxy.brokers import Brokers
from remoting.bodies.bodies import SubscriptionGroupConfig
from remoting.bodies.pop_bodies import BatchAckMessageRequestBody
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import request, response
from remoting.headers.headers import decode
from remoting.headers.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PopMessageRequestHeader,
)

HOST = pack_host("127.0.0.1:10911")
TOPIC = "T"


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (of what it waits for nobody tells)
        await asyncio.sleep(0)


@dataclass
class FakeBroker:
    name: str
    waiting: list[bytes] = field(default_factory=list)  # records
    in_flight: dict[int, PopHandle] = field(default_factory=dict)
    asked: list[tuple[RequestCode, dict[str, str]]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)  # commit log offsets
    changed: list[tuple[int, int, bool]] = field(default_factory=list)  # offset, invisible ms, suspend
    trouble: MQClientError | None = None
    before_pop: Callable[[], None] | None = None
    stored: int = 0
    pop_time: int = 1 << 62  # handles never expire
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def store(self, body: bytes = b"body", reconsume_times: int = 0, **properties: str) -> int:
        """Returns the queue offset."""
        offset, self.stored = self.stored, self.stored + 1
        self.waiting.append(
            encode_record(
                *(TOPIC.encode(), 0, 0, offset, 1000 + offset, 0, 5, HOST, 6, HOST, reconsume_times, 0),
                *(body, encode_properties(properties)),
            )
        )
        self.arrived.set()
        return offset

    def hand_out(self, invisible_ms: int) -> PopHandle:
        """Stores a message that a client has from then on."""
        offset = self.store()
        self.waiting.pop()
        handle = PopHandle(offset, self.pop_time, invisible_ms, 0, "0", self.name, 0, offset)
        self.in_flight[offset] = handle
        return handle

    def count(self, code: RequestCode) -> int:
        return sum(each == code for each, _ in self.asked)


class FakeBrokers(Brokers):
    def __init__(self, *names: str, is_order: bool = False, retry_max_times: int = 16) -> None:
        super().__init__(["127.0.0.1:1"])
        self.at = {name: FakeBroker(name) for name in names}
        self.group = SubscriptionGroupConfig(
            group_name="g", consume_message_orderly=is_order, retry_max_times=retry_max_times
        )
        self.routes = RouteTable(["127.0.0.1:1"], self._fetch)
        self.tasks_done = asyncio.Event()

    async def _fetch(self, _: str, topic: str) -> TopicRoute | None:
        if topic != TOPIC:
            return None
        queues = tuple(MessageQueue(TOPIC, name, 0) for name in self.at)
        return TopicRoute(TOPIC, {name: {0: name} for name in self.at}, queues, queues)

    async def given_back(self) -> None:
        """Waits for what is said in the background."""
        while tasks := self.tasks._tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def ask_once(
        self,
        topic: str,
        broker_name: str,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        timeout_s: float = 3.0,
        accept: Collection[int] = frozenset({ResponseCode.SUCCESS}),
    ) -> Answer:
        await self.leader(topic, broker_name)
        broker = self.at[broker_name]
        broker.asked.append((code, fields))
        await asyncio.sleep(0)
        if broker.trouble is not None:
            raise broker.trouble
        answer = await self._answer(broker, code, fields, body)
        if answer.code not in accept:
            raise BrokerResponseError(answer.code, answer.remark, broker_name)
        return answer

    async def _answer(
        self, broker: FakeBroker, code: RequestCode, fields: dict[str, str], body: bytes
    ) -> Answer:
        def said(ext_fields: dict[str, str], body: bytes = b"", status: int = ResponseCode.SUCCESS) -> Answer:
            command = response(request(code, {}, opaque=1), status, ext_fields=ext_fields, body=body)
            return Answer(broker.name, code, command)

        match code:
            case RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG:
                return said({}, self.group.encode())
            case RequestCode.NOTIFICATION:
                decode(NotificationRequestHeader, fields)
                while not broker.waiting:
                    broker.arrived.clear()
                    await broker.arrived.wait()
                return said({"hasMsg": "true", "pollingFull": "false"})
            case RequestCode.POP_MESSAGE:
                if broker.before_pop is not None:
                    broker.before_pop()
                return self._pop(broker, decode(PopMessageRequestHeader, fields), said)
            case RequestCode.ACK_MESSAGE:
                broker.in_flight.pop(decode(AckMessageRequestHeader, fields).offset, None)
                return said({})
            case RequestCode.BATCH_ACK_MESSAGE:
                for ack in BatchAckMessageRequestBody.decode(body).acks:
                    bits = int.from_bytes(ack.bit_set, "little")
                    for number in range(bits.bit_length()):
                        if bits >> number & 1:
                            broker.in_flight.pop(ack.start_offset + number, None)
                return said({})
            case RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
                return self._change(broker, decode(ChangeInvisibleTimeRequestHeader, fields), said)
            case RequestCode.CONSUMER_SEND_MSG_BACK:
                broker.dead.append(int(fields["offset"]))
                return said({})
        raise AssertionError(code)

    def _pop(
        self, broker: FakeBroker, header: PopMessageRequestHeader, said: Callable[..., Answer]
    ) -> Answer:
        taken, broker.waiting = broker.waiting[: header.max_msg_nums], broker.waiting[header.max_msg_nums :]
        if not taken:
            return said({}, status=ResponseCode.POLLING_TIMEOUT)
        revive = ORDER_REVIVE_QUEUE if header.order else 0
        start = decode_message(taken[0]).queue_offset
        for record in taken:
            offset = decode_message(record).queue_offset
            broker.in_flight[offset] = PopHandle(
                start, broker.pop_time, header.invisible_time, revive, "0", broker.name, 0, offset
            )
        fields = {
            "popTime": str(broker.pop_time),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(revive),
            "startOffsetInfo": f"0 0 {start}",
        }
        return said(fields, b"".join(taken))

    def _change(
        self, broker: FakeBroker, header: ChangeInvisibleTimeRequestHeader, said: Callable[..., Answer]
    ) -> Answer:
        broker.changed.append((header.offset, header.invisible_time, header.suspend))
        handle = PopHandle.decode(header.extra_info)
        if broker.in_flight.get(header.offset) != handle:
            return said({}, status=ResponseCode.NO_MESSAGE)
        pop_time = handle.pop_time + 1
        broker.in_flight[header.offset] = handle._replace(
            start=header.offset, pop_time=pop_time, invisible_ms=header.invisible_time
        )
        fields = {
            "popTime": str(pop_time),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(handle.revive_queue_id),
        }
        return said(fields)
