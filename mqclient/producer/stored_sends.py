"""Finds out whether a send that ended unknown is stored, by reading what its queue has gained since.

A leader that serves has all that earlier leaders committed, and what it has not is never committed any more. So after a
change of leader the answer is final. Under the same leader a message may come in after its queue was read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from message.decoder import MessageExt, decode_messages
from message.errors import MessageError
from message.names import TOOLS_CONSUMER_GROUP
from message.sys_flag import pull_sys_flag
from mqclient.client_api import ClientApi
from mqclient.errors import BrokerResponseError
from mqclient.message_queue import MessageQueue
from remoting.codes import RequestCode, ResponseCode

PULL_COUNT_MAX = 32


@dataclass(slots=True)
class _Read:
    """Of one queue, for all who asked before it began."""

    begin: int
    task: asyncio.Task[Mapping[str, MessageExt]]
    uniq_keys: set[str] = field(default_factory=set)
    waiters: int = 0


class StoredSends:
    """Invariant: what is sent to a queue from now on is stored at `begin` of that queue or behind it.

    With a leader that dies, hundreds of sends end unknown at once: those of one queue share one read of it.
    """

    def __init__(self, api: ClientApi) -> None:
        self._api = api
        self._begins: dict[MessageQueue, int] = {}
        self._next_reads: dict[tuple[str, MessageQueue], _Read] = {}  # that have not begun
        self._turns: defaultdict[tuple[str, MessageQueue], asyncio.Lock] = defaultdict(asyncio.Lock)

    def acknowledged(self, queue: MessageQueue, offset: int) -> None:
        if offset >= self._begins.get(queue, 0):
            self._begins[queue] = offset + 1

    def begin(self, queue: MessageQueue) -> int | None:
        """None: nothing was acknowledged in this queue so far, so that all of it would have to be read."""
        return self._begins.get(queue)

    async def find(
        self, address: str, queue: MessageQueue, begin: int, uniq_keys: Collection[str], *, timeout_s: float
    ) -> Mapping[str, MessageExt]:
        """Those of these messages that lie at `begin` or behind it, by UNIQ_KEY. Raises MQClientError."""
        place = (address, queue)
        read = self._next_reads.get(place)
        if read is None:
            task = asyncio.get_running_loop().create_task(self._read(place, timeout_s))
            read = self._next_reads[place] = _Read(begin, task)
        read.begin = min(read.begin, begin)
        read.uniq_keys.update(uniq_keys)
        read.waiters += 1
        try:
            return await asyncio.shield(read.task)
        finally:
            read.waiters -= 1
            if not read.waiters:
                read.task.cancel()
                if self._next_reads.get(place) is read:
                    del self._next_reads[place]

    async def _read(self, place: tuple[str, MessageQueue], timeout_s: float) -> Mapping[str, MessageExt]:
        address, queue = place
        async with self._turns[place]:
            read = self._next_reads.pop(place)
            # Asked first: a leader that does not serve yet refuses this, while it may answer pulls.
            end = await self._api.max_offset(address, queue, timeout_s=timeout_s)
            found: dict[str, MessageExt] = {}
            offset = read.begin
            while offset < end and len(found) < len(read.uniq_keys):
                messages, reached = await self._pull(address, queue, offset, end, timeout_s)
                for message in messages:
                    if (uniq_key := message.uniq_key) is not None and uniq_key in read.uniq_keys:
                        found[uniq_key] = message
                if reached <= offset:
                    break  # a queue that ends earlier than it did
                offset = reached
            return found

    async def _pull(
        self, address: str, queue: MessageQueue, offset: int, end: int, timeout_s: float
    ) -> tuple[list[MessageExt], int]:
        """Some messages, and where the next ones begin."""
        flags = pull_sys_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False)
        fields = {
            "consumerGroup": TOOLS_CONSUMER_GROUP,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(min(end - offset, PULL_COUNT_MAX)),
            "sysFlag": str(flags),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
            "bname": queue.broker_name,
        }
        answer = await self._api.ask(address, RequestCode.PULL_MESSAGE, fields, timeout_s=timeout_s)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            return [], answer.number("nextBeginOffset")
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerResponseError(answer.code, answer.remark, address)
        try:
            return decode_messages(answer.body), answer.number("nextBeginOffset")
        except MessageError as error:
            raise answer.unreadable(f"messages that cannot be read: {error}") from error
