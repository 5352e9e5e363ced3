"""Reads a topic's messages of the last hour once more, without a group's share of queues and without its offsets.

python examples/replay.py 127.0.0.1:9876
"""

import asyncio
import sys
import time

from mqclient import LitePullConsumer, Message, Producer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "station") as producer:
        await producer.send_batch([Message("Temperatures", f"{20 + n / 10}".encode()) for n in range(12)])

    an_hour_ago_ms = (time.time_ns() // 1_000_000) - 3_600_000
    async with LitePullConsumer(namesrv, "replay", auto_commit=False) as consumer:
        queues = await consumer.fetch_message_queues("Temperatures")
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, await consumer.offset_for_timestamp(queue, an_hour_ago_ms))
        temperatures: list[float] = []
        while messages := await consumer.poll(timeout_s=1):
            temperatures += [float(message.body) for message in messages]
        print(f"{len(temperatures)} measurements, {min(temperatures)} to {max(temperatures)} degrees")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
