"""Producers of timer messages, many in one process: for a time of day, after a delay, or by a delay level, as drawn.

Some are recalled after a part of their time. The process ends when no timer waits any more.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from workload.bodies import body_of
from workload.client_process import Client, run_client
from workload.drain import none_waits
from workload.sending import add_options, both_producers, failed, send_in_turn, stored

from dledger.steady_clock import steady_clock
from faults.history import Recall, RecallBegun, Timer, TimerBegun
from mqclient import Admin, Message, MQClientError, Producer, SendError

TOPIC = "FaultRunTimers"
DELAY_MS_MIN, DELAY_MS_MAX = 1_000, 20_000
LEVELS_MS = {1: 1_000, 2: 5_000, 3: 10_000}  # of a broker's messageDelayLevel
RECALLED_SHARE = 0.3
NS_PER_MS = 1_000_000


async def produce(client: Client, options: argparse.Namespace) -> None:
    timers = Timers(client)
    async with both_producers(
        lambda config, name: Producer(client.namesrv, "fault_run_timers", config=config, instance_name=name),
        client,
        options,
    ) as producers:

        async def send(number: int, name: str, sequence: int) -> None:
            await timers.send(producers[number % len(producers)], {"producer": name, "sequence": sequence})

        async with timers.tasks:
            await send_in_turn(client, options, send)
        await none_waits(client, waiting)


async def waiting(admin: Admin, leader: str) -> int:
    return (await admin.messages.timers(leader)).get(TOPIC, 0)


class Timers:
    """`tasks` has one for each timer that was sent, until it is due."""

    def __init__(self, client: Client) -> None:
        self.tasks = asyncio.TaskGroup()
        self._client = client
        self._now_ms = steady_clock(time.time_ns, time.monotonic_ns)  # as members keep their time

    async def send(self, producer: Producer, name: Mapping[str, str | int]) -> None:
        dice = random.Random("{producer}/{sequence}".format_map(name))
        body = body_of(str(name["producer"]), int(name["sequence"]), 0)
        delay_ms, due_ms = dice.randint(DELAY_MS_MIN, DELAY_MS_MAX), 0
        match dice.choice(("time of day", "time of day", "delay", "level")):
            case "time of day":
                due_ms = self._now_ms() + delay_ms
                at = datetime.fromtimestamp(due_ms / 1000, UTC)
                message = Message(TOPIC, body, deliver_at=at)
            case "delay":
                message = Message(TOPIC, body, delay=timedelta(milliseconds=delay_ms))
            case _:
                level, delay_ms = dice.choice(list(LEVELS_MS.items()))
                message = Message(TOPIC, body, delay_level=level)
        about = {**name, "topic": TOPIC}
        due_ns = time.monotonic_ns() + delay_ms * NS_PER_MS
        begun_ns = self._client.notes.note(TimerBegun, due_ns=due_ns, due_ms=due_ms, **about)
        try:
            result = await producer.send(message)
        except SendError as error:
            self._client.notes.note(Timer, begun_ns=begun_ns, **about, **failed(error))
            return
        self._client.notes.note(
            Timer, begun_ns=begun_ns, recall_handle=result.recall_handle, **about, **stored(result)
        )
        recall_after = dice.random() if dice.random() < RECALLED_SHARE and result.recall_handle else None
        self.tasks.create_task(self._outlive(producer, name, due_ns, result.recall_handle, recall_after))

    async def _outlive(
        self,
        producer: Producer,
        name: Mapping[str, str | int],
        due_ns: int,
        recall_handle: str,
        recall_after: float | None,
    ) -> None:
        """Returns when it is due. `recall_after`: which part of the time until then; None: not at all."""
        left_s = max(due_ns - time.monotonic_ns(), 0) / 1e9
        if recall_after is not None:
            await asyncio.sleep(left_s * recall_after)
            await self._recall(producer, name, recall_handle)
        await asyncio.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)

    async def _recall(self, producer: Producer, name: Mapping[str, str | int], recall_handle: str) -> None:
        begun_ns = self._client.notes.note(RecallBegun, **name)
        outcome, reason = "ok", ""
        try:
            await producer.recall(TOPIC, recall_handle)
        except MQClientError as error:
            outcome, reason = "fail" if error.definite else "unknown", str(error)
        self._client.notes.note(Recall, begun_ns=begun_ns, outcome=outcome, reason=reason, **name)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "timers", producers=8, rate=20)


if __name__ == "__main__":
    run_client(produce, _add_options)
