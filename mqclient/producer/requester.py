"""Requests that wait for replies: sent as messages, and found again by correlation id when a broker pushes a reply.

A broker pushes a reply (PUSH_REPLY_MESSAGE_TO_CLIENT, 326) to the connection on which it had a heartbeat of ours, so
those that may do it get one first. A reply that nobody waits for any more is dropped: it came late, or twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from message import const
from message.compression import decompress
from message.decoder import MessageExt
from message.errors import MessageError
from message.properties import decode_properties
from message.sys_flag import COMPRESSED_FLAG, clear_compressed_flag
from mqclient.client_instance import ClientInstance
from mqclient.errors import ClientClosedError, MQClientError, RequestTimeoutError, SendError
from mqclient.message import Message
from mqclient.producer.send_result import SendResult
from mqclient.route.topic_route import TopicRoute
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand, response
from remoting.headers import headers

log = logging.getLogger(__name__)

GREETING_TIMEOUT_S = 0.5
GREET_AGAIN_AFTER_S = 0.1

SendMessage = Callable[[Message], Awaitable[SendResult]]
FindRoute = Callable[[str], Awaitable[TopicRoute]]


class Requester:
    """Invariant: a correlation id has one future, as long as its request waits."""

    def __init__(
        self, instance: ClientInstance, route: FindRoute, now_ms: Callable[[], int], dice: random.Random
    ) -> None:
        """`route` finds where a message to a topic may go, also to one that sending will make."""
        self._instance = instance
        self._route = route
        self._now_ms = now_ms
        self._dice = dice
        self._replies: dict[str, asyncio.Future[MessageExt]] = {}
        self._greetings: dict[str, asyncio.Task[None]] = {}  # under way, by address
        # Brokers that know us, by a heartbeat on the connection that we have now.
        self._greeted: set[str] = set()

    async def request(self, message: Message, send: SendMessage, timeout_s: float) -> MessageExt:
        """Raises what `send` raises for a message that is surely not stored; RequestTimeoutError, ClientClosedError."""
        correlation_id = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        properties = {
            **message.properties,
            const.CORRELATION_ID: correlation_id,
            const.MESSAGE_REPLY_TO_CLIENT: self._instance.client_id,
            const.MESSAGE_TTL: str(round(timeout_s * 1000)),
        }
        reply: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._replies[correlation_id] = reply
        sending = asyncio.ensure_future(self._greet_and_send(replace(message, properties=properties), send))
        try:
            async with asyncio.timeout(timeout_s):
                ends: set[asyncio.Future[Any]] = {sending, reply}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not reply.done() and (error := sending.exception()) is not None and not _is_unknown(error):
                    raise error
                return await reply
        except TimeoutError:
            raise RequestTimeoutError(
                f"no reply to a request to topic {message.topic} within {timeout_s} s: {_state_of(sending)}"
            ) from None
        finally:
            del self._replies[correlation_id]
            sending.cancel()
            with suppress(asyncio.CancelledError, MQClientError):
                await sending

    def pushed(self, command: RemotingCommand) -> RemotingCommand:
        """Takes a reply in. Returns the answer to the broker."""
        try:
            reply = _reply_of(command, self._now_ms())
        except (RemotingError, MessageError) as error:
            log.warning("reply cannot be read reason=%s", error)
            return response(command, ResponseCode.SYSTEM_ERROR, f"the reply cannot be read: {error}")
        correlation_id = reply.properties.get(const.CORRELATION_ID, "")
        future = self._replies.get(correlation_id)
        if future is None or future.done():
            log.info("late reply dropped correlation_id=%s from=%s", correlation_id, reply.born_host)
        else:
            future.set_result(reply)
        return response(command)

    def connection_closed(self, address: str) -> None:
        self._greeted.discard(address)
        if self._replies and not self._instance.is_closed:
            self._instance.spawn(self._greet_again(address))

    def close(self) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ClientClosedError("closed before the reply came"))

    async def _greet_and_send(self, message: Message, send: SendMessage) -> SendResult:
        await self._greet_masters(message.topic)
        result = await send(message)
        # Where nobody knew of a broker before, or another one leads by now: there the reply waits for us.
        await self._greet_masters(message.topic)
        return result

    async def _greet_masters(self, topic: str) -> None:
        """Has those know us that may be told to push the reply. One that does not answer soon is not waited for."""
        try:
            route = await self._route(topic)
        except MQClientError:
            return  # sending tries longer, and says what is wrong
        masters = {route.master_address(name) for name in route.brokers} - {None} - self._greeted
        greetings = [self._greeting(address) for address in masters if address is not None]
        if greetings:
            await asyncio.wait(greetings, timeout=GREETING_TIMEOUT_S)

    def _greeting(self, address: str) -> asyncio.Task[None]:
        """Of all requests that want it now."""
        task = self._greetings.get(address)
        if task is None:
            task = self._greetings[address] = self._instance.spawn(self._greet(address))
            task.add_done_callback(lambda _: self._greetings.pop(address))
        return task

    async def _greet(self, address: str) -> None:
        if await self._instance.heartbeat_to(address):
            self._greeted.add(address)
            # Followers as well, of which one may lead when the reply comes; nobody waits for those.
            self._instance.spawn(self._instance.heartbeat())

    async def _greet_again(self, address: str) -> None:
        """A reply may wait there for us to come back."""
        await asyncio.sleep(GREET_AGAIN_AFTER_S)
        await self._greeting(address)


def _is_unknown(error: BaseException) -> bool:
    """Whether it ended a send whose message may be stored all the same, and replied to."""
    return isinstance(error, SendError) and not error.definite


def _state_of(sending: asyncio.Future[SendResult]) -> str:
    if not sending.done():
        return "whether it is stored is unknown"
    if (error := sending.exception()) is not None:
        return f"whether it is stored is unknown; {error}"
    return f"it is stored as {sending.result().msg_id}, whether it was worked on is unknown"


def _reply_of(command: RemotingCommand, now_ms: int) -> MessageExt:
    header = headers.decode(headers.ReplyMessageRequestHeader, command.ext_fields)
    body, sys_flag = bytes(command.body), header.sys_flag
    if sys_flag & COMPRESSED_FLAG and body:
        body, sys_flag = decompress(body, sys_flag), clear_compressed_flag(sys_flag)
    properties = decode_properties((header.properties or "").encode())
    return MessageExt(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        phy_offset=0,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=header.born_host,
        store_timestamp=header.store_timestamp,
        store_host=header.store_host,
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body=body,
        body_crc=0,
        properties={**properties, const.REPLY_MESSAGE_ARRIVE_TIME: str(now_ms)},
        store_size=0,
    )
