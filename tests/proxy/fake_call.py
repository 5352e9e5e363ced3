"""A gRPC call without a connection: what the client sends is put in, what it is answered is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import Message

from proxy.grpc.call import Call, CallClosed, Handler
from proxy.services.methods import SERVICE

ResponseT = TypeVar("ResponseT", bound=Message)


class FakeCall(Call):
    __slots__ = ("closed", "has_headers", "incoming", "outgoing")

    def __init__(
        self,
        *requests: Message,
        name: str = "",
        client_id: str = "c1",
        metadata: Mapping[str, str] | None = None,
        peer: str = "127.0.0.1:50001",
        deadline: float | None = None,
        ended: bool = True,
    ) -> None:
        """`ended`: the client sends nothing more."""
        super().__init__(SERVICE + name, {"x-mq-client-id": client_id, **(metadata or {})}, peer, deadline)
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self.has_headers = False
        self.closed = False
        for request in requests:
            self.say(request)
        if ended:
            self.end()

    def say(self, request: Message) -> None:
        self.incoming.put_nowait(request.SerializeToString())

    def end(self) -> None:
        self.incoming.put_nowait(None)

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    def send_headers(self) -> None:
        self.has_headers = True

    async def send(self, payload: bytes) -> None:
        if self.closed:
            raise CallClosed
        self.outgoing.put_nowait(payload)

    async def next(self, kind: type[ResponseT]) -> ResponseT:
        """The next message that the client is sent."""
        return kind.FromString(await self.outgoing.get())


async def permit(request: Message, call: Call) -> None:
    """Where everybody may do everything."""


async def answer(
    handlers: Mapping[str, Handler], name: str, request: Message, kind: type[ResponseT], client_id: str = "c1"
) -> ResponseT:
    """Of a unary method."""
    call = FakeCall(request, name=name, client_id=client_id)
    await handlers[SERVICE + name](call)
    return await call.next(kind)
