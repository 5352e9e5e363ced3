"""Hosts and message ids: the broker's offset message id and the client's UNIQ_KEY.

A host is stored as IP address (4 or 16 bytes) and port (int32); as text it is "ip:port", IPv6 in Java's
unabridged form in brackets.
"""

import struct
from functools import lru_cache
from ipaddress import ip_address

import msgspec

from message.errors import MessageDecodeError

HOST_V4_SIZE = 8
HOST_V6_SIZE = 20

_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_UNIQ_KEY_TAIL = struct.Struct(">HiIH")  # pid, class loader hash, ms since the start of the month, counter


@lru_cache(maxsize=4096)
def pack_host(host: str) -> bytes:
    """ "ip:port" as 8 or 20 bytes. Raises ValueError for what is no IP address."""
    ip, _, port = host.rpartition(":")
    return ip_address(ip.strip("[]")).packed + _PORT.pack(int(port))


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> str:
    port = _PORT.unpack_from(packed, len(packed) - 4)[0]
    if len(packed) == HOST_V4_SIZE:
        return "{}.{}.{}.{}:{}".format(*packed[:4], port)
    return "[{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}]:{}".format(*struct.unpack_from(">8H", packed), port)


def offset_message_id(store_host: bytes, phy_offset: int) -> str:
    """The id that a broker gives a stored message: upper-case hex of the packed host and the physical
    offset."""
    return f"{_upper_hex(store_host)}{phy_offset:016X}"


def decode_offset_message_id(message_id: str) -> tuple[str, int]:
    """The store host ("ip:port") and the physical offset. Raises MessageDecodeError."""
    try:
        packed = bytes.fromhex(message_id)
    except ValueError:
        raise MessageDecodeError(f"message id {message_id!r}: not hexadecimal") from None
    if len(packed) not in (HOST_V4_SIZE + 8, HOST_V6_SIZE + 8):
        raise MessageDecodeError(f"message id {message_id!r}: {len(packed)} bytes, not 16 or 28")
    return unpack_host(packed[:-8]), _OFFSET.unpack_from(packed, len(packed) - 8)[0]


class UniqKey(msgspec.Struct, frozen=True):
    """The parts of a client's message id."""

    ip: bytes  # 4 or 16
    pid: int  # its low 16 bits
    class_loader_hash: int
    ms_since_month_start: int  # in the client's time zone
    counter: int  # 16 bits

    def encode(self) -> str:
        tail = _UNIQ_KEY_TAIL.pack(
            self.pid & 0xFFFF, self.class_loader_hash, self.ms_since_month_start, self.counter & 0xFFFF
        )
        return (self.ip + tail).hex().upper()


def decode_uniq_key(key: str) -> UniqKey:
    """Reads from the end, as Java does: the address is what is left in front. Raises MessageDecodeError."""
    try:
        packed = bytes.fromhex(key)
    except ValueError as error:
        raise MessageDecodeError(f"unique key {key!r}: {error}") from None
    if len(packed) < _UNIQ_KEY_TAIL.size:
        raise MessageDecodeError(f"unique key {key!r}: {len(packed)} bytes are too few")
    ip_size = 16 if len(packed) >= 16 + _UNIQ_KEY_TAIL.size else 4
    return UniqKey(packed[:ip_size], *_UNIQ_KEY_TAIL.unpack_from(packed, len(packed) - _UNIQ_KEY_TAIL.size))


@lru_cache(maxsize=256)
def _upper_hex(host: bytes) -> str:
    return host.hex().upper()
