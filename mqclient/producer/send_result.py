"""What an acknowledged send tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from message.message_id import decode_offset_message_id
from mqclient.message_queue import MessageQueue


class SendStatus(IntEnum):
    """Response codes of a stored message. RocketMQ counts all four as sent; only SEND_OK says that the replicas and
    disks which the broker's configuration asks for have it. Our brokers never answer with another one of them."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendResult:
    """`msg_id` is the client's UNIQ_KEY, `offset_msg_id` the broker's id, which holds the physical offset.

    `recall_handle` recalls a message with a `delay` or `deliver_at`; it is empty for others.
    `attempts` above 1 together with `maybe_duplicate`: an earlier attempt ended unknown and may be stored as well.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    attempts: int
    maybe_duplicate: bool
    recall_handle: str = ""

    @property
    def phy_offset(self) -> int:
        """The byte position in the replica group's commit log, which `offset_msg_id` holds."""
        return decode_offset_message_id(self.offset_msg_id)[1]
