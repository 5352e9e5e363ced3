"""Producers of transactions, many in one process. How each ends, and whether only when the broker asks, is drawn.

Every second producer does not try again what ended unknown, as in producers.py. The process ends once no transaction
is undecided any more, for until then it is asked.
"""

import argparse
import asyncio
import random

from workload.bodies import body_of, name_in
from workload.client_process import QUEUES, Client, run_client
from workload.drain import none_waits
from workload.producers import RETRIES, attempts_that_count, in_turn

from faults.history import Transaction, TransactionBegun, TransactionSaid
from mqclient import (
    Admin,
    Message,
    MessageExt,
    ProducerConfig,
    SendError,
    TransactionProducer,
    TransactionState,
)

TOPIC = "FaultRunTransactions"
# Checks come early and for as long as faults may last. Without, they come after 6 s, every 30 s, 15 times.
CONF = {"transactionTimeOut": "2000", "transactionCheckInterval": "2000", "transactionCheckMax": "1000"}
COMMITTED_SHARE = 0.6
AT_ONCE_SHARE = 0.6


def drawn(producer: str, sequence: int) -> tuple[TransactionState, bool]:
    """How the transaction ends, and whether its producer says so at once."""
    dice = random.Random(f"{producer}/{sequence}")
    is_committed, is_at_once = dice.random() < COMMITTED_SHARE, dice.random() < AT_ONCE_SHARE
    return TransactionState.COMMIT if is_committed else TransactionState.ROLLBACK, is_at_once


async def produce(client: Client, options: argparse.Namespace) -> None:
    def check(message: MessageExt) -> TransactionState:
        producer, sequence = name_in(message.body)
        state, _ = drawn(producer, sequence)
        note_said(client, producer, sequence, state, asked=True)
        return state

    producers = [
        TransactionProducer(
            client.namesrv,
            "fault_run_transactions",
            check=check,
            topics=[TOPIC],
            config=ProducerConfig(
                send_timeout_s=options.timeout_s, retry_times=retries, default_topic_queue_nums=QUEUES
            ),
            instance_name=f"{client.name}-{retries}",
        )
        for retries in RETRIES
    ]
    for producer in producers:
        await producer.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.producers):
                name, producer = f"{client.name}.{number}", producers[number % len(producers)]
                tasks.create_task(_send_in_turn(client, producer, name, number, options))
        await none_waits(client, undecided)
    finally:
        for producer in producers:
            await producer.close()


async def undecided(admin: Admin, leader: str) -> int:
    return (await admin.messages.pending_transactions(leader)).total


async def _send_in_turn(
    client: Client, producer: TransactionProducer, name: str, number: int, options: argparse.Namespace
) -> None:
    async for sequence in in_turn(client, number, options):
        await _send(client, producer, name, sequence)


async def _send(client: Client, producer: TransactionProducer, name: str, sequence: int) -> None:
    def execute(message: Message, transaction_id: str) -> TransactionState:
        state, is_at_once = drawn(name, sequence)
        if not is_at_once:
            state = TransactionState.UNKNOWN
        note_said(client, name, sequence, state)
        return state

    about = {"producer": name, "sequence": sequence, "topic": TOPIC}
    begun_ns = client.notes.note(TransactionBegun, **about)
    try:
        result = await producer.send_in_transaction(Message(TOPIC, body_of(name, sequence, 0)), execute)
    except SendError as error:
        client.notes.note(
            Transaction,
            begun_ns=begun_ns,
            outcome="fail" if error.definite else "unknown",
            attempts=max(error.attempts, 1),
            reason=str(error),
            **about,
        )
        return
    client.notes.note(
        Transaction,
        begun_ns=begun_ns,
        outcome="ok",
        attempts=attempts_that_count(result.send_result),
        is_ended=result.is_ended,
        **about,
    )


def note_said(
    client: Client, producer: str, sequence: int, state: TransactionState, *, asked: bool = False
) -> None:
    client.notes.note(
        TransactionSaid, producer=producer, sequence=sequence, state=state.name.lower(), asked=asked
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--rate", type=float, default=20, help="transactions per second, of all of them")
    parser.add_argument("--timeout-s", type=float, default=3.0, help="of one send, all attempts together")


if __name__ == "__main__":
    run_client(produce, _add_options)
