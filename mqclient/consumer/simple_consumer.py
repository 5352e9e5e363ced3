"""The consumer that takes messages for a while and acknowledges each of them by itself: by pops.

It reads no queues of its own: any member of the group gets any message. So a slow message holds up no other, and there
may be more members than queues.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Final, Self

from auth.credentials import Credentials
from message import const
from message.decoder import MessageExt
from message.names import group_fault
from message.tags import SubscriptionData
from mqclient.client_instance import ClientInstance
from mqclient.consumer.consumer_config import ConsumeFromWhere
from mqclient.consumer.subscription import Expression, build_subscriptions, subscription_body
from mqclient.errors import AckError, BrokerResponseError, MQClientError, NoMasterError
from mqclient.popped_messages import ack_request, change_request, changed_handle, handle_of, popped_messages
from remoting.bodies import bodies
from remoting.client import Connect
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.headers import to_ext_fields
from remoting.headers.pop_headers import PopMessageRequestHeader

log = logging.getLogger(__name__)

MESSAGES_MAX: Final = 32
# How long one broker is waited for, where there are several that may have messages.
_SHARE_S: Final = 1.0
_PAUSE_S: Final = 0.1  # after brokers that cannot be asked now, or hold as many pops as they may
_ANSWER_S: Final = 5.0  # beyond what the broker may wait
_NOTHING: Final = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


@dataclass(frozen=True, slots=True)
class _Source:
    """Queues of a topic at one broker."""

    topic: str
    broker_name: str


class SimpleConsumer:
    """Use it as `async with SimpleConsumer(namesrv, group, {"T": "*"}) as consumer: await consumer.receive()`.

    A message that is not acknowledged within its invisible time comes again, to any member of the group, with its
    `reconsume_times` raised; after the group's last attempt it goes to the dead letter topic. With `fifo=True` the
    messages of a queue come in their order, and the next ones once all before them are acknowledged.
    """

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression],
        *,
        invisible_s: float = 30.0,
        fifo: bool = False,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST,
        instance_name: str = "",
        credentials: Credentials | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        connect: Connect | None = None,
    ) -> None:
        """`subscriptions`: topic to `*`, `TagA || TagB` or `sql(…)`; every member of a group must have the same.
        `consume_from` counts for queues of which the group has no offset yet; TIMESTAMP is as LAST. Raises ValueError
        for a name or an expression that is none.
        """
        if (fault := group_fault(group)) is not None:
            raise ValueError(fault)
        if not subscriptions:
            raise ValueError("no subscriptions: say which topics, such as {'T': '*'}")
        self.group = group
        self._invisible_s = invisible_s
        self._fifo = fifo
        self._consume_from = consume_from
        self._subscriptions = build_subscriptions(subscriptions, now_ms())
        self._turn = 0
        self._instance = ClientInstance(
            namesrv,
            heartbeat_body=self._heartbeat_data,
            instance_name=instance_name,
            credentials=credentials,
            connect=connect,
        )

    @property
    def client_id(self) -> str:
        return self._instance.client_id

    async def start(self) -> None:
        """Joins the group. Topics that do not exist yet are looked for with each call of `receive`."""
        self._instance.start()
        await self._sources()
        await self._instance.heartbeat()

    async def close(self) -> None:
        """Leaves the group. What is not acknowledged comes again when its invisible time is over."""
        if not self._instance.is_closed:
            await self._instance.unregister(consumer_group=self.group)
        await self._instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def receive(
        self, max_messages: int = MESSAGES_MAX, *, wait_s: float = 20.0, invisible_s: float | None = None
    ) -> list[MessageExt]:
        """Up to `max_messages` of one topic and broker; none if none came in time. They are this consumer's for
        `invisible_s`, its own if None.

        A broker that cannot be asked now is passed over. Raises ClientClosedError, and BrokerResponseError where a
        broker refuses for good, such as an expression that it cannot read.
        """
        self._instance.check_open()
        if not 1 <= max_messages <= MESSAGES_MAX:
            raise ValueError(f"max_messages {max_messages}: allowed are 1 to {MESSAGES_MAX}")
        invisible_ms = round((self._invisible_s if invisible_s is None else invisible_s) * 1000)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        attempt_id = uuid.uuid4().hex
        is_first = True
        refused: set[_Source] = set()
        while True:
            sources = await self._sources()
            left_s = max(until - loop.time(), 0.0)
            share_s = left_s if len(sources) == 1 else min(left_s, _SHARE_S)
            # First all are asked for what they have, then each in turn is waited for.
            asked = sources if is_first else sources[:1]
            failed = 0
            for source in asked:
                poll_s = 0.0 if is_first and len(sources) > 1 else share_s
                try:
                    messages = await self._pop(source, max_messages, invisible_ms, poll_s, attempt_id)
                except MQClientError as error:
                    if not error.retriable:
                        raise
                    if source not in refused:
                        log.warning("pop failed topic=%s broker=%s reason=%s", *astuple(source), error)
                    refused.add(source)
                    failed += 1
                    await self._look_for_leader(source.topic)
                    continue
                if messages:
                    return messages
            is_first = False
            if loop.time() >= until:
                return []
            if failed == len(asked):
                await asyncio.sleep(min(_PAUSE_S, max(until - loop.time(), 0.0)))

    async def ack(self, *messages: MessageExt) -> None:
        """Done: these do not come again. Those whose invisible time is over have come again already, or will.

        Raises AckError, which has the messages that may come again.
        """
        self._instance.check_open()
        by_broker: dict[tuple[str, str], list[MessageExt]] = {}
        for message in messages:
            by_broker.setdefault((handle_of(message).broker_name, message.topic), []).append(message)
        ends = await asyncio.gather(*map(self._ack_at, by_broker, by_broker.values()), return_exceptions=True)
        failed: list[MessageExt] = []
        reason: MQClientError | None = None
        for those, end in zip(by_broker.values(), ends, strict=True):
            if isinstance(end, MQClientError):
                failed += those
                reason = end
            elif isinstance(end, BaseException):
                raise end
        if reason is not None:
            for topic in dict.fromkeys(message.topic for message in failed):
                await self._look_for_leader(topic)
            raise AckError(failed, reason)

    async def change_invisible(self, message: MessageExt, invisible_s: float) -> None:
        """This consumer needs the message for so long from now on, or wants it to come again that soon. It is
        acknowledged as before. Raises MQClientError, also for a message that has expired or has its acknowledgement.
        """
        self._instance.check_open()
        handle = handle_of(message)
        request = change_request(self.group, message.topic, handle, round(invisible_s * 1000))
        address = await self._address(message.topic, handle.broker_name)
        try:
            answer = await self._instance.api.call(address, *request)
        except MQClientError:
            await self._look_for_leader(message.topic)
            raise
        message.properties[const.POP_CK] = changed_handle(handle, answer).encode()

    # -- inside ------------------------------------------------------------------------------------------------

    def _heartbeat_data(self, client_id: str) -> bodies.HeartbeatData:
        consumer = bodies.ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where=self._consume_from.value,
            subscription_data_set=list(map(subscription_body, self._subscriptions.values())),
        )
        return bodies.HeartbeatData(
            client_id=client_id, consumer_data_set=[consumer], heartbeat_fingerprint=0, without_sub=False
        )

    async def _sources(self) -> list[_Source]:
        """Those that the NameServers know, each call beginning with the next one."""
        found: list[_Source] = []
        for topic in self._subscriptions:
            try:
                route = await self._instance.routes.route(topic)
            except MQClientError:
                continue
            found += [
                _Source(topic, name) for name in dict.fromkeys(q.broker_name for q in route.subscribe_queues)
            ]
        if found:
            self._turn = (self._turn + 1) % len(found)
        return found[self._turn :] + found[: self._turn]

    async def _look_for_leader(self, topic: str) -> None:
        """Another one may lead since: the next attempt finds it."""
        with suppress(MQClientError):
            await self._instance.routes.refresh(topic)

    async def _address(self, topic: str, broker_name: str) -> str:
        address = (await self._instance.routes.route(topic)).master_address(broker_name)
        if address is None:
            raise NoMasterError(f"broker {broker_name} has no leader now")
        return address

    async def _pop(
        self, source: _Source, max_messages: int, invisible_ms: int, poll_s: float, attempt_id: str
    ) -> list[MessageExt]:
        data: SubscriptionData = self._subscriptions[source.topic]
        header = PopMessageRequestHeader(
            consumer_group=self.group,
            topic=source.topic,
            queue_id=-1,
            max_msg_nums=max_messages,
            invisible_time=invisible_ms,
            poll_time=round(poll_s * 1000),
            born_time=0,  # now: by the broker's clock, for this one may be another
            init_mode=0 if self._consume_from is ConsumeFromWhere.FIRST else 1,
            exp_type=data.expression_type,
            exp=data.sub_string,
            order=self._fifo,
            attempt_id=attempt_id,
            bname=source.broker_name,
        )
        address = await self._address(source.topic, source.broker_name)
        answer = await self._instance.api.ask(
            address, RequestCode.POP_MESSAGE, to_ext_fields(header), timeout_s=poll_s + _ANSWER_S
        )
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark, address)
        return popped_messages(answer, source.topic, source.broker_name)

    async def _ack_at(self, broker: tuple[str, str], messages: list[MessageExt]) -> None:
        """Those of one topic and broker."""
        broker_name, topic = broker
        address = await self._address(topic, broker_name)
        handles = list(map(handle_of, messages))
        await self._instance.api.call(address, *ack_request(self.group, topic, handles))
