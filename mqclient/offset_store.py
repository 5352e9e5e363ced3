"""Where a consumer keeps how far it is: with the brokers (clustering), or in a file of its own (broadcasting)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from mqclient.client_instance import ClientInstance
from mqclient.errors import MQClientError
from mqclient.message_queue import MessageQueue

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    async def load(self) -> None:
        """Once, before anything else. Raises MQClientError."""

    async def read(self, queue: MessageQueue) -> int | None:
        """None: no offset is kept for this queue. Raises MQClientError where that is not known."""

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Collection[MessageQueue]:
        """Keeps these; returns the queues for which that worked."""

    async def close(self) -> None: ...


class RemoteBrokerOffsetStore:
    """Each queue's offset with the broker that leads it; all members of the group have one."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def load(self) -> None: ...

    async def read(self, queue: MessageQueue) -> int | None:
        address = await self._instance.master_address(queue)
        return await self._instance.api.query_consumer_offset(address, self._group, queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Collection[MessageQueue]:
        done = await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))
        return [queue for queue, is_done in zip(offsets, done, strict=True) if is_done]

    async def close(self) -> None: ...

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        try:
            address = await self._instance.master_address(queue)
            await self._instance.api.update_consumer_offset(address, self._group, queue, offset)
        except MQClientError as error:
            log.info("commit failed queue=%s offset=%d reason=%s", queue, offset, error)
            return False
        return True
