"""A producer whose messages reach consumers if, and only if, something else was done: transactions.

The message is stored first, where no consumer sees it. Then the application does its part, and the broker is told how
that went. Where that cannot be told, or the application does not know, the broker asks later: this producer, or another
one of its group.
"""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

from message import const
from message.decoder import MessageExt
from message.errors import MessageDecodeError
from message.names import TRANS_HALF_TOPIC
from message.received_messages import received_messages
from message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from mqclient.errors import MessageIllegalError, MQClientError, NoMasterError, RouteNotFoundError
from mqclient.message import Message
from mqclient.producer.producer import Producer
from mqclient.producer.producer_config import ProducerConfig
from mqclient.producer.send_result import SendResult, SendStatus
from remoting.channel import Channel
from remoting.client import Connect
from remoting.codes import RequestCode
from remoting.errors import RemotingHeaderError
from remoting.frame.command import RemotingCommand, request
from remoting.headers.headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    decode,
    to_ext_fields,
)

log = logging.getLogger(__name__)


class TransactionState(IntEnum):
    """How a transaction ends. UNKNOWN: the broker asks later."""

    COMMIT = TRANSACTION_COMMIT_TYPE
    ROLLBACK = TRANSACTION_ROLLBACK_TYPE
    UNKNOWN = 0


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """`state` is what the application said. `is_ended`: the broker has said that the transaction ended so; without that
    it asks later. `send_result` tells where the prepared message lies, and its `msg_id` is the transaction's id.
    """

    send_result: SendResult
    state: TransactionState
    is_ended: bool


LocalTransaction = Callable[[Message, str], "TransactionState | Awaitable[TransactionState]"]
"""Does the application's part. It gets the message and the transaction's id, and says how the transaction ends."""

CheckListener = Callable[[MessageExt], "TransactionState | Awaitable[TransactionState]"]
"""Says how a transaction has ended, of which the broker has not heard. `message.uniq_key` is the transaction's id."""


class TransactionProducer(Producer):
    """As a Producer, which it is, for messages of no transaction."""

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = "DEFAULT_PRODUCER",
        *,
        check: CheckListener,
        topics: Collection[str] = (),
        config: ProducerConfig | None = None,
        instance_name: str = "",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        dice: random.Random | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`topics`: brokers of these may ask from the start, for what an earlier run has left; those of other topics
        from its first message on. Raises ValueError as Producer does.
        """
        super().__init__(
            namesrv,
            group,
            config=config,
            instance_name=instance_name,
            now_ms=now_ms,
            dice=dice,
            connect=connect,
        )
        self._check = check
        self._topics = topics
        self._known_addresses: set[str] = set()  # of brokers that this producer has said it is there

    async def start(self) -> None:
        await super().start()
        for topic in self._topics:
            try:
                await self._instance.routes.route(topic)
            except (RouteNotFoundError, MQClientError) as error:
                log.warning("brokers of topic=%s cannot ask about transactions yet: %s", topic, error)
        await self._make_known()

    async def send_in_transaction(
        self, message: Message, execute: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Prepares the message, calls `execute`, and tells the broker how the transaction ends. What `execute` raises
        is logged, and counts as UNKNOWN.

        Raises SendError and MessageIllegalError as `send` does, and then `execute` was not called. If the error is not
        `definite`, the message may be prepared all the same, and `check` will be asked.
        """
        if message.delay_level or message.delay or message.deliver_at is not None:
            raise MessageIllegalError("a message of a transaction cannot be delayed")
        properties = {
            **message.properties,
            const.TRANSACTION_PREPARED: "true",
            const.PRODUCER_GROUP: self.group,
        }
        result = await self.send(replace(message, properties=properties), timeout_s=timeout_s)
        await self._make_known()
        state = TransactionState.ROLLBACK  # where the broker itself doubts that it has the message
        if result.status is SendStatus.SEND_OK:
            state = await _said(partial(execute, message, result.msg_id), f"transaction {result.msg_id}")
        is_ended = False
        if state is not TransactionState.UNKNOWN:
            try:
                await self._end(message.topic, result, state)
                is_ended = True
            except MQClientError as error:
                log.warning("transaction's end is not told id=%s, the broker asks: %s", result.msg_id, error)
        return TransactionSendResult(result, state, is_ended)

    async def _make_known(self) -> None:
        """A broker asks producers that have sent it a heartbeat."""
        for address in self._instance.broker_addresses():
            if address not in self._known_addresses and await self._instance.heartbeat_to(address):
                self._known_addresses.add(address)

    async def _end(self, topic: str, result: SendResult, state: TransactionState) -> None:
        """Raises MQClientError."""
        queue = result.message_queue
        address = (await self._instance.routes.route(topic)).master_address(queue.broker_name)
        if address is None:
            raise NoMasterError(f"broker {queue.broker_name} has no leader now")
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=result.phy_offset,
            commit_or_rollback=state,
            from_transaction_check=False,
            msg_id=result.msg_id,
            transaction_id=result.msg_id,
            bname=queue.broker_name,
        )
        await self._instance.api.call(
            address,
            RequestCode.END_TRANSACTION,
            to_ext_fields(header),
            timeout_s=self._config.send_timeout_s,
        )

    def _on_request(self, channel: Channel, command: RemotingCommand) -> None:
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            super()._on_request(channel, command)
            return
        try:
            header = decode(CheckTransactionStateRequestHeader, command.ext_fields)
            (message,) = received_messages(bytes(command.body))
        except (RemotingHeaderError, MessageDecodeError, ValueError) as error:
            log.warning("a question about a transaction cannot be read: %s", error)
            return
        self._instance.spawn(self._answer_check(channel, header, message))

    async def _answer_check(
        self, channel: Channel, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        transaction_id = message.uniq_key or ""
        state = await _said(partial(self._check, message), f"the check of {transaction_id}")
        answer = EndTransactionRequestHeader(
            topic=header.topic or TRANS_HALF_TOPIC,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            from_transaction_check=True,
            msg_id=transaction_id,
            transaction_id=transaction_id,
            bname=header.bname,
        )
        fields = to_ext_fields(answer)
        channel.write(request(RequestCode.END_TRANSACTION, fields, opaque=0, oneway=True).encode())


async def _said(
    ask: Callable[[], TransactionState | Awaitable[TransactionState]], what: str
) -> TransactionState:
    """What the application says. UNKNOWN where it fails, with a line in the log."""
    try:
        said = ask()
        return TransactionState(await said if inspect.isawaitable(said) else said)
    except Exception:
        log.exception("the application failed at %s, which counts as UNKNOWN", what)
        return TransactionState.UNKNOWN
