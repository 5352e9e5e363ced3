"""The client for programs without an event loop: the same classes with calls that wait, in any thread.

Each object runs an event loop in a thread of its own from `start` to `close`, best as `with Producer(…) as producer`.
Errors are those of the asyncio classes. Selectors and listeners of queues are called in that thread: they must return
soon, and cannot call the object they belong to.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from message.decoder import MessageExt
from mqclient.consumer import lite_pull_consumer, push_consumer, simple_consumer
from mqclient.consumer.consumer_config import ConsumeFromWhere, ConsumerConfig
from mqclient.consumer.direct_batch import DirectBatch
from mqclient.consumer.group_member import OnAssignment
from mqclient.consumer.process_queue import ConsumeBatch
from mqclient.consumer.subscription import Expression
from mqclient.loop_thread import LoopThread
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer import producer, transaction_producer
from mqclient.producer.producer_config import ProducerConfig
from mqclient.producer.queue_selector import QueueSelector
from mqclient.producer.send_result import SendResult
from mqclient.producer.transaction_producer import TransactionSendResult, TransactionState

__all__ = [
    "CheckListener",
    "LitePullConsumer",
    "LocalTransaction",
    "MessageListener",
    "Producer",
    "PushConsumer",
    "SimpleConsumer",
    "TransactionProducer",
]

log = logging.getLogger(__name__)

MessageListener = Callable[[MessageExt], None]
"""Processes one message. What it raises has the message delivered again later. It must not close its consumer, which
would wait for it."""

LocalTransaction = Callable[[Message, str], TransactionState]
"""Does the application's part, in the thread that sends. It gets the message and the transaction's id, and says how the
transaction ends."""

CheckListener = Callable[[MessageExt], TransactionState]
"""Says how a transaction has ended, of which the broker has not heard. `message.uniq_key` is the transaction's id. One
call at a time, in a thread of its own."""


class _AsyncClient(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=_AsyncClient)
P = ParamSpec("P")
T = TypeVar("T")


class _Client(Generic[C]):
    """A client of asyncio, its thread, and what starts and closes them once."""

    def __init__(self, client: C) -> None:
        self._client = client
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

    async def _start(self) -> None:
        await self._client.start()

    async def _close(self) -> None:
        await self._client.close()


def _waiting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Client[C], P], T]:
    """The same call, which waits."""

    @functools.wraps(method)
    def call(self: _Client[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(method(self._client, *args, **kwargs))

    return call


def _in_its_thread(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[_Client[C], P], T]:
    """The same call, which is no coroutine, and belongs to the client's loop."""

    @functools.wraps(method)
    def call(self: _Client[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call_soon(functools.partial(method, self._client, *args, **kwargs))

    return call


class Producer(_Client[producer.Producer]):
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
        super().__init__(producer.Producer(namesrv, group, config=config, instance_name=instance_name))

    send = _waiting(producer.Producer.send)
    send_batch = _waiting(producer.Producer.send_batch)
    send_oneway = _waiting(producer.Producer.send_oneway)
    recall = _waiting(producer.Producer.recall)
    request = _waiting(producer.Producer.request)

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
            self._client.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )


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
    ) -> None:
        """As the asyncio class, whose arguments these are."""
        self._transactions = transaction_producer.TransactionProducer(
            namesrv,
            group,
            check=self._checked,
            topics=topics,
            config=config,
            instance_name=instance_name,
        )
        _Client.__init__(self, self._transactions)
        self._check = check
        self._check_pool = ThreadPoolExecutor(1, thread_name_prefix=f"{group}-check")

    def send_in_transaction(
        self, message: Message, execute: LocalTransaction, *, timeout_s: float | None = None
    ) -> TransactionSendResult:
        """Prepares the message, calls `execute` in this thread, and tells the broker how the transaction ends. What
        `execute` raises is logged, and counts as UNKNOWN.

        Raises SendError and MessageIllegalError as `send` does, and then `execute` was not called. If the error is not
        `definite`, the message may be prepared all the same, and `check` will be asked.
        """
        prepared: Future[str] = Future()
        said: Future[TransactionState] = Future()

        async def executed(message: Message, transaction_id: str) -> TransactionState:
            prepared.set_result(transaction_id)
            return await asyncio.wrap_future(said)

        sending = self._thread.begin(
            self._transactions.send_in_transaction(message, executed, timeout_s=timeout_s)
        )
        both: list[Future[Any]] = [prepared, sending]
        try:
            wait(both, return_when=FIRST_COMPLETED)
            if prepared.done():
                state = _said(execute, message, prepared.result())
                with suppress(InvalidStateError):  # the client was closed meanwhile: nobody listens
                    said.set_result(state)
        except BaseException:
            sending.cancel()
            raise
        return self._thread.result(sending)

    async def _checked(self, message: MessageExt) -> TransactionState:
        return await asyncio.get_running_loop().run_in_executor(self._check_pool, self._check, message)

    async def _close(self) -> None:
        """Waits for the check under way, which may call this producer: its loop goes on meanwhile."""
        await super()._close()
        await asyncio.to_thread(self._check_pool.shutdown, cancel_futures=True)


def _said(execute: LocalTransaction, message: Message, transaction_id: str) -> TransactionState:
    """What the application says. UNKNOWN where it fails, with a line in the log."""
    try:
        return execute(message, transaction_id)
    except Exception:
        log.exception("the application failed at transaction %s, which counts as UNKNOWN", transaction_id)
        return TransactionState.UNKNOWN


class PushConsumer(_Client[push_consumer.PushConsumer]):
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
        super().__init__(
            push_consumer.PushConsumer(
                namesrv,
                group,
                subscriptions,
                config=config,
                instance_name=instance_name,
                on_assignment=on_assignment,
            )
        )
        if thread_count < 1:
            raise ValueError(f"thread_count {thread_count}: at least one")
        self._listener = listener
        self._thread_count = thread_count
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix=f"{group}-listener")
        self._is_closing = threading.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._idle: set[asyncio.Task[None] | None] = set()

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member reads now. Raises ClientClosedError."""
        return self._thread.call_soon(lambda: self._client.queues)

    reply = _waiting(push_consumer.PushConsumer.reply)

    async def _start(self) -> None:
        await self._client.start()
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._work()) for _ in range(self._thread_count)]

    async def _close(self) -> None:
        """Waits for the calls under way; what was taken and not begun goes to another member."""
        self._is_closing.set()
        for worker in self._idle:
            if worker is not None:
                worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._client.close()
        self._pool.shutdown()

    async def _work(self) -> None:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        while not self._is_closing.is_set():
            self._idle.add(this)
            batch = await self._client.take()
            self._idle.discard(this)
            if batch is None:
                return
            count, failed = await loop.run_in_executor(self._pool, self._process, batch)
            if count < len(batch.messages):
                batch.done(batch.messages.index(failed[0]) if failed else count)
            elif failed:
                await self._client.send_back(batch, failed)
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


class LitePullConsumer(_Client[lite_pull_consumer.LitePullConsumer]):
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
        super().__init__(
            lite_pull_consumer.LitePullConsumer(
                namesrv,
                group,
                subscriptions,
                assign_expressions=assign_expressions,
                auto_commit=auto_commit,
                config=config,
                instance_name=instance_name,
                on_assignment=on_assignment,
            )
        )

    @property
    def client_id(self) -> str:
        return self._client.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now. Raises ClientClosedError."""
        return self._thread.call_soon(lambda: self._client.assignment)

    poll = _waiting(lite_pull_consumer.LitePullConsumer.poll)
    assign = _waiting(lite_pull_consumer.LitePullConsumer.assign)
    seek = _waiting(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = _waiting(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = _waiting(lite_pull_consumer.LitePullConsumer.seek_to_end)
    pause = _in_its_thread(lite_pull_consumer.LitePullConsumer.pause)
    resume = _in_its_thread(lite_pull_consumer.LitePullConsumer.resume)
    commit = _waiting(lite_pull_consumer.LitePullConsumer.commit)
    committed = _waiting(lite_pull_consumer.LitePullConsumer.committed)
    offset_for_timestamp = _waiting(lite_pull_consumer.LitePullConsumer.offset_for_timestamp)
    fetch_message_queues = _waiting(lite_pull_consumer.LitePullConsumer.fetch_message_queues)
    on_topic_queues = _waiting(lite_pull_consumer.LitePullConsumer.on_topic_queues)


class SimpleConsumer(_Client[simple_consumer.SimpleConsumer]):
    """Receives messages for a while and acknowledges each by itself; see the asyncio class. Any thread may call it."""

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
    ) -> None:
        """As the asyncio class, whose arguments these are."""
        super().__init__(
            simple_consumer.SimpleConsumer(
                namesrv,
                group,
                subscriptions,
                invisible_s=invisible_s,
                fifo=fifo,
                consume_from=consume_from,
                instance_name=instance_name,
            )
        )

    @property
    def client_id(self) -> str:
        return self._client.client_id

    receive = _waiting(simple_consumer.SimpleConsumer.receive)
    ack = _waiting(simple_consumer.SimpleConsumer.ack)
    change_invisible = _waiting(simple_consumer.SimpleConsumer.change_invisible)
