"""The producer: sends messages to the leaders of their queues' replica groups and says what became of each.

The unit is a batch of sends, because one write to a connection can carry many requests; a single send is a batch of
one. Every attempt has one of three ends: stored, surely not stored, unknown. Refusals by a broker that does not lead
(yet) cost no try: they are repeated, one probe per pause, until the time is up. After an unknown end the queue is read
to see whether the message is stored; if it is not, it is sent again, up to `retry_times`. A message that is stored only
after that look, or that nobody could look for, may be stored twice; its UNIQ_KEY stays the same.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from message.decoder import MessageExt
from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC, group_fault
from mqclient.client_instance import ClientInstance, local_ip
from mqclient.errors import (
    NOT_NOW_CODES,
    UNKNOWN_CODES,
    ClientClosedError,
    MQClientError,
    NoMasterError,
    RouteNotFoundError,
    SendError,
)
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer.broker_faults import BrokerFaults
from mqclient.producer.doubted_sends import look_for_doubted
from mqclient.producer.pending_send import PendingSend
from mqclient.producer.producer_config import ProducerConfig
from mqclient.producer.queue_selector import QueueSelector, always
from mqclient.producer.recall import recall
from mqclient.producer.requester import Requester
from mqclient.producer.send_result import SendResult
from mqclient.producer.stored_sends import StoredSends
from mqclient.producer.uniq_key import UniqKeyGenerator
from mqclient.route.topic_route import TopicRoute
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.channel import Channel
from remoting.client import Connect
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand, request, response

# Of a request's time. Where nobody takes it, the send says so before the request is given up.
SENDING_SHARE = 0.9
WRITE_SIZE_MAX = 4 * 1024 * 1024  # bytes of bodies that one `send_batch` has under way at a time
TROUBLE_CODES = NOT_NOW_CODES | UNKNOWN_CODES


class Producer:
    """Use it as `async with Producer("127.0.0.1:9876") as producer`, from one event loop."""

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = "DEFAULT_PRODUCER",
        *,
        config: ProducerConfig | None = None,
        instance_name: str = "",
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        dice: random.Random | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`namesrv`: `host:port`, several with `;`; without one, what the environment has in NAMESRV_ADDR. Raises
        ValueError for an address or a group name that is none.
        """
        if (fault := group_fault(group)) is not None:
            raise ValueError(fault)
        self.group = group
        self._config = config or ProducerConfig()
        self._now_ms = now_ms
        dice = dice or random.Random()
        self._instance = ClientInstance(
            namesrv,
            heartbeat_body=self._heartbeat_body,
            on_request=self._on_request,
            on_close=lambda address: self._requester.connection_closed(address),
            instance_name=instance_name,
            credentials=self._config.credentials,
            connect=connect,
        )
        self._requester = Requester(self._instance, partial(self._publish_route, refresh=False), now_ms, dice)
        self._keys = UniqKeyGenerator(socket.inet_aton(local_ip()), os.getpid(), dice.getrandbits(31))
        self._faults = BrokerFaults()
        self._stored_sends = StoredSends(self._instance.api)
        self._next_queue = dice.getrandbits(16)
        self._queue_nums = str(self._config.default_topic_queue_nums)

    async def start(self) -> None:
        self._instance.start()

    async def close(self) -> None:
        """Takes leave of the brokers. Sends and requests that are under way end with an error."""
        self._requester.close()
        await self._instance.unregister(producer_group=self.group)
        await self._instance.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Sends one message, to `queue`, or the one that `selector` chooses, or by its sharding key, or to any.

        Raises SendError (whose `definite` says whether it is surely not stored) and MessageIllegalError.
        """
        outcome = (await self.send_batch([message], queue=queue, selector=selector, timeout_s=timeout_s))[0]
        if isinstance(outcome, SendError):
            raise outcome
        return outcome

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None
    ) -> None:
        """Sends a message once, and asks for no answer: nobody hears whether it was stored.

        Raises MessageIllegalError, and SendError where it surely did not leave.
        """
        (send,) = self._pending([message], queue, selector)
        try:
            route = await self._publish_route(message.topic, refresh=False)
            target = self._choose_queue(route, send)
            address = route.master_address(target.broker_name)
            if address is None:
                raise NoMasterError(f"broker {target.broker_name} has no leader now")
            await self._instance.remoting.invoke_oneway(address, self._command(send, target))
        except (MQClientError, RemotingError) as error:
            raise SendError(str(error), definite=True, retriable=True, attempts=0) from error

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult | SendError]:
        """Each message's own outcome, in the order given; they are independent requests that share writes.

        All of them have `timeout_s` together; SendPipeline is for streams of messages. Raises MessageIllegalError
        before anything is sent if one of them breaks a rule.
        """
        sends = self._pending(messages, queue, selector)
        deadline = asyncio.get_running_loop().time() + (timeout_s or self._config.send_timeout_s)
        by_topic: dict[str, list[PendingSend]] = {}
        for send in sends:
            by_topic.setdefault(send.message.topic, []).append(send)
        if len(by_topic) == 1:
            await self._send_all(messages[0].topic, sends, deadline)
        else:
            await asyncio.gather(*(self._send_all(topic, some, deadline) for topic, some in by_topic.items()))
        return [send.outcome for send in sends if send.outcome is not None]

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> MessageExt:
        """Sends a message and waits for the reply of its consumer. Any number of requests may wait at once.

        Raises what `send` raises where the message is surely not stored, and RequestTimeoutError where no reply came in
        time, though the request may have been worked on.
        """
        timeout_s = timeout_s or self._config.send_timeout_s
        send = partial(self.send, queue=queue, selector=selector, timeout_s=timeout_s * SENDING_SHARE)
        return await self._requester.request(message, send, timeout_s)

    def _on_request(self, channel: Channel, command: RemotingCommand) -> None:
        """What brokers ask of producers."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            answer = self._requester.pushed(command)
        else:
            remark = f" request type {command.code} not supported"
            answer = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if not command.is_oneway:
            channel.write(answer.encode())

    async def recall(self, topic: str, recall_handle: str, *, timeout_s: float | None = None) -> None:
        """Calls off a message with a `delay` or `deliver_at` (`SendResult.recall_handle`). It changes nothing, and says
        nothing of it, where the message was delivered before.

        Raises BrokerResponseError, also for a handle whose time has come, and other MQClientError when the time is up.
        """
        self._instance.check_open()
        await recall(self._instance, self.group, topic, recall_handle, timeout_s, self._config)

    def _pending(
        self, messages: Sequence[Message], queue: MessageQueue | None, selector: QueueSelector | None
    ) -> list[PendingSend]:
        """Raises ClientClosedError, MessageIllegalError."""
        self._instance.check_open()
        config = self._config
        now_ms = self._now_ms()
        if queue is not None:
            if selector is not None:
                raise ValueError("a queue and a selector contradict each other")
            selector = partial(always, queue)
        return [
            PendingSend(
                message,
                self._keys.next_key(now_ms),
                now_ms,
                selector=selector,
                compress_over=config.compress_over,
                body_size_max=config.body_size_max,
                retry_times=config.retry_times,
                is_routed=queue is None,
            )
            for message in messages
        ]

    async def _send_all(self, topic: str, sends: list[PendingSend], deadline: float) -> None:
        """Rounds of attempts, until each send has an outcome or the time is up."""
        loop = asyncio.get_running_loop()
        # The other half is for sending again where nobody answers: another group may take writes.
        look_until = (loop.time() + deadline) / 2
        pause_s = self._config.retry_pause_s
        todo, probing, trouble = sends, False, ""
        while todo:
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                break
            try:
                route = await self._publish_route(topic, refresh=probing)
                if (look_s := look_until - loop.time()) > 0:
                    await look_for_doubted(self._stored_sends, route, todo, look_s)
                    todo = [send for send in todo if send.outcome is None]
                count = 1 if probing else self._count_of_one_write(todo)
                now, later = todo[:count], todo[count:]
                failed = await self._round(route, now, remaining_s)
            except ClientClosedError:
                for send in todo:
                    send.fail(f"closed before it was acknowledged; last trouble: {send.refusal or 'none'}")
                return
            except MQClientError as error:
                trouble, failed, later = str(error), todo, []
            if failed:
                trouble = failed[-1].refusal or trouble  # for those behind it, which have not left yet
            todo = [send for send in failed + later if send.outcome is None]
            probing = bool(failed)
            if probing:
                await asyncio.sleep(max(0.0, min(pause_s, deadline - loop.time())))
                pause_s = min(pause_s * 2, self._config.retry_pause_max_s)
        for send in todo:
            reason = send.refusal or trouble or "no time was left for a try"
            send.fail(f"no acknowledgement in time; last trouble: {reason}")

    def _count_of_one_write(self, sends: Sequence[PendingSend]) -> int:
        """At least one. A large batch goes in parts, so that its frames are not all in memory at a time."""
        left = WRITE_SIZE_MAX
        for count, send in enumerate(sends):
            left -= len(send.body)
            if left < 0:
                return max(count, 1)
        return len(sends)

    async def _publish_route(self, topic: str, *, refresh: bool) -> TopicRoute:
        """A route with at least one writable queue whose group has a leader."""
        routes = self._instance.routes
        try:
            route = await (routes.refresh(topic) if refresh else routes.route(topic))
        except RouteNotFoundError as error:
            # NameServers may be away, or know nothing yet after a restart, while the brokers work on.
            route = routes.cached(topic) or await self._route_of_new_topic(topic, error)
        if not route.publish_queues:
            route = await routes.refresh(route.topic) if not refresh else route
            if not route.publish_queues:
                raise NoMasterError(f"no broker of topic {topic} takes writes now: the group has no leader")
        return route

    async def _route_of_new_topic(self, topic: str, unknown: RouteNotFoundError) -> TopicRoute:
        """Where a topic that does not exist may be created by sending: the brokers that hold the template topic.

        Raises `unknown`, which says why the topic has no route, where there is no template either.
        """
        try:
            template = await self._instance.routes.refresh(AUTO_CREATE_TOPIC_KEY_TOPIC)
        except RouteNotFoundError:
            raise unknown from None
        queues = tuple(
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in template.publish_queues
            if queue.queue_id < self._config.default_topic_queue_nums
        )
        return TopicRoute(topic, template.brokers, queues, ())

    async def _round(
        self, route: TopicRoute, sends: Sequence[PendingSend], timeout_s: float
    ) -> list[PendingSend]:
        """One attempt for each; returns those that are to be tried again."""
        by_broker: dict[str, list[PendingSend]] = {}
        for send in sends:
            try:
                queue = send.queue = self._choose_queue(route, send)
                broker_name = queue.broker_name
            except Exception as error:  # noqa: BLE001 (whatever it is, it goes into the outcome)
                # The application's selector, which may not expect fewer queues while a group elects. What became of
                # the other messages, and of this one in earlier rounds, must be told all the same.
                send.fail(f"the selector chose no queue: {error!r}")
                assert isinstance(send.outcome, SendError), "it has just failed"
                send.outcome.__cause__ = error
                continue
            by_broker.setdefault(broker_name, []).append(send)
        await asyncio.gather(
            *(self._attempt(route, broker_name, some, timeout_s) for broker_name, some in by_broker.items())
        )
        return [send for send in sends if send.outcome is None]

    def _command(self, send: PendingSend, queue: MessageQueue) -> RemotingCommand:
        fields = send.ext_fields(self.group, queue, self._queue_nums)
        return request(RequestCode.SEND_MESSAGE_V2, fields, send.body, opaque=0)

    def _choose_queue(self, route: TopicRoute, send: PendingSend) -> MessageQueue:
        if send.selector is not None:
            return send.selector(route.publish_queues, send.message)
        queues = self._faults.usable(route.publish_queues, asyncio.get_running_loop().time())
        self._next_queue += 1
        return queues[self._next_queue % len(queues)]

    async def _attempt(
        self, route: TopicRoute, broker_name: str, sends: list[PendingSend], timeout_s: float
    ) -> None:
        address = route.master_address(broker_name)
        if address is None:
            self._faults.failed(broker_name, asyncio.get_running_loop().time())
            for send in sends:
                send.refusal = f"broker {broker_name} has no leader now"
            return
        commands = []
        for send in sends:
            assert send.queue is not None, "the round chose it"
            send.queue_begin = None if send.is_delayed else self._stored_sends.begin(send.queue)
            commands.append(self._command(send, send.queue))
        answers = await self._invoke_watching(route, broker_name, address, commands, timeout_s)
        for send, answer in zip(sends, answers, strict=True):
            if isinstance(answer, RemotingError):
                send.unanswered(answer)
            else:
                send.answered(answer, address)
                if isinstance(send.outcome, SendResult) and not send.is_delayed:
                    self._stored_sends.acknowledged(send.outcome.message_queue, send.outcome.queue_offset)
        if any(
            isinstance(answer, RemotingCommand) and answer.code not in TROUBLE_CODES for answer in answers
        ):
            self._faults.answered(broker_name)
        else:
            self._faults.failed(broker_name, asyncio.get_running_loop().time())

    async def _invoke_watching(
        self,
        route: TopicRoute,
        broker_name: str,
        address: str,
        commands: list[RemotingCommand],
        timeout_s: float,
    ) -> list[RemotingCommand | RemotingError]:
        """Waits for the answers; when they stall, asks the NameServer, and lets go of a broker that was replaced.

        A leader that was paused or cut off keeps its connections open: nothing but its successor's registration tells.
        """
        remoting = self._instance.remoting
        answers = asyncio.ensure_future(remoting.invoke_many(address, commands, timeout_s))
        try:
            while not (await asyncio.wait({answers}, timeout=self._config.stalled_after_s))[0]:
                # Others need not wait for it, too.
                self._faults.failed(broker_name, asyncio.get_running_loop().time())
                asking = asyncio.ensure_future(self._master_now(route.topic, broker_name))
                await asyncio.wait({answers, asking}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    asking.cancel()
                elif asking.result() not in (None, address):
                    remoting.abort_connection(address)
        finally:
            if not answers.done():
                answers.cancel()
        return answers.result()

    async def _master_now(self, topic: str, broker_name: str) -> str | None:
        """Who leads as far as the NameServers know; None when nobody says."""
        try:
            return (await self._instance.routes.refresh(topic)).master_address(broker_name)
        except (RouteNotFoundError, ClientClosedError):
            return None

    def _heartbeat_body(self, client_id: str) -> HeartbeatData:
        return HeartbeatData(
            client_id=client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            heartbeat_fingerprint=0,
            without_sub=False,
        )
