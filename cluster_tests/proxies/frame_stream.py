"""One way through a connection between members, with whole messages lost, doubled or overtaken. No I/O.

Frames of the peer protocol follow one another without a number or a seal of their own (dledger/rpc/codec.py), so a
stream with one of them left out, doubled or moved is a sound stream: the member that reads it has lost a message, got
it twice, or got it late. What the handshake says passes as it is; without it there is no connection to lose a message
of.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from dledger.rpc.codec import FRAME_PREFIX

_SIZE_FIELD = 4
_ARRAY_16 = 0xDC  # msgpack: an array of 16 fields or more, its length in two bytes more
_TYPE_AT = (
    FRAME_PREFIX.size + 1
)  # behind the first byte of the header, which is an array that begins with its type
_TYPE_AT_OF_ARRAY_16 = _TYPE_AT + 2
HANDSHAKE_TYPE_MIN = 100


class Fate(Enum):
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"  # goes behind the next one


@dataclass(frozen=True)
class FrameFault:
    """Of the messages on a way `share` get this fate. `counts`: those that had it, by type."""

    fate: Fate
    share: float
    dice: Random
    counts: Counter[int] = field(default_factory=Counter)


class FrameStream:
    """Bytes in, bytes to send on out.

    Invariant: what has gone out is whole frames, and the begin of one at most, which passes as it comes: a stream
    without faults is neither delayed nor put together differently, but for the first ten bytes of a frame.
    """

    def __init__(self, faults: Callable[[], Sequence[FrameFault]]) -> None:
        """`faults` that are on when a frame begins; of several that want it the first one has it."""
        self._faults = faults
        self._head = b""  # too little to know the type of what begins with it
        self._left = 0  # bytes of the frame that has begun
        self._type = 0
        self._fault: FrameFault | None = None
        self._kept = bytearray()
        self._overtaken: tuple[bytes, int, FrameFault] | None = None  # until the next one has gone

    def receive(self, data: bytes) -> bytes:
        out = bytearray()
        data = self._head + data
        self._head = b""
        offset = 0
        while offset < len(data):
            if not self._left:
                rest = data[offset : offset + _TYPE_AT_OF_ARRAY_16 + 1]
                if not self._begins(rest):
                    self._head = rest
                    break
            chunk = data[offset : offset + self._left]
            offset += len(chunk)
            self._left -= len(chunk)
            if self._fault is None:
                out += chunk
            elif self._fault.fate is not Fate.DROP:
                self._kept += chunk
            if not self._left:
                self._ends(out)
        return bytes(out)

    def _begins(self, head: bytes) -> bool:
        """False while its type has not come."""
        if len(head) <= _TYPE_AT:
            return False
        type_at = _TYPE_AT_OF_ARRAY_16 if head[FRAME_PREFIX.size] == _ARRAY_16 else _TYPE_AT
        if len(head) <= type_at:
            return False
        size, _ = FRAME_PREFIX.unpack_from(head)
        self._left = _SIZE_FIELD + size
        self._type = head[type_at]
        self._fault = None
        if self._type < HANDSHAKE_TYPE_MIN:
            self._fault = next((one for one in self._faults() if one.dice.random() < one.share), None)
            if self._overtaken and self._fault and self._fault.fate is Fate.REORDER:
                self._fault = None  # it is what the one before waits for
        return True

    def _ends(self, out: bytearray) -> None:
        fault, frame = self._fault, bytes(self._kept)
        self._kept.clear()
        if fault is not None:
            if fault.fate is Fate.REORDER:
                self._overtaken = frame, self._type, fault
                return
            fault.counts[self._type] += 1
            if fault.fate is Fate.DROP:
                return
            out += frame + frame
        if self._overtaken is not None:
            frame, message_type, fault = self._overtaken
            self._overtaken = None
            out += frame
            fault.counts[message_type] += 1
