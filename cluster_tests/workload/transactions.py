"""Producers of transactions, many in one process. How each ends, and whether only when the broker asks, is drawn.

The process ends once no transaction is undecided any more, for until then it is asked.
"""

import argparse
import random

from workload.bodies import body_of, name_in
from workload.client_process import Client, run_client
from workload.drain import none_waits
from workload.sending import add_options, both_producers, failed, send_in_turn, stored

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

    def make(config: ProducerConfig, name: str) -> TransactionProducer:
        group, topics = "fault_run_transactions", [TOPIC]
        return TransactionProducer(
            client.namesrv, group, check=check, topics=topics, config=config, instance_name=name
        )

    async with both_producers(make, client, options) as producers:

        async def send(number: int, name: str, sequence: int) -> None:
            await _send(client, producers[number % len(producers)], name, sequence)

        await send_in_turn(client, options, send)
        await none_waits(client, undecided)


async def undecided(admin: Admin, leader: str) -> int:
    return (await admin.messages.pending_transactions(leader)).total


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
        client.notes.note(Transaction, begun_ns=begun_ns, **about, **failed(error))
        return
    client.notes.note(
        Transaction, begun_ns=begun_ns, is_ended=result.is_ended, **about, **stored(result.send_result)
    )


def note_said(
    client: Client, producer: str, sequence: int, state: TransactionState, *, asked: bool = False
) -> None:
    client.notes.note(
        TransactionSaid, producer=producer, sequence=sequence, state=state.name.lower(), asked=asked
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "transactions", producers=8, rate=20)


if __name__ == "__main__":
    run_client(produce, _add_options)
