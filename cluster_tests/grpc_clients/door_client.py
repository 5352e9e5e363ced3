"""The official gRPC client for Python, without TLS as it is by itself: `door_client.py endpoint topic`.

What it is told stands in originals/doors/grpc_client.py, which also drives DoorClient.java, door_client.go and
door_client.js.
"""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

CREDENTIALS = Credentials(os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", ""))

recall_handles: dict[str, str] = {}
consumers: dict[str, Any] = {}
held: dict[tuple[str, str], Any] = {}
printing = threading.Lock()


def tell(event: str, **values: object) -> None:
    with printing:
        print(json.dumps({"event": event, **values}), flush=True)


def key_of(message: Any) -> str:
    return str(next(iter(message.keys)))


def received(group: str, message: Any, fails: bool) -> None:
    tell(
        "received",
        group=group,
        key=key_of(message),
        body=message.body.decode(),
        id=message.message_id,
        tag=message.tag or "",
        message_group=message.message_group or "",
        attempt=message.delivery_attempt,
        topic=message.topic,
        fails=fails,
    )


class Checker(TransactionChecker):
    def check(self, message: Any) -> Any:
        decision = message.properties["decision"]
        tell(
            "checked", key=key_of(message), body=message.body.decode(), topic=message.topic, decision=decision
        )
        return TransactionResolution.COMMIT if decision == "commit" else TransactionResolution.ROLLBACK


class Listener(MessageListener):
    def __init__(self, group: str) -> None:
        self._group = group
        self._deliveries: Counter[str] = Counter()

    def consume(self, message: Any) -> Any:
        self._deliveries[key_of(message)] += 1
        fails = self._deliveries[key_of(message)] <= int(message.properties.get("fails", "0"))
        received(self._group, message, fails)
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def made(key: str, topic: str, words: list[str]) -> Any:
    """`words` are NAME=VALUE: tag, group and at_ms of the message itself, or properties."""
    message = Message()
    message.topic, message.body, message.keys = topic, f"{key} body".encode(), key
    for name, value in (word.split("=", 1) for word in words):
        match name:
            case "tag":
                message.tag = value
            case "group":
                message.message_group = value
            case "at_ms":
                message.delivery_timestamp = int(value) // 1000  # it knows whole seconds
            case _:
                message.add_property(name, value)
    return message


class Program:
    def __init__(self, endpoint: str, topic: str) -> None:
        self._configuration = ClientConfiguration(endpoint, CREDENTIALS, request_timeout=10)
        self._producer = Producer(self._configuration, (topic,), checker=Checker())
        self._producer.startup()

    def run(self, command: str, *words: str) -> None:
        try:
            getattr(self, command)(*words)
        except Exception as problem:  # noqa: BLE001 (whatever the client raises is told)
            tell("failed", of=command, key=words[0], error=repr(problem))

    def send(self, key: str, topic: str, *words: str) -> None:
        self._sent(key, self._producer.send(made(key, topic, list(words))))

    def transact(self, key: str, topic: str, now: str, *words: str) -> None:
        transaction = self._producer.begin_transaction()
        self._sent(key, self._producer.send(made(key, topic, list(words)), transaction))
        if now == "commit":
            transaction.commit()
        elif now == "rollback":
            transaction.rollback()
        tell("ended", key=key, state=now)

    def _sent(self, key: str, receipt: Any) -> None:
        if receipt.recall_handle:
            recall_handles[key] = receipt.recall_handle
        tell("sent", key=key, id=receipt.message_id)

    def recall(self, key: str, topic: str) -> None:
        self._producer.recall_message(topic, recall_handles[key])
        tell("recalled", key=key)

    def push(self, topic: str, group: str, kind: str, expression: str) -> None:
        subscription = {topic: self._filter(kind, expression)}
        consumers[group] = PushConsumer(self._configuration, group, Listener(group), subscription)
        consumers[group].startup()
        tell("consuming", group=group)

    def simple(self, topic: str, group: str, kind: str, expression: str) -> None:
        subscription = {topic: self._filter(kind, expression)}
        consumers[group] = SimpleConsumer(self._configuration, group, subscription, await_duration=6)
        consumers[group].startup()
        tell("consuming", group=group)

    @staticmethod
    def _filter(kind: str, expression: str) -> Any:
        return FilterExpression(expression, FilterType.SQL if kind == "SQL92" else FilterType.TAG)

    def receive(self, group: str, count: str, invisible_ms: str) -> None:
        messages = consumers[group].receive(int(count), int(invisible_ms) // 1000) or []
        for message in messages:
            held[group, key_of(message)] = message
            received(group, message, False)
        tell("polled", group=group, count=len(messages))

    def ack(self, key: str, group: str) -> None:
        consumers[group].ack(held[group, key])
        tell("acked", group=group, key=key)

    def hide(self, key: str, group: str, invisible_ms: str) -> None:
        consumers[group].change_invisible_duration(held[group, key], int(invisible_ms) // 1000)
        tell("hidden", group=group, key=key)


class LoopInEachThread(asyncio.DefaultEventLoopPolicy):
    """Where a thread has no loop, the client cannot open its stream. It may do that in our threads, and also, if it
    learns late that the stream to a proxy is broken, in the one that sends its settings.
    """

    def get_event_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return super().get_event_loop()
        except RuntimeError:
            self.set_event_loop(self.new_event_loop())
            return super().get_event_loop()


def main() -> None:
    asyncio.set_event_loop_policy(LoopInEachThread())
    program = Program(sys.argv[1], sys.argv[2])
    tell("started")
    threads = ThreadPoolExecutor(32)
    for line in sys.stdin:
        threads.submit(program.run, *line.rstrip("\n").split("\t"))
    os._exit(0)  # the client's own threads would go on


main()
