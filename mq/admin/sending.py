"""Commands that send messages: one by hand, or some to see how long it takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Annotated

from mq.admin.command import Report, Result, command
from mq.admin.options import ClusterOption, Option, TopicOption
from mqclient import Admin, AdminError, Message, MessageQueue, Producer, ProducerConfig, SendError

AmountOption = Annotated[int, Option("-a", "--amount", least=1, help="So many messages.")]
SizeOption = Annotated[int, Option("-s", "--size", least=1, help="Bytes of a body.")]
Row = dict[str, object]


@command
async def send_message(
    admin: Admin,
    topic: TopicOption,
    body: Annotated[str, Option("-p", "--body")],
    key: Annotated[str, Option("-k", "--key", help="Keys, separated by blanks.")] = "",
    tags: Annotated[str, Option("-c", "--tags")] = "",
    broker: Annotated[str, Option("-b", "--broker", help="With -i: name of a broker.")] = "",
    queue: Annotated[int, Option("-i", "--qid", help="With -b: to this queue.")] = -1,
) -> Result:
    """Send one message."""
    if bool(broker) != (queue >= 0):
        raise ValueError("a queue is named by its broker with -b and its id with -i")
    to = MessageQueue(topic, broker, queue) if broker else None
    async with Producer(admin.namesrv_addr, "SendMessageCommand") as producer:
        result = await producer.send(Message(topic, body.encode(), tags, key), queue=to)
    return [
        {
            "broker": result.message_queue.broker_name,
            "queue": result.message_queue.queue_id,
            "offset": result.queue_offset,
            "status": result.status.name,
            "msg_id": result.msg_id,
            "offset_msg_id": result.offset_msg_id,
        }
    ]


@command
async def send_msg_status(
    admin: Admin,
    broker: Annotated[str, Option("-b", "--brokerName", help="Its name is a topic, too.")],
    size: Annotated[int, Option("-s", "--messageSize", least=1)] = 128,
    count: Annotated[int, Option("-c", "--count", least=1)] = 50,
) -> Result:
    """Send to a broker's own topic, a row per message."""
    return _timed(await _round_trips(admin, broker, count, size))


@command
async def check_msg_send_rt(
    admin: Admin, topic: TopicOption, amount: AmountOption = 100, size: SizeOption = 128
) -> Result:
    """Send to a topic's queues in turn, a row per message."""
    return _timed(await _round_trips(admin, topic, amount, size))


@command
async def cluster_rt(
    admin: Admin, amount: AmountOption = 100, size: SizeOption = 128, cluster: ClusterOption = ""
) -> Result:
    """Send to each broker's own topic, a row per broker."""
    rows = []
    for name in sorted({member.broker for member in await admin.brokers.members(cluster)}):
        sent = await _round_trips(admin, name, amount, size)
        succeeded = [row["rt_millis"] for row in sent if row["status"] == "SEND_OK"]
        rows.append(
            {
                "broker": name,
                "rt_millis": _mean(succeeded),
                "successes": len(succeeded),
                "failures": amount - len(succeeded),
            }
        )
    if all(row["failures"] == amount for row in rows):
        raise AdminError("no broker took a message: clusterList shows who leads", retriable=True)
    return rows


async def _round_trips(admin: Admin, topic: str, count: int, size: int) -> list[Row]:
    """One after the other, each tried once; nothing of what the first one has to find out is counted."""
    queues = await admin.messages.queues(topic)
    if not queues:
        raise AdminError(f"topic {topic} has no queue that can be read: topicRoute shows its permissions")
    message = Message(topic, b"a" * size)
    rows: list[Row] = []
    async with Producer(
        admin.namesrv_addr, "CheckMsgSendRT", config=ProducerConfig(retry_times=0)
    ) as producer:
        await _send_once(producer, message, queues[0])
        for number in range(count):
            queue = queues[number % len(queues)]
            began = time.perf_counter()
            status = await _send_once(producer, message, queue)
            rt_millis = round((time.perf_counter() - began) * 1000, 3)
            rows.append(
                {
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "status": status,
                    "rt_millis": rt_millis,
                }
            )
    return rows


async def _send_once(producer: Producer, message: Message, queue: MessageQueue) -> str:
    try:
        return (await producer.send(message, queue=queue)).status.name
    except SendError as error:
        return f"refused: {error}" if error.definite else f"unknown: {error}"


def _timed(rows: list[Row]) -> Result:
    succeeded = [row["rt_millis"] for row in rows if row["status"] == "SEND_OK"]
    if not succeeded:
        raise AdminError(f"no message was acknowledged: {rows[-1]['status']}", definite=False, retriable=True)
    return Report(rows, f"\n{len(succeeded)} of {len(rows)} acknowledged, mean {_mean(succeeded):.2f} ms")


def _mean(values: Sequence[object]) -> float:
    numbers = [value for value in values if isinstance(value, float)]
    return round(statistics.fmean(numbers), 3) if numbers else 0.0
