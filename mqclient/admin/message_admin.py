"""Messages, as a tool finds and shows them, and what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from message.decoder import MessageExt
from message.errors import MessageDecodeError, MessageError
from message.message_id import decode_offset_message_id
from message.names import TOOLS_CONSUMER_GROUP, TRACE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from message.sys_flag import pull_sys_flag
from message.tags import build_subscription
from mqclient.admin.admin_calls import AdminCalls, AdminError, reader_of
from mqclient.admin.group_admin import RUNNING_INFO_TIMEOUT_S, GroupAdmin
from mqclient.admin.message_traces import traces_of
from mqclient.admin.topic_admin import TopicAdmin
from mqclient.admin_results import (
    ConsumeQueueUnit,
    ConsumeQueueUnits,
    DirectConsumption,
    MessageTrace,
    MessageTrack,
)
from mqclient.message_queue import MessageQueue
from mqclient.route.topic_route import topic_route_of
from remoting.address import literal, parse_address
from remoting.bodies import admin_bodies
from remoting.bodies.pop_bodies import PoppedMessages
from remoting.codes import RequestCode, ResponseCode
from remoting.headers import admin_headers, headers
from remoting.lookup import ip_addresses

PULL_COUNT_MAX = 32
LONG_MAX = (1 << 63) - 1


class MessageAdmin:
    def __init__(self, calls: AdminCalls, topics: TopicAdmin, groups: GroupAdmin) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups

    async def by_offset_id(self, topic: str, msg_id: str) -> MessageExt:
        """The id that the broker gave, which says where the message lies: asked of the member that took it in, or, when
        that is not there any more, of another one of its group. Raises AdminError, QUERY_NOT_FOUND.
        """
        try:
            host, phy_offset = decode_offset_message_id(msg_id)
            if not 0 < int(host.rpartition(":")[2]) < 65536:
                raise MessageDecodeError("no broker has such a port")  # most senders' ids, which are as long
        except MessageError as error:
            raise AdminError(
                f"{msg_id} is no offset message id: try queryMsgByUniqueKey ({error})"
            ) from error
        header = headers.ViewMessageRequestHeader(topic=topic, offset=phy_offset)
        try:
            answer = await self._calls.call(host, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except AdminError as error:
            if (
                error.code == ResponseCode.SYSTEM_ERROR
            ):  # what brokers say of an offset where no message begins
                raise AdminError(
                    f"no message {msg_id}: {error}", code=ResponseCode.QUERY_NOT_FOUND
                ) from error
            if error.code >= 0:
                raise
            others = await self._others_of(host, topic)
            if not others:
                raise
            answer = await self._calls.call(others[0], RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = answer.messages()
        if not messages:
            raise answer.unreadable("no message")
        return messages[0]

    async def timers(self, address: str) -> dict[str, int]:
        """By topic, how many messages wait at a broker for their time."""
        answer = await self._calls.call(address, RequestCode.GET_TIMER_METRICS)
        counts = answer.read(admin_bodies.TimerMetricsSerializeWrapper).timing_count
        return {topic: metric.count for topic, metric in sorted(counts.items()) if metric.count}

    async def timer_state(self, address: str, msg_id: str) -> dict[str, str]:
        """What comes next of a message that was sent with a time, by the id that the broker gave it: `state` (WAITING
        or ENDED), `deliverMs`, and where it goes; `rollMs` when it is stored anew before. Raises AdminError.
        """
        header = admin_headers.GetTimerStateRequestHeader(offset=phy_offset_of(msg_id))
        return dict((await self._calls.call(address, RequestCode.GET_TIMER_STATE, header)).fields)

    async def popped(self, address: str) -> PoppedMessages:
        """Messages that consumers have popped and not acknowledged yet, by queue, the oldest first."""
        return (await self._calls.call(address, RequestCode.GET_POPPED_MESSAGES)).read(PoppedMessages)

    async def pending_transactions(self, address: str) -> admin_bodies.PendingTransactions:
        """How many transactions are undecided at a leader, by topic."""
        answer = await self._calls.call(address, RequestCode.GET_PENDING_TRANSACTIONS)
        return answer.read(admin_bodies.PendingTransactions)

    async def transaction_state(self, address: str, msg_id: str) -> dict[str, str]:
        """What comes next of a prepared message, by the id that the leader gave it: `state` (PENDING or ENDED), and of
        a pending one how often its producers were asked (`checkTimes`) and when they are next. Raises AdminError.
        """
        header = admin_headers.GetTransactionStateRequestHeader(offset=phy_offset_of(msg_id))
        return dict((await self._calls.call(address, RequestCode.GET_TRANSACTION_STATE, header)).fields)

    async def resume_check(self, address: str, msg_id: str) -> None:
        """Has a message of TRANS_CHECK_MAX_TIME_TOPIC prepared again, by the id that the leader gave it: its producers
        are asked from the beginning. Raises AdminError.
        """
        header = admin_headers.ResumeCheckHalfMessageRequestHeader(
            topic=TRANS_CHECK_MAX_TIME_TOPIC, msg_id=msg_id
        )
        await self._calls.call(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def _others_of(self, address: str, topic: str) -> list[str]:
        """Members of the group that `address` is, or was, of: of one that is forgotten only the topic still tells."""
        route = (await self._calls.route(topic)).broker_datas
        found = route[0] if len(route) == 1 else None
        for group in await self._calls.groups():
            if address in group.broker_addrs.values():
                found = group
        if found is None:
            return []
        return [other for _, other in sorted(found.broker_addrs.items()) if other != address]

    async def by_key(
        self, topic: str, key: str, *, count_max: int = 64, begin_ms: int = 0, end_ms: int = LONG_MAX
    ) -> list[MessageExt]:
        """The newest that carry the key, oldest first."""
        return await self._query(topic, key, count_max, begin_ms, end_ms, unique=False)

    async def by_unique_key(self, topic: str, msg_id: str, *, count_max: int = 32) -> list[MessageExt]:
        """The id that the client gave: more than one for a message that was sent again."""
        return await self._query(topic, msg_id, count_max, 0, LONG_MAX, unique=True)

    async def _query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        header = headers.QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            # 5.x goes by this, 4.9 by the next one.
            index_type="U" if unique else None,
            is_unique_key_query=unique,
        )
        found: list[MessageExt] = []
        for group in (await self._calls.route(topic)).broker_datas:
            answer = await self._calls.ask(reader_of(group), RequestCode.QUERY_MESSAGE, header)
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            found += answer.checked().messages()
        found.sort(key=lambda message: message.store_timestamp)
        return found[-count_max:]

    async def traces(
        self,
        msg_id: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = LONG_MAX,
    ) -> list[MessageTrace]:
        """What the message's clients have written of it, if tracing is enabled there: sends first, then by time."""
        messages = await self.by_key(
            trace_topic, msg_id, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
        )
        found = [trace for message in messages for trace in traces_of(message, msg_id)]
        return sorted(found, key=lambda trace: (trace.type, trace.time_ms))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Those that can be read."""
        return sorted(topic_route_of(topic, await self._calls.route(topic)).subscribe_queues)

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset whose message is not older; the end if all are."""
        header = headers.SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = await self._calls.call(
            await self._reader(queue), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header
        )
        return answer.number("offset")

    async def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset that is there, and the next one to be given."""
        address, topic, queue_id = await self._reader(queue), queue.topic, queue.queue_id
        first = await self._calls.call(
            address,
            RequestCode.GET_MIN_OFFSET,
            headers.GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id),
        )
        end = await self._calls.call(
            address,
            RequestCode.GET_MAX_OFFSET,
            headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id),
        )
        return first.number("offset"), end.number("offset")

    async def by_offset(self, queue: MessageQueue, offset: int) -> MessageExt:
        """Raises AdminError, QUERY_NOT_FOUND."""
        async for message in self.read(queue, offset, offset + 1):
            return message
        first, end = await self.bounds(queue)
        raise AdminError(
            f"no message at offset {offset} of queue {queue.queue_id}: it has those from {first} to below {end}",
            code=ResponseCode.QUERY_NOT_FOUND,
        )

    async def read(
        self, queue: MessageQueue, begin: int, end: int, *, tags: str = "*"
    ) -> AsyncIterator[MessageExt]:
        """Messages from offset `begin` to below `end` with one of these tags. No group's progress changes."""
        address = await self._reader(queue)
        wanted = build_subscription(queue.topic, tags).tags_set
        flags = pull_sys_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False)
        offset = begin
        while offset < end:
            header = headers.PullMessageRequestHeader(
                consumer_group=TOOLS_CONSUMER_GROUP,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=offset,
                max_msg_nums=min(end - offset, PULL_COUNT_MAX),
                sys_flag=flags,
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription=tags,
                sub_version=0,
                expression_type="TAG",
            )
            answer = await self._calls.ask(address, RequestCode.PULL_MESSAGE, header)
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return
            if answer.code == ResponseCode.SUCCESS:
                for message in answer.messages(offset):
                    # Brokers compare hashes of tags; two tags may share one.
                    if message.queue_offset < end and (not wanted or message.tags in wanted):
                        yield message
            elif answer.code not in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED):
                answer.checked()
            reached = answer.number("nextBeginOffset")
            if reached <= offset:
                return  # a queue that begins later, or ends earlier, than it did
            offset = reached

    async def consume_queue_units(
        self, queue: MessageQueue, offset: int, count: int, *, group: str = "", address: str = ""
    ) -> ConsumeQueueUnits:
        """Units of the queue's index, from `offset` on."""
        header = admin_headers.QueryConsumeQueueRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            index=offset,
            count=count,
            consumer_group=group or None,
        )
        answer = await self._calls.call(
            address or await self._reader(queue), RequestCode.QUERY_CONSUME_QUEUE, header
        )
        body = answer.read(admin_bodies.QueryConsumeQueueResponseBody)
        first = max(offset, body.min_queue_index)
        return ConsumeQueueUnits(
            body.min_queue_index,
            body.max_queue_index,
            [
                ConsumeQueueUnit(first + position, unit.physic_offset, unit.physic_size, unit.tags_code)
                for position, unit in enumerate(body.queue_data)
            ],
        )

    async def consume_directly(self, group: str, client_id: str, message: MessageExt) -> DirectConsumption:
        """Hands a message to one client of a group, which consumes it once more."""
        broker = await self._broker_of(message)
        header = admin_headers.ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=message.msg_id, broker_name=broker
        )
        address = reader_of(await self._calls.group_named(broker))
        answer = await self._calls.call(
            address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_s=RUNNING_INFO_TIMEOUT_S
        )
        result = answer.read(admin_bodies.ConsumeMessageDirectlyResult)
        return DirectConsumption(
            result.consume_result, result.remark or None, result.spent_time_mills, result.order
        )

    async def tracks(self, message: MessageExt) -> list[MessageTrack]:
        """What each group that reads the message's topic has done with it."""
        broker = await self._broker_of(message)
        return [
            await self._track(message, group, broker) for group in await self._topics.consumers(message.topic)
        ]

    async def _track(self, message: MessageExt, group: str, broker: str) -> MessageTrack:
        try:
            found = await self._groups.connections(group)
            if found.consume_type == "CONSUME_ACTIVELY":
                return MessageTrack(group, "PULL", None)
            if found.message_model == "BROADCASTING":
                return MessageTrack(group, "CONSUME_BROADCASTING", None)
            progress = await self._groups.progress(group, message.topic)
        except AdminError as error:
            online = error.code != ResponseCode.CONSUMER_NOT_ONLINE
            return MessageTrack(group, "UNKNOWN" if online else "NOT_ONLINE", str(error))
        is_consumed = any(
            (row.broker, row.queue) == (broker, message.queue_id)
            and row.consumer_offset > message.queue_offset
            for row in progress
        )
        if not is_consumed:
            return MessageTrack(group, "NOT_CONSUME_YET", None)
        for subscription in found.subscriptions:
            if subscription.topic == message.topic:
                try:
                    tags = build_subscription(message.topic, subscription.expression).tags_set
                except MessageError as error:
                    return MessageTrack(group, "UNKNOWN", f"its subscription cannot be read: {error}")
                if tags and message.tags not in tags:
                    return MessageTrack(group, "CONSUMED_BUT_FILTERED", None)
        return MessageTrack(group, "CONSUMED", None)

    async def _broker_of(self, message: MessageExt) -> str:
        for group in (await self._calls.route(message.topic)).broker_datas:
            for address in group.broker_addrs.values():
                if await _is_at(address, message.store_host):
                    return group.broker_name
        raise AdminError(f"no broker at {message.store_host}, which took the message in, is registered")

    async def _reader(self, queue: MessageQueue) -> str:
        for group in (await self._calls.route(queue.topic)).broker_datas:
            if group.broker_name == queue.broker_name:
                return reader_of(group)
        raise AdminError(
            f"broker {queue.broker_name} has no topic {queue.topic}: topicRoute shows who has it"
        )


async def _is_at(address: str, store_host: str) -> bool:
    """Whether a broker's address, which may be a name, leads to the IP address that its records hold."""
    told, stored = parse_address(address), parse_address(store_host)
    if told.port != stored.port:
        return False
    ips = [told.host]
    if literal(told.host) is None:
        ips = await asyncio.get_running_loop().run_in_executor(None, ip_addresses, told.host)
    return literal(stored.host) in map(literal, ips)


def phy_offset_of(msg_id: str) -> int:
    """Where the message lies that has this id from its broker. Raises AdminError."""
    try:
        return decode_offset_message_id(msg_id)[1]
    except MessageError as error:
        what = "32 hexadecimal digits, or 56 with an IPv6 address"
        raise AdminError(f"{msg_id} is no offset message id, which is {what}") from error
