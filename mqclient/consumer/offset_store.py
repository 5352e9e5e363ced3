"""Where a consumer keeps how far it is: with the brokers (clustering), or in a file of its own (broadcasting)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
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

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, MQClientError]:
        """Keeps these; returns what failed, and why."""

    async def close(self) -> None: ...


class RemoteBrokerOffsetStore:
    """Each queue's offset with the broker that leads it; all members of the group have one.

    Invariant: commits of one queue reach the broker in their order. Else an offset that an operator set could be
    followed by the one before it.
    """

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._committing: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def load(self) -> None: ...

    async def read(self, queue: MessageQueue) -> int | None:
        address = await self._instance.master_address(queue)
        return await self._instance.api.query_consumer_offset(address, self._group, queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, MQClientError]:
        ends = await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))
        return {queue: error for queue, error in zip(offsets, ends, strict=True) if error is not None}

    async def close(self) -> None: ...

    async def _commit(self, queue: MessageQueue, offset: int) -> MQClientError | None:
        async with self._committing[queue]:
            try:
                address = await self._instance.master_address(queue)
                await self._instance.api.update_consumer_offset(address, self._group, queue, offset)
            except MQClientError as error:
                log.info("commit failed queue=%s offset=%d reason=%s", queue, offset, error)
                return error
            return None
