"""All queues read whole when all is healed: what is not found here is lost."""

import asyncio

from workload.bodies import delivered
from workload.client_process import TOPIC
from workload.group_notes import at, noted
from workload.noting import Notes

from faults.history import READ_BACK, Poll, QueueEnd
from mqclient import Admin, ConsumeFromWhere, ConsumerConfig, LitePullConsumer, MessageQueue

NAME = "read_back"
STALLED_S = 60.0
CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, pull_batch_size=1000)


class ReadBackError(Exception):
    """Some queue was not read to the end that its broker names."""


async def read_back(namesrv: str, notes: Notes) -> int:
    """The number of messages. Raises ReadBackError, MQClientError."""
    async with Admin(namesrv) as admin:
        ends = {
            MessageQueue(TOPIC, row.broker, row.queue): (row.min, row.max)
            for row in await admin.topics.status(TOPIC)
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
                told = ", ".join(f"queue {queue.queue_id} up to {end}" for queue, end in left.items())
                raise ReadBackError(f"no message came for {STALLED_S:g} s, and there should be more: {told}")
            count += len(messages)
            queue = next(queue for queue in ends if queue.queue_id == messages[0].queue_id)
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


def run_read_back(namesrv: str, notes: Notes) -> int:
    """As read_back(), from a thread without a loop."""
    return asyncio.run(read_back(namesrv, notes))
