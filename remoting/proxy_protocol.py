"""HAProxy's PROXY protocol: what a load balancer writes before a client's first byte, to say where the client is.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, both versions. What version 2 says beside addresses is
passed over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from remoting.address import join

PREFACE_SIZE_MAX = 1024  # bytes; version 1 has 107 at most

_LINE_START = b"PROXY "
_LINE_SIZE_MAX = 107
_BINARY_START = b"\r\n\r\n\0\r\nQUIT\n"
_BINARY_HEAD = struct.Struct(
    ">12s"  # _BINARY_START
    "B"  # 0x20: the balancer itself, as when it looks whether we live; 0x21: for a client
    "B"  # kind of the addresses
    "H"  # bytes that follow
)
_TCP4, _TCP6 = 0x11, 0x21
_PORTS = struct.Struct(">HH")


class PrefaceError(ValueError):
    """The bytes begin as a preface and are none."""


@dataclass(frozen=True, slots=True)
class Preface:
    """`source`: `ip:port` of the client; None: the preface names none, so it is the address that has connected."""

    size: int  # in bytes; 0: there is none
    source: str | None = None


NO_PREFACE = Preface(0)


def read_preface(data: bytes) -> Preface | None:
    """Read the preface that `data` begins with. Returns None while more of it is to come. Raises PrefaceError."""
    if data.startswith(_LINE_START):
        return _read_line(data)
    if data.startswith(_BINARY_START):
        return _read_binary(data)
    if _LINE_START.startswith(data) or _BINARY_START.startswith(data):
        return None
    return NO_PREFACE


def _read_line(data: bytes) -> Preface | None:
    line, end, _ = data[:_LINE_SIZE_MAX].partition(b"\r\n")
    if not end:
        if len(data) < _LINE_SIZE_MAX:
            return None
        raise PrefaceError(f"no end in {line[:40]!r}")
    words = line.decode("latin-1").split(" ")
    size = len(line) + len(end)
    if words[1] == "UNKNOWN":
        return Preface(size)
    try:
        _, family, host, _, port, _ = words
        address = ip_address(host)
        if family != f"TCP{address.version}" or not 0 < int(port) < 65536:
            raise ValueError
    except ValueError:
        raise PrefaceError(f"no addresses in {line[:60]!r}") from None
    return Preface(size, join(str(address), int(port)))


def _read_binary(data: bytes) -> Preface | None:
    if len(data) < _BINARY_HEAD.size:
        return None
    _, command, family, rest_size = _BINARY_HEAD.unpack_from(data)
    size = _BINARY_HEAD.size + rest_size
    if command not in (0x20, 0x21) or size > PREFACE_SIZE_MAX:
        raise PrefaceError(f"command {command:#x} with {rest_size} bytes")
    if len(data) < size:
        return None
    addresses = data[_BINARY_HEAD.size : size]
    if command == 0x20 or family not in (_TCP4, _TCP6):
        return Preface(size)
    host_size = 4 if family == _TCP4 else 16
    if len(addresses) < 2 * host_size + _PORTS.size:
        raise PrefaceError(f"addresses of {len(addresses)} bytes")
    host = addresses[:host_size]
    address = IPv4Address(host) if family == _TCP4 else IPv6Address(host)
    return Preface(size, join(str(address), _PORTS.unpack_from(addresses, 2 * host_size)[0]))
