"""JSON bodies of pop consumption."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error

from msgspec import field

from remoting.bodies.bodies import RemotingBody
from remoting.errors import RemotingBodyError
from remoting.headers.headers import Int32, Int64


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
