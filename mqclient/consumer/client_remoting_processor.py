"""What brokers ask of a member of a consumer group, most of it for a tool (Java: ClientRemotingProcessor).

Each request is worked on in a task of its own, so that none of them keeps its connection from being read. What a tool
is told is what the member knows at that moment; nothing is asked of a broker for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from message.errors import MessageError
from message.names import RETRY_GROUP_TOPIC_PREFIX
from message.received_messages import received_messages
from mqclient.consumer.client_info import running_info
from mqclient.consumer.puller import show_origin
from mqclient.message_queue import MessageQueue
from remoting.bodies import admin_bodies, bodies
from remoting.channel import Channel
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand, response
from remoting.headers import admin_headers, headers

if TYPE_CHECKING:
    from mqclient.consumer.group_member import GroupMember

log = logging.getLogger(__name__)


class ClientRemotingProcessor:
    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._handlers: dict[int, Callable[[RemotingCommand], Awaitable[RemotingCommand]]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumer_ids_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._get_consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def on_request(self, channel: Channel, command: RemotingCommand) -> None:
        if not self._member.instance.is_closed:
            self._member.instance.spawn(self._work(channel, command))

    async def _work(self, channel: Channel, command: RemotingCommand) -> None:
        handler = self._handlers.get(command.code, _not_supported)
        try:
            answer = await handler(command)
        except (RemotingError, MessageError) as error:
            log.warning("bad request from=%s code=%d reason=%s", channel.remote_address, command.code, error)
            answer = response(command, ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:
            log.exception("request failed from=%s code=%d", channel.remote_address, command.code)
            answer = response(command, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if not command.is_oneway:
            channel.write(answer.encode())

    async def _consumer_ids_changed(self, command: RemotingCommand) -> RemotingCommand:
        self._member.rebalance_soon()
        return response(command)

    async def _reset_offset(self, command: RemotingCommand) -> RemotingCommand:
        header = headers.decode(admin_headers.ResetOffsetRequestHeader, command.ext_fields)
        if header.group != self._member.group:
            return self._other_group(command, header.group)
        table = admin_bodies.ResetOffsetBody.decode(command.body).offset_table if command.body else {}
        await self._member.reset_offsets(
            {
                MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset
                for queue, offset in table.items()
                if queue.topic == header.topic and offset >= 0
            }
        )
        return response(command)

    async def _get_consumer_status(self, command: RemotingCommand) -> RemotingCommand:
        header = headers.decode(admin_headers.GetConsumerStatusRequestHeader, command.ext_fields)
        if header.group != self._member.group:
            return self._other_group(command, header.group)
        offsets = {
            bodies.MessageQueue(
                topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id
            ): process_queue.consume_offset
            for queue, process_queue in sorted(self._member.process_queues.items())
            if header.topic in ("", queue.topic)
        }
        return response(
            command, body=admin_bodies.GetConsumerStatusBody(message_queue_table=offsets).encode()
        )

    async def _get_running_info(self, command: RemotingCommand) -> RemotingCommand:
        header = headers.decode(admin_headers.GetConsumerRunningInfoRequestHeader, command.ext_fields)
        if header.consumer_group != self._member.group:
            return self._other_group(command, header.consumer_group)
        return response(command, body=running_info(self._member, with_stacks=header.jstack_enable).encode())

    async def _consume_directly(self, command: RemotingCommand) -> RemotingCommand:
        header = headers.decode(admin_headers.ConsumeMessageDirectlyResultRequestHeader, command.ext_fields)
        member = self._member
        if header.consumer_group != member.group:
            return self._other_group(command, header.consumer_group)
        if member.is_lite:
            return response(
                command,
                ResponseCode.SYSTEM_ERROR,
                f"a consumer of group {member.group} that polls is handed no messages, nothing was consumed",
            )
        messages = received_messages(command.body)
        if not messages:
            return response(
                command, ResponseCode.SYSTEM_ERROR, "the body holds no record, nothing was consumed"
            )
        message = messages[0]
        queue = MessageQueue(message.topic, header.broker_name or "", message.queue_id)
        if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            show_origin(messages)
        batch = await member.hand_over(queue, messages)
        if batch is None:
            return response(
                command,
                ResponseCode.SYSTEM_ERROR,
                "nothing was consumed: the application asked for no message in time; it may be busy with others",
            )
        result = admin_bodies.ConsumeMessageDirectlyResult(
            consume_result=batch.result.value, remark=batch.fault, spent_time_mills=int(batch.spent_s * 1000)
        )
        return response(command, body=result.encode())

    def _other_group(self, command: RemotingCommand, group: str) -> RemotingCommand:
        remark = f"group {group} is not the one of this consumer, which is {self._member.group}"
        return response(command, ResponseCode.SYSTEM_ERROR, remark)


async def _not_supported(command: RemotingCommand) -> RemotingCommand:
    remark = f" request type {command.code} not supported"
    return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
