"""A proxy before a group of brokers, spoken to without connections."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import uvloop

from proxy.config import ProxyConfig
from proxy.protocol.definition import ClientType, Message, MessageType, Resource, Settings, SystemProperties
from proxy.server import Proxy


def run(story: Coroutine[Any, Any, None]) -> None:
    uvloop.run(story)


@contextlib.asynccontextmanager
async def proxying(namesrv: str, **conf: Any) -> AsyncIterator[Proxy]:
    config = ProxyConfig(
        **{
            "namesrv_addr": (namesrv,),
            "bind_address": "127.0.0.1",
            "grpc_server_port": 0,
            "transaction_heartbeat_period_seconds": 1,
            **conf,
        }
    )
    proxy = Proxy(config)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


def message(topic: str = "T", body: bytes = b"x", *, message_id: str = "01AB", **system: Any) -> Message:
    return Message(
        topic=Resource(name=topic),
        body=body,
        system_properties=SystemProperties(
            **{"message_id": message_id, "message_type": MessageType.NORMAL, **system}
        ),
    )


def producer_settings(*topics: str) -> Settings:
    settings = Settings(client_type=ClientType.PRODUCER)
    settings.publishing.SetInParent()
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    return settings
