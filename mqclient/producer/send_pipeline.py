"""A window of sends: messages go in one by one, batches go out, outcomes come back as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mqclient.errors import SendError
from mqclient.message import Message
from mqclient.producer.producer import Producer
from mqclient.producer.send_result import SendResult

OnOutcome = Callable[[int, "SendResult | SendError"], None]


class SendPipeline:
    """Use it as `async with SendPipeline(producer, on_outcome) as pipeline: await pipeline.put(message)`.

    Messages are numbered from 0 in the order of `put`; `on_outcome(number, outcome)` is called exactly once for each.
    At most `in_flight_max` are without an outcome; `put` waits while that many are. Leaving the block waits for all.
    Order: messages of one batch that go to one queue keep theirs as long as nothing has to be tried again.
    """

    def __init__(
        self,
        producer: Producer,
        on_outcome: OnOutcome,
        *,
        batch_size_max: int = 64,
        in_flight_max: int = 1024,
        timeout_s: float | None = None,
    ) -> None:
        self._producer = producer
        self._on_outcome = on_outcome
        self._batch_size_max = batch_size_max
        self._in_flight_max = in_flight_max
        self._timeout_s = timeout_s
        self._batch: list[Message] = []
        self._batch_begin = 0
        self._count = 0
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._flush_asked = False
        self._error: BaseException | None = None

    async def __aenter__(self) -> SendPipeline:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.drain()
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def count(self) -> int:
        """Messages put in so far."""
        return self._count

    async def put(self, message: Message) -> None:
        """Raises what ended an earlier batch without outcomes: MessageIllegalError of a message in it (nothing of that
        batch was sent), or an error that `on_outcome` raised."""
        while self._in_flight >= self._in_flight_max and self._error is None:
            self._room.clear()
            self._flush()
            await self._room.wait()
        if self._error is not None:
            raise self._error
        if not self._batch:
            self._batch_begin = self._count
        self._batch.append(message)
        self._count += 1
        self._in_flight += 1
        if len(self._batch) >= self._batch_size_max:
            self._flush()
        elif not self._flush_asked:
            # What is put in within one turn of the loop leaves together; a lone message does not wait for others.
            self._flush_asked = True
            asyncio.get_running_loop().call_soon(self._flush)

    async def drain(self) -> None:
        """Waits until everything put in so far has its outcome."""
        self._flush()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._error is not None:
            raise self._error

    def _flush(self) -> None:
        self._flush_asked = False
        if self._batch:
            task = asyncio.get_running_loop().create_task(self._send(self._batch_begin, self._batch))
            self._batch = []
            self._tasks.add(task)
            task.add_done_callback(self._batch_ended)

    async def _send(self, begin: int, batch: list[Message]) -> None:
        try:
            outcomes = await self._producer.send_batch(batch, timeout_s=self._timeout_s)
            for number, outcome in enumerate(outcomes, begin):
                self._on_outcome(number, outcome)
        finally:
            self._in_flight -= len(batch)
            self._room.set()

    def _batch_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()  # asked for in any case: else asyncio logs it
        if self._error is None:
            self._error = error
