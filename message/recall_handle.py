"""What the sender of a timer message is given to recall it by."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final, NamedTuple

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """Its words are joined with blanks, and encoded in base64."""

    topic: str
    broker_name: str
    timestamp: int  # ms, within the slot of the message; -1: no number
    message_id: str  # its UNIQ_KEY

    def encode(self) -> str:
        words = (_VERSION, self.topic, self.broker_name, str(self.timestamp), self.message_id)
        return urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Raises ValueError for what is none."""
        try:
            version, *words = urlsafe_b64decode(text.encode()).decode().split(" ")
        except (Base64Error, UnicodeError) as error:
            raise ValueError(text) from error
        if version != _VERSION or len(words) < 4:
            raise ValueError(text)
        topic, broker_name, timestamp, message_id = words[:4]
        if not message_id or not message_id.isprintable():
            raise ValueError(text)  # as the value of a property it would be none, or more than one
        return cls(topic, broker_name, int(timestamp) if timestamp.isdigit() else -1, message_id)
