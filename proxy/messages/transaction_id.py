"""The id of a transaction: it says where the prepared message lies, so any proxy can end it, at any time."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

_VERSION: Final = "t1"
_DIGITS_MAX: Final = 18


class TransactionId(NamedTuple):
    """As a text: the words, joined with blanks, in base64."""

    broker_name: str
    queue_offset: int  # of the prepared message
    phy_offset: int
    message_id: str  # its UNIQ_KEY

    def encode(self) -> str:
        words = (_VERSION, self.broker_name, str(self.queue_offset), str(self.phy_offset), self.message_id)
        return urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> TransactionId:
        """Raises ValueError for a text that is no id of ours."""
        try:
            version, broker_name, queue_offset, phy_offset, message_id = (
                urlsafe_b64decode(text.encode()).decode().split(" ", 4)
            )
        except (Base64Error, UnicodeError, ValueError):
            raise ValueError(text) from None
        if (
            version != _VERSION
            or not broker_name
            or not (_is_offset(queue_offset) and _is_offset(phy_offset))
        ):
            raise ValueError(text)
        return cls(broker_name, int(queue_offset), int(phy_offset), message_id)


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
