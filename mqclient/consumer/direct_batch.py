"""A message, or an inner batch, that a tool has a consumer process now."""

from __future__ import annotations

import asyncio

from message.decoder import MessageExt
from mqclient.consumer.process_queue import ConsumeBatch, ProcessQueue
from remoting.bodies.admin_bodies import CMResult


class DirectBatch(ConsumeBatch):
    """Invariant: no offset of the group moves by it. It ends as other batches do, and who asked hears how.

    `fault`: with what the application failed, where that is known.
    """

    __slots__ = ("_taken_s", "ended", "fault", "result", "spent_s", "taken")

    def __init__(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """`process_queue`: one that nobody pulls for."""
        super().__init__(process_queue, messages, messages[-1].queue_offset + 1)
        self.taken = asyncio.Event()
        self.ended = asyncio.Event()
        self.result = CMResult.LATER
        self.fault: str | None = None
        self.spent_s = 0.0
        self._taken_s = 0.0

    def take(self) -> None:
        self._taken_s = asyncio.get_running_loop().time()
        self.taken.set()

    def done(self, count: int | None = None) -> None:
        if count == 0:
            self.failed()
        else:
            self._end(CMResult.SUCCESS)

    def failed(self) -> None:
        """It is not given back to the broker: nobody was due to get it."""
        self._end(CMResult.LATER if self.fault is None else CMResult.THROW_EXCEPTION)

    def _end(self, result: CMResult) -> None:
        if not self.is_done:  # what was given up may be called done, too, when the next batch is asked for
            self.is_done = True
            self.result = result
            self.spent_s = asyncio.get_running_loop().time() - self._taken_s
            self.ended.set()
