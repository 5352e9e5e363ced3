"""JSON bodies of pop consumption."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import Annotated

from msgspec import field

from remoting.bodies.bodies import MessageModel, MessageQueue, RemotingBody
from remoting.errors import RemotingBodyError
from remoting.fastjson_values import java_enum
from remoting.headers.headers import Int32, Int64

MessageRequestMode = Annotated[str, java_enum("PULL", "POP")]


class BatchAck(RemotingBody, kw_only=True):
    """Messages that one pop took of a queue."""

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    retry: str = field(name="r")  # as in a handle
    start_offset: Int64 = field(name="so")
    queue_id: Int32 = field(name="q")
    revive_queue_id: Int32 = field(name="rq")
    pop_time: Int64 = field(name="pt")
    invisible_time: Int64 = field(name="it")
    bits: str = field(name="b")  # of offsets from start_offset on, in base64

    @property
    def bit_set(self) -> bytes:
        """Bit i of byte 0, 1 and so on. Raises RemotingBodyError."""
        try:
            return b64decode(self.bits, validate=True)
        except (Base64Error, ValueError) as error:
            raise RemotingBodyError(f"BatchAck.b: {self.bits!r:.80} is no base64: {error}") from error


class BatchAckMessageRequestBody(RemotingBody, kw_only=True):
    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)


class PoppedMessagesOfQueue(RemotingBody, kw_only=True):
    """`oldest_pop_ms`: when the oldest of them was popped. `next_visible_ms`: when the first of them comes again."""

    group: str
    topic: str
    queue_id: Int32
    count: Int64
    oldest_pop_ms: Int64
    next_visible_ms: Int64


class PoppedMessages(RemotingBody, kw_only=True):
    """Answer to GET_POPPED_MESSAGES: messages that consumers have, and that are neither acknowledged nor over."""

    total: Int64 = 0
    queues: list[PoppedMessagesOfQueue] = field(default_factory=list)


class QueryAssignmentRequestBody(RemotingBody, kw_only=True):
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: MessageModel = "CLUSTERING"


class MessageQueueAssignment(RemotingBody, kw_only=True):
    message_queue: MessageQueue
    mode: MessageRequestMode = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(RemotingBody, kw_only=True):
    message_queue_assignments: list[MessageQueueAssignment] | None = None  # None: the client stays as it is


class SetMessageRequestModeRequestBody(RemotingBody, kw_only=True):
    topic: str
    consumer_group: str
    mode: MessageRequestMode = "PULL"
    pop_share_queue_num: Int32 = 0


class MessageRequestModeSerializeWrapper(RemotingBody, kw_only=True):
    """By topic, then by group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )
