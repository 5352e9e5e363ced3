"""Ends sends whose last attempt ended unknown and is found stored."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from mqclient.errors import MQClientError, NoMasterError
from mqclient.message_queue import MessageQueue
from mqclient.producer.pending_send import PendingSend
from mqclient.producer.send_result import SendResult, SendStatus
from mqclient.producer.stored_sends import StoredSends
from mqclient.route.topic_route import TopicRoute


async def look_for_doubted(
    stored_sends: StoredSends, route: TopicRoute, sends: Sequence[PendingSend], timeout_s: float
) -> None:
    """Ends those of these whose last attempt is found stored. A queue that has gained too much since to be read in
    time stays unread. Raises MQClientError while nobody can tell.
    """
    by_queue: defaultdict[MessageQueue, list[PendingSend]] = defaultdict(list)
    for send in sends:
        if send.outcome is None and send.is_doubted and send.queue is not None:
            by_queue[send.queue].append(send)
    looks = [_look_in_queue(stored_sends, route, queue, some, timeout_s) for queue, some in by_queue.items()]
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for end in await asyncio.gather(*looks, return_exceptions=True):
                if end is not None:
                    raise end


async def _look_in_queue(
    stored_sends: StoredSends,
    route: TopicRoute,
    queue: MessageQueue,
    sends: Sequence[PendingSend],
    timeout_s: float,
) -> None:
    begins = [send.queue_begin for send in sends if send.queue_begin is not None]
    if begins:
        address = route.master_address(queue.broker_name)
        if address is None:
            raise NoMasterError(f"broker {queue.broker_name} has no leader now")
        try:
            found = await stored_sends.find(
                address, queue, min(begins), {send.uniq_key for send in sends}, timeout_s=timeout_s
            )
        except MQClientError as error:
            if error.retriable:
                raise
            found = {}  # as of a topic that nobody may read
        for send in sends:
            if (message := found.get(send.uniq_key)) is not None:
                send.outcome = SendResult(
                    SendStatus.SEND_OK,
                    send.uniq_key,
                    message.msg_id,
                    queue,
                    message.queue_offset,
                    send.attempts,
                    send.unknown_ends > 1,
                )
    for send in sends:
        send.is_doubted = False
