"""The receipt handle, by which a gRPC client acknowledges a message: the handle of its pop, and its commit log offset.

To clients it is a text without meaning. It holds all that an acknowledgement needs, so any proxy can take it, also
after a restart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from message.decoder import MessageExt
from message.pop_handle import PopHandle
from mqclient.popped_messages import handle_of
from proxy.protocol.definition import Code
from proxy.status import StatusError

NO_OFFSET: Final = -1
# More than lies between the first and the last message of a pop.
_DISTANCE_MAX: Final = 1 << 16
_OFFSET_DIGITS_MAX: Final = 18


class ReceiptHandle(NamedTuple):
    pop: PopHandle  # of one message
    commit_log_offset: int = NO_OFFSET

    @classmethod
    def of(cls, message: MessageExt) -> ReceiptHandle:
        """Make the handle of a popped message. Raises ValueError for a message that was not popped."""
        return cls(handle_of(message), message.phy_offset)

    def encode(self) -> str:
        text = self.pop.encode()
        return text if self.commit_log_offset == NO_OFFSET else f"{text} {self.commit_log_offset}"

    @classmethod
    def decode(cls, text: str) -> ReceiptHandle:
        """Raises ValueError for a text that is no receipt handle."""
        words = text.split(" ")
        pop = PopHandle.decode(" ".join(words[:8]))
        if pop.queue_offset is None or len(words) > 9:
            raise ValueError(f"{len(words)} words, a receipt handle has 8 or 9")
        if not 0 <= pop.queue_offset - pop.start < _DISTANCE_MAX:
            raise ValueError(f"no pop from {pop.start} has a message at {pop.queue_offset}")
        if len(words) == 8:
            return cls(pop)
        digits = words[8]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _OFFSET_DIGITS_MAX):
            raise ValueError(f"{digits!r:.40} is no commit log offset")
        return cls(pop, int(digits))


def check_receipt_handle(text: str) -> ReceiptHandle:
    """Return the handle that a client has sent. Raises StatusError for a text that is none."""
    try:
        return ReceiptHandle.decode(text)
    except ValueError as error:
        raise StatusError(Code.INVALID_RECEIPT_HANDLE, f"no receipt handle: {error}") from None
