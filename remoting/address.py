"""Addresses as people write them: `host:port`, and several of them joined by `;`.

A host is a name, an IPv4 address or an IPv6 address, which stands in brackets where a port follows. Nothing is looked
up here: a name may lead elsewhere at each dial.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import msgspec

NAME_LENGTH_MAX: Final = 253
LABEL_LENGTH_MAX: Final = 63

_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
# What a host's name surely does not hold. `@` and `_` are no letters of DNS, but files of hosts have them.
_NO_NAME = re.compile(r"[\s,;:/\\\[\]\"'=#?]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class AddressError(ValueError):
    """A text is no address. The message says which text, and what is wrong with it."""


class Address(msgspec.Struct, frozen=True, order=True):
    """Raises AddressError for what nobody can dial."""

    host: str  # without brackets
    port: int

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise AddressError(f"{self.host}:{self.port} has a port that is not from 1 to 65535")
        check_host(self.host)

    def __str__(self) -> str:
        return join(self.host, self.port)


def join(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """`host:port`. An IPv6 address may lack its brackets, as Java brokers register it. Raises AddressError."""
    text = text.strip()
    if scheme := _SCHEME.match(text):
        raise AddressError(f"{text!r} begins with {scheme.group()}, which is no part of an address")
    for sign, name in ((",", "a comma"), (" ", "a blank"), ("\t", "a tab")):
        if sign in text:
            raise AddressError(f"{text!r} holds {name}")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (literal(text) and not literal(host)):
        raise AddressError(f"{text!r} has no port")
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise AddressError(f"{text!r} has a port that is not a number from 1 to 65535")
    try:
        return Address(unbracketed(host), int(port))
    except AddressError as error:
        raise AddressError(f"{text!r} is no address: {error}") from None


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port;host:port`, none in an empty text. Raises AddressError."""
    return tuple(parse_address(part) for part in text.split(";") if part.strip())


def check_diallable(host: str) -> None:
    """Raises AddressError for what is no host, and for an IP address that is no single machine's."""
    check_host(host)
    address = literal(host)
    if address is not None and address.is_unspecified:
        raise AddressError(f"{host} is all addresses of a machine, and nobody can dial it")
    if address is not None and address.is_multicast:
        raise AddressError(f"{host} is a multicast address, and nobody can dial it")


def unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def check_host(host: str) -> None:
    """Raises AddressError for what is neither an IP address nor the name of a machine."""
    if not host:
        raise AddressError("the host is missing")
    if literal(host) is not None:
        return
    if _NO_NAME.search(host):
        raise AddressError(f"{host!r} is no host's name and no IP address")
    labels = host.removesuffix(".").split(".")
    if len(host) > NAME_LENGTH_MAX or not all(0 < len(label) <= LABEL_LENGTH_MAX for label in labels):
        raise AddressError(
            f"{host!r} is no host's name: its parts must have 1 to {LABEL_LENGTH_MAX} characters, "
            f"all together {NAME_LENGTH_MAX}"
        )
    if len(labels) == 4 and all(label.isdigit() for label in labels):
        raise AddressError(f"{host!r} is no IP address: its numbers go from 0 to 255, without leading zeros")


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The IP address that a host without brackets is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether an IP address is this machine alone. Of a name, ask this of what it leads to."""
    address = literal(host)
    return address is not None and address.is_loopback
