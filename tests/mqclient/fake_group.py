"""A NameServer and a replica group of brokers, in memory behind real sockets, that fail as a test tells them to.

The group keeps one set of queues, as if every append were replicated at once; `lead` moves the leadership. What a
member is told to do wrong is a list of steps, each used up by one send: a response code, or "close" (the connection
ends, the message is stored), "late" (the message is stored, the answer waits for `release`), "illegal queue" (the
topic has no such queue).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from message.decoder import decode_message
from message.encoder import encode_record
from message.message_id import offset_message_id, pack_host
from message.properties import decode_properties
from message.sql.parser import parse
from mqclient import ConsumeFromWhere, ConsumerConfig
from remoting.bodies.bodies import (
    BrokerData,
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    QueueData,
    SubscriptionGroupConfig,
    TopicRouteData,
)
from remoting.bodies.topic_bodies import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request, response
from remoting.headers.headers import ReplyMessageRequestHeader, decode_send_message, to_ext_fields
from remoting.server import Channel, RemotingServer

# A consumer that looks again at once for what is not there yet.
FIRST = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST,
    retry_pause_s=0.001,
    retry_pause_max_s=0.01,
    poll_name_server_interval_s=0.02,
)
HOST = pack_host("127.0.0.1:10911")
# Of a reply's header, what the push of it says as well.
PASSED_ON = (
    "producer_group", "topic", "default_topic", "default_topic_queue_nums", "queue_id", "sys_flag", "born_timestamp",
    "flag", "properties",
)  # fmt: skip


def find_text(record: bytes, name: bytes) -> str | None:
    return decode_message(record).properties.get(name.decode())


class FakeNamesrv:
    def __init__(self, group: FakeGroup) -> None:
        self.group = group
        self.server = RemotingServer(self, "127.0.0.1", 0)
        self.requests: list[RemotingCommand] = []
        self.unanswered: list[RemotingCommand] = []
        self.is_mute = False

    def channel_opened(self, channel: Channel) -> None: ...

    def channel_resumed(self, channel: Channel) -> None: ...

    def channel_closed(self, channel: Channel) -> None: ...

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        for command in commands:
            self.requests.append(command)
            if self.is_mute:
                self.unanswered.append(command)
                continue
            topic = command.ext_fields["topic"]
            if topic in self.group.topics:
                answer = response(command, body=self.group.route(topic).encode())
            else:
                answer = response(command, ResponseCode.TOPIC_NOT_EXIST, "no route")
            channel.write(answer.encode())
        self.group.changed()


class FakeBroker:
    def __init__(self, group: FakeGroup) -> None:
        self.group = group
        self.server = RemotingServer(self, "127.0.0.1", 0)
        self.steps: list[int | str] = []
        self.sends: list[RemotingCommand] = []
        self.heartbeats: list[HeartbeatData] = []
        self.unregistered: list[dict[str, str]] = []
        self.channels: dict[str, Channel] = {}
        self.producers: dict[str, Channel] = {}
        self.replies: list[RemotingCommand] = []
        self.reply_steps: list[int] = []  # codes that replies are refused with
        self.pops: list[dict[str, str]] = []
        self.held: list[tuple[Channel, RemotingCommand]] = []
        self.late: list[tuple[Channel, RemotingCommand]] = []
        self.sent_back: list[dict[str, str]] = []
        self.takes_back = 1_000_000  # so many messages
        self.answers: dict[int, RemotingCommand] = {}  # of clients, by opaque
        self.is_mute = False
        self.refuses_offsets = False
        self.checked: list[CheckClientRequestBody] = []
        self.ended: list[dict[str, str]] = []  # transactions
        self.check_code = ResponseCode.SUCCESS
        self.looks = 0  # how often it was asked for the end of a queue
        self.refused_looks = 0  # of these, the first ones
        self.unread_gain = (
            0  # so many messages, each of them its first one again, lie behind the end of each queue
        )
        self._opaque = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def channel_opened(self, channel: Channel) -> None: ...

    def channel_resumed(self, channel: Channel) -> None: ...

    def channel_closed(self, channel: Channel) -> None:
        for client_id, one in list(self.channels.items()):
            if one is channel:
                del self.channels[client_id]
        for client_id, one in list(self.producers.items()):
            if one is channel:
                del self.producers[client_id]
        self.group.changed()

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        if self.is_mute:
            return
        handlers = {
            RequestCode.SEND_MESSAGE_V2: self.send_message,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.send_reply,
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.PULL_MESSAGE: self.pull_message,
            RequestCode.LITE_PULL_MESSAGE: self.pull_message,
            RequestCode.POP_MESSAGE: self.pop_message,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.END_TRANSACTION: self.end_transaction,
        }
        for command in commands:
            if command.is_response:
                self.answers[command.opaque] = command
                continue
            answer = handlers[RequestCode(command.code)](channel, command)
            if answer is not None:
                channel.write(answer.encode())
        self.group.changed()

    def send_message(self, channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
        self.sends.append(command)
        if self.group.leader is not self:
            return response(command, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")
        step = self.steps.pop(0) if self.steps else 0
        if step == "illegal queue":
            return response(command, ResponseCode.INVALID_PARAMETER, "request queueId[3] is illegal, ...")
        if isinstance(step, int) and step not in (0, 10, 11, 12):
            return response(command, step, f"told to answer {step}")
        fields = command.ext_fields
        queue = (fields["b"], int(fields["e"]))
        if "\x02DELAY\x01" in fields["i"]:
            queue = ("SCHEDULE_TOPIC_XXXX", 2)
        queue_offset, phy_offset = self.group.store(queue, command)
        if step == "close":
            channel.abort()
            return None
        answer = response(
            command,
            step if isinstance(step, int) else 0,
            ext_fields={
                "msgId": offset_message_id(HOST, phy_offset),
                "queueId": fields["e"],
                "queueOffset": str(queue_offset),
            },
        )
        if step == "late":
            self.late.append((channel, answer))
            return None
        return answer

    def recall(self, channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
        step = self.steps.pop(0) if self.steps else 0
        if step == "close":
            channel.abort()
            return None
        return response(command, int(step), f"told to answer {step}")

    def send_reply(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        """Pushes it to its requester at once."""
        self.replies.append(command)
        if self.group.leader is not self:
            return response(command, ResponseCode.SERVICE_NOT_AVAILABLE, "not the leader")
        if self.reply_steps:
            return response(command, self.reply_steps.pop(0), "told to refuse")
        self.push_reply(command)
        return response(command)

    def push_reply(self, command: RemotingCommand) -> int:
        """Pushes a reply that came, to be answered; returns the opaque."""
        header = decode_send_message(command.code, command.ext_fields)
        properties = decode_properties((header.properties or "").encode())
        push = ReplyMessageRequestHeader(
            **{name: getattr(header, name) for name in PASSED_ON},
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
            store_timestamp=1,
        )
        self._opaque += 1
        request_ = request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            to_ext_fields(push),
            bytes(command.body),
            opaque=self._opaque,
        )
        self.producers[properties["REPLY_TO_CLIENT"]].write(request_.encode())
        return self._opaque

    def release(self) -> None:
        for channel, answer in self.late:
            channel.write(answer.encode())

    def pull_message(self, channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
        fields = command.ext_fields
        queue = (fields["topic"], int(fields["queueId"]))
        if self.group.leader is not self:
            return response(command, ResponseCode.SYSTEM_BUSY, "not the leader")
        records, offset = self.group.queues[queue], int(fields["queueOffset"])
        if self.unread_gain:
            records, offset = records[:1], 0
        if offset < self.group.min_offset or offset > len(records):
            moved = {"nextBeginOffset": str(self.group.min_offset)}
            return response(command, ResponseCode.PULL_OFFSET_MOVED, "moved", moved)
        found = records[offset : offset + int(fields["maxMsgNums"])]
        if not found:
            self.held.append((channel, command))
            return None
        next_offset = str(int(fields["queueOffset"]) + len(found))
        if fields["expressionType"] == "SQL92":
            wanted = parse(fields["subscription"])
            found = [record for record in found if wanted.matches(partial(find_text, record))]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        return response(command, code, ext_fields={"nextBeginOffset": next_offset}, body=b"".join(found))

    def pop_message(self, channel: Channel, command: RemotingCommand) -> RemotingCommand | None:
        """Nothing comes in time."""
        self.pops.append(command.ext_fields)
        if self.group.leader is not self:
            return response(command, ResponseCode.SYSTEM_BUSY, "not the leader")
        if self.steps:
            return response(command, int(self.steps.pop(0)), "told to answer")
        answer = response(command, ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        poll_s = int(command.ext_fields["pollTime"]) / 1000
        asyncio.get_running_loop().call_later(poll_s, channel.write, answer.encode())
        return None

    def check_client_config(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        self.checked.append(CheckClientRequestBody.decode(command.body))
        return response(command, self.check_code, "checked")

    def wake(self) -> None:
        held, self.held = self.held, []
        for channel, command in held:
            answer = self.pull_message(channel, command)
            if answer is not None:
                channel.write(answer.encode())

    def heart_beat(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.decode(command.body)
        self.heartbeats.append(data)
        if data.producer_data_set:
            self.producers[data.client_id] = channel
        if data.consumer_data_set and data.client_id not in self.channels:
            self.channels[data.client_id] = channel
            self.notify()
        return response(command)

    def unregister(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        self.unregistered.append(command.ext_fields)
        self.channels.pop(command.ext_fields["clientID"], None)
        self.notify()
        return response(command)

    def notify(self) -> None:
        for channel in self.channels.values():
            changed = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {}, opaque=0, oneway=True)
            channel.write(changed.encode())

    def tell(
        self, client_id: str, code: int, fields: dict[str, str], body: bytes = b"", *, oneway: bool = True
    ) -> int:
        """A request of ours to a client; returns its opaque."""
        self._opaque += 1
        command = request(code, fields, body, opaque=self._opaque, oneway=oneway)
        self.channels[client_id].write(command.encode())
        return self._opaque

    async def ask(
        self, client_id: str, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        await self.group.until(lambda: client_id in self.channels)
        return await self.answer(self.tell(client_id, code, fields, body, oneway=False))

    async def answer(self, opaque: int) -> RemotingCommand:
        """To what tell() has asked."""
        await self.group.until(lambda: opaque in self.answers)
        return self.answers.pop(opaque)

    def consumer_list(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        body = GetConsumerListByGroupResponseBody(consumer_id_list=list(self.channels))
        return response(command, body=body.encode())

    def query_offset(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        offset = self.group.offsets.get((fields["consumerGroup"], fields["topic"], int(fields["queueId"])))
        if offset is None:
            return response(command, ResponseCode.QUERY_NOT_FOUND, "none")
        return response(command, ext_fields={"offset": str(offset)})

    def update_offset(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        if self.refuses_offsets:
            return response(command, ResponseCode.SERVICE_NOT_AVAILABLE, "told to refuse")
        key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
        self.group.offsets[key] = int(fields["commitOffset"])
        return response(command)

    def send_back(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        if self.group.leader is not self or len(self.sent_back) >= self.takes_back:
            return response(command, ResponseCode.SYSTEM_BUSY, "takes nothing back")
        self.sent_back.append(command.ext_fields)
        return response(command)

    def topic_config(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        topic = command.ext_fields["topic"]
        if topic not in self.group.topic_types:
            return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "an old broker")
        attributes = {"message.type": self.group.topic_types[topic]}
        return response(command, body=TopicConfig(topic_name=topic, attributes=attributes).encode())

    def group_config(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        config = self.group.group_configs.get(command.ext_fields["group"])
        if config is None:
            return response(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group")
        return response(command, body=config.encode())

    def end_transaction(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        if self.group.leader is not self:
            return response(command, ResponseCode.SLAVE_NOT_AVAILABLE)
        self.ended.append(command.ext_fields)
        return response(command, int(self.steps.pop(0)) if self.steps else 0)

    def max_offset(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        self.looks += 1
        if self.looks <= self.refused_looks:
            return response(command, ResponseCode.SERVICE_NOT_AVAILABLE, "does not serve yet")
        queue = (command.ext_fields["topic"], int(command.ext_fields["queueId"]))
        end = len(self.group.queues[queue]) + self.unread_gain
        return response(command, ext_fields={"offset": str(end)})

    def min_offset(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        return response(command, ext_fields={"offset": str(self.group.min_offset)})

    def search_offset(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields
        records = self.group.queues[fields["topic"], int(fields["queueId"])]
        times = [decode_message(record).store_timestamp for record in records]
        offset = sum(time < int(fields["timestamp"]) for time in times)
        return response(command, ext_fields={"offset": str(offset)})


class FakeGroup:
    """Use it as `async with FakeGroup() as group`; topics get 4 queues."""

    def __init__(
        self,
        members: int = 3,
        topics: tuple[str, ...] = ("T",),
        *,
        name: str = "G",
        neighbours: tuple[FakeGroup, ...] = (),
    ) -> None:
        """`neighbours`: groups that share the topics, and that this one's NameServer knows, too."""
        self.name = name
        self.neighbours = neighbours
        self.namesrv = FakeNamesrv(self)
        self.brokers = [FakeBroker(self) for _ in range(members)]
        self.leader: FakeBroker | None = self.brokers[0]
        self.registered: FakeBroker | None = self.leader
        self.topics = set(topics)
        self.queue_count = 4
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.min_offset = 0
        self.topic_types: dict[str, str] = {}  # without one, brokers say nothing of a topic
        self.group_configs: dict[str, SubscriptionGroupConfig] = {}
        self._phy_offset = 0
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.namesrv.server.port}"

    @property
    def records(self) -> int:
        return sum(map(len, self.queues.values()))

    def changed(self, *_: object) -> None:
        """Something happened that a condition may speak of. What only the client knows reports here, too."""
        self._changed.set()

    async def until(self, condition: Callable[[], object], limit_s: float = 20.0) -> None:
        """Waits for a condition, which is looked at when a request came, a connection ended or `changed` was called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        assert condition(), "not reached in time"

    async def __aenter__(self) -> FakeGroup:
        for member in (self.namesrv, *self.brokers):
            await member.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in (self.namesrv, *self.brokers):
            await member.server.close(flush_seconds=0)

    def lead(self, broker: FakeBroker | None, *, registered: bool = True) -> None:
        self.leader = broker
        if registered:
            self.registered = broker

    def route(self, topic: str) -> TopicRouteData:
        addresses = {i + 1: b.address for i, b in enumerate(self.brokers) if b is not self.registered}
        if self.registered is not None:
            addresses[0] = self.registered.address
        data = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=self.name,
                    read_queue_nums=self.queue_count,
                    write_queue_nums=self.queue_count,
                    perm=6,
                )
            ],
            broker_datas=[BrokerData(cluster="C", broker_name=self.name, broker_addrs=addresses)],
        )
        for neighbour in self.neighbours:
            theirs = neighbour.route(topic)
            data.queue_datas += theirs.queue_datas
            data.broker_datas += theirs.broker_datas
        return data

    def store(self, queue: tuple[str, int], command: RemotingCommand) -> tuple[int, int]:
        fields, records = command.ext_fields, self.queues[queue]
        properties = fields["i"] + ("CLUSTER\x01C\x02" if "CORRELATION_ID\x01" in fields["i"] else "")
        record = encode_record(
            queue[0].encode(),
            queue[1],
            int(fields["h"]),
            len(records),
            self._phy_offset,
            int(fields["f"]),
            int(fields["g"]),
            HOST,
            time.time_ns() // 1_000_000,
            HOST,
            0,
            0,
            bytes(command.body),
            properties.encode(),
        )
        records.append(record)
        phy_offset = self._phy_offset
        self._phy_offset += len(record) + 48
        if self.leader is not None:
            asyncio.get_running_loop().call_soon(self.leader.wake)
        return len(records) - 1, phy_offset
