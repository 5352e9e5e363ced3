"""One call over one HTTP/2 stream: what came in and is not received yet, and what waits to go out.

The connection owns frames, windows and sockets, and calls in here with what they brought.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from proxy.grpc.call import Call, CallClosed
from proxy.grpc.messages import PREFIX, HeldBudget, MessageAssembler, encode_message


class Carrier(Protocol):
    """The connection, as its streams see it."""

    def send_headers(self, stream: ServerStream) -> None: ...

    def send_header_block(self, stream: ServerStream, block: bytes) -> None:
        """Send other response headers than those of gRPC."""

    def pump(self, stream: ServerStream) -> None:
        """Send of the outbox what the windows let through, the rest later."""

    def make_room(self) -> None:
        """End the call that holds most, which may be the one that asks."""

    def give_back(self, stream: ServerStream, size: int) -> None:
        """Let the client send that many bytes more."""


class Unsent:
    """A message on its way out. `waiter` is done when its last byte has been handed to the connection.
    `held_size`: its part of the budget, once it waits.
    """

    __slots__ = ("data", "held_size", "sent_size", "waiter")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sent_size = 0
        self.held_size = 0
        self.waiter: asyncio.Future[None] | None = None


class ServerStream(Call):
    """Invariant: without messages in `_inbox` every byte that came has been given back to the client's window.

    So a client that sends more than its handler receives is held up by the window, at most one window and one
    message further.
    """

    __slots__ = (
        "_assembler",
        "_budget",
        "_handled_size",
        "_inbox",
        "_receiver",
        "_withheld_size",
        "carrier",
        "discards",
        "ended",
        "headers_sent",
        "held_size",
        "id",
        "outbox",
        "request_ended",
        "task",
        "timer",
    )

    def __init__(
        self,
        carrier: Carrier,
        stream_id: int,
        path: str,
        metadata: Mapping[str, str],
        peer: str,
        deadline: float | None,
        budget: HeldBudget,
    ) -> None:
        super().__init__(path, metadata, peer, deadline)
        self.id = stream_id
        self.request_ended = False  # the client has sent all
        self.discards = False  # what it sends is no gRPC
        self.headers_sent = False
        self.held_size = 0  # our part of the budget
        self.ended = False  # nothing more leaves: the status has been sent, or the stream was reset
        self.outbox: deque[Unsent] = deque()
        self.task: asyncio.Task[None] | None = None  # the handler's, once it has begun
        self.timer: asyncio.TimerHandle | None = None  # rings at the deadline
        self.carrier = carrier
        self._assembler = MessageAssembler(budget.message_size_max)
        self._budget = budget
        self._handled_size = 0  # of the message that the handler has received last
        self._inbox: deque[bytes] = deque()
        self._withheld_size = 0
        self._receiver: asyncio.Future[None] | None = None
        self.hold(sum(map(len, metadata)) + sum(map(len, metadata.values())))

    async def receive(self) -> bytes | None:
        self.hold(-self._handled_size)
        self._handled_size = 0
        while not self._inbox:
            if self.request_ended:
                return None
            if self.ended:
                raise CallClosed("the call has ended")
            assert self._receiver is None, "one task at a time receives"
            self._receiver = asyncio.get_running_loop().create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        message = self._inbox.popleft()
        self._handled_size = PREFIX.size + len(message)
        if self._withheld_size and not self._inbox:
            size, self._withheld_size = self._withheld_size, 0
            self.carrier.give_back(self, size)
        return message

    def send_headers(self) -> None:
        if not self.headers_sent and not self.ended:
            self.carrier.send_headers(self)

    async def send(self, payload: bytes) -> None:
        if self.ended:
            raise CallClosed("the call has ended")
        self.send_headers()
        await self.write(encode_message(payload))

    async def write(self, data: bytes) -> None:
        unsent = Unsent(data)
        self.outbox.append(unsent)
        if len(self.outbox) == 1:
            self.carrier.pump(self)
            if not self.outbox:
                return
        unsent.held_size = len(data)
        self.hold(unsent.held_size)
        if self._budget.size > self._budget.size_max:
            self.carrier.make_room()
            if self.ended:
                raise CallClosed("the call has ended")
        unsent.waiter = asyncio.get_running_loop().create_future()
        await unsent.waiter

    async def drained(self) -> None:
        """Wait until all messages have left."""
        while self.outbox and not self.ended:
            last = self.outbox[-1]
            if last.waiter is None or last.waiter.cancelled():
                last.waiter = asyncio.get_running_loop().create_future()
            await asyncio.wait((last.waiter,))

    def data_received(self, data: bytes, size: int) -> None:
        """Take the bytes of a DATA frame, `size` with its padding. Raises GrpcError for a message that is not taken."""
        self.hold(len(data))
        self._inbox.extend(self._assembler.feed(data))
        if not self._inbox:
            self.carrier.give_back(self, size)
            return
        self._withheld_size += size
        self._wake_receiver()

    def end_request(self) -> None:
        self.request_ended = True
        self._wake_receiver()

    def close(self) -> None:
        """End the stream: nothing more leaves or arrives, and tasks that wait for that get CallClosed."""
        self.ended = True
        self.hold(-self.held_size)
        self._handled_size = 0
        self._inbox.clear()
        if self._withheld_size:
            size, self._withheld_size = self._withheld_size, 0
            self.carrier.give_back(self, size)
        self._wake_receiver()
        for unsent in self.outbox:
            if unsent.waiter is not None and not unsent.waiter.done():
                unsent.waiter.set_exception(CallClosed("the call has ended"))
                unsent.waiter.exception()  # marked as read: a task that was cancelled does not await it
        self.outbox.clear()

    def hold(self, size: int) -> None:
        """Take that much of the budget, or with a negative size give it back."""
        self.held_size += size
        self._budget.size += size

    def _wake_receiver(self) -> None:
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)
