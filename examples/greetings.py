"""Sends a few messages and reads them back as a member of a group.

python examples/greetings.py 127.0.0.1:9876
"""

import asyncio
import sys

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer, SendError

GREETINGS = {"en": "hello", "de": "hallo", "fr": "bonjour", "ja": "こんにちは"}


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "greeters") as producer:
        for language, text in GREETINGS.items():
            try:
                result = await producer.send(Message("Greetings", text.encode(), tags=language, keys=(text,)))
            except SendError as error:
                # Unknown is a third outcome: the message may be stored or not.
                print(f"{text}: {'surely not stored' if error.definite else 'unknown'} ({error})")
            else:
                print(f"{text}: queue {result.message_queue.queue_id}, offset {result.queue_offset}")

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
    async with PushConsumer(namesrv, "readers", {"Greetings": "en || ja"}, config=config) as consumer:
        seen = 0
        async for message in consumer:
            print(f"{message.tags}: {message.body.decode()}")
            seen += 1
            if seen == 2:
                break  # the message one breaks off at is not counted as done: the group gets it again


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
