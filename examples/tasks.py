"""Tasks that take as long as they take: each is acknowledged by itself, and one that fails comes again.

python examples/tasks.py 127.0.0.1:9876
"""

import asyncio
import sys

from mqclient import ConsumeFromWhere, Message, Producer, SimpleConsumer

TASKS = ("resize cat.png", "resize dog.png", "send report", "resize owl.png", "print invoice")


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "office") as producer:
        for task in TASKS:
            await producer.send(Message("Tasks", task.encode()))

    first = ConsumeFromWhere.FIRST
    async with SimpleConsumer(
        namesrv, "workers", {"Tasks": "*"}, invisible_s=2, consume_from=first
    ) as worker:
        done = 0
        while done < len(TASKS):
            for message in await worker.receive(4):
                task = message.body.decode()
                if task == "send report":
                    await worker.change_invisible(message, 30)  # this one takes longer
                if task == "print invoice" and not message.reconsume_times:
                    print(f"{task}: out of paper")
                    continue  # not acknowledged: in two seconds it comes again
                await worker.ack(message)
                print(f"{task}: done")
                done += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
