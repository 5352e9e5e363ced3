"""Prepared messages, their ends, and what is in the topics that they come to."""

from __future__ import annotations

from one_broker import OneBroker, pull_fields, send_fields

from message.decoder import MessageExt, decode_messages
from message.message_id import decode_offset_message_id
from message.names import (
    TOOLS_CONSUMER_GROUP,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

SEND = RequestCode.SEND_MESSAGE_V2
COMMIT, ROLLBACK = 8, 12


class Transaction:
    """One prepared message, and how its producer ends it."""

    def __init__(self, broker: OneBroker, body: bytes = b"m", topic: str = "T", **properties: str) -> None:
        self.broker = broker
        properties = {
            "KEYS": "k",
            "TRAN_MSG": "true",
            "UNIQ_KEY": "ID",
            "PGROUP": "p",
            "TAGS": "A",
            **properties,
        }
        born = {"g": properties.pop("g")} if "g" in properties else {}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        self.answer = broker.ask(SEND, send_fields(topic, 2, text, f="4", **born), body)

    @property
    def phy_offset(self) -> int:
        return decode_offset_message_id(self.answer.ext_fields["msgId"])[1]

    def fields(self, verdict: int, **more: str) -> dict[str, str]:
        return {
            "topic": "T",
            "producerGroup": "p",
            "tranStateTableOffset": self.answer.ext_fields["queueOffset"],
            "commitLogOffset": str(self.phy_offset),
            "commitOrRollback": str(verdict),
            "fromTransactionCheck": "false",
            "msgId": "ID",
            "transactionId": "ID",
            **more,
        }

    def end(self, verdict: int, **more: str) -> RemotingCommand:
        return self.broker.ask(RequestCode.END_TRANSACTION, self.fields(verdict, **more))


def messages(broker: OneBroker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    fields = pull_fields(topic, queue_id, consumerGroup=TOOLS_CONSUMER_GROUP)
    answer = broker.ask(RequestCode.PULL_MESSAGE, fields)
    return decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []


def bodies(broker: OneBroker, topic: str = "T", queue_id: int = 2) -> list[bytes]:
    return [message.body for message in messages(broker, topic, queue_id)]
