"""Drives RocketMQ's C++ client through the PyPI package `rocketmq`, in whose virtual environment this runs.

    interop.py send NAMESRV TOPIC COUNT PREFIX TAG...         a key per message, tags in turn
    interop.py send-orderly NAMESRV TOPIC COUNT SHARDS        numbers; each shard keeps to one queue
    interop.py push NAMESRV TOPIC GROUP TAGS FAILURES         until its input closes; each message fails so often first
    interop.py push-orderly NAMESRV TOPIC GROUP TAGS FAILURES

A JSON object per line tells what happened.
"""

import json
import sys
import threading

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage, dll
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import _CConsumeStatus

OUTPUT = threading.Lock()


def tell(event, **more):
    with OUTPUT:
        print(json.dumps({"event": event, **more}), flush=True)


def message(topic, key, tag):
    made = Message(topic)
    made.set_keys(key)
    made.set_tags(tag)
    made.set_body(key)
    return made


def send(namesrv, topic, keys, tags, send_one):
    producer = Producer("cpp_producer")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for number, key in enumerate(keys):
        try:
            result = send_one(producer, number, message(topic, key, tags[number % len(tags)]))
        except RocketMQException as error:
            tell("failed", key=key, reason=str(error))
        else:
            tell("ok", key=key, tag=tags[number % len(tags)], offset=result.offset)
    tell("done")
    producer.shutdown()


def push(namesrv, topic, group, tags, failures, *, orderly):
    # The package's own subscribe() lets no callback say that it failed.
    consumer = PushConsumer(group, orderly=orderly)
    consumer.set_namesrv_addr(namesrv)
    tried = {}

    def on_message(_, handle):
        got = RecvMessage(handle)
        key = got.keys.decode()
        tried[key] = tried.get(key, 0) + 1
        fails = tried[key] <= failures
        tell(
            "failed" if fails else "received",
            key=key, tag=got.tags.decode(), body=got.body.decode(), queue=got.queue_id, times=got.reconsume_times,
        )  # fmt: skip
        return (_CConsumeStatus.RECONSUME_LATER if fails else _CConsumeStatus.CONSUME_SUCCESS).value

    dll.Subscribe(consumer._handle, topic.encode(), tags.encode())
    consumer._register_callback(on_message)
    consumer.start()
    tell("started")
    sys.stdin.read()
    consumer.shutdown()
    tell("done")


def main(command, namesrv, topic, *rest):
    if command == "send":
        count, prefix, *tags = rest
        keys = [f"{prefix}{number}" for number in range(int(count))]
        send(namesrv, topic, keys, tags, lambda producer, _, made: producer.send_sync(made))
    elif command == "send-orderly":
        count, shards = map(int, rest)
        keys = [f"{number % shards}-{number:05d}" for number in range(count)]
        send(
            namesrv,
            topic,
            keys,
            ["T"],
            lambda producer, number, made: producer.send_orderly(made, number % shards),
        )
    else:
        group, tags, failures = rest
        push(namesrv, topic, group, tags, int(failures), orderly=command == "push-orderly")


main(*sys.argv[1:])
