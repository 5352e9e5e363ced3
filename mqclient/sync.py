"""The client for programs without an event loop: the same classes with calls that wait, in any thread.

Each object runs an event loop in a thread of its own from `start` to `close`, best as `with Producer(…) as producer`.
Errors are those of the asyncio classes. Selectors and listeners of queues are called in that thread: they must return
soon, and cannot call the object they belong to.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import mqclient.consumer.lite_pull_consumer
import mqclient.consumer.push_consumer
import mqclient.producer.producer
from message.decoder import MessageExt
from mqclient.consumer.consumer_config import ConsumerConfig
from mqclient.consumer.direct_batch import DirectBatch
from mqclient.consumer.group_member import OnAssignment
from mqclient.consumer.lite_pull_consumer import OnTopicQueues
from mqclient.consumer.process_queue import ConsumeBatch
from mqclient.consumer.subscription import Expression
from mqclient.errors import SendError
from mqclient.loop_thread import LoopThread
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer.producer_config import ProducerConfig
from mqclient.producer.queue_selector import QueueSelector
from mqclient.producer.send_result import SendResult

__all__ = ["LitePullConsumer", "MessageListener", "Producer", "PushConsumer"]

log = logging.getLogger(__name__)

MessageListener = Callable[[MessageExt], None]
"""Processes one message. What it raises has the message delivered again later. It must not close its consumer, which
would wait for it."""


class _Client(ABC):
    """What has a thread, is started, and is closed once."""

    def __init__(self) -> None:
        self._thread = LoopThread(f"mqclient-{type(self).__name__}")

    def start(self) -> None:
        """Once. Raises what the asyncio class raises."""
        self._thread.start()
        try:
            self._thread.call(self._start())
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Ends what is under way, as the asyncio class does. A second time nothing happens."""
        if self._thread.is_open:
            try:
                self._thread.call(self._close())
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    async def _start(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...


class Producer(_Client):
    """Sends messages. All threads of a program may share one."""

    def __init__(
        self,
        namesrv: str | None = None,
        group: str = "DEFAULT_PRODUCER",
        *,
        config: ProducerConfig | None = None,
        instance_name: str = "",
    ) -> None:
        """`namesrv`: `host:port`, several with `;`; without one, what the environment has in NAMESRV_ADDR. Raises
        ValueError for an address or a group name that is none.
        """
        super().__init__()
        self._producer = mqclient.producer.producer.Producer(
            namesrv, group, config=config, instance_name=instance_name
        )

    def send(
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
        return self._thread.call(
            self._producer.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """As `send`, without waiting: the future has the result, or what `send` raises.

        It is cancelled when the producer is closed first, and then the message may be stored or not.
        """
        return self._thread.submit(
            self._producer.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult | SendError]:
        """Each message's own outcome, in the order given. Raises MessageIllegalError before anything is sent."""
        return self._thread.call(
            self._producer.send_batch(messages, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, selector: QueueSelector | None = None
    ) -> None:
        """Sends a message once, and asks for no answer: nobody hears whether it was stored.

        Raises MessageIllegalError, and SendError where it surely did not leave.
        """
        self._thread.call(self._producer.send_oneway(message, queue=queue, selector=selector))

    def recall(self, topic: str, recall_handle: str, *, timeout_s: float | None = None) -> None:
        """Calls off a message with a `delay` or `deliver_at` (`SendResult.recall_handle`). It changes nothing, and says
        nothing of it, where the message was delivered before.

        Raises BrokerResponseError, also for a handle whose time has come, and other MQClientError when the time is up.
        """
        self._thread.call(self._producer.recall(topic, recall_handle, timeout_s=timeout_s))

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> MessageExt:
        """Sends a message and waits for the reply of its consumer.

        Raises what `send` raises where the message is surely not stored, and RequestTimeoutError where no reply came in
        time, though the request may have been worked on.
        """
        return self._thread.call(
            self._producer.request(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    async def _start(self) -> None:
        await self._producer.start()

    async def _close(self) -> None:
        await self._producer.close()


class PushConsumer(_Client):
    """Has `listener` called with each message, in one of `thread_count` threads.

    A message counts as done when its call returns, and is given back for a later delivery when it raises. The messages
    of one queue come in its order only with one thread.
    """

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression],
        listener: MessageListener,
        *,
        thread_count: int = 20,
        config: ConsumerConfig | None = None,
        instance_name: str = "",
        on_assignment: OnAssignment | None = None,
    ) -> None:
        """As the asyncio class, whose arguments these are but for `listener` and `thread_count`."""
        super().__init__()
        if thread_count < 1:
            raise ValueError(f"thread_count {thread_count}: at least one")
        self._listener = listener
        self._thread_count = thread_count
        self._consumer = mqclient.consumer.push_consumer.PushConsumer(
            namesrv,
            group,
            subscriptions,
            config=config,
            instance_name=instance_name,
            on_assignment=on_assignment,
        )
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix=f"{group}-listener")
        self._is_closing = threading.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: set[asyncio.Task[None] | None] = set()

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member reads now. Raises ClientClosedError."""
        return self._thread.call_soon(lambda: self._consumer.queues)

    def reply(self, request: MessageExt, body: bytes, *, timeout_s: float | None = None) -> None:
        """Replies to a request (`Producer.request`), from the listener. Returns when the requester has taken the reply.

        Raises as the asyncio class does.
        """
        self._thread.call(self._consumer.reply(request, body, timeout_s=timeout_s))

    async def _start(self) -> None:
        await self._consumer.start()
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(self._thread_count)]

    async def _close(self) -> None:
        """Waits for the calls under way; what was taken and not begun goes to another member."""
        self._is_closing.set()
        for worker in self._idle:
            if worker is not None:
                worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._consumer.close()
        self._pool.shutdown()

    async def _work(self) -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        while not self._is_closing.is_set():
            self._idle.add(this)
            batch = await self._consumer.take()
            self._idle.discard(this)
            if batch is None:
                return
            count, failed = await loop.run_in_executor(self._pool, self._process, batch)
            if count < len(batch.messages):
                batch.done(batch.messages.index(failed[0]) if failed else count)
            elif failed:
                await self._consumer.send_back(batch, failed)
            else:
                batch.done()

    def _process(self, batch: ConsumeBatch) -> tuple[int, list[MessageExt]]:
        """How many messages the listener was called with, and with which it failed."""
        failed: list[MessageExt] = []
        for count, message in enumerate(batch.messages):
            if self._is_closing.is_set() or batch.is_dropped:
                return count, failed
            try:
                self._listener(message)
            except BaseException as error:
                # Whatever it is, the application's trouble with one message must not end the consumer: a SystemExit
                # would end its event loop without a word.
                log.exception(
                    "listener failed, the message comes again queue=%s offset=%d",
                    batch.queue, message.queue_offset,
                )  # fmt: skip
                failed.append(message)
                if isinstance(batch, DirectBatch):
                    batch.fault = f"{type(error).__name__}: {error}"
        return len(batch.messages), failed


class LitePullConsumer(_Client):
    """Polls for messages; see the asyncio class for what counts as done. One thread polls at a time."""

    def __init__(
        self,
        namesrv: str | None,
        group: str,
        subscriptions: Mapping[str, Expression] | None = None,
        *,
        assign_expressions: Mapping[str, Expression] | None = None,
        auto_commit: bool = True,
        config: ConsumerConfig | None = None,
        instance_name: str = "",
        on_assignment: OnAssignment | None = None,
    ) -> None:
        """As the asyncio class, whose arguments these are."""
        super().__init__()
        self._consumer = mqclient.consumer.lite_pull_consumer.LitePullConsumer(
            namesrv,
            group,
            subscriptions,
            assign_expressions=assign_expressions,
            auto_commit=auto_commit,
            config=config,
            instance_name=instance_name,
            on_assignment=on_assignment,
        )

    @property
    def client_id(self) -> str:
        return self._consumer.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now. Raises ClientClosedError."""
        return self._thread.call_soon(lambda: self._consumer.assignment)

    def poll(self, timeout_s: float = 5.0) -> list[MessageExt]:
        """The next messages, all of one queue and in its order; none if none came in time. Raises ClientClosedError."""
        return self._thread.call(self._consumer.poll(timeout_s))

    def assign(self, queues: Collection[MessageQueue]) -> None:
        """Reads these queues and no others, each from where the group is with it, or where `consume_from` says.

        Raises ValueError for a consumer that subscribes, MQClientError where a topic has no route.
        """
        self._thread.call(self._consumer.assign(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Goes on at this offset: the next message of the queue is this one, whatever was pulled before.

        Raises QueueNotAssignedError, OffsetIllegalError outside of what the queue holds (its end included), and
        MQClientError when the broker could not be asked for that.
        """
        self._thread.call(self._consumer.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Goes on at the oldest message there is. Raises as `seek` does."""
        self._thread.call(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Goes on at the next message that comes. Raises as `seek` does."""
        self._thread.call(self._consumer.seek_to_end(queue))

    def pause(self, *queues: MessageQueue) -> None:
        """Polls return nothing of these until `resume`. Raises QueueNotAssignedError."""
        self._thread.call_soon(self._consumer.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Raises QueueNotAssignedError."""
        self._thread.call_soon(self._consumer.resume, *queues)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commits what the polls so far returned, the last one included; or these offsets, of any queues.

        An offset is that of the next message to be read. Raises CommitError, which names the queues that failed.
        """
        self._thread.call(self._consumer.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed; None: none yet. Raises MQClientError."""
        return self._thread.call(self._consumer.committed(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Of the first message stored then or later; the queue's end if there is none. Raises MQClientError."""
        return self._thread.call(self._consumer.offset_for_timestamp(queue, timestamp_ms))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be read, as a NameServer knows them now. Raises RouteNotFoundError."""
        return self._thread.call(self._consumer.fetch_message_queues(topic))

    def on_topic_queues(self, topic: str, listener: OnTopicQueues) -> None:
        """Has `listener` called when the topic's queues become others than they are now. Raises RouteNotFoundError."""
        self._thread.call(self._consumer.on_topic_queues(topic, listener))

    async def _start(self) -> None:
        await self._consumer.start()

    async def _close(self) -> None:
        await self._consumer.close()
