"""What a pop brings, and what is said of it by handle: the requests that consumers and the proxy make alike.

`topic` is the one that consumers know. A message may lie in a retry topic of it, which its handle says.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence

from message import const
from message.decoder import MessageExt
from message.pop_handle import PopHandle, retry_mark, topic_of_mark
from message.received_messages import received_messages
from mqclient.answer import Answer
from remoting.bodies.pop_bodies import BatchAck, BatchAckMessageRequestBody
from remoting.codes import RequestCode
from remoting.headers.headers import to_ext_fields
from remoting.headers.pop_headers import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader


def popped_messages(
    answer: Answer,
    topic: str,
    broker_name: str,
    read: Callable[[bytes], list[MessageExt]] = lambda records: received_messages(records, None),
) -> list[MessageExt]:
    """The messages of an answer to POP_MESSAGE, with their handles in POP_CK. Raises BadAnswerError."""
    try:
        starts = _info(answer.fields.get("startOffsetInfo", ""))
        counts = _info(answer.fields.get("orderCountInfo", ""))
        messages = read(bytes(answer.body))
    except ValueError as error:
        raise answer.unreadable(f"messages that cannot be read: {error}") from error
    handle = PopHandle(
        0,
        answer.number("popTime"),
        answer.number("invisibleTime"),
        answer.number("reviveQid"),
        "0",
        broker_name,
        0,
    )
    for message in messages:
        mark = retry_mark(message.topic)
        queue = f"{mark} {message.queue_id}"
        if const.POP_CK not in message.properties:
            if queue not in starts:
                raise answer.unreadable(
                    f"a message of queue {message.queue_id}, which startOffsetInfo has not"
                )
            own = handle._replace(
                start=starts[queue],
                retry=mark if message.topic != topic else "0",
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
            )
            message.properties[const.POP_CK] = own.encode()
            message.topic = topic
        count = counts.get(f"{mark} qo{message.queue_id}%{message.queue_offset}", counts.get(queue, 0))
        message.reconsume_times = max(message.reconsume_times, count)
    return messages


def handle_of(message: MessageExt) -> PopHandle:
    """Raises ValueError for a message that was not popped."""
    text = message.properties.get(const.POP_CK)
    if text is None:
        raise ValueError(f"message {message.msg_id} was not popped: it has no handle")
    return PopHandle.decode(text)._replace(queue_offset=message.queue_offset)


Request = tuple[RequestCode, dict[str, str], bytes]  # code, fields, body


def ack_request(group: str, topic: str, handles: Sequence[PopHandle]) -> Request:
    """Says that these messages of one broker are done."""
    if len(handles) == 1:
        (handle,) = handles
        assert handle.queue_offset is not None, "a handle of one message"
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=topic_of_mark(topic, group, handle.retry),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.queue_offset,
            bname=handle.broker_name,
        )
        return RequestCode.ACK_MESSAGE, to_ext_fields(header), b""
    bits: dict[PopHandle, int] = {}
    for handle in handles:
        assert handle.queue_offset is not None, "a handle of one message"
        pop = handle._replace(queue_offset=None)
        bits[pop] = bits.get(pop, 0) | 1 << handle.queue_offset - handle.start
    acks = [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry=pop.retry,
            start_offset=pop.start,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue_id,
            pop_time=pop.pop_time,
            invisible_time=pop.invisible_ms,
            bits=b64encode(set_bits.to_bytes((set_bits.bit_length() + 7) // 8, "little")).decode(),
        )
        for pop, set_bits in bits.items()
    ]
    body = BatchAckMessageRequestBody(broker_name=handles[0].broker_name, acks=acks)
    return RequestCode.BATCH_ACK_MESSAGE, {}, body.encode()


def change_request(
    group: str, topic: str, handle: PopHandle, invisible_ms: int, *, suspend: bool = False
) -> Request:
    """Asks for another invisible time, from now on. `suspend`: the end of that is no failed attempt."""
    assert handle.queue_offset is not None, "a handle of one message"
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group=group,
        topic=topic_of_mark(topic, group, handle.retry),
        queue_id=handle.queue_id,
        extra_info=handle.encode(),
        offset=handle.queue_offset,
        invisible_time=invisible_ms,
        suspend=suspend,
        bname=handle.broker_name,
    )
    return RequestCode.CHANGE_MESSAGE_INVISIBLETIME, to_ext_fields(header), b""


def changed_handle(handle: PopHandle, answer: Answer) -> PopHandle:
    """The handle that counts after a change. Raises BadAnswerError."""
    if "popTime" not in answer.fields:
        return handle  # a broker that had nothing to change
    assert handle.queue_offset is not None, "a handle of one message"
    return handle._replace(
        start=handle.queue_offset,
        pop_time=answer.number("popTime"),
        invisible_ms=answer.number("invisibleTime"),
        revive_queue_id=answer.number("reviveQid"),
    )


def _info(text: str) -> dict[str, int]:
    """By mark and queue. Raises ValueError."""
    parts = (part.rpartition(" ") for part in text.split(";") if part)
    return {name: int(value) for name, _, value in parts}
