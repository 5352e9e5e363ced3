"""The client in a program without an event loop: a producer, a listener in threads, a poll.

python examples/without_asyncio.py 127.0.0.1:9876
"""

import sys
import threading

from mqclient import ConsumeFromWhere, ConsumerConfig, Message, MessageExt, SendError
from mqclient.sync import LitePullConsumer, Producer, PushConsumer

FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


def main(namesrv: str) -> None:
    with Producer(namesrv, "pictures") as producer:
        futures = [producer.send_async(Message("Pictures", f"{n}.png".encode())) for n in range(5)]
        for future in futures:
            try:
                future.result()
            except SendError as error:
                print(f"{'surely not stored' if error.definite else 'unknown'}: {error}")

    shrunk: list[str] = []
    is_done = threading.Event()

    def shrink(message: MessageExt) -> None:  # what it raises has the message come again
        shrunk.append(message.body.decode())
        if len(shrunk) == 5:
            is_done.set()

    with PushConsumer(namesrv, "shrinkers", {"Pictures": "*"}, shrink, thread_count=2, config=FIRST):
        is_done.wait()
    print("shrunk:", *sorted(shrunk))

    with LitePullConsumer(namesrv, "counters", {"Pictures": "*"}, config=FIRST) as consumer:
        count = 0
        while count < 5:
            count += len(consumer.poll())
        consumer.commit()  # else the last poll's messages come again
        print("counted:", count)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
