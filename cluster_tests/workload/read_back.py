"""All queues read whole when all is healed: what is not found here is lost."""

import asyncio
from collections.abc import Sequence

from workload.bodies import delivered
from workload.group_notes import at, noted
from workload.noting import Notes

from faults.history import READ_BACK, Poll, QueueEnd
from mqclient import Admin, ConsumeFromWhere, ConsumerConfig, LitePullConsumer, MessageQueue

NAME = "read_back"
STALLED_S = 60.0
CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, pull_batch_size=1000)


class ReadBackError(Exception):
    """Some queue was not read to the end that its broker names."""


async def read_back(namesrv: str, topics: Sequence[str], notes: Notes) -> int:
    """The number of messages. Raises ReadBackError, MQClientError."""
    async with Admin(namesrv) as admin:
        ends = {
            MessageQueue(topic, row.broker, row.queue): (row.min, row.max)
            for topic in topics
            for row in await admin.topics.status(topic)
        }
    consumer = LitePullConsumer(namesrv, READ_BACK, auto_commit=False, config=CONFIG, instance_name=NAME)
    noted(consumer, notes, NAME)
    left = {queue: end for queue, (begin, end) in ends.items() if begin < end}
    count = 0
    async with consumer:
        if left:
            await consumer.assign(left.keys())
        while left:
            messages = await consumer.poll(STALLED_S)
            if not messages:
                told = ", ".join(f"{queue.topic}/{queue.queue_id} up to {end}" for queue, end in left.items())
                raise ReadBackError(f"no message came for {STALLED_S:g} s, and there should be more: {told}")
            count += len(messages)
            at_queue = messages[0].topic, messages[0].queue_id
            queue = next(queue for queue in ends if (queue.topic, queue.queue_id) == at_queue)
            next_offset = messages[-1].queue_offset + 1
            notes.note(
                Poll,
                offset=messages[0].queue_offset,
                next_offset=next_offset,
                messages=tuple(map(delivered, messages)),
                **at(READ_BACK, NAME, queue),
            )
            if next_offset >= left.get(queue, next_offset + 1):
                del left[queue]
    for queue, (begin, end) in ends.items():
        notes.note(QueueEnd, min_offset=begin, max_offset=end, **at(READ_BACK, NAME, queue))
    return count


def run_read_back(namesrv: str, topics: Sequence[str], notes: Notes) -> int:
    """As read_back(), from a thread without a loop."""
    return asyncio.run(read_back(namesrv, topics, notes))
