"""EndTransaction, and the questions of brokers about transactions that no producer has ended.

A broker asks the producers of a group, and in the v2 API the topic's name is that group. So the proxy registers itself
as a producer of each topic for which it can ask a client, with heartbeats to the brokers of these topics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from message.decoder import decode_messages
from message.errors import MessageDecodeError
from message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from mqclient.client_instance import local_ip
from mqclient.errors import MQClientError
from proxy.access import Access, publishes
from proxy.brokers import Brokers, time_left_s
from proxy.config import ProxyConfig
from proxy.grpc.call import Call, CallClosed
from proxy.messages.names import check_topic
from proxy.messages.transaction_id import TransactionId
from proxy.messages.v2_message import v2_message
from proxy.metadata import MIXED, Metadata
from proxy.protocol.definition import Code, TransactionResolution, TransactionSource
from proxy.protocol.service import (
    EndTransactionRequest,
    EndTransactionResponse,
    RecoverOrphanedTransactionCommand,
    TelemetryCommand,
)
from proxy.sessions import Sessions
from proxy.status import StatusError, status
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.channel import Channel
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingHeaderError
from remoting.frame.command import RemotingCommand, response
from remoting.headers.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    decode,
    to_ext_fields,
)

log = logging.getLogger(__name__)

_QUESTION_S: Final = 5.0  # that a client has to read one
_GROUPS_OF_ONE_HEARTBEAT: Final = 100
_TOPICS_AT_ONCE: Final = (
    100  # whose brokers are looked for: one after the other, those nobody knows hold up the rest
)
_WITH_TRANSACTIONS: Final = frozenset({"TRANSACTION", MIXED})
_VERDICTS: Final[Mapping[int, int]] = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT_TYPE,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK_TYPE,
}


class TransactionService:
    def __init__(
        self,
        config: ProxyConfig,
        brokers: Brokers,
        sessions: Sessions,
        metadata: Metadata,
        access: Access,
    ) -> None:
        self._access = access
        self._period_s = config.transaction_heartbeat_period_seconds
        self._brokers = brokers
        self._sessions = sessions
        self._metadata = metadata
        self._client_id = f"{local_ip()}@proxy#{os.getpid()}#{time.perf_counter_ns()}"
        self._registered: dict[str, set[str]] = {}  # topic to addresses of brokers
        self._wake = asyncio.Event()

    async def end_transaction(self, request: EndTransactionRequest, call: Call) -> EndTransactionResponse:
        topic = check_topic(request.topic)
        if not request.transaction_id.strip():
            raise StatusError(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        try:
            known = TransactionId.decode(request.transaction_id)
        except ValueError:
            raise StatusError(
                Code.INVALID_TRANSACTION_ID,
                f"{request.transaction_id!r:.80} is no transaction id of this proxy: give the one of the send",
            ) from None
        verdict = _VERDICTS.get(request.resolution)
        if verdict is not None:  # else the client does not know either, and the broker asks again
            header = EndTransactionRequestHeader(
                topic=topic,
                producer_group=topic,
                tran_state_table_offset=known.queue_offset,
                commit_log_offset=known.phy_offset,
                commit_or_rollback=verdict,
                from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
                msg_id=known.message_id,
                transaction_id=known.message_id,
                bname=known.broker_name,
            )
            await self._brokers.ask(
                *(topic, known.broker_name, RequestCode.END_TRANSACTION),
                {**to_ext_fields(header), **self._access.client_fields(call)},
                timeout_s=time_left_s(call),
            )
        return EndTransactionResponse(status=status(Code.OK))

    # -- what brokers ask ---------------------------------------------------------------------------------------

    def request_received(self, channel: Channel, command: RemotingCommand) -> None:
        """Take a request of a broker."""
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._brokers.tasks.spawn(self._check(channel, command))
        elif not command.is_oneway:
            remark = f" request type {command.code} not supported"
            channel.write(response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark).encode())

    async def _check(self, channel: Channel, command: RemotingCommand) -> None:
        """Pass a broker's question on to a producer of the topic; if that does not take it, to the next one."""
        try:
            header = decode(CheckTransactionStateRequestHeader, command.ext_fields)
            (message,) = decode_messages(bytes(command.body))
        except (RemotingHeaderError, MessageDecodeError, ValueError) as error:
            log.warning("a question about a transaction cannot be read: %s", error)
            return
        broker_name = header.bname or self._broker_name(str(channel.remote_address), message.topic)
        transaction_id = TransactionId(
            broker_name, header.tran_state_table_offset, header.commit_log_offset, message.uniq_key or ""
        ).encode()
        question = TelemetryCommand(
            recover_orphaned_transaction_command=RecoverOrphanedTransactionCommand(
                message=v2_message(message), transaction_id=transaction_id
            )
        ).SerializeToString()
        while (session := self._sessions.next_producer(message.topic)) is not None:
            stream = session.stream
            assert stream is not None, "a session with topics has a stream"
            try:
                await self._access.check(stream, [publishes(message.topic)], message.topic)
                async with asyncio.timeout(_QUESTION_S):
                    await stream.send(question)
                return
            except TimeoutError:
                # The question stays in the stream's outbox. This client is asked nothing more before its next settings.
                log.info("client=%s takes no questions", session.client_id)
            except CallClosed:
                pass
            except StatusError as error:
                log.info("client=%s is asked nothing: %s", session.client_id, error)
                if error.code not in (Code.UNAUTHORIZED, Code.FORBIDDEN):
                    return  # no broker says whether it may have the message: the broker asks again
            self._sessions.stream_closed(session.client_id, stream)
        log.info("no producer of topic=%s can be asked: the broker asks again", message.topic)

    def _broker_name(self, address: str, topic: str) -> str:
        """Return the name of the broker at `address`, empty if that is not known: RocketMQ 4.9 does not tell it."""
        route = self._brokers.routes.cached(topic)
        names = [name for name in route.brokers if address in route.brokers[name].values()] if route else []
        return names[0] if names else ""

    # -- being known to brokers ---------------------------------------------------------------------------------

    def register_soon(self) -> None:
        """Have the brokers told at once, because producers or brokers have changed."""
        self._wake.set()

    async def keep_registered(self) -> None:
        """Register again and again, until it is cancelled."""
        while True:
            await self.register()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()
            self._wake.clear()

    async def register(self) -> None:
        """Tell the brokers which topics have producers here, and leave those topics that have none any more."""
        topics = self._sessions.published_topics()
        wanted: dict[str, set[str]] = {}
        for begin in range(0, len(topics), _TOPICS_AT_ONCE):
            part = topics[begin : begin + _TOPICS_AT_ONCE]
            wanted |= zip(part, await asyncio.gather(*map(self._addresses, part)), strict=True)
        by_address: dict[str, list[str]] = {}
        for topic, addresses in wanted.items():
            for address in addresses:
                by_address.setdefault(address, []).append(topic)
        left = [
            (topic, address)
            for topic, addresses in self._registered.items()
            for address in addresses - wanted.get(topic, set())
        ]
        self._registered = wanted
        await asyncio.gather(
            *(self._heartbeat(address, topics) for address, topics in by_address.items()),
            *(self._leave(topic, address) for topic, address in left),
        )

    async def close(self) -> None:
        """Unregister at all brokers, which then ask another proxy."""
        leaving = [(topic, at) for topic, addresses in self._registered.items() for at in addresses]
        self._registered = {}
        await asyncio.gather(*(self._leave(topic, address) for topic, address in leaving))

    async def _addresses(self, topic: str) -> set[str]:
        """Return the addresses of all members, followers too: the next leader can ask at once. None are returned of a
        topic without transactions.
        """
        if await self._metadata.topic_type(topic) not in _WITH_TRANSACTIONS:
            return set()
        try:
            route = await self._brokers.routes.route(topic)
        except MQClientError:
            return set()
        return {address for addresses in route.brokers.values() for address in addresses.values()}

    async def _heartbeat(self, address: str, topics: list[str]) -> None:
        for begin in range(0, len(topics), _GROUPS_OF_ONE_HEARTBEAT):
            body = HeartbeatData(
                client_id=self._client_id,
                producer_data_set=[
                    ProducerData(group_name=topic)
                    for topic in topics[begin : begin + _GROUPS_OF_ONE_HEARTBEAT]
                ],
                heartbeat_fingerprint=0,
                without_sub=False,
            )
            try:
                await self._brokers.api.heartbeat(address, body)
            except MQClientError as error:
                log.info("heartbeat failed to=%s reason=%s", address, error)
                return

    async def _leave(self, topic: str, address: str) -> None:
        with suppress(MQClientError):
            await self._brokers.api.unregister(address, self._client_id, producer_group=topic)
