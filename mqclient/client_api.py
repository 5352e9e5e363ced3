"""The requests a client makes, as calls with values (Java: MQClientAPIImpl).

Each call names its address; which broker is the right one is the caller's knowledge. Anything but success raises
BrokerResponseError with the broker's own words, trouble on the way NoAnswerError, an answer that cannot be read
BadAnswerError.
"""

from __future__ import annotations

from mqclient.answer import Answer
from mqclient.errors import BrokerResponseError, NoAnswerError
from mqclient.message_queue import MessageQueue
from mqclient.route.topic_route import TopicRoute, topic_route_of
from remoting.bodies.bodies import (
    ClusterInfo,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    TopicList,
    TopicRouteData,
)
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError, RemotingHeaderError
from remoting.frame.command import request
from remoting.headers.admin_headers import GetEntriesResponseHeader, GetEntryHeadRequestHeader
from remoting.headers.headers import decode, to_ext_fields

# Short: a NameServer answers from memory, and the next one may be well.
ROUTE_TIMEOUT_S = 1.0


class ClientApi:
    """Stateless but for the connections; any number of producers and consumers could share one."""

    def __init__(self, remoting: RemotingClient, *, timeout_s: float = 3.0) -> None:
        self.remoting = remoting
        self._timeout_s = timeout_s

    async def call(
        self,
        address: str,
        code: RequestCode,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        """Any request; raises BrokerResponseError unless the answer's code is 0."""
        answer = await self.ask(address, code, ext_fields, body, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark, address)
        return answer

    async def ask(
        self,
        address: str,
        code: RequestCode,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        """Any request, for callers to whom several codes are an answer."""
        command = request(code, ext_fields, body, opaque=0)
        try:
            answer = await self.remoting.invoke(address, command, timeout_s or self._timeout_s)
        except RemotingError as error:
            raise NoAnswerError(error) from error
        return Answer(address, code, answer)

    async def topic_route(self, namesrv: str, topic: str) -> TopicRoute | None:
        """None: the NameServer does not know the topic."""
        answer = await self.ask(
            namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, timeout_s=ROUTE_TIMEOUT_S
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark, namesrv)
        return topic_route_of(topic, answer.read(TopicRouteData))

    async def cluster_info(self, namesrv: str) -> ClusterInfo:
        return (await self.call(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)).read(ClusterInfo)

    async def topic_list(self, namesrv: str) -> list[str]:
        answer = await self.call(namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(answer.read(TopicList).topic_list)

    async def create_topic(
        self,
        address: str,
        topic: str,
        *,
        read_queues: int,
        write_queues: int,
        perm: int = 6,
        order: bool = False,
    ) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(read_queues),
            "writeQueueNums": str(write_queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": _java_bool(order),
        }
        await self.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def heartbeat(self, address: str, body: HeartbeatData) -> None:
        await self.call(address, RequestCode.HEART_BEAT, {}, body.encode())

    async def unregister(
        self, address: str, client_id: str, *, producer_group: str = "", consumer_group: str = ""
    ) -> None:
        fields = {"clientID": client_id}
        if producer_group:
            fields["producerGroup"] = producer_group
        if consumer_group:
            fields["consumerGroup"] = consumer_group
        await self.call(address, RequestCode.UNREGISTER_CLIENT, fields)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Client ids of the group's members, sorted as Java sorts them; empty when the broker knows none."""
        answer = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        if answer.code != ResponseCode.SUCCESS:
            return []
        client_ids = answer.read(GetConsumerListByGroupResponseBody).consumer_id_list
        # By UTF-16 units, which differ from characters beyond the 16th bit: members must agree on the order.
        return sorted(client_ids, key=lambda client_id: client_id.encode("utf-16-be", "surrogatepass"))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, _queue_fields(queue))

    async def max_offset(self, address: str, queue: MessageQueue, *, timeout_s: float | None = None) -> int:
        return await self._offset(
            address, RequestCode.GET_MAX_OFFSET, _queue_fields(queue), timeout_s=timeout_s
        )

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first queue offset whose store time is not before `timestamp_ms`; the end if there is none."""
        fields = _queue_fields(queue) | {"timestamp": str(timestamp_ms)}
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    async def query_consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """None: the group has never committed one for this queue."""
        fields = _queue_fields(queue) | {"consumerGroup": group, "setZeroIfNotFound": "false"}
        answer = await self.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark, address)
        return answer.number("offset")

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Returns when the group has it: on disk at a majority, where the broker's flush mode says so."""
        fields = _queue_fields(queue) | {"consumerGroup": group, "commitOffset": str(offset)}
        await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def entry_head(
        self, address: str, index: int
    ) -> tuple[GetEntriesResponseHeader, bytes | memoryview]:
        """Bounds of the replicated log as this member has it, and the header of an entry up to the commit that it knows
        of; empty if there is none.
        """
        header = GetEntryHeadRequestHeader(index=index)
        answer = await self.call(address, RequestCode.GET_ENTRY_HEAD, to_ext_fields(header))
        try:
            told = decode(GetEntriesResponseHeader, dict(answer.fields))
        except RemotingHeaderError as error:
            raise answer.unreadable(str(error)) from error
        return told, answer.body

    async def send_back(
        self,
        address: str,
        group: str,
        *,
        topic: str,
        msg_id: str,
        phy_offset: int,
        delay_level: int,
        max_times: int,
    ) -> None:
        """Asks the broker to deliver a message again later, through the group's retry topic."""
        fields = {
            "group": group,
            "offset": str(phy_offset),
            "delayLevel": str(delay_level),
            "originMsgId": msg_id,
            "originTopic": topic,
            "maxReconsumeTimes": str(max_times),
            "unitMode": "false",
        }
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    async def _offset(
        self, address: str, code: RequestCode, fields: dict[str, str], *, timeout_s: float | None = None
    ) -> int:
        return (await self.call(address, code, fields, timeout_s=timeout_s)).number("offset")


def _queue_fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


def _java_bool(value: bool) -> str:
    return "true" if value else "false"
