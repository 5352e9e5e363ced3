"""Pop consumers of one broker, in frames: what they pop, acknowledge and are answered."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass

from one_broker import OneBroker, RecordingChannel, send_fields

from message.decoder import MessageExt, decode_messages
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand


@dataclass(frozen=True)
class PoppedMessage:
    message: MessageExt
    topic: str  # where it lies
    handle: str
    count: int  # how often it was popped before, as the answer says of FIFO consumers

    @property
    def body(self) -> bytes:
        return self.message.body


def pop_fields(**more: str) -> dict[str, str]:
    """The header of a POP_MESSAGE that begins with the first message, and does not wait."""
    return {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "10000",
        "pollTime": "0",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
        **more,
    }


def popped(answer: RemotingCommand, topic: str = "T", group: str = "g") -> list[PoppedMessage]:
    """The messages of an answer, with the handles that RocketMQ's client makes of it."""
    fields = answer.ext_fields
    starts = dict(_info(fields["startOffsetInfo"]))
    counts = dict(_info(fields.get("orderCountInfo", "")))
    found = []
    for message in decode_messages(answer.body):
        queue = f"0 {message.queue_id}"
        own = message.properties.get("POP_CK")
        handle = own or " ".join(
            (
                starts[queue],
                fields["popTime"],
                fields["invisibleTime"],
                fields["reviveQid"],
                "0",
                "golden-a",
                str(message.queue_id),
                str(message.queue_offset),
            )
        )
        retry = handle.split(" ")[4]
        real = topic if retry == "0" else f"%RETRY%{group}{'_' if retry == '1' else '+'}{topic}"
        count = counts.get(f"0 qo{message.queue_id}%{message.queue_offset}", counts.get(queue, "0"))
        found.append(PoppedMessage(message, real, handle, int(count)))
    return found


def bodies(messages: list[PoppedMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


def _info(text: str) -> list[tuple[str, str]]:
    return [(part.rpartition(" ")[0], part.rpartition(" ")[2]) for part in text.split(";") if part]


class PopClient:
    def __init__(self, broker: OneBroker, topic: str = "T", group: str = "g", **fields: str) -> None:
        """`fields` of all its pops."""
        self.broker = broker
        self.topic = topic
        self.group = group
        self.fields = {"topic": topic, "consumerGroup": group, **fields}

    def send(self, *bodies: bytes, queue_id: int = 0, tag: str = "A") -> None:
        for body in bodies:
            answer = self.broker.ask(
                RequestCode.SEND_MESSAGE_V2, send_fields(self.topic, queue_id, f"TAGS\x01{tag}\x02"), body
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def ask(self, **more: str) -> RemotingCommand:
        fields = pop_fields(**{**self.fields, **more})
        return self.broker.ask(RequestCode.POP_MESSAGE, fields)

    def begin(self, channel: RecordingChannel | None = None, **more: str) -> RemotingCommand:
        """A pop that may wait: the request, to look for its answer later."""
        born = {"bornTime": str(self.broker.now_ms), "pollTime": "20000"}
        fields = pop_fields(**{**self.fields, **born, **more})
        request = self.broker.new_request(RequestCode.POP_MESSAGE, fields)
        self.broker.receive([request], channel)
        self.broker.settle()
        return request

    def pop(self, **more: str) -> list[PoppedMessage]:
        answer = self.ask(**more)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return popped(answer, self.topic, self.group)

    def ack_fields(self, message: PoppedMessage) -> dict[str, str]:
        return {
            "consumerGroup": self.group,
            "topic": message.topic,
            "queueId": str(message.message.queue_id),
            "extraInfo": message.handle,
            "offset": str(message.message.queue_offset),
        }

    def ack(self, *messages: PoppedMessage) -> None:
        for message in messages:
            answer = self.broker.ask(RequestCode.ACK_MESSAGE, self.ack_fields(message))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def batch_ack_body(self, messages: list[PoppedMessage]) -> bytes:
        acks = []
        for message in messages:
            start, pop_time, invisible, revive, retry, _, queue_id, offset = message.handle.split(" ")
            bits = b64encode((1 << int(offset) - int(start)).to_bytes(4, "little")).decode()
            acks.append(
                {
                    "b": bits,
                    "c": self.group,
                    "it": int(invisible),
                    "pt": int(pop_time),
                    "q": int(queue_id),
                    "r": retry,
                    "rq": int(revive),
                    "so": int(start),
                    "t": self.topic,
                }
            )
        return json.dumps({"brokerName": "golden-a", "acks": acks}).encode()

    def change(self, message: PoppedMessage, invisible_ms: int, **more: str) -> PoppedMessage:
        fields = {**self.ack_fields(message), "invisibleTime": str(invisible_ms), **more}
        answer = self.broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        words = message.handle.split(" ")
        words[:4] = [
            words[7],
            answer.ext_fields["popTime"],
            answer.ext_fields["invisibleTime"],
            answer.ext_fields["reviveQid"],
        ]
        return PoppedMessage(message.message, message.topic, " ".join(words), message.count)
